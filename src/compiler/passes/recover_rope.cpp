// Finds the rotation of halves in rotary embeddings.
#include "compiler/passes/recover_rope.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/alias_sets.h"
#include "compiler/passes/dead_code.h"
#include "compiler/passes/queries.h"
#include "compiler/region_text.h"

namespace neuron::compiler {
namespace {

class RopeFinder {
 public:
  explicit RopeFinder(Program& program)
      : program_(program), aliases_(program), definitions_(static_cast<std::size_t>(program.value_count()), -1) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (const ValueId id : program.instructions[i].results) {
        if (id != kNoValue) {
          definitions_[static_cast<std::size_t>(id)] = static_cast<int>(i);
        }
      }
    }
  }

  int run() {
    int found = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      std::optional<ValueId> rotated;
      const char* opcode = "neuron::rotate_half";
      if (instruction.opcode == "aten::cat") {
        rotated = rotated_by_cat(instruction);
      } else if (instruction.opcode == "aten::add.Tensor") {
        rotated = rotated_by_gradients(instruction);
        opcode = "neuron::rotate_half_back";
      }
      if (rotated && is_unchanged_before(*rotated, i)) {
        Instruction rotation;
        rotation.opcode = opcode;
        rotation.operands = {{Argument::value(*rotated), {}}};
        rotation.results = instruction.results;
        program_.instructions[i] = std::move(rotation);
        ++found;
      }
    }
    return found;
  }

 private:
  const Instruction* definition(ValueId id, std::string_view opcode) const {
    const int index = id == kNoValue ? -1 : definitions_[static_cast<std::size_t>(id)];
    const Instruction* instruction = index < 0 ? nullptr : &program_.instructions[static_cast<std::size_t>(index)];
    return instruction != nullptr && instruction->opcode == opcode ? instruction : nullptr;
  }

  static std::int64_t integer(const Instruction& instruction, std::size_t operand, std::int64_t otherwise) {
    const auto* value = instruction.operands[operand].value.get_if<std::int64_t>();
    return value == nullptr ? otherwise : *value;
  }

  // Whether `instruction` has operands (dim, start, end, step) from `first` on that name the given half of the last of `sizes`.
  static bool names_half(const Instruction& instruction, std::size_t first, const std::vector<std::int64_t>& sizes, bool upper) {
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t size = sizes.back();
    const std::int64_t dim = integer(instruction, first, 0);
    const auto bounded = [size](std::int64_t index) { return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size); };
    const std::int64_t start = bounded(integer(instruction, first + 1, 0));
    const std::int64_t end = bounded(integer(instruction, first + 2, size));
    return (dim == -1 || dim == rank - 1) && integer(instruction, first + 3, 1) == 1 && size % 2 == 0 && start == (upper ? size / 2 : 0) &&
           end == (upper ? size : size / 2);
  }

  bool is_plain(ValueId id) const {
    const auto element = element_of(program_.type_of(id));
    return element &&
           (*element == kernels::vector::Element::kF32 || *element == kernels::vector::Element::kBF16 ||
            *element == kernels::vector::Element::kF16) &&
           program_.type_of(id).tensor.element_count() > 0;
  }

  // cat([neg(slice(x, upper)), slice(x, lower)], last) -> x
  std::optional<ValueId> rotated_by_cat(const Instruction& cat) const {
    const auto* pieces = cat.operands[0].value.get_if<Argument::List>();
    const ValueId result = cat.results[0];
    if (pieces == nullptr || pieces->size() != 2 || !is_plain(result)) {
      return std::nullopt;
    }
    const auto& sizes = program_.type_of(result).tensor.sizes;
    const auto* first = (*pieces)[0].get_if<ValueRef>();
    const auto* second = (*pieces)[1].get_if<ValueRef>();
    const std::int64_t dim = integer(cat, 1, 0);
    if (first == nullptr || second == nullptr || sizes.empty() || (dim != -1 && dim + 1 != static_cast<std::int64_t>(sizes.size()))) {
      return std::nullopt;
    }
    const Instruction* negation = definition(first->id, "aten::neg");
    const Instruction* upper = negation == nullptr ? nullptr : definition(operand_value(*negation, 0), "aten::slice.Tensor");
    const Instruction* lower = definition(second->id, "aten::slice.Tensor");
    if (upper == nullptr || lower == nullptr || operand_value(*upper, 0) != operand_value(*lower, 0)) {
      return std::nullopt;
    }
    const ValueId base = operand_value(*upper, 0);
    const bool matches = is_plain(base) && program_.type_of(base).tensor.sizes == sizes &&
                         program_.type_of(base).tensor.scalar == program_.type_of(result).tensor.scalar &&
                         names_half(*upper, 1, sizes, true) && names_half(*lower, 1, sizes, false);
    return matches ? std::optional(base) : std::nullopt;
  }

  // slice_backward(neg(slice(g, lower)), sizes, last, upper) + slice_backward(slice(g, upper), sizes, last, lower) -> g, in either order
  std::optional<ValueId> rotated_by_gradients(const Instruction& sum) const {
    const auto* alpha = sum.operands[2].value.get_if<std::int64_t>();
    if (alpha == nullptr || *alpha != 1 || !is_plain(sum.results[0])) {
      return std::nullopt;
    }
    for (std::size_t swapped = 0; swapped < 2; ++swapped) {
      const Instruction* to_upper = definition(operand_value(sum, swapped), "aten::slice_backward");
      const Instruction* to_lower = definition(operand_value(sum, 1 - swapped), "aten::slice_backward");
      const Instruction* negation = to_upper == nullptr ? nullptr : definition(operand_value(*to_upper, 0), "aten::neg");
      const Instruction* lower = negation == nullptr ? nullptr : definition(operand_value(*negation, 0), "aten::slice.Tensor");
      const Instruction* upper = to_lower == nullptr ? nullptr : definition(operand_value(*to_lower, 0), "aten::slice.Tensor");
      if (lower == nullptr || upper == nullptr || operand_value(*lower, 0) != operand_value(*upper, 0)) {
        continue;
      }
      const ValueId base = operand_value(*lower, 0);
      const auto& sizes = program_.type_of(sum.results[0]).tensor.sizes;
      if (!sizes.empty() && is_plain(base) && program_.type_of(base).tensor.sizes == sizes &&
          program_.type_of(base).tensor.scalar == program_.type_of(sum.results[0]).tensor.scalar && names_half(*lower, 1, sizes, false) &&
          names_half(*upper, 1, sizes, true) && names_half(*to_upper, 2, sizes, true) && names_half(*to_lower, 2, sizes, false)) {
        return base;
      }
    }
    return std::nullopt;
  }

  // The rotation reads later than the slices' readers did.
  bool is_unchanged_before(ValueId value, std::size_t reader) const {
    const int defined = definitions_[static_cast<std::size_t>(value)];
    return !is_written_between(program_, aliases_, value, defined < 0 ? static_cast<std::size_t>(-1) : static_cast<std::size_t>(defined),
                               reader);
  }

  Program& program_;
  AliasSets aliases_;
  std::vector<int> definitions_;
};

}  // namespace

int recover_rope(Program& program) {
  const int found = RopeFinder(program).run();
  if (found > 0) {
    remove_dead_code(program);
  }
  return found;
}

}  // namespace neuron::compiler
