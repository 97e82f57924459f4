// Turns functional updates of an input that end in `copy_` into the input back into in-place writes.
//
// AOTAutograd rewrites `cache.index_copy_(2, position, keys)` to
//     %n = aten::index_copy(%cache, 2, %position, %keys)     # copies the whole cache
//     ... readers of %n ...
//     _ = aten::copy_(%cache, %n)                            # and copies it back
// This pass makes that `%n = aten::index_copy_(%cache, 2, %position, %keys)` again, so a static key-value cache is never copied.
// `slice_scatter` and `select_scatter` (what slices and `cache[layer]` become), also nested, are written through a view.
//
// An update is converted only when nobody can tell the difference: after it no reader of the old value (or of memory shared with it) is
// left, the update's other operands do not share memory with the input, and neither the old nor the new value leaves the program.
// An update that is read only by the final `copy_` may instead take the place of the copy, after the last reader of the old value.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many final copies were removed.
int reinplace_input_updates(Program& program);

}  // namespace neuron::compiler
