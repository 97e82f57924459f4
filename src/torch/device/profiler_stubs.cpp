// Device times for the profiler of torch.autograd: `torch.autograd.profiler.profile(use_device="neuron")` brackets each operator with two
// of these events.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/current_device.h"
#include "runtime/event.h"
#include "runtime/runtime.h"
#include "torch/device/error.h"
#include "torch/device/initialize.h"

namespace neuron::device {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

const runtime::Event& as_event(const ProfilerVoidEventStub& stub) { return *static_cast<const runtime::Event*>(stub.get()); }

class NeuronProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, std::int64_t* cpu_ns) const override {
    initialize_device();
    const int current = runtime::current_device();
    if (device != nullptr) {
      *device = static_cast<c10::DeviceIndex>(current);
    }
    auto recorded = std::make_shared<runtime::Event>(/*enable_timing=*/true);
    translate_errors([&] { recorded->record(runtime::Runtime::instance().streams().current_stream(current)); });
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    *event = std::move(recorded);
  }

  // Microseconds.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    constexpr double kMicrosecondsPerMillisecond = 1e3;
    return static_cast<float>(translate_errors([&] { return runtime::Event::elapsed_ms(as_event(*start), as_event(*end)); }) *
                              kMicrosecondsPerMillisecond);
  }

  // There is no external tool to annotate for.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}

  bool enabled() const override { return runtime::Runtime::instance().device_count() > 0; }

  void onEachDevice(std::function<void(int)> operation) const override {
    const int previous = runtime::current_device();
    for (int core = 0; core < runtime::Runtime::instance().device_count(); ++core) {
      runtime::unchecked_exchange_device(core);
      operation(core);
    }
    runtime::unchecked_exchange_device(previous);
  }

  void synchronize() const override {
    initialize_device();
    translate_errors([] { runtime::Runtime::instance().streams().synchronize_device(runtime::current_device()); });
  }
};

// Leaked: the profiler may ask until the process ends.
[[maybe_unused]] const bool kProfilerStubsRegistered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new NeuronProfilerStubs());
  return true;
}();

}  // namespace
}  // namespace neuron::device
