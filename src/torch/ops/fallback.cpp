// Operators of other libraries (custom ops, torchvision) that have a CPU kernel but none for `neuron`: the alias call in boxed form.
// ATen's own operators are registered one by one (tools/opgen); one that arrives here has no kernel, and says so.
#include <torch/library.h>

#include "torch/ops/boxed_call.h"

namespace neuron::ops {
namespace {

bool is_foreign(const c10::OperatorHandle& op) { return op.operator_name().getNamespace() != std::optional<std::string_view>("aten"); }

void run_on_host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_foreign(op) && op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "The operator '", op.operator_name(),
                              "' is not implemented for the neuron device. docs/operators.md lists what is; run it on CPU tensors, or give "
                              "it a kernel for dispatch key PrivateUse1.");
  BoxedCall(op, *stack).run(c10::DispatchKey::CPU);
}

// The first sentence is that of PyTorch's dispatcher for an operator that a layout lacks.
template <c10::DispatchKey HostKey>
void run_on_sparse_host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr auto kBackend = HostKey == c10::DispatchKey::SparseCPU ? "Sparseneuron" : "SparseCsrneuron";
  TORCH_CHECK_NOT_IMPLEMENTED(is_foreign(op) && op.hasKernelForDispatchKey(HostKey), "Could not run '", op.operator_name(),
                              "' with arguments from the '", kBackend,
                              "' backend. PyTorch has no kernel of it for tensors of this layout on the CPU either; docs/operators.md lists "
                              "the operators that have one.");
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
