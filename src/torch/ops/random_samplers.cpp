// Distributions sampled by rejection, one Philox sub-stream per element: Poisson, binomial, gamma, Dirichlet.
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/random/random_sampler.h"
#include "torch/ops/random_support.h"

namespace neuron::ops {
namespace {

using kernels::RandomStream;
using kernels::SampleStream;

constexpr std::int64_t kSamplerTilesPerThread = 1;  // about 0.1 microseconds per element

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

// out[i] = sample(random numbers of element i, i), every element in double.
template <class T, class Sample>
void sample_elements(const at::Tensor& out, const std::optional<at::Generator>& generator, const Sample& sample) {
  const RandomStream stream = take_stream(generator, out.device(), out.numel());
  fill_elements<T>(
      out,
      [&](std::int64_t begin, std::int64_t end, T* values) {
        for (std::int64_t i = begin; i < end; ++i) {
          SampleStream random(stream, static_cast<std::uint64_t>(i));
          values[i - begin] = static_cast<T>(sample(random, i));
        }
      },
      kSamplerTilesPerThread);
}

// One Dirichlet vector: gamma variates over their sum, through logarithms so that tiny concentrations do not divide 0 by 0.
template <class T>
void sample_dirichlet_row(const T* alpha, T* out, std::int64_t size, RandomStream stream, std::int64_t first_element, double* logs) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < size; ++i) {
    SampleStream random(stream, static_cast<std::uint64_t>(first_element + i));
    logs[i] = kernels::sample_log_gamma(random, static_cast<double>(alpha[i]));
    largest = std::max(largest, logs[i]);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    // All concentrations zero: no coordinate is preferred.
    logs[i] = std::isinf(largest) && largest < 0 ? 1.0 : std::exp(logs[i] - largest);
    sum += logs[i];
  }
  // Inside the open simplex, where the density is finite.
  const T lowest = std::numeric_limits<T>::min();
  const T highest = std::nextafter(T(1), T(0));
  for (std::int64_t i = 0; i < size; ++i) out[i] = std::min(highest, std::max(static_cast<T>(logs[i] / sum), lowest));
}

}  // namespace

at::Tensor poisson(const at::Tensor& self, std::optional<at::Generator> generator) {
  const at::Tensor out = contiguous_like(self);
  const at::Tensor rates = self.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "poisson_cpu", [&] {
    const auto* rate = static_cast<const scalar_t*>(rates.const_data_ptr());
    sample_elements<scalar_t>(out, generator, [&](SampleStream& random, std::int64_t i) {
      TORCH_CHECK(rate[i] >= 0, "invalid Poisson rate, expected rate to be non-negative");
      return kernels::sample_poisson(random, static_cast<double>(rate[i]));
    });
  });
  return out;
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, std::optional<at::Generator> generator) {
  TORCH_CHECK_VALUE(at::isFloatingType(count.scalar_type()),
                    "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(at::isFloatingType(prob.scalar_type()),
                    "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
  check_same_device({count, prob});
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(), "Found dtype ", prob.scalar_type(), " but expected ", count.scalar_type());
  const auto shape = at::infer_size(count.sizes(), prob.sizes());
  const at::Tensor out = at::empty(shape, count.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor counts = count.expand(shape).contiguous();
  const at::Tensor probabilities = prob.expand(shape).contiguous();
  AT_DISPATCH_FLOATING_TYPES(count.scalar_type(), "binomial_cpu", [&] {
    const auto* n = static_cast<const scalar_t*>(counts.const_data_ptr());
    const auto* p = static_cast<const scalar_t*>(probabilities.const_data_ptr());
    sample_elements<scalar_t>(out, generator, [&](SampleStream& random, std::int64_t i) {
      return kernels::sample_binomial(random, static_cast<double>(n[i]), static_cast<double>(p[i]));
    });
  });
  return out;
}

at::Tensor standard_gamma(const at::Tensor& self, std::optional<at::Generator> generator) {
  const at::Tensor out = contiguous_like(self);
  const at::Tensor shapes = self.contiguous();
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "gamma_cpu", [&] {
    const auto* shape = static_cast<const scalar_t*>(shapes.const_data_ptr());
    sample_elements<scalar_t>(out, generator, [&](SampleStream& random, std::int64_t i) {
      const auto value = static_cast<scalar_t>(kernels::sample_gamma(random, static_cast<double>(shape[i])));
      // Never 0, where the density and its gradient are not defined; NaN stays NaN.
      return value < std::numeric_limits<scalar_t>::min() ? std::numeric_limits<scalar_t>::min() : value;
    });
  });
  return out;
}

at::Tensor sample_dirichlet(const at::Tensor& self, std::optional<at::Generator> generator) {
  const at::Tensor out = contiguous_like(self);
  const at::Tensor concentrations = self.contiguous();
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "dirichlet", [&] {
    const std::int64_t size = self.dim() == 0 ? 1 : self.size(-1);
    if (self.numel() == 0) return;
    const auto* alpha = static_cast<const scalar_t*>(concentrations.const_data_ptr());
    auto* values = static_cast<scalar_t*>(out.mutable_data_ptr());
    const RandomStream stream = take_stream(generator, self.device(), self.numel());
    at::parallel_for(0, self.numel() / size, std::max<std::int64_t>(1, kRandomTile / size), [&](std::int64_t first, std::int64_t last) {
      std::vector<double> logs(static_cast<std::size_t>(size));
      for (std::int64_t row = first; row < last; ++row) {
        sample_dirichlet_row(alpha + row * size, values + row * size, size, stream, row * size, logs.data());
      }
    });
  });
  return out;
}

}  // namespace neuron::ops
