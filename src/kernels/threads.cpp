// See threads.h.
#include "kernels/threads.h"

namespace neuron::kernels {
namespace {

class SingleThread final : public Threads {
 public:
  [[nodiscard]] int count() const noexcept override { return 1; }
  void run(Body body) override { body(0, 1); }
};

}  // namespace

Threads& single_thread() noexcept {
  static SingleThread one;
  return one;
}

}  // namespace neuron::kernels
