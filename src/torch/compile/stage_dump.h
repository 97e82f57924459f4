// Writes a program to a file after each pass if TORCH_NEURONX_DEBUG_DIR names a folder: <folder>/<program>.<number>_<pass>.txt
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/program.h"

namespace neuron::compile {

class StageDump {
 public:
  explicit StageDump(const compiler::Program& program);

  // Stages that changed nothing are left out. A folder that cannot be written to warns once and is then left alone.
  void write(std::string_view pass);

 private:
  const compiler::Program& program_;
  std::optional<std::string> folder_;
  std::string last_;
  int number_ = 0;
};

}  // namespace neuron::compile
