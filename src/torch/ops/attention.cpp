// Attention: the choice of a kernel is the CPU's own choice for the same tensors, so that `neuron` takes the fused kernel where the CPU
// does. The fused forward is ours (kernels/attention); its derivative is PyTorch's, which needs the logsumexp only. Layouts of results are
// the CPU's.
#include "kernels/attention/attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/kernel_choice.h"
#include "torch/ops/native.h"
#include "torch/threads/torch_threads.h"

namespace neuron::ops {
namespace {

using kernels::AttentionMask;

std::optional<kernels::AttentionTensor> view_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.is_privateuseone() || tensor.device() != like.device() || tensor.layout() != at::kStrided || tensor.dim() != 4 ||
      tensor.scalar_type() != like.scalar_type() || tensor.is_conj() || tensor.is_neg() || tensor.numel() == 0 ||
      (tensor.stride(3) != 1 && tensor.size(3) != 1)) {
    return std::nullopt;
  }
  return kernels::AttentionTensor{tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

std::optional<AttentionMask::Kind> mask_kind(const at::Tensor& mask, const at::Tensor& query) {
  if (mask.scalar_type() == at::kBool) return AttentionMask::Kind::kBoolean;
  if (mask.scalar_type() == at::kFloat) return AttentionMask::Kind::kFloat;
  if (mask.scalar_type() != query.scalar_type()) return std::nullopt;
  if (mask.scalar_type() == at::kBFloat16) return AttentionMask::Kind::kBFloat16;
  if (mask.scalar_type() == at::kHalf) return AttentionMask::Kind::kHalf;
  return std::nullopt;
}

// A mask of up to four dimensions that broadcasts to [batch, head, query, key], as strides; nothing if it is any other.
std::optional<AttentionMask> mask_of(const std::optional<at::Tensor>& mask, const at::Tensor& query, int64_t keys) {
  if (!mask.has_value() || !mask->defined()) {
    return AttentionMask{};
  }
  const auto kind = mask_kind(*mask, query);
  if (!kind || !mask->is_privateuseone() || mask->device() != query.device() || mask->layout() != at::kStrided || mask->dim() < 2 ||
      mask->dim() == 3 || mask->dim() > 4 || mask->is_conj() || mask->is_neg()) {
    return std::nullopt;
  }
  const int64_t sizes[4] = {query.size(0), query.size(1), query.size(2), keys};
  int64_t strides[4] = {};
  for (int64_t i = 0; i < mask->dim(); ++i) {
    const auto to = 4 - mask->dim() + i;
    if (mask->size(i) != 1 && mask->size(i) != sizes[to]) {
      return std::nullopt;
    }
    strides[to] = mask->size(i) == 1 ? 0 : mask->stride(i);
  }
  return AttentionMask{*kind, mask->const_data_ptr(), strides[0], strides[1], strides[2], strides[3]};
}

// The call as our kernel takes it, without outputs; nothing if it does not (PyTorch's kernel then runs, or names the error).
std::optional<kernels::Attention> attention_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                                               bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const auto type = kernel_type(query.scalar_type());
  const auto q = view_of(query, query);
  const auto k = view_of(key, query);
  const auto v = view_of(value, query);
  if (!type || !q || !k || !v || dropout != 0 || key.sizes() != value.sizes() || key.size(0) != query.size(0) ||
      key.size(3) != query.size(3) || query.size(1) % key.size(1) != 0) {
    return std::nullopt;
  }
  const auto added = mask_of(mask, query, key.size(2));
  if (!added || (causal && added->kind != AttentionMask::Kind::kNone)) {
    return std::nullopt;
  }
  kernels::Attention call;
  call.batches = query.size(0);
  call.query_heads = query.size(1);
  call.key_heads = key.size(1);
  call.queries = query.size(2);
  call.keys = key.size(2);
  call.head_size = call.value_size = query.size(3);
  call.type = *type;
  call.query = *q;
  call.key = *k;
  call.value = *v;
  call.mask = *added;
  call.scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(call.head_size))));
  call.causal = causal;
  return call;
}

}  // namespace

int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal, std::optional<double> scale,
                         bool enable_gqa) {
  // Only looks at sizes and strides, which may be symbolic while a graph is traced.
  return at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

std::tuple<at::Tensor, at::Tensor> scaled_dot_product_flash_attention(const at::Tensor& query, const at::Tensor& key,
                                                                      const at::Tensor& value, double dropout_p, bool is_causal,
                                                                      const std::optional<at::Tensor>& attn_mask,
                                                                      std::optional<double> scale) {
  auto call = attention_of(query, key, value, dropout_p, is_causal, attn_mask, scale);
  at::Tensor output;
  if (call && choice::kAttention.wins(call->type, call->queries * call->keys * call->head_size)) {
    output = at::empty_like(query);
  }
  if (!output.defined() || (output.stride(3) != 1 && output.size(3) != 1)) {
    return AliasCall<&at::cpu::_scaled_dot_product_flash_attention_for_cpu>::call(query, key, value, dropout_p, is_causal, attn_mask,
                                                                                  scale);
  }
  auto logsumexp = empty_on({call->batches, call->queries, call->query_heads}, at::kFloat, query.device().index()).transpose(1, 2);
  call->output = output.mutable_data_ptr();
  call->output_batch = output.stride(0);
  call->output_head = output.stride(1);
  call->output_row = output.stride(2);
  call->logsumexp = logsumexp.mutable_data_ptr<float>();
  call->logsumexp_batch = logsumexp.stride(0);
  call->logsumexp_head = logsumexp.stride(1);
  call->logsumexp_row = logsumexp.stride(2);
  kernels::attention(*call, device::torch_threads());
  return {std::move(output), std::move(logsumexp)};
}

}  // namespace neuron::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::ops::fused_sdp_choice)
}  // namespace at::native
