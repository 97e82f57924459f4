// Analyses a region's nodes: forward for phases, backward for uses.
#include "kernels/vector/node_facts.h"

#include <algorithm>

namespace neuron::kernels::vector {
namespace {

constexpr int kCheapCost = 4;  // operations that are repeated rather than kept for another phase

NodeFacts& of(std::vector<NodeFacts>& facts, int node) { return facts[static_cast<std::size_t>(node)]; }

// Of computing the node again from memory.
int cost_of(const Region& region, const std::vector<NodeFacts>& facts, int index) {
  const Node& node = region.nodes[static_cast<std::size_t>(index)];
  if (facts[static_cast<std::size_t>(index)].row) return 0;
  switch (node.op) {
    case Op::kLoad:
      return 1;
    case Op::kIota:
    case Op::kCopy:
    case Op::kAdd:
    case Op::kSubtract:
    case Op::kMultiply:
    case Op::kNegate: {
      int cost = 1;
      for (const Argument& argument : node.arguments) {
        cost += argument.is_number() ? 0 : cost_of(region, facts, argument.node);
      }
      return cost;
    }
    default:
      return kCheapCost + 1;
  }
}

void find_phases(const Region& region, const RowLayout& layout, std::vector<NodeFacts>& facts) {
  for (std::size_t i = 0; i < region.nodes.size(); ++i) {
    const Node& node = region.nodes[i];
    NodeFacts& own = facts[i];
    own.row = is_source(node.op) ? layout.is_constant_along_row(node.access) : !is_rotation(node.op);
    for (const Argument& argument : node.arguments) {
      if (!argument.is_number()) {
        const NodeFacts& read = of(facts, argument.node);
        own.row = own.row && (read.row || is_reduction(node.op));
        own.phase = std::max(own.phase, read.available);
      }
    }
    own.available = own.phase + (layout.phased && is_reduction(node.op) ? 1 : 0);
  }
}

void find_uses(const Region& region, std::vector<NodeFacts>& facts) {
  for (const Store& store : region.stores) {
    of(facts, store.node).used = true;
    ++of(facts, store.node).uses;
  }
  for (std::size_t i = region.nodes.size(); i-- > 0;) {
    if (!facts[i].used) {
      continue;
    }
    // A row's value is read as a whole only by reductions, which sweep over its elements like everything that has one per element.
    const bool sweeps = !facts[i].row || is_reduction(region.nodes[i].op);
    for (const Argument& argument : region.nodes[i].arguments) {
      if (argument.is_number()) {
        continue;
      }
      NodeFacts& read = of(facts, argument.node);
      read.used = true;
      ++read.uses;
      if (sweeps && !read.row && read.phase < facts[i].phase && cost_of(region, facts, argument.node) > kCheapCost) {
        read.kept = true;
      }
    }
  }
}

}  // namespace

std::vector<NodeFacts> facts_of(const Region& region, const RowLayout& layout) {
  std::vector<NodeFacts> facts(region.nodes.size());
  find_phases(region, layout, facts);
  find_uses(region, facts);
  return facts;
}

}  // namespace neuron::kernels::vector
