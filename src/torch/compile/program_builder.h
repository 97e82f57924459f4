// Receives an AOT graph, node by node, and makes the compiler's program of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/program.h"
#include "torch/compile/executable.h"

namespace neuron::compile {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string name) : program_(std::move(name)) {}

  compiler::ValueId add_input(compiler::Type type) { return program_.add_input(std::move(type)); }
  compiler::ValueId add_constant(at::Tensor tensor);

  // One call of an operator; arguments as in Python. Throws c10::NotImplementedError if it is not registered.
  std::vector<compiler::ValueId> add_call(const std::string& opcode, std::vector<compiler::Argument> positional,
                                          std::vector<std::pair<std::string, compiler::Argument>> named,
                                          const std::vector<compiler::Type>& results);
  // One call of something that only Python can run.
  std::vector<compiler::ValueId> add_external_call(const std::string& name, std::shared_ptr<const ExternalCall> call,
                                                   const std::vector<compiler::ValueId>& arguments,
                                                   const std::vector<compiler::Type>& results);
  void set_outputs(std::vector<compiler::Argument> outputs) { program_.outputs = std::move(outputs); }

  compiler::Program& program() { return program_; }
  ProgramObjects& objects() { return objects_; }
  const ProgramObjects& objects() const { return objects_; }

 private:
  std::vector<compiler::ValueId> append(compiler::Instruction instruction, const std::vector<compiler::Type>& results);

  compiler::Program program_;
  ProgramObjects objects_;
};

}  // namespace neuron::compile
