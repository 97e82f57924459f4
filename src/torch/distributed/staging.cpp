// See staging.h.
#include "torch/distributed/staging.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

namespace neuron::distributed {
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
  copy.copy_(tensor);
  return copies_.emplace_back(std::move(copy));
}

const at::Tensor& Staging::staged_output(const at::Tensor& tensor, bool keep_values) {
  if (usable(tensor)) {
    return tensor;
  }
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto copy = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
  if (keep_values) {
    copy.copy_(tensor);
  }
  return results_.emplace_back(tensor, std::move(copy)).second;
}

void Staging::write_back() const {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [target, staged] : results_) {
    target.copy_(staged);
  }
}

}  // namespace neuron::distributed
