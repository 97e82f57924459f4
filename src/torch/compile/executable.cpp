// Makes a program ready to run.
#include "torch/compile/executable.h"

#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/alias_sets.h"
#include "compiler/matmul.h"
#include "compiler/passes/fold_views.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"
#include "torch/compile/operator_info.h"
#include "torch/compile/torch_types.h"

namespace neuron::compile {
namespace {

using compiler::Argument;
using compiler::Instruction;
using compiler::ValueId;

constexpr std::uint64_t kStepBytes = 1024;  // a step with its literals, roughly

bool mentions_values(const Argument& argument) {
  bool found = false;
  argument.for_each_value([&found](ValueId) { found = true; });
  return found;
}

bool has_list_result(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
}

// The tensors of a list argument; places of values hold nothing yet.
c10::IValue empty_tensor_list(const c10::TypePtr& element, std::size_t size) {
  if (element->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    list.resize(size);
    return list;
  }
  c10::List<at::Tensor> list;
  list.resize(size);
  return list;
}

c10::TypePtr element_type(c10::TypePtr type) {
  while (type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType();
  }
  return type->kind() == c10::TypeKind::ListType ? type->castRaw<c10::ListType>()->getElementType() : type;
}

}  // namespace

Executable::Executable(compiler::Program program, ProgramObjects objects)
    : program_(std::move(program)), objects_(std::move(objects)), memory_(program_) {
  compiler::verify(program_);
  TORCH_CHECK(objects_.constants.size() == program_.constants().size(), "the program has ", program_.constants().size(), " constants, got ",
              objects_.constants.size());
  constant_of_.resize(static_cast<std::size_t>(program_.value_count()), nullptr);
  for (std::size_t i = 0; i < objects_.constants.size(); ++i) {
    constant_of_[static_cast<std::size_t>(program_.constants()[i])] = &objects_.constants[i];
  }
  steps_.reserve(program_.instructions.size());
  for (const Instruction& instruction : program_.instructions) {
    steps_.push_back(make_step(instruction));
    largest_stack_ = std::max(largest_stack_, steps_.back().arguments.size());
  }
  times_ = std::make_unique<StepTimes>(steps_.size());
  find_written_inputs();
  find_tracked_views();
}

std::uint64_t Executable::size_bytes() const {
  std::uint64_t bytes = steps_.size() * kStepBytes;
  for (const at::Tensor& constant : objects_.constants) {
    bytes += constant.layout() == at::kStrided ? constant.nbytes() : 0;
  }
  return bytes;
}

template <class Call>
Executable::Step Executable::make_call_step(const Instruction& instruction, std::shared_ptr<const Call> Step::* call) const {
  Step step;
  step.results = instruction.results;
  step.late_releases = instruction.releases;
  step.*call = std::make_shared<const Call>(program_, instruction);
  return step;
}

Executable::Step Executable::make_step(const Instruction& instruction) {
  if (instruction.body) {
    return make_call_step(instruction, &Step::fused);
  }
  if (instruction.opcode == compiler::kMatmul) {
    return make_call_step(instruction, &Step::matmul);
  }
  Step step;
  step.results = instruction.results;
  if (instruction.opcode == compiler::kView) {
    step.late_releases = instruction.releases;
    step.view = ViewCall::make(program_, instruction);
    TORCH_CHECK(step.view.has_value(), "a view whose layout is not known");
    return step;
  }
  const std::vector<c10::Argument>* parameters = nullptr;
  std::size_t first = 0;
  if (instruction.opcode.starts_with("python::")) {
    const auto* name = instruction.operands.at(0).value.get_if<compiler::Symbol>();
    TORCH_CHECK_VALUE(name != nullptr && name->kind == "object", "a call into Python names no object");
    step.external = objects_.calls.at(std::stoul(name->name));
    first = 1;
  } else {
    step.op = find_operator(instruction.opcode);
    const c10::FunctionSchema& schema = step.op->schema();
    parameters = &schema.arguments();
    TORCH_CHECK_VALUE(parameters->size() == instruction.operands.size(), instruction.opcode, " takes ", parameters->size(), " arguments");
    step.results_are_list = has_list_result(schema);
    TORCH_CHECK_VALUE(step.results_are_list || schema.returns().size() == instruction.results.size(), instruction.opcode, " has ",
                      schema.returns().size(), " results");
  }
  for (std::size_t i = first; i < instruction.operands.size(); ++i) {
    bind_argument(step, instruction.operands[i], parameters == nullptr ? nullptr : &(*parameters)[i]);
  }
  mark_last_uses(step, instruction);
  step.view = ViewCall::make(program_, instruction);
  if (auto call = IndexCopyCall::make(program_, instruction)) {
    step.index_copy = std::make_shared<const IndexCopyCall>(*std::move(call));
  }
  return step;
}

void Executable::bind_argument(Step& step, const compiler::Operand& operand, const c10::Argument* parameter) {
  const auto position = static_cast<std::uint32_t>(step.arguments.size());
  const auto constant = [this](ValueId id) { return constant_of_[static_cast<std::size_t>(id)]; };
  const auto* list = operand.value.get_if<Argument::List>();
  if (const auto* ref = operand.value.get_if<compiler::ValueRef>()) {
    const at::Tensor* tensor = constant(ref->id);
    step.arguments.push_back(tensor == nullptr ? c10::IValue() : c10::IValue(*tensor));
    if (tensor == nullptr) {
      step.fills.push_back({position, kWhole, ref->id, false});
    }
  } else if (parameter != nullptr && list != nullptr &&
             element_type(element_type(parameter->type()))->kind() == c10::TypeKind::TensorType) {
    const c10::TypePtr element = element_type(parameter->type());
    c10::IValue values = empty_tensor_list(element, list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      const auto* item = (*list)[i].get_if<compiler::ValueRef>();
      if (item != nullptr && constant(item->id) == nullptr) {
        step.fills.push_back({position, static_cast<std::uint32_t>(i), item->id, false});
      } else if (item != nullptr) {
        values.toList().set(i, *constant(item->id));
      } else {
        TORCH_CHECK_VALUE((*list)[i].is_none(), "a list of tensors holds ", compiler::to_string((*list)[i]));
      }
    }
    step.arguments.push_back(std::move(values));
    step.lists.push_back(position);
  } else {
    TORCH_CHECK_VALUE(parameter != nullptr, "a call into Python takes values only");
    TORCH_CHECK_VALUE(!mentions_values(operand.value), "values inside ", compiler::to_string(operand.value), " are not supported for ",
                      parameter->type()->repr_str());
    step.arguments.push_back(to_ivalue(operand.value, *parameter));
  }
}

void Executable::mark_last_uses(Step& step, const Instruction& instruction) const {
  for (const ValueId released : instruction.releases) {
    // The last mention moves the value out of its slot; earlier mentions in the same call have been copied by then.
    const auto last = std::find_if(step.fills.rbegin(), step.fills.rend(), [released](const Fill& fill) { return fill.value == released; });
    if (last != step.fills.rend()) {
      last->last = true;
    } else {
      step.late_releases.push_back(released);
    }
  }
}

void Executable::find_written_inputs() {
  const compiler::AliasSets aliases(program_);
  const auto& inputs = program_.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool written = std::any_of(program_.instructions.begin(), program_.instructions.end(), [&](const Instruction& instruction) {
      bool found = false;
      for (const int index : instruction.effects.writes) {
        instruction.operands[static_cast<std::size_t>(index)].value.for_each_value(
            [&](ValueId target) { found = found || aliases.may_share(target, inputs[i]); });
      }
      return found;
    });
    if (written) {
      written_inputs_.push_back(i);
    }
  }
}

void Executable::find_tracked_views() {
  const compiler::AliasSets aliases(program_);
  // By set: how many distinct values of it the caller holds afterwards.
  std::unordered_map<ValueId, std::unordered_set<ValueId>> held;
  for (const Argument& output : program_.outputs) {
    output.for_each_value([&](ValueId id) { held[aliases.set_of(id)].insert(id); });
  }
  for (const ValueId id : program_.inputs()) {
    const auto set = held.find(aliases.set_of(id));
    if (set != held.end()) {
      set->second.insert(id);
    }
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (instruction.effects.views.empty() || !instruction.effects.writes.empty()) {
      continue;
    }
    steps_[i].tracks_views = std::any_of(instruction.results.begin(), instruction.results.end(), [&](ValueId id) {
      const auto set = id == compiler::kNoValue ? held.end() : held.find(aliases.set_of(id));
      return set != held.end() && set->second.size() > 1;
    });
  }
}

}  // namespace neuron::compile
