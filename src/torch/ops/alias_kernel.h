// Kernels as the dispatcher wants them: AliasKernel wraps at::cpu::<op>, NativeKernel and MetadataKernel functions that take device
// tensors.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/telemetry.h"
#include "torch/ops/alias_scope.h"

namespace neuron::ops {
namespace detail {

using TensorVector = c10::SmallVector<at::Tensor, 8>;

// How an argument of the device call becomes an argument of the CPU call. `hold` may own what `get` refers to.
template <typename T>
struct Argument {
  T value;
  Argument(AliasScope&, T given) : value(std::forward<T>(given)) {}
  T get() { return std::forward<T>(value); }
};

template <>
struct Argument<const at::Tensor&> {
  const at::Tensor& value;
  Argument(AliasScope& scope, const at::Tensor& given) : value(scope.alias(given)) {}
  const at::Tensor& get() { return value; }
};

template <>
struct Argument<at::Tensor&> {
  at::Tensor& value;
  Argument(AliasScope& scope, at::Tensor& given) : value(scope.alias_written(given)) {}
  at::Tensor& get() { return value; }
};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  std::optional<at::Tensor> value;
  Argument(AliasScope& scope, const std::optional<at::Tensor>& given) {
    if (given.has_value()) {
      value = scope.alias(*given);
    }
  }
  const std::optional<at::Tensor>& get() { return value; }
};

template <>
struct Argument<at::TensorList> {
  TensorVector value;
  Argument(AliasScope& scope, at::TensorList given) {
    value.reserve(given.size());
    for (const auto& tensor : given) {
      // Lists may be written to (`_foreach_add_`, `split_copy.out`) without their type saying so.
      value.push_back(scope.alias_written(const_cast<at::Tensor&>(tensor)));
    }
  }
  at::TensorList get() { return value; }
};

template <>
struct Argument<const at::ITensorListRef&> {
  TensorVector value;
  std::optional<at::ITensorListRef> list;
  Argument(AliasScope& scope, const at::ITensorListRef& given) {
    value.reserve(given.size());
    for (const auto& tensor : given) {
      value.push_back(scope.alias(tensor));
    }
  }
  const at::ITensorListRef& get() { return list.emplace(at::TensorList(value)); }
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> {
  c10::List<std::optional<at::Tensor>> value;
  Argument(AliasScope& scope, const c10::List<std::optional<at::Tensor>>& given) {
    value.reserve(given.size());
    for (std::optional<at::Tensor> tensor : given) {
      // The list holds its tensors by value: the device tensors stay alive in `given`.
      value.push_back(tensor.has_value() ? std::optional<at::Tensor>(scope.alias(*tensor)) : std::nullopt);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() { return value; }
};

template <>
struct Argument<at::Device> {
  Argument(AliasScope& scope, at::Device given) { scope.use_device(given); }
  at::Device get() { return c10::Device(c10::kCPU); }
};

template <>
struct Argument<std::optional<at::Device>> {
  Argument(AliasScope& scope, std::optional<at::Device> given) {
    if (given.has_value()) {
      scope.use_device(*given);
    }
  }
  std::optional<at::Device> get() { return c10::Device(c10::kCPU); }
};

inline at::Tensor to_device(AliasScope& scope, at::Tensor&& result) { return scope.adopt(std::move(result)); }
inline at::Tensor& to_device(AliasScope& scope, at::Tensor& result) { return scope.argument(result); }
inline const at::Tensor& to_device(AliasScope& scope, const at::Tensor& result) { return scope.argument(result); }
inline std::vector<at::Tensor> to_device(AliasScope& scope, std::vector<at::Tensor>&& results) {
  for (auto& result : results) {
    result = scope.adopt(std::move(result));
  }
  return std::move(results);
}
template <typename T>
  requires(!std::is_convertible_v<T, const at::Tensor&>)
T to_device(AliasScope&, T&& result) {
  return std::forward<T>(result);
}
template <typename... T>
std::tuple<T...> to_device(AliasScope& scope, std::tuple<T...>&& results) {
  return std::apply([&](auto&&... result) { return std::tuple<T...>(to_device(scope, std::forward<T>(result))...); }, std::move(results));
}

}  // namespace detail

// Calls a function of CPU tensors with device tensors.
template <auto Function, DeviceCheck Check = DeviceCheck::kSame>
struct AliasCall;

template <typename Result, typename... Args, Result (*Function)(Args...), DeviceCheck Check>
struct AliasCall<Function, Check> {
  static Result call(Args... args) {
    AliasScope scope(Check);
    // Braces: arguments are aliased from left to right.
    std::tuple<detail::Argument<Args>...> arguments{detail::Argument<Args>(scope, std::forward<Args>(args))...};
    const device::DeviceAllocationScope allocations(scope.finish_arguments());
    return std::apply(
        [&](auto&... argument) -> Result {
          if constexpr (std::is_void_v<Result>) {
            Function(argument.get()...);
          } else {
            return detail::to_device(scope, Function(argument.get()...));
          }
        },
        arguments);
  }
};

// Strategy `alias`: a counted AliasCall of at::cpu::<op>.
template <std::uint32_t Op, auto Function, DeviceCheck Check = DeviceCheck::kSame>
struct AliasKernel;

template <std::uint32_t Op, typename Result, typename... Args, Result (*Function)(Args...), DeviceCheck Check>
struct AliasKernel<Op, Function, Check> {
  static Result call(Args... args) {
    runtime::count(Op);
    return AliasCall<Function, Check>::call(std::forward<Args>(args)...);
  }
};

// Strategy `metadata`: a counted call of a function that takes device tensors and does not touch their bytes.
template <std::uint32_t Op, auto Function>
struct MetadataKernel;

template <std::uint32_t Op, typename Result, typename... Args, Result (*Function)(Args...)>
struct MetadataKernel<Op, Function> {
  static Result call(Args... args) {
    runtime::count(Op);
    return Function(std::forward<Args>(args)...);
  }
};

// Strategy `native`: the same for a function that works on their bytes, which a forked child must not.
template <std::uint32_t Op, auto Function>
struct NativeKernel;

template <std::uint32_t Op, typename Result, typename... Args, Result (*Function)(Args...)>
struct NativeKernel<Op, Function> {
  static Result call(Args... args) {
    runtime::count(Op);
    device::initialize_device();
    const runtime::guard::AccessScope access;
    return Function(std::forward<Args>(args)...);
  }
};

}  // namespace neuron::ops
