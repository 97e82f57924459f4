// Fused recurrent cells: for devices like ours PyTorch's LSTM and GRU ask for these operators, which have no CPU kernel.
// Formulas: torch.nn.LSTMCell and torch.nn.GRUCell (PyTorch documentation); gates are stored in the order i, f, g, o and r, z, n.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

namespace neuron::ops {
namespace {

// Cells of half-precision tensors compute in float32 and round each result once.
at::Tensor wide(const at::Tensor& tensor) { return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor; }

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? wide(gates) + wide(*bias) : wide(gates);
}

// Side by side along the features.
at::Tensor concatenate(std::initializer_list<at::Tensor> parts) { return at::cat(at::TensorList(parts), 1); }

// A gradient that the caller left out is zero.
at::Tensor gradient_or_zeros(const std::optional<at::Tensor>& gradient, const at::Tensor& like) {
  return gradient.has_value() && gradient->defined() ? wide(*gradient) : at::zeros_like(like);
}

// The sum over the rows in the dtype of the result.
at::Tensor bias_gradient(const at::Tensor& gates, at::ScalarType dtype, bool has_bias) {
  return has_bias ? gates.sum(0).to(dtype) : at::Tensor();
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
  const auto cy = forget * wide(cx) + in * cell;
  const auto hy = out * cy.tanh();
  const auto dtype = input_gates.scalar_type();
  return {hy.to(dtype), cy.to(dtype), concatenate({in, forget, cell, out}).to(dtype)};
}

// Gradients of the pre-activation gates [N, 4H], of cx [N, H], and of one bias [4H] (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> thnn_fused_lstm_cell_backward_impl(const std::optional<at::Tensor>& grad_hy,
                                                                                  const std::optional<at::Tensor>& grad_cy,
                                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                                  const at::Tensor& workspace, bool has_bias) {
  const auto gates = wide(workspace).chunk(4, 1);
  const auto& in = gates[0];
  const auto& forget = gates[1];
  const auto& cell = gates[2];
  const auto& out = gates[3];
  const auto dtype = workspace.scalar_type();
  const auto wide_cy = wide(cy);
  const auto grad_h = gradient_or_zeros(grad_hy, wide_cy);
  const auto tanh_cy = wide_cy.tanh();
  const auto grad_c = grad_h * out * (1 - tanh_cy * tanh_cy) + gradient_or_zeros(grad_cy, wide_cy);
  const auto grad_gates = concatenate({grad_c * cell * in * (1 - in), grad_c * wide(cx) * forget * (1 - forget),
                                       grad_c * in * (1 - cell * cell), grad_h * tanh_cy * out * (1 - out)});
  return {grad_gates.to(dtype), (grad_c * forget).to(dtype), bias_gradient(grad_gates, dtype, has_bias)};
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
  const auto wide_hx = wide(hx);
  const auto dtype = hx.scalar_type();
  return {(fresh + update * (wide_hx - fresh)).to(dtype), concatenate({reset, update, fresh, wide_hx, from_hidden[2]}).to(dtype)};
}

// Gradients of input_gates, hidden_gates [N, 3H], hx [N, H], and both biases [3H] (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> thnn_fused_gru_cell_backward(const at::Tensor& grad_hy,
                                                                                                    const at::Tensor& workspace,
                                                                                                    bool has_bias) {
  const auto dtype = workspace.scalar_type();
  const auto saved = wide(workspace).chunk(5, 1);
  const auto& reset = saved[0];
  const auto& update = saved[1];
  const auto& fresh = saved[2];
  const auto& hx = saved[3];
  const auto& hidden_new = saved[4];
  const auto grad = wide(grad_hy);
  const auto grad_new = grad * (1 - update) * (1 - fresh * fresh);
  const auto grad_update = grad * (hx - fresh) * update * (1 - update);
  const auto grad_reset = grad_new * hidden_new * reset * (1 - reset);
  const auto grad_input = concatenate({grad_reset, grad_update, grad_new});
  const auto grad_hidden = concatenate({grad_reset, grad_update, grad_new * reset});
  return {grad_input.to(dtype), grad_hidden.to(dtype), (grad * update).to(dtype), bias_gradient(grad_input, dtype, has_bias),
          bias_gradient(grad_hidden, dtype, has_bias)};
}

}  // namespace neuron::ops
