// What views do to coordinates and to memory: how a region reads a tensor through them without their running.
#pragma once

#include <optional>
#include <vector>

#include "compiler/program.h"

namespace neuron::compiler {

class ViewMaps {
 public:
  explicit ViewMaps(const Program& program);

  // A view whose elements are those of `value` in some order of dimensions, perhaps repeated.
  struct Step {
    ValueId value = kNoValue;
    std::vector<int> dims;  // per dimension of the view, the dimension of `value`; -1 if it has size 1 or repeats
  };
  // Nothing if `view` is no such view (also if it cuts, joins or splits dimensions).
  std::optional<Step> step(ValueId view) const;

  // The tensor that a chain of views starts from, and the offset of the view's first element in it, in elements.
  struct Root {
    ValueId value = kNoValue;
    std::int64_t offset = 0;
  };
  Root root(ValueId view) const;

  // Of a view (is_view): from the first element of operand 0 to that of the result, in elements. Nothing if it is not known.
  static std::optional<std::int64_t> offset_of(const Program& program, const Instruction& view);

  // Whether the instruction only makes a view and reads no elements.
  static bool is_view(const Instruction& instruction);

 private:
  const Instruction* definition(ValueId value) const;

  const Program& program_;
  std::vector<int> definitions_;  // by value, the instruction; -1 for inputs and constants
};

}  // namespace neuron::compiler
