// Coin flips and what is made of them: bernoulli, dropout, randomised leaky ReLU.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>

#include <tuple>
#include <type_traits>

#include "torch/device/generator.h"
#include "torch/ops/random_support.h"

namespace neuron::ops {
namespace {

using device::NeuronGenerator;
using kernels::RandomStream;
using MaybeGenerator = std::optional<at::Generator>;

template <class>
struct BernoulliScalarKernel {
  void operator()(const at::Tensor& self, double p, const MaybeGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli_scalar_cpu_", [&] {
      const RandomStream stream = take_stream(generator, self.device(), self.numel());
      const auto flip = [&](auto begin, auto end, std::uint8_t* out) { kernels::random_fill().bernoulli(stream, begin, end, out, p); };
      if constexpr (sizeof(scalar_t) == 1) {
        fill_elements<std::uint8_t>(self, flip);  // bool, int8 and uint8 store 0 and 1 as the same byte
      } else {
        fill_converted<scalar_t, std::uint8_t>(self, flip, [](std::uint8_t x) { return static_cast<scalar_t>(x); });
      }
    });
  }
};

template <class>
struct BernoulliTensorKernel {
  void operator()(const at::Tensor& self, const at::Tensor& probabilities, const MaybeGenerator& generator) const {
    const at::Tensor p = probabilities.to(self.device()).expand(self.sizes()).contiguous();
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli_tensor_cpu_self_", [&] {
      using SelfType = scalar_t;
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, p.scalar_type(), "bernoulli_tensor_cpu_p_", [&] {
        const auto* p_data = static_cast<const scalar_t*>(p.const_data_ptr());
        const RandomStream stream = take_stream(generator, self.device(), self.numel());
        fill_elements<SelfType>(self, [&](std::int64_t begin, std::int64_t end, SelfType* out) {
          double u[kRandomTile];
          kernels::random_fill().uniform64(stream, begin, end, u, 1.0, 0.0, 1.0);
          for (std::int64_t i = begin; i < end; ++i) {
            const auto p_in = static_cast<double>(p_data[i]);
            TORCH_CHECK(p_in >= 0 && p_in <= 1);
            out[i - begin] = static_cast<SelfType>(u[i - begin] < p_in);
          }
        });
      });
    });
  }
};

// One pass over contiguous memory: draws the mask of a tile and applies it while the tile is in the cache.
template <class T>
void dropout_contiguous(const at::Tensor& input, at::Tensor& output, at::Tensor& mask, RandomStream stream, double keep, double scale) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto* x = static_cast<const T*>(input.const_data_ptr());
  auto* y = static_cast<T*>(output.mutable_data_ptr());
  auto* m = static_cast<std::uint8_t*>(mask.mutable_data_ptr());
  const auto wide_scale = static_cast<Wide>(scale);
  for_each_tile(input.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::random_fill().bernoulli(stream, begin, end, m + begin, keep);
    // A product, not a selection: what is dropped from an infinity or NaN is NaN, as on the CPU.
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(static_cast<Wide>(x[i]) * (static_cast<Wide>(m[i]) * wide_scale));
  });
}

template <class T>
void rrelu_training(const at::Tensor& self, const at::Tensor& noise, const at::Tensor& output, double lower, double upper,
                    RandomStream stream) {
  const auto* x = static_cast<const T*>(self.const_data_ptr());
  auto* slopes = static_cast<T*>(noise.mutable_data_ptr());
  auto* y = static_cast<T*>(output.mutable_data_ptr());
  for_each_tile(self.numel(), [&](std::int64_t begin, std::int64_t end) {
    double slope[kRandomTile];
    kernels::random_fill().uniform64(stream, begin, end, slope, upper - lower, lower, upper);
    for (std::int64_t i = begin; i < end; ++i) {
      const bool negative = x[i] <= 0;
      slopes[i] = negative ? static_cast<T>(slope[i - begin]) : T(1);
      y[i] = negative ? static_cast<T>(x[i] * slopes[i]) : x[i];
    }
  });
}

// Contiguous memory to work on instead of `tensor`, which is the tensor itself where possible.
at::Tensor staging_for(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, std::optional<at::Generator> generator) {
  return at::native::templates::bernoulli_impl_<BernoulliTensorKernel, NeuronGenerator>(self, p, std::move(generator));
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  return at::native::templates::bernoulli_impl_<BernoulliScalarKernel, NeuronGenerator>(self, p, std::move(generator));
}

at::Tensor& bernoulli_out(const at::Tensor& self, std::optional<at::Generator> generator, at::Tensor& out) {
  check_same_device({self, out});
  return at::native::templates::bernoulli_out_impl<BernoulliTensorKernel, NeuronGenerator>(out, self, std::move(generator));
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  const double keep = 1.0 - p;
  TORCH_CHECK(0 <= keep && keep <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", keep);
  const double scale = keep == 0.0 ? 0.0 : 1.0 / keep;
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!input.is_contiguous() || !at::isFloatingType(input.scalar_type()) || at::isFloat8Type(input.scalar_type())) {
    bernoulli_float_(mask, keep, std::nullopt);
    return {input.mul(mask).mul_(scale), mask};
  }
  at::Tensor output = at::empty_like(input);
  const RandomStream stream = take_stream(std::nullopt, input.device(), input.numel());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "native_dropout",
                                  [&] { dropout_contiguous<scalar_t>(input, output, mask, stream, keep, scale); });
  return {output, mask};
}

at::Tensor& rrelu_with_noise_out(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
                                 std::optional<at::Generator> generator, at::Tensor& out) {
  check_same_device({self, noise, out});
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes(), "noise tensor shape must match self tensor shape. Got self.shape = ", self.sym_sizes(),
              " noise.shape = ", noise.sym_sizes());
  if (!training) return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, self.scalar_type(), "rrelu_with_noise_out_cpu", [&] {
    TORCH_CHECK(noise.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ", noise.scalar_type());
    const auto from = static_cast<double>(lower.to<scalar_t>());
    const auto to = static_cast<double>(upper.to<scalar_t>());
    TORCH_CHECK(from <= to);
    const at::Tensor slopes = staging_for(noise);
    const at::Tensor values = staging_for(out);
    rrelu_training<scalar_t>(self.contiguous(), slopes, values, from, to, take_stream(generator, self.device(), self.numel()));
    if (!slopes.is_same(noise)) noise.copy_(slopes);
    if (!values.is_same(out)) out.copy_(values);
  });
  return out;
}

at::Tensor rrelu_with_noise(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
                            std::optional<at::Generator> generator) {
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}

at::Tensor& rrelu_with_noise_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
                              std::optional<at::Generator> generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace neuron::ops
