// Writes a `slice_scatter` or `select_scatter` through a view: %n = aten::slice_scatter(%c, %s, 0, 1, 2, 1) becomes
//     %v = aten::slice.Tensor(%c, 0, 1, 2, 1) views(0)
//     _ = aten::copy_(%v, %s, false) writes(0) views(0)
// If %s is itself an update of the same view of %c (nested subscripts, `cache[layer][:, position] = x`), that update is written in place
// too.
#pragma once

#include <vector>

#include "compiler/alias_sets.h"
#include "compiler/program.h"

namespace neuron::compiler {

bool is_view_store(const Instruction& instruction);

class ViewStore {
 public:
  // The stores are going to replace the instruction at `position`, which still stands there.
  ViewStore(Program& program, AliasSets& aliases, ValueId root, std::size_t position)
      : program_(program), aliases_(aliases), root_(root), position_(position) {}

  // `scatter` updates the value `root`.
  std::vector<Instruction> lower(const Instruction& scatter);

 private:
  // Makes the memory of `target` hold `source`; `reader` is the instruction that read `source` before.
  void store(ValueId target, const Instruction& reader, ValueId source, bool non_blocking = false);
  ValueId open_view(ValueId of, const Instruction& scatter);
  bool may_move_here(const Instruction& instruction, std::size_t defined) const;
  bool is_same_view(ValueId old_view, ValueId target) const;

  Program& program_;
  AliasSets& aliases_;
  ValueId root_;
  std::size_t position_;
  std::vector<Instruction> stores_;
};

}  // namespace neuron::compiler
