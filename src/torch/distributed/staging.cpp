// See staging.h.
#include "torch/distributed/staging.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "collectives/direct_exchange.h"

namespace neuron::distributed {

using collectives::Buffer;
using collectives::ConstBuffer;

namespace {

bool usable(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(),
                    "Tensors must be contiguous (or dense in another order of dimensions, such as channels_last)");
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

const at::Tensor& Staging::staged_input(const at::Tensor& tensor) {
  if (usable(tensor)) {
    return tensor;
  }
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto copy = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
  return copies_.emplace_back(std::move(copy), tensor).first;
}

const at::Tensor& Staging::staged_output(const at::Tensor& tensor, bool keep_values) {
  if (usable(tensor)) {
    return tensor;
  }
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto copy = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
  if (keep_values) {
    copies_.emplace_back(copy, tensor);
  }
  return results_.emplace_back(tensor, std::move(copy)).second;
}

void Staging::separate(std::span<ConstBuffer> inputs, std::span<const Buffer> outputs, int rank, const at::TensorOptions& options) {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto owner = [rank](std::size_t index, std::size_t length) { return length == 1 ? static_cast<std::size_t>(rank) : index; };
  const std::size_t width = options.dtype().itemsize();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ConstBuffer input = inputs[i];
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const bool in_place =
          owner(i, inputs.size()) == owner(o, outputs.size()) && outputs[o].data == input.data && outputs[o].count == input.count;
      if (!in_place && collectives::overlap(input, {outputs[o].data, outputs[o].count}, width)) {
        auto copy = at::empty({static_cast<int64_t>(input.count)}, options.memory_format(c10::MemoryFormat::Contiguous));
        inputs[i].data = moved_.emplace_back(std::move(copy), input.data).first.const_data_ptr();
        break;
      }
    }
  }
}

void Staging::fill() const {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [copy, source] : copies_) {
    copy.copy_(source);
  }
  for (const auto& [copy, source] : moved_) {
    std::memcpy(copy.mutable_data_ptr(), source, copy.nbytes());
  }
}

void Staging::write_back() const {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [target, staged] : results_) {
    target.copy_(staged);
  }
}

}  // namespace neuron::distributed
