// Kernels for the device's sparse tensors as the dispatcher wants them: PyTorch's sparse CPU kernel on aliases (run_sparse), or a function
// that takes the device tensors (SparseMembersKernel).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/telemetry.h"
#include "torch/ops/boxed_call.h"

namespace neuron::ops {

template <std::uint32_t Op, c10::DispatchKey HostKey>
void run_sparse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  runtime::count(Op);
  BoxedCall(op, *stack).run(HostKey);
}

namespace detail {

// The device of the first argument that names one of ours: a tensor, or a factory's `device=`.
template <typename... Args>
c10::OptionalDeviceGuard device_guard(const Args&... args) {
  std::optional<c10::Device> device;
  const auto look = [&device](const auto& argument) {
    using Argument = std::decay_t<decltype(argument)>;
    std::optional<c10::Device> named;
    if constexpr (std::is_same_v<Argument, at::Tensor>) {
      named = argument.defined() ? std::optional(argument.device()) : std::nullopt;
    } else if constexpr (std::is_same_v<Argument, std::optional<c10::Device>>) {
      named = argument;
    }
    if (!device.has_value() && named.has_value() && named->is_privateuseone() && named->has_index()) {
      device = named;
    }
  };
  (look(args), ...);
  return c10::OptionalDeviceGuard(device);
}

}  // namespace detail

// A counted call of a function that handles members by calls of other operators. Some make members on the current core, hence the guard.
template <std::uint32_t Op, auto Function>
struct SparseMembersKernel;

template <std::uint32_t Op, typename Result, typename... Args, Result (*Function)(Args...)>
struct SparseMembersKernel<Op, Function> {
  static Result call(Args... args) {
    runtime::count(Op);
    const auto guard = detail::device_guard(args...);
    return Function(std::forward<Args>(args)...);
  }
};

}  // namespace neuron::ops
