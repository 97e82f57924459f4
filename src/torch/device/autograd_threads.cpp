// See autograd_threads.h.
#include "torch/device/autograd_threads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "runtime/runtime.h"
#include "torch/device/stream_conversion.h"

namespace neuron::device {
namespace {

std::atomic<bool> stream_entered{false};

// One backward pass through every worker. Workers take their tasks in order, so when it has ended they are done with all earlier ones; and
// as the thread that starts it has no Python state, it leaves no Python objects behind itself.
void run_empty_backward() {
  const int cores = runtime::Runtime::instance().device_count();
  for (int core = 0; core < cores; ++core) {
    auto leaf = at::zeros({1}, at::TensorOptions(device_at(core)));
    leaf.requires_grad_(true).alias().backward();
  }
}

}  // namespace

void note_stream_entered() noexcept { stream_entered.store(true, std::memory_order_relaxed); }

void drain_autograd_threads() noexcept {
  if (!stream_entered.load(std::memory_order_relaxed) || !runtime::Runtime::instance().initialized()) {
    return;
  }
  try {
    constexpr std::chrono::seconds kPatience{5};
    std::packaged_task<void()> task(run_empty_backward);
    auto ended = task.get_future();
    std::thread(std::move(task)).detach();
    ended.wait_for(kPatience);
    // How the pass ended does not matter: if it failed (a worker is gone), there is nothing to wait for.
  } catch (const std::exception& error) {
    TORCH_WARN("could not wait for the autograd engine at exit: ", error.what());
  }
}

}  // namespace neuron::device
