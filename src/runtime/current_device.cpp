// Per-thread current device with the main thread's choice as the default.
#include "runtime/current_device.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "runtime/error.h"
#include "runtime/runtime.h"

namespace neuron::runtime {
namespace {

constexpr int kUnset = -1;

std::atomic<int> main_thread_device{0};
constinit thread_local int own_device = kUnset;

enum class ThreadRole : signed char { kUnknown, kMain, kWorker };
constinit thread_local ThreadRole thread_role = ThreadRole::kUnknown;

bool is_main_thread() noexcept {
  if (thread_role == ThreadRole::kUnknown) [[unlikely]] {
    Runtime::instance();  // installs the fork handler that keeps the cached answer right
    thread_role = syscall(SYS_gettid) == getpid() ? ThreadRole::kMain : ThreadRole::kWorker;
  }
  return thread_role == ThreadRole::kMain;
}

}  // namespace

int current_device() noexcept {
  const int own = own_device;
  return own != kUnset ? own : main_thread_device.load(std::memory_order_relaxed);
}

int unchecked_exchange_device(int device) noexcept {
  const int previous = current_device();
  if (device >= 0 && own_device != device) {
    own_device = device;
    if (is_main_thread()) {
      main_thread_device.store(device, std::memory_order_relaxed);
    }
  }
  return previous;
}

void check_device(int device) {
  Runtime& runtime = Runtime::instance();
  const int count = runtime.device_count();
  if (device >= 0 && device < count) {
    return;
  }
  std::string text = "invalid device neuron:" + std::to_string(device) + ": ";
  if (count == 0) {
    text += "no NeuronCore is available. " + runtime.topology_error();
  } else {
    text += "this process sees " + std::to_string(count) + (count == 1 ? " core, neuron:0" : " cores, neuron:0 to neuron:") +
            (count == 1 ? "" : std::to_string(count - 1)) +
            ". NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and SOFTNEURON_INSTANCE_TYPE decide which cores it sees.";
  }
  throw Error(ErrorCode::kInvalidDevice, text);
}

void forked_thread_is_main() noexcept { thread_role = ThreadRole::kMain; }

void set_device(int device) { exchange_device(device); }

int exchange_device(int device) {
  check_device(device);
  return unchecked_exchange_device(device);
}

}  // namespace neuron::runtime
