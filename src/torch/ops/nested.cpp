// The question that nn.TransformerEncoder asks before it packs a padded batch into a nested tensor.
#include <ATen/core/Tensor.h>

namespace neuron::ops {

// "Can this batch become a nested tensor?" The device has none, so the encoder keeps the padded batch.
bool nested_tensor_from_mask_left_aligned(const at::Tensor& batch, const at::Tensor& mask) { return false; }

}  // namespace neuron::ops
