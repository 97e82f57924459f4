// Which instructions must run before which.
#include "compiler/passes/dependency_graph.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "compiler/alias_sets.h"

namespace neuron::compiler {

DependencyGraph::DependencyGraph(const Program& program, const std::function<std::vector<ValueId>(std::size_t)>& reads,
                                 const std::function<bool(std::size_t)>& looks)
    : before_(program.instructions.size()), group_of_(program.instructions.size(), -1), visited_(program.instructions.size(), 0) {
  struct Memory {
    int writer = -1;
    std::vector<std::size_t> readers;  // since the last write
  };
  const AliasSets aliases(program);
  std::unordered_map<ValueId, Memory> memory;
  std::vector<int> definition(static_cast<std::size_t>(program.value_count()), -1);
  int last_ordered = -1;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const ValueId id : reads(i)) {
      if (const int defined = definition[static_cast<std::size_t>(id)]; defined >= 0) {
        add(static_cast<std::size_t>(defined), i);
      }
      if (looks(i)) {
        Memory& read = memory[aliases.set_of(id)];
        if (read.writer >= 0) {
          add(static_cast<std::size_t>(read.writer), i);
        }
        read.readers.push_back(i);
      }
    }
    for (const int index : instruction.effects.writes) {
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([&](ValueId id) {
        Memory& written = memory[aliases.set_of(id)];
        for (const std::size_t reader : written.readers) {
          add(reader, i);
        }
        if (written.writer >= 0) {
          add(static_cast<std::size_t>(written.writer), i);
        }
        written = {static_cast<int>(i), {}};
      });
    }
    if (instruction.effects.ordered) {
      if (last_ordered >= 0) {
        add(static_cast<std::size_t>(last_ordered), i);
      }
      last_ordered = static_cast<int>(i);
    }
    for (const ValueId id : instruction.results) {
      if (id != kNoValue) {
        definition[static_cast<std::size_t>(id)] = static_cast<int>(i);
      }
    }
  }
}

void DependencyGraph::add(std::size_t before, std::size_t after) {
  if (before != after) {
    before_[after].push_back(before);
  }
}

bool DependencyGraph::may_contract(const std::vector<std::size_t>& members) const {
  const unsigned inside = ++visit_;
  const unsigned seen = ++visit_;
  std::size_t low = before_.size();
  for (const std::size_t member : members) {
    visited_[member] = inside;
    low = std::min(low, member);
  }
  // Instructions before all members cannot depend on one, unless through a group that reaches further.
  std::size_t safe = low;
  for (const Span& span : spans_) {
    if (span.last >= low) {
      safe = std::min(safe, span.first);
    }
  }
  std::vector<std::size_t> pending;
  const auto push = [&](std::size_t instruction) {
    if (instruction >= safe && visited_[instruction] != seen) {
      visited_[instruction] = seen;
      pending.push_back(instruction);
    }
  };
  for (const std::size_t member : members) {
    for (const std::size_t earlier : before_[member]) {
      if (visited_[earlier] != inside) {
        push(earlier);
      }
    }
  }
  while (!pending.empty()) {
    const std::size_t instruction = pending.back();
    pending.pop_back();
    const int group = group_of_[instruction];
    const std::vector<std::size_t> alone{instruction};
    for (const std::size_t part : group < 0 ? alone : groups_[static_cast<std::size_t>(group)]) {
      visited_[part] = seen;
      for (const std::size_t earlier : before_[part]) {
        if (visited_[earlier] == inside) {
          return false;
        }
        push(earlier);
      }
    }
  }
  return true;
}

void DependencyGraph::contract(const std::vector<std::size_t>& members, int group) {
  const auto index = static_cast<std::size_t>(group);
  if (groups_.size() <= index) {
    groups_.resize(index + 1);
    spans_.resize(index + 1);
  }
  for (const std::size_t member : members) {
    if (const int old = group_of_[member]; old >= 0 && old != group) {
      groups_[static_cast<std::size_t>(old)].clear();
      spans_[static_cast<std::size_t>(old)] = {};
    }
    group_of_[member] = group;
  }
  groups_[index] = members;
  std::sort(groups_[index].begin(), groups_[index].end());
  spans_[index] = {groups_[index].front(), groups_[index].back()};
}

std::vector<std::size_t> DependencyGraph::order() const {
  const std::size_t count = before_.size();
  // A group is known by its last member.
  std::vector<std::size_t> leader(count);
  for (std::size_t i = 0; i < count; ++i) {
    leader[i] = group_of_[i] < 0 ? i : spans_[static_cast<std::size_t>(group_of_[i])].last;
  }
  std::vector<std::vector<std::size_t>> after(count);
  std::vector<std::size_t> waiting(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t earlier : before_[i]) {
      if (leader[earlier] != leader[i]) {
        after[leader[earlier]].push_back(leader[i]);
        ++waiting[leader[i]];
      }
    }
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i) {
    if (leader[i] == i && waiting[i] == 0) {
      ready.push(i);
    }
  }
  std::vector<std::size_t> result;
  while (!ready.empty()) {
    const std::size_t next = ready.top();
    ready.pop();
    if (group_of_[next] < 0) {
      result.push_back(next);
    } else {
      const auto& members = groups_[static_cast<std::size_t>(group_of_[next])];
      result.insert(result.end(), members.begin(), members.end());
    }
    for (const std::size_t later : after[next]) {
      if (--waiting[later] == 0) {
        ready.push(later);
      }
    }
  }
  return result;
}

}  // namespace neuron::compiler
