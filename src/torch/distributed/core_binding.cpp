// See core_binding.h.
#include "torch/distributed/core_binding.h"

#include <ATen/Parallel.h>
#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "runtime/environment.h"

namespace neuron::distributed {
namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

void bind_all_threads(const cpu_set_t& set) {
  sched_setaffinity(0, sizeof(set), &set);  // threads to come inherit it
  if (DIR* const tasks = opendir("/proc/self/task")) {
    while (const dirent* const entry = readdir(tasks)) {
      if (const int thread = std::atoi(entry->d_name); thread > 0) {
        sched_setaffinity(thread, sizeof(set), &set);
      }
    }
    closedir(tasks);
  }
}

}  // namespace

int bind_to_cores(int local_rank, int local_size) {
  static std::atomic<bool> called{false};
  const bool wanted = runtime::Environment::process().boolean("TORCH_NEURONX_BIND_CORES").value_or(true);
  if (!wanted || local_size < 2 || local_rank < 0 || local_rank >= local_size || called.exchange(true)) {
    return 0;
  }
  const auto cores = allowed_cores();
  const int share = static_cast<int>(cores.size()) / local_size;
  if (share == 0) {
    return 0;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = 0; i < share; ++i) {
    CPU_SET(cores[static_cast<std::size_t>(local_rank * share + i)], &set);
  }
  bind_all_threads(set);
  at::set_num_threads(std::min(at::get_num_threads(), share));
  return share;
}

}  // namespace neuron::distributed
