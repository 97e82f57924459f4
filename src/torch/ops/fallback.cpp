// Operators of other libraries (custom ops, torchvision) that have a CPU kernel but none for `neuron`: the alias call in boxed form.
// ATen's own operators are registered one by one (tools/opgen); one that arrives here has no kernel, and says so.
#include <torch/library.h>

#include <string>
#include <string_view>

#include "torch/device/compat.h"
#include "torch/ops/boxed_call.h"

namespace neuron::ops {
namespace {

void run_on_host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool foreign = op.operator_name().getNamespace() != std::optional<std::string_view>("aten");
  TORCH_CHECK_NOT_IMPLEMENTED(foreign && op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "The operator '", op.operator_name(),
                              "' is not implemented for the neuron device. docs/operators.md lists what is; run it on CPU tensors, or give "
                              "it a kernel for dispatch key PrivateUse1.");
  BoxedCall(op, *stack).run(c10::DispatchKey::CPU);
}

// The error of PyTorch's dispatcher for an operator that sparse CPU tensors lack as well, with the name of our key.
[[noreturn]] void raise_missing_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::string_view host_key,
                                       std::string_view our_key) {
  std::string message;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::parseDispatchKey(std::string(host_key))), &stack);
  } catch (const c10::NotImplementedError& error) {
    message = error.what_without_backtrace();
  }
  if (const auto place = message.find(host_key); place != std::string::npos) {
    message.replace(place, host_key.size(), our_key);
  }
  device::compat::throw_error<c10::NotImplementedError>(std::move(message));
}

template <c10::DispatchKey HostKey>
void run_on_sparse_host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!op.hasKernelForDispatchKey(HostKey)) {
    constexpr bool kCoo = HostKey == c10::DispatchKey::SparseCPU;
    raise_missing_kernel(op, *stack, kCoo ? "SparseCPU" : "SparseCsrCPU", kCoo ? "Sparseneuron" : "SparseCsrneuron");
  }
  BoxedCall(op, *stack).run(HostKey);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host_kernel>()); }

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_sparse_host_kernel<c10::DispatchKey::SparseCPU>>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_sparse_host_kernel<c10::DispatchKey::SparseCsrCPU>>());
}

}  // namespace
}  // namespace neuron::ops
