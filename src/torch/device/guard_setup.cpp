// Turns the memory guard on while the plugin loads (docs/guard.md), and tells it which operators run.
#include <ATen/record_function.h>

#include <cstdlib>

#include "runtime/environment.h"
#include "runtime/error.h"
#include "runtime/guard/access_scope.h"
#include "runtime/guard/operator_names.h"

namespace neuron::device {
namespace {

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  runtime::guard::push_operator(function.name(), function.overload_name());
  return nullptr;
}

void end_operator(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) { runtime::guard::pop_operator(); }

bool wanted() {
  try {
    return runtime::Environment::process().boolean("SOFTNEURON_GUARD").value_or(false);
  } catch (const runtime::Error&) {
    return false;  // reported when the device is first used
  }
}

[[maybe_unused]] const bool kGuarded = [] {
  if (!wanted()) {
    return false;
  }
  runtime::guard::activate(std::getenv("SOFTNEURON_GUARD_REPORT"));
  at::addGlobalCallback(at::RecordFunctionCallback(&begin_operator, &end_operator).scopes({at::RecordScope::FUNCTION}));
  return true;
}();

}  // namespace
}  // namespace neuron::device
