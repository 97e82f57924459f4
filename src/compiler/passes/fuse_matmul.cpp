// Finds matrix products and what can be done while their elements are at hand.
#include "compiler/passes/fuse_matmul.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/alias_sets.h"
#include "compiler/matmul.h"
#include "compiler/passes/dead_code.h"
#include "compiler/passes/queries.h"
#include "compiler/passes/view_maps.h"

namespace neuron::compiler {
namespace {

using kernels::Activation;

// One call that reads two weights beats two calls from so many rows on (bfloat16, Zen 4: 0.87x at 1 and 8 rows, 1.05x at 32, 1.06x at 512).
constexpr std::int64_t kLeastGatedRows = 16;

std::optional<double> number(const Operand& operand) {
  if (const auto* integer = operand.value.get_if<std::int64_t>()) {
    return static_cast<double>(*integer);
  }
  const auto* real = operand.value.get_if<double>();
  return real == nullptr ? std::nullopt : std::optional(*real);
}

Activation activation_of(const Instruction& instruction) {
  if (instruction.opcode == "aten::relu") {
    return Activation::kRelu;
  }
  if (instruction.opcode == "aten::silu") {
    return Activation::kSilu;
  }
  if (instruction.opcode == "aten::gelu") {
    const auto* kind = instruction.operands[1].value.get_if<std::string>();
    return kind == nullptr ? Activation::kNone : *kind == "tanh" ? Activation::kGeluTanh : Activation::kGeluErf;
  }
  return Activation::kNone;
}

class MatmulFuser {
 public:
  explicit MatmulFuser(Program& program)
      : program_(program),
        aliases_(program),
        definitions_(static_cast<std::size_t>(program.value_count()), -1),
        readers_(static_cast<std::size_t>(program.value_count()), 0) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (const ValueId id : program.instructions[i].results) {
        if (id != kNoValue) {
          definitions_[static_cast<std::size_t>(id)] = static_cast<int>(i);
        }
      }
      count_readers(program.instructions[i], 1);
    }
    for (const Argument& output : program.outputs) {
      output.for_each_value([this](ValueId id) { ++readers_[static_cast<std::size_t>(id)]; });
    }
  }

  int run() {
    int changed = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.results.size() != 1 || instruction.results[0] == kNoValue || instruction.effects.ordered ||
          !instruction.effects.writes.empty()) {
        continue;
      }
      std::optional<Product> product = multiplied(i);
      product = product ? product : activated(i);
      product = product ? product : gated(i);
      product = product ? product : added(i);
      if (product) {
        replace(i, *product);
        ++changed;
      }
    }
    return changed;
  }

 private:
  // A product that only the instruction under consideration reads, perhaps as another shape of the same memory.
  struct Found {
    Product product;
    std::size_t position = 0;
  };

  const Type& result_of(std::size_t index) const { return program_.type_of(program_.instructions[index].results[0]); }

  int definition(ValueId id) const { return id == kNoValue ? -1 : definitions_[static_cast<std::size_t>(id)]; }

  bool has_one_reader(ValueId id) const { return readers_[static_cast<std::size_t>(id)] == 1; }

  void count_readers(const Instruction& instruction, int change) {
    for_each_operand_value(instruction, [&](ValueId id) { readers_[static_cast<std::size_t>(id)] += change; });
  }

  void replace(std::size_t index, const Product& product) {
    Instruction& instruction = program_.instructions[index];
    const ValueId result = instruction.results[0];
    count_readers(instruction, -1);
    instruction = to_instruction(product, result);
    count_readers(instruction, 1);
  }

  std::optional<Found> product_behind(ValueId id) const {
    while (id != kNoValue && has_one_reader(id)) {
      const int index = definition(id);
      if (index < 0 || !program_.type_of(id).is_tensor() || !program_.type_of(id).tensor.is_contiguous()) {
        return std::nullopt;
      }
      const Instruction& instruction = program_.instructions[static_cast<std::size_t>(index)];
      if (instruction.opcode == kMatmul) {
        const auto product = product_of(instruction);
        return product ? std::optional(Found{*product, static_cast<std::size_t>(index)}) : std::nullopt;
      }
      if (!ViewMaps::is_view(instruction) || ViewMaps::offset_of(program_, instruction) != 0) {
        return std::nullopt;
      }
      const ValueId base = operand_value(instruction, 0);
      if (program_.type_of(base).tensor.element_count() != program_.type_of(id).tensor.element_count() ||
          program_.type_of(base).tensor.scalar != program_.type_of(id).tensor.scalar) {
        return std::nullopt;
      }
      id = base;
    }
    return std::nullopt;
  }

  // Whether the product may run at `to` instead, with a result of that instruction's type.
  bool may_move(const Product& product, std::size_t from, std::size_t to) const {
    const Type& type = result_of(to);
    if (matrix_type(type) != matrix_type(program_.type_of(product.a)) || !type.tensor.is_contiguous() ||
        type.tensor.element_count() != result_of(from).tensor.element_count()) {
      return false;
    }
    for (const ValueId read : {product.a, product.b, product.a_picks, product.b_picks, product.gate, product.addend, product.residual}) {
      if (read != kNoValue && is_written_between(program_, aliases_, read, from, to)) {
        return false;
      }
    }
    return fits(product.addend, product, type) && fits(product.residual, product, type);
  }

  bool fits(ValueId added, const Product& product, const Type& result) const {
    return added == kNoValue || (matrix_type(program_.type_of(added)) == matrix_type(result) &&
                                 strides_within(program_.type_of(added).tensor, result.tensor.sizes, *sizes_of(program_, product)));
  }

  // mm, bmm, addmm, baddbmm
  std::optional<Product> multiplied(std::size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    const bool sums = instruction.opcode == "aten::addmm" || instruction.opcode == "aten::baddbmm";
    if (!sums && instruction.opcode != "aten::mm" && instruction.opcode != "aten::bmm") {
      return std::nullopt;
    }
    Product product;
    product.a = operand_value(instruction, sums ? 1 : 0);
    product.b = operand_value(instruction, sums ? 2 : 1);
    if (sums) {
      const auto beta = number(instruction.operands[3]);
      const auto alpha = number(instruction.operands[4]);
      if (!alpha || !beta) {
        return std::nullopt;
      }
      product.scale = *alpha;
      if (*beta != 0) {  // else nothing of it is read, not even NaN
        product.addend = operand_value(instruction, 0);
        product.addend_scale = *beta;
      }
    }
    const Type& type = result_of(index);
    if (product.a == kNoValue || product.b == kNoValue || !sizes_of(program_, product) || !type.tensor.is_contiguous() ||
        matrix_type(type) != matrix_type(program_.type_of(product.a)) || !fits(product.addend, product, type)) {
      return std::nullopt;
    }
    choose(product.a, product.a_picks, index);
    choose(product.b, product.b_picks, index);
    return product;
  }

  // index(w, [i]) with one vector of integers: its rows are read where they are.
  void choose(ValueId& matrix, ValueId& picks, std::size_t reader) const {
    const int index = definition(matrix);
    if (index < 0 || !has_one_reader(matrix) || program_.instructions[static_cast<std::size_t>(index)].opcode != "aten::index.Tensor") {
      return;
    }
    const Instruction& instruction = program_.instructions[static_cast<std::size_t>(index)];
    const ValueId all = operand_value(instruction, 0);
    const auto* indices = instruction.operands[1].value.get_if<Argument::List>();
    const auto* chosen = indices != nullptr && indices->size() == 1 ? (*indices)[0].get_if<ValueRef>() : nullptr;
    if (chosen == nullptr) {
      return;
    }
    const Type& type = program_.type_of(chosen->id);
    const Type& from = program_.type_of(all);
    const bool plain = type.is_tensor() && type.tensor.scalar == ScalarKind::kInt64 && type.tensor.sizes.size() == 1 &&
                       type.tensor.place == from.tensor.place && from.tensor.sizes.size() == 3;
    if (plain && !is_written_between(program_, aliases_, all, static_cast<std::size_t>(index), reader) &&
        !is_written_between(program_, aliases_, chosen->id, static_cast<std::size_t>(index), reader)) {
      matrix = all;
      picks = chosen->id;
    }
  }

  std::optional<Product> activated(std::size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    const Activation activation = activation_of(instruction);
    auto found = activation == Activation::kNone ? std::nullopt : product_behind(operand_value(instruction, 0));
    if (!found || found->product.activation != Activation::kNone || found->product.residual != kNoValue) {
      return std::nullopt;
    }
    found->product.activation = activation;
    return may_move(found->product, found->position, index) ? std::optional(found->product) : std::nullopt;
  }

  // mul(act(x w), x v)
  std::optional<Product> gated(std::size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    if (instruction.opcode != "aten::mul.Tensor") {
      return std::nullopt;
    }
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const auto active = product_behind(operand_value(instruction, side));
      const auto linear = product_behind(operand_value(instruction, 1 - side));
      if (!active || !linear || !linear->product.is_plain() || linear->product.a != active->product.a ||
          linear->product.a_picks != active->product.a_picks || linear->product.b_picks != active->product.b_picks ||
          active->product.b_picks != kNoValue) {
        continue;
      }
      Product product = active->product;
      product.gate = linear->product.b;
      const auto sizes = sizes_of(program_, product);
      if (product.activation != Activation::kNone && sizes && sizes->m >= kLeastGatedRows &&
          may_move(product, std::min(active->position, linear->position), index)) {
        return product;
      }
    }
    return std::nullopt;
  }

  std::optional<Product> added(std::size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    const auto alpha = instruction.opcode == "aten::add.Tensor" ? number(instruction.operands[2]) : std::nullopt;
    if (!alpha) {
      return std::nullopt;
    }
    // The later of two products takes the other, which is there by then.
    for (const std::size_t side : {std::size_t{1}, std::size_t{0}}) {
      const auto found = product_behind(operand_value(instruction, side));
      const ValueId other = operand_value(instruction, 1 - side);
      if (!found || other == kNoValue || (side == 1 && *alpha != 1) || found->product.gate != kNoValue ||
          found->product.residual != kNoValue) {
        continue;
      }
      Product product = found->product;
      const bool first = product.addend == kNoValue && product.activation == Activation::kNone;
      (first ? product.addend : product.residual) = other;
      (first ? product.addend_scale : product.residual_scale) = side == 0 ? *alpha : 1;
      if (may_move(product, found->position, index)) {
        return product;
      }
    }
    return std::nullopt;
  }

  Program& program_;
  AliasSets aliases_;
  std::vector<int> definitions_;
  std::vector<int> readers_;
};

}  // namespace

int fuse_matmul(Program& program) {
  const int changed = MatmulFuser(program).run();
  if (changed > 0) {
    remove_dead_code(program);
  }
  return changed;
}

}  // namespace neuron::compiler
