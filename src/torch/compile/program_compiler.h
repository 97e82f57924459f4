// The last mile: passes, the caches, and the executable. One cache in memory per process, shared by all threads; one folder for all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/program_cache.h"
#include "torch/compile/executable.h"
#include "torch/compile/program_builder.h"

namespace neuron::compile {

struct CompiledProgram {
  std::shared_ptr<const Executable> executable;
  std::string fingerprint;      // the key of both caches, 32 hexadecimal digits: of the imported program, its constants and the device
  bool was_cached = false;      // found in memory
  bool was_stored = false;      // found in the cache folder (stored_programs.h)
  std::int64_t lower_us = 0;    // fingerprint and passes
  std::int64_t compile_us = 0;  // reading or writing the cache folder, planning and preparing the steps; waiting for another thread
  int instruction_count = 0;
};

// Gets the program as it is imported and after each pass, with a name for the stage.
using StageObserver = std::function<void(const char* stage, const compiler::Program& program)>;

// `device`: where a program of host tensors is moved to; without it such programs run on the host.
// `observer`: is shown every stage, also if the result comes from a cache.
CompiledProgram compile_program(ProgramBuilder builder, const std::optional<c10::Device>& device, const StageObserver& observer = {});

// A program that `storable_text` gave, with its constants, in this process or another of the same build. Throws for a text that does not
// parse or does not fit the constants.
CompiledProgram load_program(const std::string& name, const std::string& fingerprint, const std::string& text,
                             std::vector<at::Tensor> constants);

compiler::CacheCounters cache_counters();
// Forgets the programs (not those in use). The cache folder is left alone.
void clear_cache();

}  // namespace neuron::compile
