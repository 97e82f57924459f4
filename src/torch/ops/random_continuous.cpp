// Continuous distributions that fill a tensor: uniform, normal, exponential, log-normal, Cauchy; and the geometric one, which is a rounded
// exponential. Argument checks are PyTorch's own (DistributionTemplates.h), so every message is the CPU's; dtype messages come from the
// names given to AT_DISPATCH.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <c10/util/BFloat16-math.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <type_traits>

#include "torch/device/generator.h"
#include "torch/ops/random_support.h"

namespace neuron::ops {
namespace {

using device::NeuronGenerator;
using kernels::RandomStream;
using MaybeGenerator = std::optional<at::Generator>;

// The type that numbers of type T are computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

RandomStream stream_for(const at::Tensor& self, const MaybeGenerator& generator) {
  return take_stream(generator, self.device(), self.numel());
}

template <class T>
void fill_uniform(const at::Tensor& self, RandomStream stream, double from_value, double to_value) {
  const auto from = static_cast<T>(from_value);
  const auto to = static_cast<T>(to_value);
  // Rounding may carry from + x * (to - from) up to `to`, which the half-open interval excludes.
  const auto upper = from < to ? static_cast<Wide<T>>(std::nextafter(to, from)) : static_cast<Wide<T>>(from);
  const auto shift = static_cast<Wide<T>>(from);
  const auto scale = static_cast<Wide<T>>(to) - shift;
  const auto& kernels = kernels::random_fill();
  if constexpr (std::is_same_v<T, double>) {
    fill_elements<T>(self, [&](auto begin, auto end, T* out) { kernels.uniform64(stream, begin, end, out, scale, shift, upper); });
  } else if constexpr (std::is_same_v<T, float>) {
    fill_elements<T>(self, [&](auto begin, auto end, T* out) { kernels.uniform32(stream, begin, end, out, scale, shift, upper, 24); });
  } else {
    // As many digits as T has, as on the CPU: more would make values near 1 round unevenly.
    constexpr int kDigits = std::numeric_limits<T>::digits;
    fill_converted<T, float>(
        self, [&](auto begin, auto end, float* out) { kernels.uniform32(stream, begin, end, out, scale, shift, upper, kDigits); },
        [](float x) { return static_cast<T>(x); });
  }
}

template <class T, class Convert>
void fill_normal(const at::Tensor& self, RandomStream stream, double mean, double std, const Convert& convert) {
  const auto& kernels = kernels::random_fill();
  const auto draw = [&](auto begin, auto end, Wide<T>* out) {
    if constexpr (std::is_same_v<T, double>) {
      kernels.normal64(stream, begin, end, out, mean, std);
    } else {
      kernels.normal32(stream, begin, end, out, static_cast<float>(mean), static_cast<float>(std));
    }
  };
  if constexpr (std::is_same_v<Convert, std::identity> && std::is_same_v<T, Wide<T>>) {
    fill_elements<T>(self, draw);
  } else {
    fill_converted<T, Wide<T>>(self, draw, [&](Wide<T> x) { return static_cast<T>(convert(x)); });
  }
}

template <class T>
void fill_exponential(const at::Tensor& self, RandomStream stream, double lambda) {
  const auto& kernels = kernels::random_fill();
  const auto scale = static_cast<Wide<T>>(1.0 / lambda);
  if constexpr (std::is_same_v<T, double>) {
    fill_elements<T>(self, [&](auto begin, auto end, T* out) { kernels.exponential64(stream, begin, end, out, scale); });
  } else if constexpr (std::is_same_v<T, float>) {
    fill_elements<T>(self, [&](auto begin, auto end, T* out) { kernels.exponential32(stream, begin, end, out, scale); });
  } else {
    // Never zero, which sampling by dividing by an exponential (multinomial, Gumbel) depends on.
    const auto smallest = scale > 0 ? static_cast<float>(std::numeric_limits<T>::denorm_min()) : 0.0f;
    fill_converted<T, float>(
        self, [&](auto begin, auto end, float* out) { kernels.exponential32(stream, begin, end, out, scale); },
        [=](float x) { return static_cast<T>(std::max(x, smallest)); });
  }
}

template <class>
struct UniformKernel {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "uniform_kernel_cpu",
                                    [&] { fill_uniform<scalar_t>(self, stream_for(self, generator), from, to); });
  }
};

template <class>
struct NormalKernel {
  void operator()(const at::Tensor& self, double mean, double std, const MaybeGenerator& generator) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "normal_kernel_cpu",
                                    [&] { fill_normal<scalar_t>(self, stream_for(self, generator), mean, std, std::identity()); });
  }
};

template <class>
struct LogNormalKernel {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "log_normal_cpu", [&] {
      fill_normal<scalar_t>(self, stream_for(self, generator), mean, std, [](auto x) { return std::exp(x); });
    });
  }
};

template <class>
struct ExponentialKernel {
  void operator()(at::TensorIteratorBase& iter, double lambda, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    TORCH_CHECK(at::isFloatingType(self.scalar_type()),
                "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified ",
                self.scalar_type());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "exponential_cpu",
                                    [&] { fill_exponential<scalar_t>(self, stream_for(self, generator), lambda); });
  }
};

template <class>
struct CauchyKernel {
  void operator()(at::TensorIteratorBase& iter, double median, double sigma, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "cauchy_cpu", [&] {
      const RandomStream stream = stream_for(self, generator);
      // The inverse of the distribution function, of u in [-1/2, 1/2).
      fill_converted<scalar_t, double>(
          self, [&](auto begin, auto end, double* out) { kernels::random_fill().uniform64(stream, begin, end, out, 1.0, -0.5, 0.5); },
          [=](double u) { return static_cast<scalar_t>(median + sigma * std::tan(std::numbers::pi * u)); });
    });
  }
};

template <class>
struct GeometricKernel {
  void operator()(at::TensorIteratorBase& iter, double p, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "geometric_cpu", [&] {
      const RandomStream stream = stream_for(self, generator);
      const double scale = -1.0 / std::log1p(-p);
      // Integers saturate where the number of trials does not fit. The bound is a double that converts back without overflow.
      constexpr bool kInteger = std::is_integral_v<scalar_t>;
      const double largest = kInteger ? std::nextafter(static_cast<double>(std::numeric_limits<scalar_t>::max()) + 1, 0.0)
                                      : std::numeric_limits<double>::infinity();
      fill_converted<scalar_t, double>(
          self, [&](auto begin, auto end, double* out) { kernels::random_fill().exponential64(stream, begin, end, out, scale); },
          [=](double x) { return static_cast<scalar_t>(std::min(std::ceil(x), largest)); });
    });
  }
};

namespace templates = at::native::templates;

}  // namespace

at::Tensor& uniform_(at::Tensor& self, double from, double to, std::optional<at::Generator> generator) {
  return templates::uniform_impl_<UniformKernel, NeuronGenerator>(self, from, to, std::move(generator));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, std::optional<at::Generator> generator) {
  return templates::normal_impl_<NormalKernel, NeuronGenerator>(self, mean, std, std::move(generator));
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, std::optional<at::Generator> generator) {
  return templates::normal_impl<NormalKernel, NeuronGenerator>(mean, std, std::move(generator));
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, std::optional<at::Generator> generator) {
  return templates::normal_impl<NormalKernel, NeuronGenerator>(mean, std, std::move(generator));
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std, std::optional<at::Generator> generator) {
  check_same_device({mean, std});
  return templates::normal_impl<NormalKernel, NeuronGenerator>(mean, std, std::move(generator));
}

at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, std::optional<at::Generator> generator, at::Tensor& out) {
  check_same_device({mean, out});
  return templates::normal_out_impl<NormalKernel, NeuronGenerator>(out, mean, std, std::move(generator));
}

at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, std::optional<at::Generator> generator, at::Tensor& out) {
  check_same_device({std, out});
  return templates::normal_out_impl<NormalKernel, NeuronGenerator>(out, mean, std, std::move(generator));
}

at::Tensor& normal_tensor_tensor_out(const at::Tensor& mean, const at::Tensor& std, std::optional<at::Generator> generator,
                                     at::Tensor& out) {
  check_same_device({mean, std, out});
  return templates::normal_out_impl<NormalKernel, NeuronGenerator>(out, mean, std, std::move(generator));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, std::optional<at::Generator> generator) {
  return templates::log_normal_impl_<LogNormalKernel, NeuronGenerator>(self, mean, std, std::move(generator));
}

at::Tensor& exponential_(at::Tensor& self, double lambd, std::optional<at::Generator> generator) {
  return templates::exponential_impl_<ExponentialKernel, NeuronGenerator>(self, lambd, std::move(generator));
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, std::optional<at::Generator> generator) {
  return templates::cauchy_impl_<CauchyKernel, NeuronGenerator>(self, median, sigma, std::move(generator));
}

at::Tensor& geometric_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  return templates::geometric_impl_<GeometricKernel, NeuronGenerator>(self, p, std::move(generator));
}

}  // namespace neuron::ops
