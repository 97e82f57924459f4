// Convolutions: PyTorch asks a device like ours for the `overrideable` pair; the CPU's own backend choice (oneDNN, native) then runs on
// aliases.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "torch/ops/alias_kernel.h"

namespace neuron::ops {
namespace {

at::Tensor convolution_on_host(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                               at::IntArrayRef output_padding, int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_on_host(const at::Tensor& grad_output, const at::Tensor& input,
                                                                            const at::Tensor& weight, at::IntArrayRef stride,
                                                                            at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                            bool transposed, at::IntArrayRef output_padding, int64_t groups,
                                                                            std::array<bool, 3> output_mask) {
  return at::convolution_backward(grad_output, input, weight, at::OptionalIntArrayRef({grad_output.size(1)}), stride, padding, dilation,
                                  transposed, output_padding, groups, output_mask);
}

}  // namespace

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                    at::IntArrayRef output_padding, int64_t groups) {
  return AliasCall<&convolution_on_host>::call(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(const at::Tensor& grad_output, const at::Tensor& input,
                                                                                 const at::Tensor& weight, at::IntArrayRef stride,
                                                                                 at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                                 bool transposed, at::IntArrayRef output_padding,
                                                                                 int64_t groups, std::array<bool, 3> output_mask) {
  return AliasCall<&convolution_backward_on_host>::call(grad_output, input, weight, stride, padding, dilation, transposed, output_padding,
                                                        groups, output_mask);
}

}  // namespace neuron::ops
