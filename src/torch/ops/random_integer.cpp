// Discrete uniform numbers and permutations. Range and dtype checks are PyTorch's own (DistributionTemplates.h).
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>

#include <limits>
#include <type_traits>
#include <utility>

#include "torch/device/generator.h"
#include "torch/ops/random_support.h"

namespace neuron::ops {
namespace {

using device::NeuronGenerator;
using kernels::RandomStream;
using MaybeGenerator = std::optional<at::Generator>;

// Maps 64 random bits to [0, range): the high half of bits * range. The deviation from uniform is below range / 2^64.
std::uint64_t below(std::uint64_t bits, std::uint64_t range) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * range) >> 64);
}

template <class T, class Convert>
void fill_from_bits(const at::Tensor& self, const MaybeGenerator& generator, const Convert& convert) {
  const RandomStream stream = take_stream(generator, self.device(), self.numel());
  fill_converted<T, std::uint64_t>(
      self, [&](auto begin, auto end, std::uint64_t* out) { kernels::random_fill().bits64(stream, begin, end, out); }, convert);
}

template <class T>
void fill_range(const at::Tensor& self, const MaybeGenerator& generator, std::uint64_t range, std::int64_t base) {
  fill_from_bits<T>(self, generator, [=](std::uint64_t bits) {
    return static_cast<T>(static_cast<std::int64_t>(below(bits, range) + static_cast<std::uint64_t>(base)));
  });
}

// random_(): integers in [0, max], floating types in [0, 2^digits] (the integers that they hold exactly).
template <class>
struct RandomKernel {
  void operator()(at::TensorIteratorBase& iter, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, self.scalar_type(), "random_kernel_cpu", [&] {
      if constexpr (std::is_integral_v<scalar_t>) {
        fill_range<scalar_t>(self, generator, static_cast<std::uint64_t>(std::numeric_limits<scalar_t>::max()) + 1, 0);
      } else {
        fill_range<scalar_t>(self, generator, (std::uint64_t{1} << std::numeric_limits<scalar_t>::digits) + 1, 0);
      }
    });
  }
};

template <class>
struct RandomFromToKernel {
  void operator()(at::TensorIteratorBase& iter, std::uint64_t range, std::int64_t base, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_V2(self.scalar_type(), "random_from_to_kernel_cpu", AT_WRAP([&] { fill_range<scalar_t>(self, generator, range, base); }),
                   AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
  }

  // All of int64.
  void operator()(at::TensorIteratorBase& iter, const MaybeGenerator& generator) const {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_ALL_TYPES_AND(at::kBFloat16, self.scalar_type(), "random_full_64_bits_range_kernel_cpu", [&] {
      if constexpr (std::is_same_v<scalar_t, std::int64_t> || !std::is_integral_v<scalar_t>) {
        fill_from_bits<scalar_t>(self, generator,
                                 [](std::uint64_t bits) { return static_cast<scalar_t>(static_cast<std::int64_t>(bits)); });
      } else {
        TORCH_CHECK(false, "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16");
      }
    });
  }
};

// Fisher-Yates: a chain of swaps, so one thread.
template <class T>
void shuffle(T* values, std::int64_t count, RandomStream stream) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
  std::uint64_t bits[kRandomTile];
  for (std::int64_t begin = 0; begin < count; begin += kRandomTile) {
    const std::int64_t end = std::min(count, begin + kRandomTile);
    kernels::random_fill().bits64(stream, begin, end, bits);
    for (std::int64_t i = begin; i < end; ++i) {
      std::swap(values[i], values[i + static_cast<std::int64_t>(below(bits[i - begin], static_cast<std::uint64_t>(count - i)))]);
    }
  }
}

}  // namespace

at::Tensor& random_(at::Tensor& self, std::optional<at::Generator> generator) {
  return at::native::templates::random_impl<RandomKernel, NeuronGenerator>(self, std::move(generator));
}

at::Tensor& random_from(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to, std::optional<at::Generator> generator) {
  return at::native::templates::random_from_to_impl<RandomFromToKernel, NeuronGenerator>(self, from, to, std::move(generator));
}

at::Tensor& random_to(at::Tensor& self, std::int64_t to, std::optional<at::Generator> generator) {
  return random_from(self, 0, to, std::move(generator));
}

at::Tensor& randperm_out(std::int64_t n, std::optional<at::Generator> generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  at::Tensor values = out.is_contiguous() ? out : at::empty({n}, out.options());
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "randperm", [&] {
    shuffle(static_cast<scalar_t*>(values.mutable_data_ptr()), n, take_stream(generator, out.device(), n));
  });
  if (!values.is_same(out)) out.copy_(values);
  return out;
}

}  // namespace neuron::ops
