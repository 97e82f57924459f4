// The clock of DistributedDataParallel's statistics on this device (c10d::Reducer, c10d::Logger). Kernels have finished when the call that
// issued them returns, so that the host's clock tells the truth.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace neuron::distributed {
namespace {

class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device /*unused*/) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start);
    const auto to = getTimestamp(end);
    // Without a synchronisation in this iteration the end is an earlier one's.
    if (!from || !to || *to < *from) {
      return std::nullopt;
    }
    return *to - *from;
  }
};

using c10d::RegistererTimerRegistry;
using c10d::TimerRegistry;
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, DdpTimer)

}  // namespace
}  // namespace neuron::distributed
