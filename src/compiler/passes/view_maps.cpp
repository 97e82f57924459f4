// What views do to coordinates and to memory.
#include "compiler/passes/view_maps.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "compiler/passes/fold_views.h"

namespace neuron::compiler {
namespace {

// Views of which the result's type says everything but the offset, which stays.
constexpr std::array<std::string_view, 16> kPlainViews{"aten::view",        "aten::_unsafe_view", "aten::unsqueeze",      "aten::squeeze",
                                                       "aten::squeeze.dim", "aten::squeeze.dims", "aten::expand",         "aten::permute",
                                                       "aten::t",           "aten::alias",        "aten::transpose.int",  "aten::detach",
                                                       "aten::reshape",     "aten::lift_fresh",   "aten::_reshape_alias", "aten::view_as"};

bool is_plain(const Instruction& view) { return std::find(kPlainViews.begin(), kPlainViews.end(), view.opcode) != kPlainViews.end(); }

std::int64_t normalized(std::int64_t index, std::int64_t size) { return index < 0 ? index + size : index; }

const std::int64_t* integer(const Instruction& instruction, std::size_t operand) {
  return operand < instruction.operands.size() ? instruction.operands[operand].value.get_if<std::int64_t>() : nullptr;
}

// Sizes that are not 1, with their dimensions.
std::vector<std::pair<std::int64_t, int>> real_dimensions(const std::vector<std::int64_t>& sizes) {
  std::vector<std::pair<std::int64_t, int>> dims;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) {
      dims.emplace_back(sizes[i], static_cast<int>(i));
    }
  }
  return dims;
}

// By position among the dimensions that are not 1, if these are the same.
std::optional<std::vector<int>> same_dimensions(const std::vector<std::int64_t>& of, const std::vector<std::int64_t>& in) {
  const auto from = real_dimensions(in);
  const auto to = real_dimensions(of);
  std::vector<int> dims(of.size(), -1);
  if (from.size() != to.size()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (from[i].first != to[i].first) {
      return std::nullopt;
    }
    dims[static_cast<std::size_t>(to[i].second)] = from[i].second;
  }
  return dims;
}

std::optional<std::vector<int>> permutation(const Instruction& view, std::size_t rank) {
  std::vector<int> dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  const auto size = static_cast<std::int64_t>(rank);
  if (view.opcode == "aten::t") {
    std::reverse(dims.begin(), dims.end());
  } else if (view.opcode == "aten::transpose.int") {
    const auto* a = integer(view, 1);
    const auto* b = integer(view, 2);
    if (rank == 0 || a == nullptr || b == nullptr) {
      return std::nullopt;
    }
    std::swap(dims[static_cast<std::size_t>(normalized(*a, size))], dims[static_cast<std::size_t>(normalized(*b, size))]);
  } else {
    const auto* order = view.operands[1].value.get_if<Argument::List>();
    if (order == nullptr || order->size() != rank) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < rank; ++i) {
      const auto* dim = (*order)[i].get_if<std::int64_t>();
      if (dim == nullptr) {
        return std::nullopt;
      }
      dims[i] = static_cast<int>(normalized(*dim, size));
    }
  }
  return dims;
}

}  // namespace

ViewMaps::ViewMaps(const Program& program) : program_(program), definitions_(static_cast<std::size_t>(program.value_count()), -1) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const ValueId id : program.instructions[i].results) {
      if (id != kNoValue) {
        definitions_[static_cast<std::size_t>(id)] = static_cast<int>(i);
      }
    }
  }
}

const Instruction* ViewMaps::definition(ValueId value) const {
  const int index = definitions_[static_cast<std::size_t>(value)];
  return index < 0 ? nullptr : &program_.instructions[static_cast<std::size_t>(index)];
}

bool ViewMaps::is_view(const Instruction& instruction) {
  return instruction.effects.writes.empty() && !instruction.effects.ordered && instruction.results.size() == 1 &&
         instruction.effects.views == std::vector<int>{0} && operand_value(instruction, 0) != kNoValue &&
         (is_plain(instruction) || instruction.opcode == kView || instruction.opcode == "aten::slice.Tensor" ||
          instruction.opcode == "aten::select.int");
}

std::optional<ViewMaps::Step> ViewMaps::step(ValueId view) const {
  const Instruction* instruction = definition(view);
  if (instruction == nullptr || !is_view(*instruction) || !is_plain(*instruction)) {
    return std::nullopt;
  }
  const ValueId base = operand_value(*instruction, 0);
  const TensorType& in = program_.type_of(base).tensor;
  const TensorType& out = program_.type_of(view).tensor;
  if (!program_.type_of(base).is_tensor() || in.scalar != out.scalar) {
    return std::nullopt;
  }
  std::optional<std::vector<int>> dims;
  if (instruction->opcode == "aten::t" || instruction->opcode == "aten::transpose.int" || instruction->opcode == "aten::permute") {
    dims = permutation(*instruction, in.sizes.size());
  } else if (instruction->opcode == "aten::expand") {
    dims.emplace(out.sizes.size(), -1);
    const std::size_t shift = out.sizes.size() - in.sizes.size();
    for (std::size_t i = 0; i < in.sizes.size(); ++i) {
      (*dims)[i + shift] = in.sizes[i] == 1 ? -1 : static_cast<int>(i);
    }
  } else {
    dims = same_dimensions(out.sizes, in.sizes);
  }
  return dims ? std::optional(Step{base, std::move(*dims)}) : std::nullopt;
}

std::optional<std::int64_t> ViewMaps::offset_of(const Program& program, const Instruction& view) {
  if (is_plain(view)) {
    return 0;
  }
  if (view.opcode == kView) {
    return *integer(view, 1);
  }
  const TensorType& in = program.type_of(operand_value(view, 0)).tensor;
  const auto* dim = integer(view, 1);
  const auto* start = integer(view, 2);
  const bool from_start = view.operands.size() > 2 && view.operands[2].value.is_none();
  if (dim == nullptr || (start == nullptr && !from_start)) {
    return std::nullopt;
  }
  const auto at = static_cast<std::size_t>(normalized(*dim, static_cast<std::int64_t>(in.sizes.size())));
  const std::int64_t size = in.sizes[at];
  const std::int64_t first = from_start ? 0 : std::clamp<std::int64_t>(normalized(*start, size), 0, size);
  return first * in.strides[at];
}

ViewMaps::Root ViewMaps::root(ValueId view) const {
  Root root{view, 0};
  while (const Instruction* instruction = definition(root.value)) {
    if (!is_view(*instruction)) {
      break;
    }
    const ValueId base = operand_value(*instruction, 0);
    const Type& in = program_.type_of(base);
    if (!in.is_tensor() || in.tensor.scalar != program_.type_of(root.value).tensor.scalar ||
        in.tensor.place != program_.type_of(root.value).tensor.place) {
      break;
    }
    const auto offset = offset_of(program_, *instruction);
    if (!offset) {
      break;
    }
    root.offset += *offset;
    root.value = base;
  }
  return root;
}

}  // namespace neuron::compiler
