// Writes scatters through views.
#include "compiler/passes/view_store.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/passes/queries.h"

namespace neuron::compiler {
namespace {

// scatter(self, source, parameters...) writes the view that view(self, parameters...) gives.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kViewOfScatter{{
    {"aten::slice_scatter", "aten::slice.Tensor"},
    {"aten::select_scatter", "aten::select.int"},
}};

std::string_view view_of_scatter(std::string_view opcode) {
  for (const auto& [scatter, view] : kViewOfScatter) {
    if (scatter == opcode) {
      return view;
    }
  }
  return {};
}

std::int64_t integer(const Argument& argument, std::int64_t otherwise) {
  const auto* value = argument.get_if<std::int64_t>();
  return value == nullptr ? otherwise : *value;
}

// Type of the view: the source's sizes over the strides of `of`.
Type view_type(const TensorType& of, const TensorType& source, const Instruction& scatter) {
  TensorType type = of;
  type.sizes = source.sizes;
  std::int64_t dimension = integer(scatter.operands[2].value, 0);
  dimension += dimension < 0 ? static_cast<std::int64_t>(of.sizes.size()) : 0;
  if (scatter.opcode == "aten::select_scatter") {
    type.strides.erase(type.strides.begin() + dimension);
  } else {
    type.strides[static_cast<std::size_t>(dimension)] *= integer(scatter.operands[5].value, 1);
  }
  return Type::of_tensor(std::move(type));
}

Instruction make_copy(ValueId target, ValueId source, bool non_blocking) {
  Instruction copy;
  copy.opcode = "aten::copy_";
  copy.operands = {{Argument::value(target), {}}, {Argument::value(source), {}}, {Argument(non_blocking), {}}};
  copy.results = {kNoValue};
  copy.effects.writes = {0};
  copy.effects.views = {0};
  return copy;
}

}  // namespace

bool is_view_store(const Instruction& instruction) { return !view_of_scatter(instruction.opcode).empty(); }

std::vector<Instruction> ViewStore::lower(const Instruction& scatter) {
  store(open_view(root_, scatter), scatter, operand_value(scatter, 1));
  return std::move(stores_);
}

ValueId ViewStore::open_view(ValueId of, const Instruction& scatter) {
  Instruction view;
  view.opcode = view_of_scatter(scatter.opcode);
  view.operands.push_back({Argument::value(of), {}});
  view.operands.insert(view.operands.end(), scatter.operands.begin() + 2, scatter.operands.end());
  view.effects.views = {0};
  const ValueId source = operand_value(scatter, 1);
  view.results = {program_.new_value(view_type(program_.type_of(of).tensor, program_.type_of(source).tensor, scatter))};
  aliases_.join(view.results[0], of);
  stores_.push_back(std::move(view));
  return stores_.back().results[0];
}

bool ViewStore::may_move_here(const Instruction& instruction, std::size_t defined) const {
  bool safe = instruction.results.size() == 1 && instruction.effects.writes.empty() && !instruction.effects.ordered;
  for (std::size_t i = 1; i < instruction.operands.size(); ++i) {
    instruction.operands[i].value.for_each_value([&](ValueId other) {
      safe = safe && !aliases_.may_share(other, root_) && !is_written_between(program_, aliases_, other, defined, position_);
    });
  }
  return safe;
}

// Is `old_view`, a value of the program, the same view of the old value as `target`, which these stores opened?
bool ViewStore::is_same_view(ValueId old_view, ValueId target) const {
  if (target == root_ || old_view == root_) {
    return target == old_view;
  }
  const auto defined = definition_of(program_, old_view);
  const auto opened = std::find_if(stores_.begin(), stores_.end(), [&](const Instruction& store) { return store.results[0] == target; });
  if (!defined || opened == stores_.end()) {
    return false;
  }
  const Instruction& old = program_.instructions[*defined];
  return old.opcode == opened->opcode && old.operands.size() == opened->operands.size() &&
         std::equal(old.operands.begin() + 1, old.operands.end(), opened->operands.begin() + 1) &&
         is_same_view(operand_value(old, 0), operand_value(*opened, 0));
}

void ViewStore::store(ValueId target, const Instruction& reader, ValueId source, bool non_blocking) {
  const auto defined = definition_of(program_, source);
  const auto read_at = std::find(program_.instructions.begin(), program_.instructions.end(), reader);
  const auto reader_index = static_cast<std::size_t>(read_at - program_.instructions.begin());
  if (defined && is_read_only_by(program_, source, reader_index)) {
    Instruction update = program_.instructions[*defined];
    const ValueId base = operand_value(update, 0);
    const Type& to = program_.type_of(target);
    const bool same_elements = base != kNoValue && program_.type_of(source).tensor.scalar == to.tensor.scalar &&
                               program_.type_of(source).tensor.sizes == to.tensor.sizes && may_move_here(update, *defined);
    if (const ValueId copied = operand_value(update, 1); same_elements && update.opcode == "aten::copy" && copied != kNoValue) {
      store(target, update, copied, non_blocking);  // copy(base, x) is x in the shape and type of base, which copy_ does by itself
      return;
    }
    if (same_elements && is_view_store(update) && is_same_view(base, target)) {
      store(open_view(target, update), update, operand_value(update, 1));
      return;
    }
    if (same_elements && !update.inplace_opcode.empty() && is_same_view(base, target)) {
      update.opcode = std::exchange(update.inplace_opcode, {});
      update.operands[0].value = Argument::value(target);
      update.effects.writes = {0};
      update.effects.views = {0};
      update.results = {kNoValue};
      stores_.push_back(std::move(update));
      return;
    }
  }
  stores_.push_back(make_copy(target, source, non_blocking));
}

}  // namespace neuron::compiler
