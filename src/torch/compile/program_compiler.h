// The last mile: passes, the in-memory cache, and the executable. One cache per process, shared by all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "compiler/program_cache.h"
#include "torch/compile/executable.h"
#include "torch/compile/program_builder.h"

namespace neuron::compile {

struct CompiledProgram {
  std::shared_ptr<const Executable> executable;
  std::string fingerprint;  // the cache key, 32 hexadecimal digits
  bool was_cached = false;
  std::int64_t lower_us = 0;    // passes and fingerprint
  std::int64_t compile_us = 0;  // planning and preparing the steps; waiting, if another thread compiles the same program
  int instruction_count = 0;
};

// `device`: where a program of host tensors is moved to; without it such programs run on the host.
CompiledProgram compile_program(ProgramBuilder builder, const std::optional<c10::Device>& device);

compiler::CacheCounters cache_counters();
// Forgets the programs (not those in use).
void clear_cache();

}  // namespace neuron::compile
