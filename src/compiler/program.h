// A compiled graph in its first form: a flat list of instructions over numbered values, each defined once.
//
// Text form (printer.h, parser.h):
//   program "model_0_inference_0" {
//     input %0: f32[2,3]@neuron:0
//     constant %1: f32[3]@neuron:0
//     %2 = aten::add.Tensor(%0, %1, alpha=1) inplace(aten::add_.Tensor): f32[2,3]@neuron:0
//     %3, _ = aten::max.dim(%2, 1, false) releases(%1): f32[2]@neuron:0
//     _ = aten::copy_(%0, %2, false) writes(0) views(0)   # a result that nobody reads
//     aten::_foreach_zero_([%0]) writes(0)                # no result at all
//     %4 = neuron::fused(%2) body={ ... }: f32[2,3]@neuron:0   # a fused region (region_text.h)
//     return [%3, none, 3]
//   }
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/argument.h"
#include "compiler/type.h"
#include "kernels/vector/region.h"

namespace neuron::compiler {

// What an instruction does besides computing its results. Indices count operands.
struct Effects {
  std::vector<int> writes;  // operands whose memory it changes
  std::vector<int> views;   // operands whose memory a result may share
  bool ordered = false;     // draws random numbers or reaches outside the program: never moved, merged or removed

  bool operator==(const Effects&) const = default;
};

struct Operand {
  Argument value;
  std::string name;  // empty for a positional argument

  bool operator==(const Operand&) const = default;
};

inline constexpr const char* kFused = "neuron::fused";

struct Instruction {
  std::string opcode;             // "aten::add.Tensor"; "python::..." calls back into Python
  std::vector<Operand> operands;  // every argument of the schema, in its order, defaults filled in
  std::vector<ValueId> results;   // kNoValue for a result that nobody reads
  Effects effects;
  std::string inplace_opcode;                   // the variant that overwrites operand 0 with the result; empty if there is none
  std::vector<ValueId> releases;                // values that are dead after this instruction (liveness.h)
  std::optional<kernels::vector::Region> body;  // of kFused: operand i is its input i, result i its store i

  bool operator==(const Instruction&) const = default;
};

class Program {
 public:
  explicit Program(std::string name = {}) : name_(std::move(name)) {}

  ValueId add_input(Type type);
  ValueId add_constant(Type type);
  ValueId new_value(Type type);  // a result, to be named in an instruction

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const Type& type_of(ValueId id) const { return types_[static_cast<std::size_t>(id)]; }
  Type& type_of(ValueId id) { return types_[static_cast<std::size_t>(id)]; }
  int value_count() const { return static_cast<int>(types_.size()); }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& constants() const { return constants_; }

  std::vector<Instruction> instructions;
  std::vector<Argument> outputs;        // values, numbers or none
  std::vector<ValueId> entry_releases;  // inputs that nothing reads

 private:
  std::string name_;
  std::vector<Type> types_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> constants_;
};

// `visit(ValueId)` on each value that the instruction reads; `visit(ValueId&)` if the instruction may be changed.
template <typename AnyInstruction, typename Visitor>
  requires std::is_same_v<std::remove_const_t<AnyInstruction>, Instruction>
void for_each_operand_value(AnyInstruction& instruction, Visitor&& visit) {
  for (auto& operand : instruction.operands) {
    operand.value.for_each_value(visit);
  }
}

// The value that an operand is, or kNoValue if it is absent, a literal or a list.
inline ValueId operand_value(const Instruction& instruction, std::size_t index) {
  if (index >= instruction.operands.size()) {
    return kNoValue;
  }
  const auto* ref = instruction.operands[index].value.get_if<ValueRef>();
  return ref == nullptr ? kNoValue : ref->id;
}

}  // namespace neuron::compiler
