// Drawing categories with given probabilities.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "torch/ops/random_support.h"

namespace neuron::ops {
namespace {

using kernels::RandomStream;

constexpr std::int64_t kMaxCategories = std::int64_t{1} << 24;  // what float indices of other devices can tell apart

// What is wrong with the rows, found while they are sampled by several threads. The first problem in the order of the CPU's checks is
// reported.
struct Problems {
  std::atomic<bool> negative = false;
  std::atomic<bool> infinite = false;
  std::atomic<bool> zero_sum = false;
};

template <class T>
struct Rows {
  const T* data;
  std::int64_t count;
  std::int64_t categories;
  std::int64_t samples;
  std::int64_t* out;
};

// Without replacement: the categories with the largest p / E, E exponential, come in the order of drawing one after the other (exponential
// races).
template <class T>
void sample_by_race(const Rows<T>& rows, RandomStream stream, Problems& problems) {
  using Score = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const std::int64_t categories = rows.categories;
  at::parallel_for(0, rows.count, std::max<std::int64_t>(1, 16 * kRandomTile / categories), [&](std::int64_t first, std::int64_t last) {
    std::vector<Score> scores(static_cast<std::size_t>(categories));
    std::vector<std::int64_t> order;
    for (std::int64_t row = first; row < last; ++row) {
      const T* p = rows.data + row * categories;
      const auto begin = static_cast<std::uint64_t>(row * categories);
      const auto end = begin + static_cast<std::uint64_t>(categories);
      if constexpr (std::is_same_v<T, double>) {
        kernels::random_fill().exponential64(stream, begin, end, scores.data(), 1.0);
      } else {
        kernels::random_fill().exponential32(stream, begin, end, scores.data(), 1.0f);
      }
      bool valid = true;
      Score largest = 0;
      for (std::int64_t i = 0; i < categories; ++i) {
        const auto probability = static_cast<Score>(p[i]);
        valid &= probability >= 0 && probability < std::numeric_limits<Score>::infinity();
        largest = std::max(largest, probability);
        scores[i] = probability / scores[i];
      }
      if (!valid) problems.negative = true;
      if (!(largest > 0)) problems.zero_sum = true;
      if (!valid || !(largest > 0)) continue;
      std::int64_t* out = rows.out + row * rows.samples;
      if (rows.samples == 1) {
        *out = std::max_element(scores.begin(), scores.end()) - scores.begin();
        continue;
      }
      order.resize(static_cast<std::size_t>(categories));
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + rows.samples, order.end(),
                        [&](std::int64_t a, std::int64_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
      std::copy_n(order.begin(), rows.samples, out);
    }
  });
  TORCH_CHECK(!problems.negative, "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(!problems.zero_sum, "invalid multinomial distribution (sum of probabilities <= 0)");
}

// With replacement: inversion of the cumulative distribution.
template <class T>
void sample_by_inversion(const Rows<T>& rows, RandomStream stream, Problems& problems) {
  const std::int64_t categories = rows.categories;
  const std::int64_t work = categories + rows.samples;
  at::parallel_for(0, rows.count, std::max<std::int64_t>(1, 16 * kRandomTile / work), [&](std::int64_t first, std::int64_t last) {
    std::vector<double> cumulative(static_cast<std::size_t>(categories));
    std::vector<double> uniform(static_cast<std::size_t>(rows.samples));
    for (std::int64_t row = first; row < last; ++row) {
      const T* p = rows.data + row * categories;
      double total = 0;
      std::int64_t last_possible = 0;
      bool valid = true;
      for (std::int64_t i = 0; i < categories; ++i) {
        const auto probability = static_cast<double>(p[i]);
        valid &= probability >= 0;
        if (probability > 0) last_possible = i;
        cumulative[i] = total += probability;
      }
      if (!valid) problems.negative = true;
      if (valid && std::isinf(total)) problems.infinite = true;
      if (valid && !(total > 0)) problems.zero_sum = true;
      if (!valid || std::isinf(total) || !(total > 0)) continue;
      const auto begin = static_cast<std::uint64_t>(row * rows.samples);
      kernels::random_fill().uniform64(stream, begin, begin + static_cast<std::uint64_t>(rows.samples), uniform.data(), 1.0, 0.0, 1.0);
      for (std::int64_t i = 0; i < rows.samples; ++i) {
        // The first category whose cumulative probability exceeds the target has a positive probability; rounding up to the total has none.
        const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform[i] * total) - cumulative.begin();
        rows.out[row * rows.samples + i] = std::min<std::int64_t>(found, last_possible);
      }
    }
  });
  TORCH_CHECK(!problems.negative, "invalid multinomial distribution (encountering probability entry < 0)");
  TORCH_CHECK(!problems.infinite, "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  TORCH_CHECK(!problems.zero_sum, "invalid multinomial distribution (sum of probabilities <= 0)");
}

}  // namespace

at::Tensor& multinomial_out(const at::Tensor& self, std::int64_t num_samples, bool replacement, std::optional<at::Generator> generator,
                            at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(num_samples > 0, "cannot sample n_sample <= 0 samples");
  const std::int64_t categories = self.size(-1);
  TORCH_CHECK(replacement || num_samples <= categories, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= kMaxCategories, "number of categories cannot exceed 2^24");

  const bool batched = self.dim() == 2;
  const std::int64_t count = batched ? self.size(0) : 1;
  batched ? out.resize_({count, num_samples}) : out.resize_({num_samples});
  if (count == 0) return out;
  TORCH_CHECK(categories > 0, "invalid multinomial distribution (sum of probabilities <= 0)");

  const at::Tensor probabilities = self.contiguous();
  const at::Tensor samples = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "multinomial", [&] {
    const Rows<scalar_t> rows{static_cast<const scalar_t*>(probabilities.const_data_ptr()), count, categories, num_samples,
                              static_cast<std::int64_t*>(samples.mutable_data_ptr())};
    Problems problems;
    if (num_samples == 1 || !replacement) {
      sample_by_race(rows, take_stream(generator, self.device(), count * categories), problems);
    } else {
      sample_by_inversion(rows, take_stream(generator, self.device(), count * num_samples), problems);
    }
  });
  if (!samples.is_same(out)) out.copy_(samples);
  return out;
}

at::Tensor multinomial(const at::Tensor& self, std::int64_t num_samples, bool replacement, std::optional<at::Generator> generator) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, num_samples, replacement, std::move(generator), out);
}

}  // namespace neuron::ops
