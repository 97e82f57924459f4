// Which instructions must run before which: data, writes to shared memory, and the order of what must keep its place. Instructions can be
// contracted to groups that run as one; the graph says whether it stays without cycles, and gives an order to run it in.
#pragma once

#include <functional>
#include <vector>

#include "compiler/program.h"

namespace neuron::compiler {

class DependencyGraph {
 public:
  // `reads(i)`: the values that instruction i reads (more direct ones than its operands, if it reads through views). `looks(i)`: whether it
  // reads their elements, not just makes a view of them.
  DependencyGraph(const Program& program, const std::function<std::vector<ValueId>(std::size_t)>& reads,
                  const std::function<bool(std::size_t)>& looks);

  // Whether the instructions, together with those of the groups that they belong to, can run as one.
  bool may_contract(const std::vector<std::size_t>& members) const;
  // Makes them the group `group`, which replaces the groups they were in.
  void contract(const std::vector<std::size_t>& members, int group);

  // All instructions in an order to run them in; those of a group follow each other. As close to the program's order as possible.
  std::vector<std::size_t> order() const;

 private:
  struct Span {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  void add(std::size_t before, std::size_t after);

  std::vector<std::vector<std::size_t>> before_;  // direct predecessors
  std::vector<int> group_of_;                     // -1: none
  std::vector<std::vector<std::size_t>> groups_;
  std::vector<Span> spans_;
  mutable std::vector<unsigned> visited_;
  mutable unsigned visit_ = 0;
};

}  // namespace neuron::compiler
