// See torch_threads.h.
#include "torch/threads/torch_threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <atomic>
#include <exception>

namespace neuron::device {
namespace {

class TorchThreads final : public kernels::Threads {
 public:
  [[nodiscard]] int count() const noexcept override { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

  void run(Body body) override {
    const int wanted = count();
    if (wanted == 1) {
      body(0, 1);
      return;
    }
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr failure;
#pragma omp parallel num_threads(wanted)
    {
      try {
        body(omp_get_thread_num(), omp_get_num_threads());
      } catch (...) {
        if (!failed.test_and_set()) {
          failure = std::current_exception();
        }
      }
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
};

}  // namespace

kernels::Threads& torch_threads() noexcept {
  static auto* threads = new TorchThreads;
  return *threads;
}

}  // namespace neuron::device
