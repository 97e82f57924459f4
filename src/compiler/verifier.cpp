// Checks that a program means something.
#include "compiler/verifier.h"

#include <algorithm>

#include "compiler/alias_sets.h"
#include "compiler/matmul.h"
#include "compiler/printer.h"
#include "compiler/region_text.h"

namespace neuron::compiler {
namespace {

enum class State : std::uint8_t { kUndefined, kLive, kReleased };

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program), states_(static_cast<std::size_t>(program.value_count())), aliases_(program) {}

  void run() {
    for (const ValueId id : program_.inputs()) {
      define(id);
    }
    for (const ValueId id : program_.constants()) {
      define(id);
    }
    release(program_.entry_releases);
    for (const Instruction& instruction : program_.instructions) {
      where_ = &instruction;
      check_effects(instruction);
      check_body(instruction);
      if (const auto fault = instruction.opcode == kMatmul ? find_fault(program_, instruction) : std::nullopt) {
        fail(*fault);
      }
      for_each_operand_value(instruction, [this](ValueId id) { read(id); });
      for (const ValueId id : instruction.results) {
        if (id != kNoValue) {
          define(id);
        }
      }
      release(instruction.releases);
    }
    where_ = nullptr;
    for (const Argument& output : program_.outputs) {
      output.for_each_value([this](ValueId id) { read(id); });
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw VerificationError(what + (where_ != nullptr ? " in: " + to_string(*where_, program_) : " in program " + program_.name()));
  }

  State& state_of(ValueId id) {
    if (id < 0 || id >= program_.value_count()) {
      fail("%" + std::to_string(id) + " does not exist");
    }
    return states_[static_cast<std::size_t>(id)];
  }

  void define(ValueId id) {
    State& state = state_of(id);
    if (state != State::kUndefined) {
      fail("%" + std::to_string(id) + " is defined twice");
    }
    state = State::kLive;
  }

  void read(ValueId id) {
    const State state = state_of(id);
    if (state != State::kLive) {
      fail("%" + std::to_string(id) + (state == State::kReleased ? " is read after its release" : " is read before it is defined"));
    }
  }

  void release(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      read(id);
      state_of(id) = State::kReleased;
    }
  }

  void check_effects(const Instruction& instruction) {
    for (const auto* indices : {&instruction.effects.writes, &instruction.effects.views}) {
      for (const int index : *indices) {
        if (index < 0 || index >= static_cast<int>(instruction.operands.size())) {
          fail("an effect names operand " + std::to_string(index) + ", which does not exist,");
        }
      }
    }
    for (const int index : instruction.effects.writes) {
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([this](ValueId written) {
        for (const ValueId constant : program_.constants()) {
          if (aliases_.may_share(written, constant)) {
            fail("the constant %" + std::to_string(constant) + " is written");
          }
        }
      });
    }
  }

  void check_body(const Instruction& instruction) {
    if (instruction.body.has_value() != (instruction.opcode == kFused)) {
      fail("a body belongs to a fused instruction, and to no other,");
    }
    if (!instruction.body) {
      return;
    }
    const kernels::vector::Region& region = *instruction.body;
    try {
      kernels::vector::check(region);
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
    if (region.inputs != static_cast<int>(instruction.operands.size()) || region.stores.size() != instruction.results.size()) {
      fail("the body has other numbers of tensors");
    }
    for (const auto& node : region.nodes) {
      const ValueId id =
          node.op == kernels::vector::Op::kLoad ? operand_value(instruction, static_cast<std::size_t>(node.tensor)) : kNoValue;
      if (node.op == kernels::vector::Op::kLoad && (id == kNoValue || element_of(program_.type_of(id)) != node.type)) {
        fail("a load has another element type than its tensor");
      }
    }
    for (std::size_t i = 0; i < region.stores.size(); ++i) {
      const ValueId id = instruction.results[i];
      if (id == kNoValue || element_of(program_.type_of(id)) != region.stores[i].type) {
        fail("a result has another element type than what is stored");
      }
    }
  }

  const Program& program_;
  std::vector<State> states_;
  AliasSets aliases_;
  const Instruction* where_ = nullptr;
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace neuron::compiler
