// Fused recurrent cells: for devices like ours PyTorch's LSTM and GRU ask for these operators, which have no CPU kernel.
// Formulas: torch.nn.LSTMCell and torch.nn.GRUCell (PyTorch documentation); gates are stored in the order i, f, g, o and r, z, n.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

namespace neuron::ops {
namespace {

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// Side by side along the features.
at::Tensor concatenate(std::initializer_list<at::Tensor> parts) { return at::cat(at::TensorList(parts), 1); }

// A gradient that the caller left out is zero.
at::Tensor gradient_or_zeros(const std::optional<at::Tensor>& gradient, const at::Tensor& like) {
  return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(like);
}

}  // namespace

// input_gates, hidden_gates: [N, 4H]; cx: [N, H]. Returns hy, cy: [N, H] and the activated gates [N, 4H] for the backward pass.
std::tuple<at::Tensor, at::Tensor, at::Tensor> thnn_fused_lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                                    const at::Tensor& cx, const std::optional<at::Tensor>& input_bias,
                                                                    const std::optional<at::Tensor>& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto in = gates[0].sigmoid();
  const auto forget = gates[1].sigmoid();
  const auto cell = gates[2].tanh();
  const auto out = gates[3].sigmoid();
  auto cy = forget * cx + in * cell;
  auto hy = out * cy.tanh();
  return {std::move(hy), std::move(cy), concatenate({in, forget, cell, out})};
}

// Gradients of the pre-activation gates [N, 4H], of cx [N, H], and of one bias [4H] (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> thnn_fused_lstm_cell_backward_impl(const std::optional<at::Tensor>& grad_hy,
                                                                                  const std::optional<at::Tensor>& grad_cy,
                                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                                  const at::Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const auto& in = gates[0];
  const auto& forget = gates[1];
  const auto& cell = gates[2];
  const auto& out = gates[3];
  const auto grad_h = gradient_or_zeros(grad_hy, cy);
  const auto tanh_cy = cy.tanh();
  const auto grad_c = grad_h * out * (1 - tanh_cy * tanh_cy) + gradient_or_zeros(grad_cy, cy);
  auto grad_gates = concatenate({grad_c * cell * in * (1 - in), grad_c * cx * forget * (1 - forget), grad_c * in * (1 - cell * cell),
                                 grad_h * tanh_cy * out * (1 - out)});
  auto grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {std::move(grad_gates), grad_c * forget, std::move(grad_bias)};
}

// input_gates, hidden_gates: [N, 3H]; hx: [N, H]. Returns hy [N, H] and [N, 5H]: r, z, n, hx, and the hidden part of the new gate with its
// bias.
std::tuple<at::Tensor, at::Tensor> thnn_fused_gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
                                                       const std::optional<at::Tensor>& input_bias,
                                                       const std::optional<at::Tensor>& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
  const auto update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), concatenate({reset, update, fresh, hx, from_hidden[2]})};
}

// Gradients of input_gates, hidden_gates [N, 3H], hx [N, H], and both biases [3H] (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> thnn_fused_gru_cell_backward(const at::Tensor& grad_hy,
                                                                                                    const at::Tensor& workspace,
                                                                                                    bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const auto& reset = saved[0];
  const auto& update = saved[1];
  const auto& fresh = saved[2];
  const auto& hx = saved[3];
  const auto& hidden_new = saved[4];
  const auto grad_new = grad_hy * (1 - update) * (1 - fresh * fresh);
  const auto grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const auto grad_reset = grad_new * hidden_new * reset * (1 - reset);
  auto grad_input = concatenate({grad_reset, grad_update, grad_new});
  auto grad_hidden = concatenate({grad_reset, grad_update, grad_new * reset});
  auto grad_input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  auto grad_hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {std::move(grad_input), std::move(grad_hidden), grad_hy * update, std::move(grad_input_bias), std::move(grad_hidden_bias)};
}

}  // namespace neuron::ops
