// What the dispatcher knows about an operator, put into the compiler's terms: its schema, its effects on memory, its in-place variant.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <utility>
#include <vector>

#include "compiler/program.h"

namespace neuron::compile {

// "aten::add.Tensor" from name "aten::add" and overload "Tensor"; no dot if the overload has no name.
std::string opcode_of(const c10::OperatorName& name);
// Throws c10::NotImplementedError naming the opcode if no such operator is registered.
c10::OperatorHandle find_operator(const std::string& opcode);

// Positional and named arguments as one list in the schema's order, defaults filled in; keyword-only ones carry their name.
std::vector<compiler::Operand> bind_operands(const c10::FunctionSchema& schema, std::vector<compiler::Argument> positional,
                                             std::vector<std::pair<std::string, compiler::Argument>> named);

compiler::Effects effects_of(const c10::OperatorHandle& op);

// The operator that stores this one's result in its first argument ("aten::add_.Tensor"); empty if there is none.
std::string inplace_variant_of(const c10::OperatorHandle& op);

}  // namespace neuron::compile
