// Taking numbers from a generator, and device checks.
#include "torch/ops/random_support.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "torch/device/generator.h"

namespace neuron::ops {
namespace {

[[noreturn]] void raise_device_mismatch(c10::Device core, c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", core, " and ", other, "!");
}

}  // namespace

kernels::RandomStream take_stream(const std::optional<at::Generator>& generator, c10::Device device, std::int64_t count) {
  if (!device.is_privateuseone()) {
    TORCH_CHECK(!generator.has_value() || !generator->defined(), "Expected a '", device.type(), "' device type for generator but found '",
                generator->device().type(), "'");
    raise_device_mismatch(c10::kPrivateUse1, device);
  }
  auto* chosen = at::get_generator_or_default<device::NeuronGenerator>(generator, device::default_generator(device.index()));
  TORCH_CHECK(chosen->device().index() == device.index(), "Expected a '", device, "' generator device but found '", chosen->device(), "'");
  const std::lock_guard lock(chosen->mutex_);
  const auto [seed, offset] = chosen->reserve(static_cast<std::uint64_t>(count));
  return {seed, offset};
}

void check_same_device(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) {
  std::optional<c10::Device> core;
  for (const at::Tensor& tensor : tensors) {
    if (!core && tensor.is_privateuseone()) core = tensor.device();
  }
  for (const at::Tensor& tensor : tensors) {
    if (core && tensor.device() != *core) raise_device_mismatch(*core, tensor.device());
  }
}

}  // namespace neuron::ops
