// See operator_names.h.
#include "runtime/guard/operator_names.h"

#include <algorithm>
#include <cstdio>
#include <memory>

namespace neuron::runtime::guard {
namespace {

struct OperatorStack {
  static constexpr std::size_t kNamed = 24;  // deeper ones are counted only

  std::array<OperatorName, kNamed> names{};
  OperatorName last{};
  std::size_t depth = 0;
};

// What the signal handler reads: never initialised on first use, which would allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local OperatorStack* stack_of_thread = nullptr;

// On the heap: a plugin's thread-local variables must fit into the loader's small reserve.
struct Owner {
  std::unique_ptr<OperatorStack> stack = std::make_unique<OperatorStack>();
  Owner() { stack_of_thread = stack.get(); }
  ~Owner() { stack_of_thread = nullptr; }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};

}  // namespace

void push_operator(const char* name, const char* overload) {
  thread_local Owner owner;
  OperatorStack& stack = *owner.stack;
  if (stack.depth < OperatorStack::kNamed) {
    const bool overloaded = overload != nullptr && *overload != '\0';
    std::snprintf(stack.names[stack.depth].data(), kOperatorName, "%s%s%s", name, overloaded ? "." : "", overloaded ? overload : "");
  }
  ++stack.depth;
}

void pop_operator() noexcept {
  OperatorStack* const stack = stack_of_thread;
  if (stack == nullptr || stack->depth == 0) {
    return;
  }
  --stack->depth;
  if (stack->depth < OperatorStack::kNamed) {
    stack->last = stack->names[stack->depth];
  }
}

void describe_running_operators(char* buffer, std::size_t size) noexcept {
  buffer[0] = '\0';
  const OperatorStack* const stack = stack_of_thread;
  if (stack == nullptr) {
    return;
  }
  std::size_t used = 0;
  for (std::size_t level = std::min(stack->depth, OperatorStack::kNamed); level > 0 && used + 1 < size; --level) {
    const int written = std::snprintf(buffer + used, size - used, "%s%s", used == 0 ? "" : " < ", stack->names[level - 1].data());
    used += static_cast<std::size_t>(std::max(written, 0));
  }
}

OperatorName running_operator() noexcept {
  const OperatorStack* const stack = stack_of_thread;
  if (stack == nullptr || stack->depth == 0) {
    return last_operator();
  }
  return stack->names[std::min(stack->depth, OperatorStack::kNamed) - 1];
}

OperatorName last_operator() noexcept {
  const OperatorStack* const stack = stack_of_thread;
  return stack == nullptr ? OperatorName{} : stack->last;
}

}  // namespace neuron::runtime::guard
