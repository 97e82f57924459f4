// histc of integers, which accelerators have and the CPU does not: mixture-of-experts models count the tokens of each expert with it.
// Floating-point types take the CPU's kernel. Definition: torch.histc (PyTorch documentation); the last bin includes the upper bound.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/histc_cpu_dispatch.h>

#include <algorithm>
#include <cstdint>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/native.h"

namespace neuron::ops {
namespace {

struct Range {
  int64_t low;
  int64_t high;
};

template <typename T>
Range range_of(const T* values, int64_t count, const at::Scalar& min, const at::Scalar& max) {
  auto low = min.to<int64_t>();
  auto high = max.to<int64_t>();
  if (low == high && count != 0) {
    const auto [smallest, largest] = std::minmax_element(values, values + count);
    low = static_cast<int64_t>(*smallest);
    high = static_cast<int64_t>(*largest);
  }
  TORCH_CHECK(low <= high, "max must be larger than min");
  return low == high ? Range{low - 1, high + 1} : Range{low, high};
}

template <typename T>
void count(const T* values, int64_t number, const Range& range, T* bins, int64_t bin_count) {
  // 128 bits: the distance of two int64 times the number of bins does not fit into 64.
  const auto width = static_cast<__int128>(range.high) - range.low;
  for (int64_t i = 0; i < number; ++i) {
    const auto value = static_cast<int64_t>(values[i]);
    if (value >= range.low && value <= range.high) {
      const auto bin = static_cast<int64_t>((static_cast<__int128>(value) - range.low) * bin_count / width);
      ++bins[std::min(bin, bin_count - 1)];
    }
  }
}

}  // namespace

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return AliasCall<&at::cpu::histc>::call(self, bins, min, max);
  }
  TORCH_CHECK(bins > 0, "bins must be > 0, but got ", bins, " for dimension 0");
  const auto values = self.contiguous();
  auto result = empty_on({bins}, self.scalar_type(), self.device().index()).zero_();
  AT_DISPATCH_INTEGRAL_TYPES(self.scalar_type(), "histc", [&] {
    const auto* data = values.const_data_ptr<scalar_t>();
    count(data, values.numel(), range_of(data, values.numel(), min, max), result.mutable_data_ptr<scalar_t>(), bins);
  });
  return result;
}

at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return AliasCall<&at::cpu::histc_outf>::call(self, bins, min, max, out);
  }
  const auto result = histc(self, bins, min, max);
  TORCH_CHECK(out.scalar_type() == result.scalar_type(),
              "torch.histogram: input tensor and hist tensor should have the same dtype, but got input ", self.scalar_type(), " and hist ",
              out.scalar_type());
  out.resize_({bins});
  return out.copy_(result);
}

}  // namespace neuron::ops
