// State handling of the Philox generators and the table of default generators.
#include "torch/device/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <mutex>

namespace neuron::device {
namespace {

constexpr std::int64_t kStateBytes = 16;
static_assert(std::endian::native == std::endian::little, "the state tensor is little endian");

void check_offset(std::uint64_t offset) {
  TORCH_CHECK_VALUE(offset % 4 == 0, "the offset of a neuron generator must be a multiple of 4, but got ", offset);
}

}  // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device, std::uint64_t seed)
    : NeuronGenerator(device, std::make_shared<State>(State{seed, 0})) {}

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device, std::shared_ptr<State> state)
    : c10::GeneratorImpl(c10::Device(device_type(), device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

std::pair<std::uint64_t, std::uint64_t> NeuronGenerator::reserve(std::uint64_t count) {
  const std::uint64_t offset = state_->offset;
  state_->offset += (count + 3) / 4 * 4;
  return {state_->seed, offset};
}

void NeuronGenerator::set_current_seed(std::uint64_t seed) { *state_ = {seed, 0}; }

std::uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return current_seed();
}

void NeuronGenerator::set_offset(std::uint64_t offset) {
  check_offset(offset);
  state_->offset = offset;
}

void NeuronGenerator::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  TORCH_CHECK_VALUE(new_state.numel() == kStateBytes, "the RNG state of a neuron device has ", kStateBytes,
                    " bytes (seed and offset), but got ", new_state.numel(), "; states of other devices do not fit");
  State state;
  const auto* bytes = static_cast<const std::uint8_t*>(new_state.data());
  std::memcpy(&state.seed, bytes, sizeof(state.seed));
  std::memcpy(&state.offset, bytes + sizeof(state.seed), sizeof(state.offset));
  check_offset(state.offset);
  *state_ = state;
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  const at::Tensor tensor = at::detail::empty_cpu({kStateBytes}, at::kByte);
  auto* bytes = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  std::memcpy(bytes, &state_->seed, sizeof(state_->seed));
  std::memcpy(bytes + sizeof(state_->seed), &state_->offset, sizeof(state_->offset));
  return tensor.getIntrusivePtr();
}

void NeuronGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* generator = dynamic_cast<const NeuronGenerator*>(other.get());
  TORCH_CHECK(generator != nullptr, "the state of a neuron generator can only be taken from another neuron generator");
  state_ = generator->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> NeuronGenerator::graphsafe_get_state() const {
  return c10::intrusive_ptr<NeuronGenerator>::unsafe_steal_from_new(new NeuronGenerator(device().index(), state_));
}

NeuronGenerator* NeuronGenerator::clone_impl() const { return new NeuronGenerator(device().index(), std::make_shared<State>(*state_)); }

const at::Generator& default_generator(c10::DeviceIndex device) {
  constexpr std::size_t kMaxDevices = std::numeric_limits<c10::DeviceIndex>::max() + 1;
  struct Entry {
    std::once_flag once;
    at::Generator generator;
  };
  TORCH_CHECK(device >= 0, "no neuron device has the index ", static_cast<int>(device));
  static auto& entries = *new std::array<Entry, kMaxDevices>;  // leaked: tensors may be made until the process ends
  Entry& entry = entries[static_cast<unsigned char>(device)];
  std::call_once(entry.once, [&] { entry.generator = make_generator(device); });
  return entry.generator;
}

at::Generator make_generator(c10::DeviceIndex device) { return at::make_generator<NeuronGenerator>(device); }

}  // namespace neuron::device
