// The device guard: how torch switches devices and streams, records events and waits, for every caller that knows no backend by name
// (torch.Stream, torch.Event, torch.accelerator, the autograd engine, c10::DeviceGuard).
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <bit>

#include "runtime/event.h"
#include "runtime/runtime.h"
#include "torch/device/autograd_threads.h"
#include "torch/device/compat.h"
#include "torch/device/device_allocator.h"
#include "torch/device/error.h"
#include "torch/device/initialize.h"
#include "torch/device/stream_conversion.h"

namespace neuron::device {
namespace {

// Streams exist once the device is in use; asking for one is a use.
runtime::StreamRegistry& streams() {
  initialize_device();
  return runtime::Runtime::instance().streams();
}

runtime::Event& as_event(void* event) { return *static_cast<runtime::Event*>(event); }

class NeuronGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(runtime::Runtime::instance().device_count());
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    return translate_errors([&] { return device_at(runtime::exchange_device(device.index())); });
  }
  c10::Device getDevice() const override { return device_at(runtime::current_device()); }
  void setDevice(c10::Device device) const override {
    translate_errors([&] { runtime::set_device(device.index()); });
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { runtime::unchecked_exchange_device(device.index()); }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    translate_errors([&] { runtime::check_device(index_or_current(device)); });
    return compat::dense_dtypes_capability();
  }

  c10::Stream getStream(c10::Device device) const override {
    return translate_errors([&] { return to_torch(streams().current_stream(index_or_current(device))); });
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return translate_errors([&] { return to_torch(streams().default_stream(index_or_current(device))); });
  }
  c10::Stream getNewStream(c10::Device device, int priority = 0) const override {
    return translate_errors([&] { return to_torch(streams().new_stream(index_or_current(device), priority)); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority = false) const override {
    constexpr int kHighPriority = -1;
    return getNewStream(device, high_priority ? kHighPriority : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    note_stream_entered();
    return translate_errors([&] {
      auto& registry = streams();
      const auto previous = registry.current_stream(stream.device_index());
      registry.set_current_stream(to_runtime(stream));
      return to_torch(previous);
    });
  }
  bool queryStream(const c10::Stream& stream) const override {
    return translate_errors([&] { return streams().query(to_runtime(stream)); });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    translate_errors([&] { streams().synchronize(to_runtime(stream)); });
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    translate_errors([&] { streams().synchronize_device(index_or_current(device)); });
  }
  // Streams are numbers here; the default stream is null, as in CUDA.
  void* getStreamNativeHandle(c10::Stream stream) const override { return std::bit_cast<void*>(stream.id()); }

  // PYTORCH_DEFAULT means no timing, BACKEND_DEFAULT timing (c10/core/impl/DeviceGuardImplInterface.h).
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK_VALUE(device < 0 || device == stream.device_index(), "an event of neuron:", static_cast<int>(device),
                      " cannot be recorded on a stream of ", stream.device(),
                      ": record it on a stream of its own device, or create another event");
    TORCH_CHECK_VALUE(flag != c10::EventFlag::INVALID, "invalid event flag");
    synchronizeStream(stream);
    if (*event == nullptr) {
      *event = new runtime::Event(flag == c10::EventFlag::BACKEND_DEFAULT);
    }
    as_event(*event).record(to_runtime(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      as_event(event).block(to_runtime(stream));
    }
  }
  bool queryEvent(void* event) const override { return event == nullptr || as_event(event).query(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      as_event(event).synchronize();
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override { delete static_cast<runtime::Event*>(event); }
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK_VALUE(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    return translate_errors([&] { return runtime::Event::elapsed_ms(as_event(start), as_event(end)); });
  }

  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    device_allocator().recordStream(pointer, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuardImpl)

}  // namespace
}  // namespace neuron::device
