// native_layer_norm by our own kernel for contiguous float tensors; everything else, every error included, is the CPU's kernel on aliases.
// Results have the CPU's layout and dtypes: contiguous, statistics in float32 where the parameters are and in the input's dtype otherwise.
#include "kernels/norm/layer_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>

#include <algorithm>
#include <tuple>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/kernel_choice.h"
#include "torch/ops/native.h"
#include "torch/threads/torch_threads.h"

namespace neuron::ops {
namespace {

bool plain(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.is_privateuseone() && tensor.device() == like.device() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor._is_zerotensor();
}

// A parameter as the kernel reads it; false if it is not of this shape and dtype.
bool take(const std::optional<at::Tensor>& given, at::IntArrayRef shape, at::ScalarType type, const at::Tensor& input, const void*& to) {
  if (!given || !given->defined()) {
    return true;
  }
  to = given->const_data_ptr();
  return given->sizes() == shape && given->scalar_type() == type && plain(*given, input);
}

// The dtype of the parameters that are given.
at::ScalarType parameter_type(const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias) {
  if (weight && weight->defined()) return weight->scalar_type();
  if (bias && bias->defined()) return bias->scalar_type();
  return input.scalar_type();
}

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::optional<Results> try_layer_norm(const at::Tensor& input, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                                      const std::optional<at::Tensor>& bias, double epsilon) {
  const auto type = kernel_type(input.scalar_type());
  const auto parameters = parameter_type(input, weight, bias);
  if (!type || !plain(input, input) || shape.empty() || shape.size() > static_cast<std::size_t>(input.dim()) ||
      (parameters != input.scalar_type() && parameters != at::kFloat)) {
    return std::nullopt;
  }
  const auto sizes = input.sizes();
  const auto kept = sizes.size() - shape.size();
  kernels::LayerNorm call;
  call.type = *type;
  call.parameter_type = *kernel_type(parameters);
  call.size = c10::multiply_integers(shape);
  if (sizes.slice(kept) != shape || input.numel() == 0 || !choice::kLayerNorm.wins(call.type, call.size) ||
      !take(weight, shape, parameters, input, call.weight) || !take(bias, shape, parameters, input, call.bias)) {
    return std::nullopt;
  }
  call.rows = input.numel() / call.size;
  call.input = input.const_data_ptr();
  call.input_row = call.output_row = call.size;
  call.epsilon = static_cast<float>(epsilon);
  c10::SmallVector<int64_t, 5> statistics(sizes.begin(), sizes.end());
  std::fill(statistics.begin() + static_cast<std::ptrdiff_t>(kept), statistics.end(), 1);
  const auto core = input.device().index();
  auto output = empty_on(sizes, input.scalar_type(), core);
  auto mean = empty_on(statistics, parameters, core);
  auto inverse = empty_on(statistics, parameters, core);
  call.output = output.mutable_data_ptr();
  call.statistics_type = call.parameter_type;
  call.mean = mean.mutable_data_ptr();
  call.inverse = inverse.mutable_data_ptr();
  kernels::layer_norm(call, device::torch_threads());
  return Results(std::move(output), std::move(mean), std::move(inverse));
}

}  // namespace

Results native_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
                          const std::optional<at::Tensor>& bias, double eps) {
  if (auto results = try_layer_norm(input, normalized_shape, weight, bias, eps)) {
    return *std::move(results);
  }
  return AliasCall<&at::cpu::native_layer_norm>::call(input, normalized_shape, weight, bias, eps);
}

}  // namespace neuron::ops
