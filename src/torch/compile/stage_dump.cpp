// Writes a program to a file after each pass.
#include "torch/compile/stage_dump.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <fstream>

#include "compiler/printer.h"
#include "runtime/environment.h"

namespace neuron::compile {

StageDump::StageDump(const compiler::Program& program)
    : program_(program), folder_(runtime::Environment::process().raw("TORCH_NEURONX_DEBUG_DIR")) {
  if (folder_ && folder_->empty()) {
    folder_.reset();
  }
}

void StageDump::write(std::string_view pass) {
  if (!folder_) {
    return;
  }
  ++number_;
  std::string text = compiler::to_string(program_);
  if (text == last_) {
    return;
  }
  std::error_code ignored;
  std::filesystem::create_directories(*folder_, ignored);
  const auto path = std::filesystem::path(*folder_) / (program_.name() + "." + std::to_string(number_) + "_" + std::string(pass) + ".txt");
  std::ofstream file(path);
  file << text;
  if (!file.flush()) {
    TORCH_WARN_ONCE("TORCH_NEURONX_DEBUG_DIR: cannot write ", path.string());
    folder_.reset();
  }
  last_ = std::move(text);
}

}  // namespace neuron::compile
