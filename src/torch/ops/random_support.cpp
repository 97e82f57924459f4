// Taking numbers from a generator.
#include "torch/ops/random_support.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "torch/device/generator.h"

namespace neuron::ops {

kernels::RandomStream take_stream(const std::optional<at::Generator>& generator, c10::Device device, std::int64_t count) {
  auto* chosen = at::get_generator_or_default<device::NeuronGenerator>(generator, device::default_generator(device.index()));
  TORCH_CHECK(chosen->device().index() == device.index(), "Expected a '", device, "' generator device but found '", chosen->device(), "'");
  const std::lock_guard lock(chosen->mutex_);
  const auto [seed, offset] = chosen->reserve(static_cast<std::uint64_t>(count));
  return {seed, offset};
}

}  // namespace neuron::ops
