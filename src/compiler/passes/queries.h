// Questions that passes ask about a program, answered by walking it.
#pragma once

#include <optional>

#include "compiler/alias_sets.h"
#include "compiler/program.h"

namespace neuron::compiler {

// The index of the instruction that defines the value; nothing for inputs and constants.
std::optional<std::size_t> definition_of(const Program& program, ValueId id);

// True if no instruction but the one at `reader`, and no output, mentions the value.
bool is_read_only_by(const Program& program, ValueId value, std::size_t reader);

// True if an instruction strictly between the two positions writes memory that the value may share.
bool is_written_between(const Program& program, const AliasSets& aliases, ValueId value, std::size_t first, std::size_t last);

}  // namespace neuron::compiler
