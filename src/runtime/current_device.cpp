// Per-thread current device with the main thread's choice as the default.
#include "runtime/current_device.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/error.h"
#include "runtime/runtime.h"

namespace neuron::runtime {
namespace {

constexpr int kUnset = -1;

std::atomic<int> main_thread_device{kUnset};
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

// Until the program chooses: a rank of a job has the core of its number on the host, as launchers say in LOCAL_RANK.
int initial_device() noexcept {
  int rank = 0;
  if (const char* const value = std::getenv("LOCAL_RANK")) {
    const std::string_view text(value);
    if (std::from_chars(text.data(), text.data() + text.size(), rank).ec != std::errc{} || rank < 0) {
      rank = 0;
    }
  }
  return rank % std::max(Runtime::instance().device_count(), 1);
}

[[gnu::noinline, gnu::cold]] int choose_initial_device() noexcept {
  int expected = kUnset;
  const int initial = initial_device();
  return main_thread_device.compare_exchange_strong(expected, initial) ? initial : expected;
}

}  // namespace

int current_device() noexcept {
  const int own = own_device;
  if (own != kUnset) {
    return own;
  }
  const int chosen = main_thread_device.load(std::memory_order_relaxed);
  return chosen != kUnset ? chosen : choose_initial_device();
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
