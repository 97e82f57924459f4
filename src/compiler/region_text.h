// Fused regions as text, inside of programs:
//   {
//     over [4,64]                          # the iteration space
//     n0 = load(0): bf16{64,1}             # operand 0, a stride per dimension; "offset 3" follows where there is one
//     n1 = cast(n0): f32
//     n2 = sum(n1): f32                    # over the last dimension
//     n3 = div(n2, 64.0): f32
//     n4 = iota(): i64{0,1}
//     store n3 {1,0}
//   }
// Nodes are numbered in order. Numbers of float lanes have a point or an exponent, those of integer lanes have none.
#pragma once

#include <optional>
#include <string>

#include "compiler/lexer.h"
#include "compiler/type.h"
#include "kernels/vector/region.h"

namespace neuron::compiler {

std::string to_string(const kernels::vector::Region& region);
// Throws ParseError.
kernels::vector::Region parse_region(Lexer& lexer);

// What regions can read and write: tensors of the device's plain element types; nothing for other values.
std::optional<kernels::vector::Element> element_of(ScalarKind kind);
std::optional<kernels::vector::Element> element_of(const Type& type);

}  // namespace neuron::compiler
