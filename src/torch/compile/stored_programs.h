// Compiled programs that outlive the process: the cache folder (compiler/disk_cache.h) as the environment configures it, and programs
// that come back as text.
//
//   TORCH_NEURONX_NEFF_CACHE_DIR          the folder; default /tmp/neff_cache, which is used only if it belongs to this user
//   TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR    where its lock file lies; default: the folder itself
//   TORCH_NEURONX_NEFF_DISABLE_CACHE,
//   TORCH_NEURONX_DISABLE_NEFF_CACHE      1: programs are neither read nor written
//   SOFTNEURON_NEFF_CACHE_BYTES           limit of the folder, such as 512M; default 1G
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torch/compile/executable.h"

namespace neuron::compile {

// Identifies what a stored program depends on besides the graph: this plugin's build, torch, the instruction set of the machine. One line.
const std::string& build_identity();

// The program stored under `fingerprint`, or nothing. `imported` is the one that was asked for: a stored one with other numbers of inputs,
// constants or outputs is rejected.
std::optional<compiler::Program> load_stored(const std::string& fingerprint, const compiler::Program& imported);
// Says that a loaded program is of no use after all; it is removed and reported.
void reject_stored(const std::string& fingerprint, const std::string& why);
void store(const std::string& fingerprint, const std::string& text);
// The text under which a program can be stored; nothing if it calls back into Python.
std::optional<std::string> storable_text(const Executable& executable);

struct StoredCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
};
StoredCounters stored_counters();

// Problems with the cache since the last call, each reported once a process.
std::vector<std::string> take_reports();

}  // namespace neuron::compile
