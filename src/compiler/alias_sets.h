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

  bool may_share(ValueId a, ValueId b) const { return root(a) == root(b); }
  // Records a value that was added after construction as sharing memory with `of`.
  void join(ValueId id, ValueId of);

 private:
  ValueId root(ValueId id) const;

  mutable std::vector<ValueId> parents_;
};

}  // namespace neuron::compiler
