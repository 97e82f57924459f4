// See host_identity.h.
#include "torch/distributed/host_identity.h"

#include <sys/stat.h>

#include <fstream>

#include "runtime/environment.h"

namespace neuron::distributed {

std::string host_identity() {
  if (const auto given = runtime::Environment::process().raw("TORCH_NEURONX_HOST_ID")) {
    return *given;
  }
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat folder{};
  if (stat("/dev/shm", &folder) == 0) {
    boot += "/" + std::to_string(folder.st_dev) + "/" + std::to_string(folder.st_ino);
  }
  return boot;
}

}  // namespace neuron::distributed
