// Sweeps over the instructions with the lifetimes of groups of values that may share memory.
#include "compiler/memory_estimate.h"

#include <algorithm>
#include <vector>

#include "compiler/alias_sets.h"

namespace neuron::compiler {
namespace {

std::uint64_t item_bytes(ScalarKind kind) {
  switch (kind) {
    case ScalarKind::kFloat8E4M3:
    case ScalarKind::kFloat8E5M2:
    case ScalarKind::kInt8:
    case ScalarKind::kUInt8:
    case ScalarKind::kBool:
      return 1;
    case ScalarKind::kFloat16:
    case ScalarKind::kBFloat16:
    case ScalarKind::kInt16:
    case ScalarKind::kUInt16:
      return 2;
    case ScalarKind::kFloat32:
    case ScalarKind::kInt32:
    case ScalarKind::kUInt32:
    case ScalarKind::kComplex32:
      return 4;
    case ScalarKind::kFloat64:
    case ScalarKind::kInt64:
    case ScalarKind::kUInt64:
    case ScalarKind::kComplex64:
      return 8;
    case ScalarKind::kComplex128:
      return 16;
    case ScalarKind::kOther:
      break;
  }
  return 0;
}

struct Group {
  std::uint64_t bytes = 0;
  int first = -1;
  int last = -1;
  bool outside = false;  // memory of an input or a constant
};

}  // namespace

std::uint64_t bytes_of(const Type& type) {
  if (!type.is_tensor()) {
    return 0;
  }
  std::int64_t last = 0;
  for (std::size_t i = 0; i < type.tensor.sizes.size(); ++i) {
    if (type.tensor.sizes[i] == 0) {
      return 0;
    }
    last += (type.tensor.sizes[i] - 1) * type.tensor.strides[i];
  }
  return static_cast<std::uint64_t>(last + 1) * item_bytes(type.tensor.scalar);
}

MemoryEstimate estimate_memory(const Program& program) {
  MemoryEstimate estimate;
  const AliasSets aliases(program);
  std::vector<Group> groups(static_cast<std::size_t>(program.value_count()));
  const auto group_of = [&](ValueId id) -> Group& { return groups[static_cast<std::size_t>(aliases.set_of(id))]; };
  for (const ValueId id : program.inputs()) {
    estimate.input_bytes += bytes_of(program.type_of(id));
    group_of(id).outside = true;
  }
  for (const ValueId id : program.constants()) {
    estimate.constant_bytes += bytes_of(program.type_of(id));
    group_of(id).outside = true;
  }
  const int count = static_cast<int>(program.instructions.size());
  const auto use = [&](ValueId id, int at) {
    Group& group = group_of(id);
    group.first = group.first < 0 ? at : group.first;
    group.last = std::max(group.last, at);
    const Type& type = program.type_of(id);
    if (type.is_tensor() && type.tensor.place.type == "neuron") {
      group.bytes = std::max(group.bytes, bytes_of(type));
    }
  };
  for (int at = 0; at < count; ++at) {
    const Instruction& instruction = program.instructions[static_cast<std::size_t>(at)];
    for_each_operand_value(instruction, [&](ValueId id) { use(id, at); });
    for (const ValueId id : instruction.results) {
      if (id != kNoValue) {
        use(id, at);
      }
    }
  }
  for (const Argument& output : program.outputs) {
    output.for_each_value([&](ValueId id) { use(id, count); });
  }
  std::vector<std::int64_t> change(static_cast<std::size_t>(count) + 2, 0);
  for (const Group& group : groups) {
    if (!group.outside && group.first >= 0) {
      change[static_cast<std::size_t>(group.first)] += static_cast<std::int64_t>(group.bytes);
      change[static_cast<std::size_t>(group.last) + 1] -= static_cast<std::int64_t>(group.bytes);
    }
  }
  std::int64_t now = 0;
  for (int at = 0; at < count; ++at) {
    now += change[static_cast<std::size_t>(at)];
    if (static_cast<std::uint64_t>(now) > estimate.peak_bytes) {
      estimate.peak_bytes = static_cast<std::uint64_t>(now);
      estimate.peak_instruction = at;
    }
  }
  return estimate;
}

}  // namespace neuron::compiler
