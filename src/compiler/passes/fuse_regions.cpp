// Makes one instruction of each group.
#include "compiler/passes/fuse_regions.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/passes/fusion_groups.h"
#include "compiler/passes/recipe_builder.h"
#include "compiler/region_text.h"

namespace neuron::compiler {
namespace {

using kernels::vector::Access;
using kernels::vector::Node;
using kernels::vector::Op;
using kernels::vector::Region;

// Assembles the body of one group.
class Assembler {
 public:
  Assembler(const Program& program, const FusionGroups& groups, int index)
      : program_(program), groups_(groups), index_(index), group_(groups.groups()[static_cast<std::size_t>(index)]) {
    region_.sizes = group_.sizes;
  }

  Instruction assemble(const std::vector<ValueId>& results) {
    for (const std::size_t member : group_.members) {
      add_member(member);
    }
    for (const ValueId id : results) {
      const TensorType& type = program_.type_of(id).tensor;
      region_.stores.push_back({node_of_.at(id), *element_of(program_.type_of(id)), access_of(type, group_.dims.at(id), 0)});
    }
    region_.inputs = static_cast<int>(fused_.operands.size());
    fused_.opcode = kFused;
    fused_.results = results;
    remove_unread_nodes();
    fused_.body = std::move(region_);
    return std::move(fused_);
  }

 private:
  Access access_of(const TensorType& type, const std::vector<int>& dims, std::size_t shift) const {
    Access access{std::vector<std::int64_t>(group_.sizes.size(), 0), 0};
    for (std::size_t i = 0; i < type.sizes.size(); ++i) {
      if (type.sizes[i] != 1 && dims[i + shift] >= 0) {
        access.strides[static_cast<std::size_t>(dims[i + shift])] = type.strides[i];
      }
    }
    return access;
  }

  void add_member(std::size_t member) {
    const Recipe& recipe = *groups_.recipe(member);
    const auto& iteration = group_.iteration.at(member);
    std::vector<int> nodes;
    for (const RecipeNode& step : recipe.nodes) {
      Node node{step.op, step.type, {}, -1, {}};
      for (const RecipeArgument& argument : step.arguments) {
        node.arguments.push_back(argument.node >= 0 ? kernels::vector::Argument::of(nodes[static_cast<std::size_t>(argument.node)])
                                 : argument.value != kNoValue ? read(argument.value, iteration)
                                                              : argument.number);
      }
      if ((kernels::vector::is_reduction(step.op) || kernels::vector::is_rotation(step.op)) && node.arguments[0].is_number()) {
        // A row of one number, as a node: these go over rows.
        const auto zero = RecipeBuilder::number(Argument(std::int64_t{0}), step.type, true).number;
        node.arguments[0] = kernels::vector::Argument::of(add({Op::kAdd, step.type, {node.arguments[0], zero}, -1, {}}));
      }
      if (step.op == Op::kIota) {
        node.access = {std::vector<std::int64_t>(group_.sizes.size(), 0), step.start};
        if (!iteration.empty() && iteration[0] >= 0) {
          node.access.strides[static_cast<std::size_t>(iteration[0])] = step.step;
        }
      }
      nodes.push_back(add(std::move(node)));
    }
    const auto& results = program_.instructions[member].results;
    for (std::size_t i = 0; i < results.size(); ++i) {
      node_of_[results[i]] = nodes[static_cast<std::size_t>(recipe.results[i])];
    }
  }

  // Equal nodes are one: the same operand read twice, the same cast.
  int add(Node node) {
    const auto found = std::find(region_.nodes.begin(), region_.nodes.end(), node);
    if (found != region_.nodes.end()) {
      return static_cast<int>(found - region_.nodes.begin());
    }
    region_.nodes.push_back(std::move(node));
    return static_cast<int>(region_.nodes.size()) - 1;
  }

  kernels::vector::Argument read(ValueId value, const std::vector<int>& iteration) {
    const auto source = groups_.source_of(value, index_);
    const Type& type = program_.type_of(value);
    if (source.number) {
      return RecipeBuilder::number(*source.number, *element_of(type), true).number;
    }
    if (source.member != kNoValue) {
      return kernels::vector::Argument::of(node_of_.at(source.member));
    }
    Node load{Op::kLoad, *element_of(type), {}, tensor(source.root.value), {}};
    load.access = access_of(type.tensor, iteration, iteration.size() - type.tensor.sizes.size());
    load.access.offset = source.root.offset;
    return kernels::vector::Argument::of(add(std::move(load)));
  }

  int tensor(ValueId value) {
    const auto [entry, fresh] = tensors_.try_emplace(value, static_cast<int>(fused_.operands.size()));
    if (fresh) {
      fused_.operands.push_back({Argument::value(value), {}});
    }
    return entry->second;
  }

  // Of members' results that nobody asked for, and so on.
  void remove_unread_nodes() {
    std::vector<bool> read(region_.nodes.size(), false);
    for (const auto& store : region_.stores) {
      read[static_cast<std::size_t>(store.node)] = true;
    }
    for (std::size_t i = read.size(); i-- > 0;) {
      for (const auto& argument : region_.nodes[i].arguments) {
        if (read[i] && !argument.is_number()) {
          read[static_cast<std::size_t>(argument.node)] = true;
        }
      }
    }
    std::vector<int> renamed(read.size(), -1);
    std::vector<Node> kept;
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i]) {
        renamed[i] = static_cast<int>(kept.size());
        kept.push_back(std::move(region_.nodes[i]));
        for (auto& argument : kept.back().arguments) {
          argument.node = argument.is_number() ? -1 : renamed[static_cast<std::size_t>(argument.node)];
        }
      }
    }
    region_.nodes = std::move(kept);
    for (auto& store : region_.stores) {
      store.node = renamed[static_cast<std::size_t>(store.node)];
    }
    remove_unread_tensors();
  }

  void remove_unread_tensors() {
    std::vector<int> renamed(fused_.operands.size(), -1);
    std::vector<Operand> kept;
    for (Node& node : region_.nodes) {
      if (node.op == Op::kLoad) {
        int& name = renamed[static_cast<std::size_t>(node.tensor)];
        if (name < 0) {
          name = static_cast<int>(kept.size());
          kept.push_back(fused_.operands[static_cast<std::size_t>(node.tensor)]);
        }
        node.tensor = name;
      }
    }
    fused_.operands = std::move(kept);
    region_.inputs = static_cast<int>(fused_.operands.size());
  }

  const Program& program_;
  const FusionGroups& groups_;
  int index_;
  const FusionGroup& group_;
  Region region_;
  Instruction fused_;
  std::unordered_map<ValueId, int> node_of_;
  std::unordered_map<ValueId, int> tensors_;
};

// Only another layout of the same elements: ATen's copy knows more about caches.
bool is_lone_copy(const Program& program, const FusionGroup& group) {
  if (group.members.size() != 1) {
    return false;
  }
  const Instruction& instruction = program.instructions[group.members[0]];
  const ValueId from = operand_value(instruction, 0);
  return (instruction.opcode == "aten::clone" || instruction.opcode == "aten::_to_copy") && from != kNoValue &&
         program.type_of(from).tensor.scalar == program.type_of(instruction.results[0]).tensor.scalar;
}

class Fuser {
 public:
  explicit Fuser(Program& program) : program_(program), groups_(program), needed_(static_cast<std::size_t>(program.value_count()), false) {}

  int run() {
    find_needed();
    emitted_.assign(program_.instructions.size(), false);
    int fused = 0;
    int last_group = -1;
    for (const std::size_t i : groups_.graph().order()) {
      const int index = groups_.group_of(i);
      if (index < 0 || stays_apart(index)) {
        if (is_needed(program_.instructions[i])) {
          emit(i);
        }
      } else if (index != last_group) {
        last_group = index;
        const FusionGroup& group = groups_.groups()[static_cast<std::size_t>(index)];
        const std::vector<ValueId> results = results_of(group);
        if (!results.empty()) {
          result_.push_back(Assembler(program_, groups_, index).assemble(results));
          fused += static_cast<int>(group.members.size());
        }
      }
    }
    program_.instructions = std::move(result_);
    return fused;
  }

 private:
  // Copies the instruction: others are still asked for what the views among them do. The order is that of reads through views, so a view
  // that a lone copy reads may be missing yet.
  void emit(std::size_t index) {
    if (emitted_[index]) {
      return;
    }
    emitted_[index] = true;
    for_each_operand_value(program_.instructions[index], [&](ValueId id) {
      const int definition = groups_.definition(id);
      if (definition >= 0 && ViewMaps::is_view(program_.instructions[static_cast<std::size_t>(definition)])) {
        emit(static_cast<std::size_t>(definition));
      }
    });
    result_.push_back(program_.instructions[index]);
  }

  // A region that reads no memory would have to know its device: factories without an index follow the current one of each run.
  bool stays_apart(int index) const {
    bool reads = false;
    need_outside(index, [&](ValueId) { reads = true; });
    return !reads || is_lone_copy(program_, groups_.groups()[static_cast<std::size_t>(index)]);
  }

  bool is_needed(const Instruction& instruction) const {
    return instruction.results.empty() || instruction.effects.ordered || !instruction.effects.writes.empty() ||
           std::any_of(instruction.results.begin(), instruction.results.end(),
                       [&](ValueId id) { return id != kNoValue && needed_[static_cast<std::size_t>(id)]; });
  }

  std::vector<ValueId> results_of(const FusionGroup& group) const {
    std::vector<ValueId> results;
    for (const std::size_t member : group.members) {
      for (const ValueId id : program_.instructions[member].results) {
        if (needed_[static_cast<std::size_t>(id)]) {
          results.push_back(id);
        }
      }
    }
    return results;
  }

  // Values that must exist as tensors: backwards from what the program returns and does.
  void find_needed() {
    std::vector<ValueId> pending;
    const auto need = [&](ValueId id) {
      if (!needed_[static_cast<std::size_t>(id)]) {
        needed_[static_cast<std::size_t>(id)] = true;
        pending.push_back(id);
      }
    };
    for (const Argument& output : program_.outputs) {
      output.for_each_value(need);
    }
    for (const Instruction& instruction : program_.instructions) {
      if (instruction.results.empty() || instruction.effects.ordered || !instruction.effects.writes.empty()) {
        for_each_operand_value(instruction, need);
      }
    }
    std::vector<bool> seen(groups_.groups().size(), false);
    while (!pending.empty()) {
      const int definition = groups_.definition(pending.back());
      pending.pop_back();
      if (definition < 0) {
        continue;
      }
      const int index = groups_.group_of(static_cast<std::size_t>(definition));
      if (index < 0 || stays_apart(index)) {
        for_each_operand_value(program_.instructions[static_cast<std::size_t>(definition)], need);
      } else if (!seen[static_cast<std::size_t>(index)]) {
        seen[static_cast<std::size_t>(index)] = true;
        need_outside(index, need);
      }
    }
  }

  template <typename Need>
  void need_outside(int index, Need&& need) const {
    for (const std::size_t member : groups_.groups()[static_cast<std::size_t>(index)].members) {
      for (const RecipeNode& node : groups_.recipe(member)->nodes) {
        for (const RecipeArgument& argument : node.arguments) {
          if (argument.value == kNoValue) {
            continue;
          }
          const auto source = groups_.source_of(argument.value, index);
          if (!source.number && source.member == kNoValue) {
            need(source.root.value);
          }
        }
      }
    }
  }

  Program& program_;
  FusionGroups groups_;
  std::vector<bool> needed_;
  std::vector<bool> emitted_;
  std::vector<Instruction> result_;
};

}  // namespace

int fuse_regions(Program& program) { return Fuser(program).run(); }

}  // namespace neuron::compiler
