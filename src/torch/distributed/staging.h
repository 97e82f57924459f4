// The memory of one operation's tensors as the transport takes it: dense and in logical order.
//
// A contiguous tensor is used where it is. One that is dense in another order (channels_last, transposed) moves through a contiguous copy,
// so that ranks may differ in their strides, and so does an input that lies where outputs are to go. Everything else raises ValueError
// "Tensors must be contiguous", as on other devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "collectives/types.h"

namespace neuron::distributed {

class Staging {
 public:
  collectives::ConstBuffer input(const at::Tensor& tensor) { return {staged_input(tensor).const_data_ptr(), count(tensor)}; }
  collectives::Buffer output(const at::Tensor& tensor) { return {staged_output(tensor, false).mutable_data_ptr(), count(tensor)}; }
  collectives::Buffer input_output(const at::Tensor& tensor) { return {staged_output(tensor, true).mutable_data_ptr(), count(tensor)}; }

  // The contiguous tensors themselves; they live as long as the staging.
  const at::Tensor& staged_input(const at::Tensor& tensor);
  const at::Tensor& staged_output(const at::Tensor& tensor, bool keep_values);

  // Inputs that outputs would overwrite while ranks still need them are copied. An output exactly over the input of the same rank stays; a
  // list of one is `rank`'s.
  void separate(std::span<collectives::ConstBuffer> inputs, std::span<const collectives::Buffer> outputs, int rank,
                const at::TensorOptions& options);

  // Before the operation, when those before it are done: fills the copies.
  void fill() const;
  // After the operation: copies results to where they belong.
  void write_back() const;

 private:
  static std::size_t count(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;   // contiguous, source
  std::vector<std::pair<at::Tensor, const void*>> moved_;   // contiguous, source of as many bytes
  std::vector<std::pair<at::Tensor, at::Tensor>> results_;  // target, contiguous
};

}  // namespace neuron::distributed
