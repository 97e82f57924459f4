// Adding values to a program.
#include "compiler/program.h"

namespace neuron::compiler {

ValueId Program::new_value(Type type) {
  types_.push_back(std::move(type));
  return static_cast<ValueId>(types_.size() - 1);
}

ValueId Program::add_input(Type type) {
  inputs_.push_back(new_value(std::move(type)));
  return inputs_.back();
}

ValueId Program::add_constant(Type type) {
  constants_.push_back(new_value(std::move(type)));
  return constants_.back();
}

}  // namespace neuron::compiler
