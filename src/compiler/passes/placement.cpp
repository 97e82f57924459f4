// Puts the work on the device when tensors of the host reach a program.
#include "compiler/passes/placement.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/alias_sets.h"

namespace neuron::compiler {
namespace {

constexpr std::array<std::string_view, 8> kCrossing{"aten::_to_copy",       "aten::copy_",        "aten::copy",      "aten::_foreach_copy",
                                                    "aten::_foreach_copy_", "aten::index.Tensor", "aten::index_put", "aten::index_put_"};

bool is_on_host(const Type& type) { return type.is_tensor() && type.tensor.place.type == "cpu"; }
bool is_host_array(const Type& type) { return is_on_host(type) && !type.tensor.sizes.empty(); }

// aten::_to_copy(self, *, dtype, layout, device, pin_memory, non_blocking, memory_format)
Instruction make_transfer(ValueId from, ValueId to, const Place& device) {
  Instruction transfer;
  transfer.opcode = "aten::_to_copy";
  transfer.operands = {{Argument::value(from), {}},
                       {{}, "dtype"},
                       {{}, "layout"},
                       {Argument(Symbol{"device", device.to_string()}), "device"},
                       {{}, "pin_memory"},
                       {Argument(false), "non_blocking"},
                       {{}, "memory_format"}};
  transfer.results = {to};
  return transfer;
}

// softneuron::copy_storages(Tensor(a)[] tensors, Device device, bool whole) -> Tensor(a)[]
Instruction make_storage_copy(const std::vector<ValueId>& from, std::vector<ValueId> to, const Place& device, bool whole) {
  Argument::List tensors;
  for (const ValueId id : from) {
    tensors.push_back(Argument::value(id));
  }
  Instruction copy;
  copy.opcode = "softneuron::copy_storages";
  copy.operands = {{Argument(std::move(tensors)), {}}, {Argument(Symbol{"device", device.to_string()}), {}}, {Argument(whole), {}}};
  copy.results = std::move(to);
  return copy;
}

// Elements lie on each other, and copying the memory below them copies no more than copying each of them would.
bool overlaps(const TensorType& type) {
  std::int64_t span = 1;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    span += (type.sizes[i] - 1) * type.strides[i];
  }
  return span < type.element_count();
}

// By value: does an instruction read the memory that it may share by strides and offset, whatever those of the value are?
std::vector<bool> find_restrided(const Program& program) {
  const AliasSets aliases(program);
  std::vector<bool> restrided(static_cast<std::size_t>(program.value_count()), false);
  for (const Instruction& instruction : program.instructions) {
    if (!instruction.opcode.starts_with("aten::as_strided") || instruction.operands.empty()) {
      continue;
    }
    instruction.operands.front().value.for_each_value([&](ValueId base) {
      for (ValueId id = 0; id < program.value_count(); ++id) {
        restrided[static_cast<std::size_t>(id)] = restrided[static_cast<std::size_t>(id)] || aliases.may_share(id, base);
      }
    });
  }
  return restrided;
}

Instruction make_copy_back(ValueId to, ValueId from) {
  Instruction copy;
  copy.opcode = "aten::copy_";
  copy.operands = {{Argument::value(to), {}}, {Argument::value(from), {}}, {Argument(false), {}}};
  copy.results = {kNoValue};
  copy.effects.writes = {0};
  copy.effects.views = {0};
  return copy;
}

Type on(Type type, const Place& device) {
  type.tensor.place = device;
  return type;
}

void rename_device(Argument& argument, const Place& device) {
  if (auto* symbol = argument.get_if<Symbol>(); symbol != nullptr && symbol->kind == "device" && symbol->name.starts_with("cpu")) {
    symbol->name = device.to_string();
  }
}

// By value: does an instruction write memory that it may share?
std::vector<bool> find_written(const Program& program) {
  const AliasSets aliases(program);
  std::vector<bool> written(static_cast<std::size_t>(program.value_count()), false);
  for (const Instruction& instruction : program.instructions) {
    for (const int index : instruction.effects.writes) {
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([&](ValueId target) {
        for (ValueId id = 0; id < program.value_count(); ++id) {
          written[static_cast<std::size_t>(id)] = written[static_cast<std::size_t>(id)] || aliases.may_share(id, target);
        }
      });
    }
  }
  return written;
}

// Results that are views of an input stay views of the caller's own tensor: AOTAutograd makes most of these itself, but leaves those of
// operators with several results (chunk, split) to the program.
class HostViews {
 public:
  explicit HostViews(const Program& program) : definitions_(static_cast<std::size_t>(program.value_count()), nullptr) {
    for (const ValueId id : program.inputs()) {
      views_[id] = id;
    }
    for (const Instruction& instruction : program.instructions) {
      for (const ValueId id : instruction.results) {
        if (id != kNoValue) {
          definitions_[static_cast<std::size_t>(id)] = &instruction;
        }
      }
    }
  }

  // The value as a view of an input on the host; kNoValue if it is none. What makes it is to be appended to the program.
  ValueId view_of(ValueId id, Program& program) {
    if (const auto found = views_.find(id); found != views_.end()) {
      return found->second;
    }
    const Instruction* definition = definitions_[static_cast<std::size_t>(id)];
    if (definition == nullptr || definition->effects.views != std::vector<int>{0} || !definition->effects.writes.empty() ||
        definition->effects.ordered) {
      return kNoValue;
    }
    const ValueId base = operand_value(*definition, 0);
    int values = 0;
    for_each_operand_value(*definition, [&values](ValueId) { ++values; });
    const ValueId host_base = base == kNoValue || values != 1 ? kNoValue : view_of(base, program);
    if (host_base == kNoValue) {
      return kNoValue;
    }
    Instruction view = *definition;
    view.operands[0].value = Argument::value(host_base);
    for (ValueId& result : view.results) {
      if (result != kNoValue) {
        const Type type = program.type_of(result);
        const ValueId on_host = program.new_value(type);
        views_[result] = on_host;
        result = on_host;
      }
    }
    instructions_.push_back(std::move(view));
    return views_.at(id);
  }

  std::vector<Instruction>& instructions() { return instructions_; }

 private:
  std::vector<const Instruction*> definitions_;
  std::map<ValueId, ValueId> views_;
  std::vector<Instruction> instructions_;
};

}  // namespace

bool is_host_program(const Program& program) {
  bool only_host = true;
  for (ValueId id = 0; id < program.value_count(); ++id) {
    const Type& type = program.type_of(id);
    only_host = only_host && (!type.is_tensor() || is_on_host(type));
  }
  return only_host &&
         std::any_of(program.inputs().begin(), program.inputs().end(), [&](ValueId id) { return is_host_array(program.type_of(id)); });
}

void move_to_device(Program& program, const Place& device) {
  const std::vector<bool> written = find_written(program);
  const std::vector<bool> restrided = find_restrided(program);
  HostViews host_views(program);
  for (Argument& output : program.outputs) {
    output.for_each_value([&](ValueId& id) {
      const ValueId view = program.type_of(id).is_tensor() ? host_views.view_of(id, program) : kNoValue;
      id = view == kNoValue ? id : view;
    });
  }
  std::vector<bool> stays(static_cast<std::size_t>(program.value_count()), false);
  for (const Instruction& view : host_views.instructions()) {
    for (const ValueId id : view.results) {
      if (id != kNoValue) {
        stays[static_cast<std::size_t>(id)] = true;
      }
    }
  }
  std::vector<ValueId> moved(static_cast<std::size_t>(program.value_count()), kNoValue);
  std::vector<Instruction> instructions;
  std::vector<Instruction> copies_back;
  for (const ValueId id : program.inputs()) {
    stays[static_cast<std::size_t>(id)] = true;
    if (is_on_host(program.type_of(id))) {
      const ValueId copy = program.new_value(on(program.type_of(id), device));
      moved[static_cast<std::size_t>(id)] = copy;
      const bool whole = restrided[static_cast<std::size_t>(id)];
      if (whole || overlaps(program.type_of(id).tensor)) {
        instructions.push_back(make_storage_copy({id}, {copy}, device, whole));
      } else {
        instructions.push_back(make_transfer(id, copy, device));
      }
      if (written[static_cast<std::size_t>(id)]) {
        copies_back.push_back(make_copy_back(id, copy));
      }
    }
  }
  for (Instruction& instruction : program.instructions) {
    for_each_operand_value(instruction, [&moved](ValueId& id) {
      const ValueId copy = moved[static_cast<std::size_t>(id)];
      id = copy == kNoValue ? id : copy;
    });
    for (Operand& operand : instruction.operands) {
      rename_device(operand.value, device);
    }
    instructions.push_back(std::move(instruction));
  }
  for (ValueId id = 0; id < static_cast<ValueId>(moved.size()); ++id) {
    if (!stays[static_cast<std::size_t>(id)] && is_on_host(program.type_of(id))) {
      program.type_of(id).tensor.place = device;  // constants too: they are moved once, when the program is made
    }
  }
  const Place host{"cpu", -1};
  // Together, so that results that share memory share it on the host too.
  std::map<ValueId, ValueId> back;
  for (Argument& output : program.outputs) {
    output.for_each_value([&](ValueId& id) {
      // An input that leaves stays the caller's own tensor.
      if (stays[static_cast<std::size_t>(id)] || !program.type_of(id).is_tensor()) {
        return;
      }
      const auto [entry, fresh] = back.try_emplace(id, kNoValue);
      if (fresh) {
        entry->second = program.new_value(on(program.type_of(id), host));
      }
      id = entry->second;
    });
  }
  if (!back.empty()) {
    std::vector<ValueId> results;
    std::vector<ValueId> copies;
    for (const auto& [result, copy] : back) {
      results.push_back(result);
      copies.push_back(copy);
    }
    instructions.push_back(make_storage_copy(results, std::move(copies), host, /*whole=*/true));
    // What shares memory afterwards is what shared it before, so other passes must take the originals for results of the program.
    instructions.back().effects.views = {0};
  }
  instructions.insert(instructions.end(), copies_back.begin(), copies_back.end());
  instructions.insert(instructions.end(), host_views.instructions().begin(), host_views.instructions().end());
  program.instructions = std::move(instructions);
}

int copy_host_operands(Program& program) {
  std::vector<Instruction> instructions;
  std::map<std::pair<ValueId, std::string>, ValueId> copies;  // of values that nothing writes
  const std::vector<bool> written = find_written(program);
  int inserted = 0;
  for (Instruction& instruction : program.instructions) {
    const Place* device = nullptr;
    for_each_operand_value(instruction, [&](ValueId id) {
      const Type& type = program.type_of(id);
      device = device == nullptr && type.is_tensor() && type.tensor.place.type == "neuron" ? &type.tensor.place : device;
    });
    const bool crossing = std::find(kCrossing.begin(), kCrossing.end(), instruction.opcode) != kCrossing.end();
    if (device != nullptr && !crossing && !instruction.opcode.starts_with("python::")) {
      const Place target = *device;
      for_each_operand_value(instruction, [&](ValueId& id) {
        if (!is_host_array(program.type_of(id))) {
          return;
        }
        const bool stable = !written[static_cast<std::size_t>(id)];
        const auto [entry, fresh] = copies.try_emplace({id, target.to_string()}, kNoValue);
        if (fresh || !stable) {
          entry->second = program.new_value(on(program.type_of(id), target));
          instructions.push_back(make_transfer(id, entry->second, target));
          ++inserted;
        }
        id = entry->second;
      });
    }
    instructions.push_back(std::move(instruction));
  }
  program.instructions = std::move(instructions);
  return inserted;
}

}  // namespace neuron::compiler
