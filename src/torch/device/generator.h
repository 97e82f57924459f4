// The random number generator of one core: a seed and an offset into the Philox stream of that seed.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace neuron::device {

// State: 16 bytes, little endian: 8 of seed, 8 of offset (a multiple of 4), in a CPU uint8 tensor. DTensor and activation checkpointing
// rely on exactly that. As for every torch generator, callers hold mutex_ while they change the state.
class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device, std::uint64_t seed = c10::default_rng_seed_val);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // Takes `count` elements of the stream: returns (seed, offset of the first) and moves the offset on by `count` rounded up to a multiple
  // of 4.
  std::pair<std::uint64_t, std::uint64_t> reserve(std::uint64_t count);

  void set_current_seed(std::uint64_t seed) override;  // and restarts the stream
  std::uint64_t current_seed() const override { return state_->seed; }
  std::uint64_t seed() override;  // a fresh non-deterministic seed, which it returns
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override { return state_->offset; }
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Generators that share one state object: setting it makes two generators advance together.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

 private:
  struct State {
    std::uint64_t seed = c10::default_rng_seed_val;
    std::uint64_t offset = 0;
  };

  NeuronGenerator(c10::DeviceIndex device, std::shared_ptr<State> state);
  NeuronGenerator* clone_impl() const override;

  std::shared_ptr<State> state_;
};

// The generator that operators of this core use when none is given. Created on first use and never destroyed.
const at::Generator& default_generator(c10::DeviceIndex device);

// A new generator with the default seed.
at::Generator make_generator(c10::DeviceIndex device);

}  // namespace neuron::device
