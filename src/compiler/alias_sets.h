// Which values of a program may share memory: a union-find over the views that instructions declare. Conservative: values in one set *may*
// share bytes, values in different sets never do (AOTAutograd guarantees it for inputs of which one is written).
#pragma once

#include <numeric>
#include <vector>

#include "compiler/program.h"

namespace neuron::compiler {

class AliasSets {
 public:
  explicit AliasSets(const Program& program);

  bool may_share(ValueId a, ValueId b) const { return set_of(a) == set_of(b); }
  // A value that stands for the whole set; it changes when sets are joined.
  ValueId set_of(ValueId id) const;
  // Records a value that was added after construction as sharing memory with `of`.
  void join(ValueId id, ValueId of);

 private:
  mutable std::vector<ValueId> parents_;
};

}  // namespace neuron::compiler
