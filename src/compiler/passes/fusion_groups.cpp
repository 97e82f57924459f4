// Which instructions run as one.
#include "compiler/passes/fusion_groups.h"

#include <algorithm>
#include <set>

namespace neuron::compiler {
namespace {

constexpr std::size_t kLargestRegion = 96;  // nodes
constexpr std::size_t kMostDimensions = 6;

}  // namespace

FusionGroups::FusionGroups(const Program& program)
    : program_(program), aliases_(program), views_(program), definitions_(static_cast<std::size_t>(program.value_count()), -1) {
  const std::size_t count = program.instructions.size();
  group_of_.assign(count, -1);
  for (std::size_t i = 0; i < count; ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const ValueId id : instruction.results) {
      if (id != kNoValue) {
        definitions_[static_cast<std::size_t>(id)] = static_cast<int>(i);
      }
    }
    for (const int index : instruction.effects.writes) {
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([&](ValueId id) { written_.insert(aliases_.set_of(id)); });
    }
    recipes_.push_back(filled_number(instruction) ? std::nullopt : recipe_of(program, instruction));
  }
  const auto reads = [this](std::size_t i) {
    std::vector<ValueId> values;
    if (recipes_[i]) {
      for (const ValueId id : operands_of(i)) {
        values.push_back(views_.root(id).value);
      }
    } else {
      for_each_operand_value(program_.instructions[i], [&](ValueId id) { values.push_back(id); });
    }
    return values;
  };
  graph_.emplace(program, reads, [this](std::size_t i) { return !ViewMaps::is_view(program_.instructions[i]); });
  for (std::size_t i = 0; i < count; ++i) {
    if (recipes_[i]) {
      place(i);
    }
  }
}

std::optional<Argument> FusionGroups::number_of(ValueId value) const {
  const int definition = definitions_[static_cast<std::size_t>(value)];
  if (definition < 0 || written_.contains(aliases_.set_of(value))) {
    return std::nullopt;
  }
  return filled_number(program_.instructions[static_cast<std::size_t>(definition)]);
}

std::vector<ValueId> FusionGroups::operands_of(std::size_t instruction) const {
  std::vector<ValueId> values;
  for (const RecipeNode& node : recipes_[instruction]->nodes) {
    for (const RecipeArgument& argument : node.arguments) {
      if (argument.value != kNoValue && std::find(values.begin(), values.end(), argument.value) == values.end()) {
        values.push_back(argument.value);
      }
    }
  }
  return values;
}

FusionGroups::Source FusionGroups::source_of(ValueId value, int group) const {
  Source source;
  source.root = views_.root(value);
  source.number = number_of(source.root.value);
  if (source.number) {
    return source;
  }
  const std::size_t rank = program_.type_of(value).tensor.sizes.size();
  for (std::size_t i = 0; i < rank; ++i) {
    source.dims.push_back(static_cast<int>(i));
  }
  ValueId current = value;
  while (true) {
    const int definition = definitions_[static_cast<std::size_t>(current)];
    const int made_by = definition < 0 ? -1 : group_of_[static_cast<std::size_t>(definition)];
    if (made_by >= 0 && (group < 0 || made_by == group)) {
      source.member = current;
      return source;
    }
    const auto step = views_.step(current);
    if (!step) {
      return source;
    }
    for (int& dim : source.dims) {
      dim = dim < 0 ? -1 : step->dims[static_cast<std::size_t>(dim)];
    }
    current = step->value;
  }
}

FusionGroup FusionGroups::start(std::size_t instruction) const {
  const Recipe& recipe = *recipes_[instruction];
  FusionGroup group;
  std::vector<int> iteration;
  for (const std::int64_t size : recipe.sizes) {
    iteration.push_back(size == 1 ? -1 : static_cast<int>(group.sizes.size()));
    if (size != 1) {
      group.sizes.push_back(size);
    }
  }
  if (recipe.uses_rows) {
    group.row_dim = static_cast<int>(group.sizes.size()) - 1;
  }
  for (const ValueId id : program_.instructions[instruction].results) {
    // Results have the recipe's dimensions, or all but the last.
    const auto& sizes = program_.type_of(id).tensor.sizes;
    std::vector<int> dims;
    dims.reserve(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      dims.push_back(sizes[i] == 1 ? -1 : iteration[i]);
    }
    group.dims[id] = std::move(dims);
  }
  group.members = {instruction};
  group.iteration[instruction] = std::move(iteration);
  group.nodes = recipe.nodes.size();
  return group;
}

std::optional<std::vector<int>> FusionGroups::correspondence(const FusionGroup& reader, std::size_t instruction, ValueId operand,
                                                             const FusionGroup& group, const Source& source) const {
  const auto& iteration = reader.iteration.at(instruction);
  const auto& sizes = program_.type_of(operand).tensor.sizes;
  const auto& member = group.dims.at(source.member);
  std::vector<int> map(group.sizes.size(), -1);
  const std::size_t shift = iteration.size() - sizes.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1 || source.dims[i] < 0) {
      continue;
    }
    const int there = member[static_cast<std::size_t>(source.dims[i])];
    const int here = iteration[i + shift];
    if (there < 0 || here < 0 || map[static_cast<std::size_t>(there)] >= 0 || std::find(map.begin(), map.end(), here) != map.end()) {
      return std::nullopt;
    }
    map[static_cast<std::size_t>(there)] = here;
  }
  return map;
}

// `map`: per dimension of `other`, that of `into`, -1 where none corresponds yet.
bool FusionGroups::merge(FusionGroup& into, const FusionGroup& other, std::vector<int> map) const {
  std::vector<int> only_there;
  std::vector<int> only_here;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] < 0) {
      only_there.push_back(static_cast<int>(i));
    }
  }
  for (int i = 0; i < static_cast<int>(into.sizes.size()); ++i) {
    if (std::find(map.begin(), map.end(), i) == map.end()) {
      only_here.push_back(i);
    }
  }
  const auto is_last = [](const FusionGroup& group, int dim) { return dim + 1 == static_cast<int>(group.sizes.size()); };
  const auto may_be_row = [&](const FusionGroup& group, int dim) {
    return is_last(group, dim) && (group.row_dim < 0 || group.row_dim == dim);
  };
  if (only_there.size() > 1 || only_here.size() > 1) {
    return false;
  }
  FusionGroup merged = into;
  if (!only_there.empty() && !only_here.empty()) {
    // Both go along rows that nothing connects but their lengths: a value per row meets another array of rows.
    const int there = only_there[0];
    const int here = only_here[0];
    if (other.row_dim != there || !is_last(other, there) || !may_be_row(into, here) ||
        other.sizes[static_cast<std::size_t>(there)] != into.sizes[static_cast<std::size_t>(here)]) {
      return false;
    }
    map[static_cast<std::size_t>(there)] = here;
    merged.row_dim = here;
  } else if (!only_here.empty()) {
    if (other.row_dim >= 0 || !may_be_row(into, only_here[0])) {
      return false;
    }
    merged.row_dim = only_here[0];
  } else if (!only_there.empty()) {
    if (into.row_dim >= 0 || !may_be_row(other, only_there[0]) || into.sizes.size() >= kMostDimensions) {
      return false;
    }
    map[static_cast<std::size_t>(only_there[0])] = static_cast<int>(into.sizes.size());
    merged.sizes.push_back(other.sizes[static_cast<std::size_t>(only_there[0])]);
    merged.row_dim = static_cast<int>(into.sizes.size());
  }
  if (other.row_dim >= 0) {
    const int row = map[static_cast<std::size_t>(other.row_dim)];
    if (!is_last(merged, row) || (merged.row_dim >= 0 && merged.row_dim != row)) {
      return false;
    }
    merged.row_dim = row;
  }
  const auto mapped = [&](std::vector<int> dims) {
    for (int& dim : dims) {
      dim = dim < 0 ? -1 : map[static_cast<std::size_t>(dim)];
    }
    return dims;
  };
  for (const auto& [id, dims] : other.dims) {
    merged.dims[id] = mapped(dims);
  }
  for (const auto& [member, dims] : other.iteration) {
    merged.iteration[member] = mapped(dims);
  }
  merged.members.insert(merged.members.end(), other.members.begin(), other.members.end());
  merged.outside.insert(other.outside.begin(), other.outside.end());
  merged.nodes += other.nodes;
  if (merged.nodes > kLargestRegion) {
    return false;
  }
  for (const std::size_t member : merged.members) {
    if (merged.outside.contains(member)) {
      return false;
    }
  }
  if (!graph_->may_contract(merged.members)) {
    return false;
  }
  into = std::move(merged);
  return true;
}

void FusionGroups::place(std::size_t instruction) {
  const FusionGroup alone = start(instruction);
  FusionGroup group = alone;
  std::set<int> joined;
  bool agrees = true;
  for (const ValueId operand : operands_of(instruction)) {
    const Source source = source_of(operand, -1);
    const int maker = source.member == kNoValue ? -1 : group_of_[static_cast<std::size_t>(definition(source.member))];
    if (maker < 0) {
      if (const int root = source.number ? -1 : definition(source.root.value); root >= 0) {
        group.outside.insert(static_cast<std::size_t>(root));
      }
      continue;
    }
    const bool inside = joined.contains(maker);
    const FusionGroup& other = inside ? group : groups_[static_cast<std::size_t>(maker)];
    const auto map = correspondence(group, instruction, operand, other, source);
    if (inside) {
      // Element must meet element.
      for (std::size_t i = 0; map && i < map->size(); ++i) {
        agrees = agrees && ((*map)[i] == static_cast<int>(i) || ((*map)[i] < 0 && static_cast<int>(i) == group.row_dim));
      }
      agrees = agrees && map.has_value();
    } else if (map && merge(group, other, *map)) {
      joined.insert(maker);
    } else {
      group.outside.insert(static_cast<std::size_t>(definition(source.root.value)));
    }
  }
  for (const std::size_t member : group.members) {
    agrees = agrees && !group.outside.contains(member);
  }
  if (!agrees) {
    group = alone;
    joined.clear();
    for (const ValueId operand : operands_of(instruction)) {
      const Source source = source_of(operand, -1);
      if (const int root = source.number ? -1 : definition(source.root.value); root >= 0) {
        group.outside.insert(static_cast<std::size_t>(root));
      }
    }
  }
  const int index = static_cast<int>(groups_.size());
  for (const int old : joined) {
    groups_[static_cast<std::size_t>(old)] = {};
  }
  for (const std::size_t member : group.members) {
    group_of_[member] = index;
  }
  graph_->contract(group.members, index);
  std::sort(group.members.begin(), group.members.end());
  groups_.push_back(std::move(group));
}

}  // namespace neuron::compiler
