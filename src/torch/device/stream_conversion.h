// c10::Stream <-> runtime::Stream, and device indices as torch passes them (-1 means the current device).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "runtime/current_device.h"
#include "runtime/stream.h"

namespace neuron::device {

inline c10::Device device_at(int index) { return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)}; }

inline int index_or_current(c10::DeviceIndex index) { return index < 0 ? runtime::current_device() : index; }
inline int index_or_current(c10::Device device) { return index_or_current(device.index()); }

inline runtime::Stream to_runtime(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }
inline c10::Stream to_torch(runtime::Stream stream) { return c10::Stream(c10::Stream::UNSAFE, device_at(stream.device), stream.id); }

}  // namespace neuron::device
