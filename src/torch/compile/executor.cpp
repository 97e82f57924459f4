// Runs an executable: the loop that replaces Python, tracing and autograd's bookkeeping.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "compiler/printer.h"
#include "torch/compile/executable.h"

namespace neuron::compile {
namespace {

// The graph already contains what autograd and autocast would add.
const c10::DispatchKeySet kAlreadyTraced = c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;
const c10::DispatchKeySet kViewTracking(c10::DispatchKey::ADInplaceOrView);
// Modes written in Python, such as the one that PyTorch puts around every first run: they would turn each step into a call of Python, and
// errors into Python's, which cannot be told where they happened.
const c10::DispatchKeySet kModes({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

// Fake tensors and other subclasses need their modes, and so do steps that Python runs.
bool has_subclass(const std::vector<c10::IValue>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const c10::IValue& input) { return input.isTensor() && input.toTensor().key_set().has(c10::DispatchKey::Python); });
}

}  // namespace

std::vector<c10::IValue> Executable::run(std::vector<c10::IValue> inputs) const {
  TORCH_CHECK_VALUE(inputs.size() == input_count(), "the graph ", program_.name(), " takes ", input_count(), " inputs, got ",
                    inputs.size());
  memory_.check(program_, inputs);
  // View tracking is off for writes, so tell autograd here that these are about to change. A tensor of inference mode has no version.
  for (const std::size_t position : written_inputs_) {
    if (inputs[position].isTensor() && !inputs[position].toTensor().is_inference()) {
      inputs[position].toTensor().unsafeGetTensorImpl()->bump_version();
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard no_modes(!objects_.calls.empty() || has_subclass(inputs) ? c10::DispatchKeySet() : kModes);
  Slots slots(static_cast<std::size_t>(program_.value_count()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    slots[static_cast<std::size_t>(program_.inputs()[i])] = std::move(inputs[i]);
  }
  for (const compiler::ValueId id : program_.entry_releases) {
    slots[static_cast<std::size_t>(id)] = c10::IValue();
  }
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAlreadyTraced);
  torch::jit::Stack stack;
  stack.reserve(largest_stack_);
  StepTimes::Run times(StepTimes::enabled() ? times_.get() : nullptr);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    try {
      execute(steps_[i], slots, stack);
      times.lap(i);
    } catch (c10::Error& error) {
      error.add_context(c10::str("while executing ", compiler::to_string(program_.instructions[i], program_), " (instruction ", i + 1,
                                 " of ", steps_.size(), " in graph ", program_.name(), ")"));
      throw;
    }
  }
  times.end();
  std::vector<c10::IValue> outputs;
  outputs.reserve(program_.outputs.size());
  for (const compiler::Argument& output : program_.outputs) {
    if (const auto* ref = output.get_if<compiler::ValueRef>()) {
      const at::Tensor* constant = constant_of_[static_cast<std::size_t>(ref->id)];
      outputs.push_back(constant == nullptr ? slots[static_cast<std::size_t>(ref->id)] : c10::IValue(*constant));
    } else if (const auto* integer = output.get_if<std::int64_t>()) {
      outputs.emplace_back(*integer);
    } else if (const auto* number = output.get_if<double>()) {
      outputs.emplace_back(*number);
    } else if (const auto* flag = output.get_if<bool>()) {
      outputs.emplace_back(*flag);
    } else {
      outputs.emplace_back();
    }
  }
  return outputs;
}

void Executable::push_arguments(const Step& step, Slots& slots, torch::jit::Stack& stack) const {
  stack.assign(step.arguments.begin(), step.arguments.end());
  for (const std::uint32_t position : step.lists) {
    stack[position] = stack[position].toList().copy();
  }
  for (const Fill& fill : step.fills) {
    c10::IValue& slot = slots[static_cast<std::size_t>(fill.value)];
    c10::IValue value = fill.last ? std::move(slot) : slot;
    if (fill.element == kWhole) {
      stack[fill.argument] = std::move(value);
    } else {
      stack[fill.argument].toList().set(fill.element, std::move(value));
    }
  }
}

const at::Tensor& Executable::tensor_of(compiler::ValueId id, const Slots& slots) const {
  const auto index = static_cast<std::size_t>(id);
  return constant_of_[index] != nullptr ? *constant_of_[index] : slots[index].toTensor();
}

void Executable::release(const Step& step, Slots& slots) {
  for (const compiler::ValueId id : step.late_releases) {
    slots[static_cast<std::size_t>(id)] = c10::IValue();
  }
}

void Executable::release_arguments(const Step& step, Slots& slots) {
  for (const Fill& fill : step.fills) {
    if (fill.last) {
      slots[static_cast<std::size_t>(fill.value)] = c10::IValue();
    }
  }
}

void Executable::execute_fused(const Step& step, Slots& slots) const {
  const FusedCall& call = *step.fused;
  c10::SmallVector<const at::Tensor*, 12> inputs;
  for (const compiler::ValueId id : call.operands()) {
    inputs.push_back(&tensor_of(id, slots));
  }
  c10::SmallVector<at::Tensor, 4> results = call.run(inputs);
  for (std::size_t i = 0; i < results.size(); ++i) {
    slots[static_cast<std::size_t>(step.results[i])] = std::move(results[i]);
  }
  release(step, slots);
}

void Executable::execute_matmul(const Step& step, Slots& slots) const {
  const MatmulCall& call = *step.matmul;
  c10::SmallVector<const at::Tensor*, 8> inputs;
  for (const compiler::ValueId id : call.operands()) {
    inputs.push_back(&tensor_of(id, slots));
  }
  slots[static_cast<std::size_t>(step.results[0])] = call.run(inputs);
  release(step, slots);
}

// False if the tensor is not what was promised; then the operator itself must look at it.
bool Executable::execute_view(const Step& step, Slots& slots) const {
  const at::Tensor& base = tensor_of(step.view->operand(), slots);
  std::optional<at::Tensor> view = step.view->run(base);
  if (!view) {
    if (step.op) {
      return false;
    }
    view = step.view->run_on_copy(base);
  }
  release_arguments(step, slots);
  slots[static_cast<std::size_t>(step.results[0])] = *std::move(view);
  release(step, slots);
  return true;
}

// False if the operator itself must look.
bool Executable::execute_index_copy(const Step& step, Slots& slots) const {
  const IndexCopyCall& call = *step.index_copy;
  const at::Tensor& target = tensor_of(call.target(), slots);
  if (!call.run(target, tensor_of(call.places(), slots), tensor_of(call.source(), slots))) {
    return false;
  }
  c10::IValue result = step.results[0] == compiler::kNoValue ? c10::IValue() : c10::IValue(target);
  release_arguments(step, slots);
  if (step.results[0] != compiler::kNoValue) {
    slots[static_cast<std::size_t>(step.results[0])] = std::move(result);
  }
  release(step, slots);
  return true;
}

void Executable::execute(const Step& step, Slots& slots, torch::jit::Stack& stack) const {
  if (step.fused != nullptr) {
    return execute_fused(step, slots);
  }
  if (step.matmul != nullptr) {
    return execute_matmul(step, slots);
  }
  if (step.view && (!step.tracks_views || !step.op) && execute_view(step, slots)) {
    return;
  }
  if (step.index_copy != nullptr && execute_index_copy(step, slots)) {
    return;
  }
  push_arguments(step, slots, stack);
  const c10::impl::ExcludeDispatchKeyGuard untracked(step.tracks_views ? c10::DispatchKeySet() : kViewTracking);
  if (step.external != nullptr) {
    stack = step.external->call(std::move(stack));
  } else {
    step.op->callBoxed(stack);
  }
  if (step.results_are_list) {
    const c10::List<c10::IValue> list = std::move(stack.back()).toList();
    stack.assign(list.begin(), list.end());
  }
  TORCH_CHECK(stack.size() == step.results.size(), "the call gave ", stack.size(), " results instead of ", step.results.size());
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (step.results[i] != compiler::kNoValue) {
      slots[static_cast<std::size_t>(step.results[i])] = std::move(stack[i]);
    }
  }
  stack.clear();
  release(step, slots);
}

}  // namespace neuron::compile
