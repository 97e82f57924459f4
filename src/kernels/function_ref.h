// A reference to a callable: two words, no allocation. The callable must outlive the reference, so it is for parameters only.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace neuron::kernels {

template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> && std::is_invocable_r_v<Result, Callable&, Args...>)
  FunctionRef(Callable&& callable) noexcept  // NOLINT(bugprone-forwarding-reference-overload): excluded by the constraint
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))), call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace neuron::kernels
