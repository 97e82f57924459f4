// The grouping half of fuse_regions: which instructions run as one, and how their dimensions correspond.
#pragma once

#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include "compiler/alias_sets.h"
#include "compiler/passes/dependency_graph.h"
#include "compiler/passes/recipes.h"
#include "compiler/passes/view_maps.h"
#include "compiler/program.h"

namespace neuron::compiler {

struct FusionGroup {
  std::vector<std::int64_t> sizes;  // of the iteration space, none is 1
  int row_dim = -1;                 // the last dimension, if a member goes along it or a member does not extend over it
  std::vector<std::size_t> members;
  std::map<ValueId, std::vector<int>> dims;           // of members' results: their dimensions in the iteration space, -1 for size 1
  std::map<std::size_t, std::vector<int>> iteration;  // of members: the dimensions of their recipes' sizes, likewise
  std::unordered_set<std::size_t> outside;            // instructions that make what members read from outside
  std::size_t nodes = 0;
};

class FusionGroups {
 public:
  explicit FusionGroups(const Program& program);

  // A value as a region sees it.
  struct Source {
    ValueId member = kNoValue;  // result of a member of the reader's group; then `dims` gives its dimension per dimension of the value
    std::vector<int> dims;
    std::optional<Argument> number;  // every element is this
    ViewMaps::Root root;             // otherwise: memory
  };
  Source source_of(ValueId value, int group) const;

  const std::vector<FusionGroup>& groups() const { return groups_; }
  int group_of(std::size_t instruction) const { return group_of_[instruction]; }
  const std::optional<Recipe>& recipe(std::size_t instruction) const { return recipes_[instruction]; }
  int definition(ValueId value) const { return definitions_[static_cast<std::size_t>(value)]; }
  const DependencyGraph& graph() const { return *graph_; }

 private:
  std::optional<Argument> number_of(ValueId value) const;
  std::vector<ValueId> operands_of(std::size_t instruction) const;
  FusionGroup start(std::size_t instruction) const;
  void place(std::size_t instruction);
  // The reader's dimensions for those of the group that makes the operand; nothing if they do not correspond.
  std::optional<std::vector<int>> correspondence(const FusionGroup& reader, std::size_t instruction, ValueId operand,
                                                 const FusionGroup& group, const Source& source) const;
  bool merge(FusionGroup& into, const FusionGroup& other, std::vector<int> map) const;

  const Program& program_;
  AliasSets aliases_;
  ViewMaps views_;
  std::vector<int> definitions_;
  std::unordered_set<ValueId> written_;  // sets
  std::vector<std::optional<Recipe>> recipes_;
  std::optional<DependencyGraph> graph_;
  std::vector<FusionGroup> groups_;
  std::vector<int> group_of_;
};

}  // namespace neuron::compiler
