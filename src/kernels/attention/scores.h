// What prefill and decode share: which keys a query sees, masks, and one step of the online softmax over a row of scores.
// Scores are kept in units of log2: 2^x is cheaper than e^x.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/simd/simd.h"

namespace neuron::kernels {
namespace {

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.69314718F;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
  [[nodiscard]] bool empty() const { return begin >= end; }
};

// The keys that query i may see by position.
inline KeyRange visible_keys(const Attention& call, std::int64_t query) {
  const auto position = query + call.shift;
  return {call.window > 0 ? std::max<std::int64_t>(0, position - call.window + 1) : 0,
          call.causal ? std::clamp<std::int64_t>(position + 1, 0, call.keys) : call.keys};
}

inline KeyRange intersect(KeyRange a, KeyRange b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

template <class T>
inline const T* row_of(const AttentionTensor& tensor, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return static_cast<const T*>(tensor.data) + batch * tensor.batch + head * tensor.head + row * tensor.row;
}

inline float additive(std::uint8_t visible) { return visible != 0 ? 0 : -kInfinity; }
template <class M>
inline float additive(M x) {
  return read_one(&x) * kLog2E;
}

template <class M>
bool read_mask_as(const AttentionMask& mask, std::int64_t offset, std::int64_t count, float* to) {
  const auto* from = static_cast<const M*>(mask.data) + offset;
  int visible = 0;
  if (mask.column == 1) {
    for (std::int64_t j = 0; j < count; ++j) {
      to[j] = additive(from[j]);
      visible |= static_cast<int>(to[j] != -kInfinity);
    }
  } else {
    for (std::int64_t j = 0; j < count; ++j) {
      to[j] = additive(from[j * mask.column]);
      visible |= static_cast<int>(to[j] != -kInfinity);
    }
  }
  return visible != 0;
}

// Writes what the mask adds to `count` scores from `key` on. Returns whether any of them stays visible.
inline bool read_mask(const AttentionMask& mask, std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key,
                      std::int64_t count, float* to) {
  const auto offset = batch * mask.batch + head * mask.head + query * mask.row + key * mask.column;
  switch (mask.kind) {
    case AttentionMask::Kind::kBoolean:
      return read_mask_as<std::uint8_t>(mask, offset, count, to);
    case AttentionMask::Kind::kFloat:
      return read_mask_as<float>(mask, offset, count, to);
    case AttentionMask::Kind::kBFloat16:
      return read_mask_as<BFloat16>(mask, offset, count, to);
    case AttentionMask::Kind::kHalf:
      return read_mask_as<Half>(mask, offset, count, to);
    case AttentionMask::Kind::kNone:
      break;
  }
  std::fill(to, to + count, 0.0F);
  return true;
}

// 2^x for x <= 0 (weights of a softmax); 0 below 2^-126. Relative error 1.5e-7, or 5e-6 if only bfloat16 or half precision is asked for.
template <bool kFull>
inline Floats exp2_weight(Floats x) {
  x = select(x < -127.0F, broadcast(-127.0F), x);
  const Floats n = round_to_integer(x);
  const Floats r = x - n;
  Floats p;
  if constexpr (kFull) {
    p = r * 0x1.5bba14p-10F + 0x1.3cea88p-7F;
    p = p * r + 0x1.c6b752p-5F;
    p = p * r + 0x1.ebf9bcp-3F;
    p = p * r + 0x1.62e42ap-1F;
  } else {
    p = r * 0x1.3a02ccp-7F + 0x1.c9fc46p-5F;
    p = p * r + 0x1.ec0378p-3F;
    p = p * r + 0x1.62e12cp-1F;
  }
  p = p * r + 1.0F;  // exact at 0: a key alone has weight 1
  // n = -127 gives a factor of 0, as the exponent field is 0 then.
  return p * (Floats)((__builtin_convertvector(n, SignedWords) + 127) << 23);
}

// Scores are products times a positive scale, so that the largest product is the largest score; for any other scale the queries are
// multiplied with its sign (0 or NaN included) when they are copied.
inline float score_scale(const Attention& call) { return (call.scale == 0 || std::isnan(call.scale) ? 1 : std::abs(call.scale)) * kLog2E; }
inline float query_factor(const Attention& call) { return call.scale > 0 ? 1.0F : call.scale < 0 ? -1.0F : call.scale; }

// Copies a query of `size` elements, times query_factor().
template <class T>
inline void copy_query(const T* from, T* to, std::int64_t size, float factor) {
  for (std::int64_t j = 0; j < size; j += kLanes) {
    write(to + j, factor == 1 ? read(from + j, size - j) : read(from + j, size - j) * factor, size - j);
  }
}

// The running softmax of up to kLanes rows, a lane each.
struct SoftmaxState {
  float maximum[kLanes];
  float sum[kLanes];

  void clear() {
    write(maximum, broadcast(-kInfinity));
    write(sum, Floats{});
  }
  [[nodiscard]] bool empty(std::int64_t row) const { return maximum[row] == -kInfinity; }
  [[nodiscard]] float logsumexp(std::int64_t row) const { return empty(row) ? 0 : maximum[row] * kLn2 + std::log(sum[row]); }
  // What the sums of weighted values are multiplied with in the end.
  [[nodiscard]] float scale(std::int64_t row) const { return empty(row) ? 0 : 1 / sum[row]; }
};

// Where the weights of a row go: floats, or pairs of bfloat16.
inline void store_weights(float* to, Floats weights) { write(to, weights); }
inline void store_weights(BFloat16* to, Floats weights) {
#if defined(__AVX512BF16__)
  const auto bits = _mm512_cvtneps_pbh(weights);
  std::memcpy(to, &bits, sizeof bits);
#else
  write(to, weights);
#endif
}

// Takes products of `rows` (at most kLanes) rows and `count` (a multiple of kLanes) keys into their softmax: weights = 2^(score - new
// maximum), where score = product * scale + added (a mask, unless null). `row` is the distance between rows of products, added and weights.
// Overwrites the products. Writes for each row the factor for what was summed up under the old maximum.
template <bool kFull, class Weight>
inline void softmax_step(SoftmaxState& state, std::int64_t rows, float* products, const float* added, std::int64_t row, float scale,
                         std::int64_t count, Weight* weights, float* factors) {
  Floats maxima[kLanes];
  unrolled<kLanes>([&](auto i) __attribute__((always_inline)) { maxima[i] = broadcast(-kInfinity); });
  if (added != nullptr) {
    for (std::int64_t i = 0; i < rows; ++i) {
      Floats maximum = broadcast(-kInfinity);
      for (std::int64_t j = i * row; j < i * row + count; j += kLanes) {
        const Floats score = read(products + j) * scale + read(added + j);
        write(products + j, score);
        maximum = larger(maximum, score);
      }
      maxima[i] = maximum;
    }
    scale = 1;
  } else {
    for (std::int64_t i = 0; i < rows; ++i) {
      Floats even = broadcast(-kInfinity);
      Floats odd = even;
      std::int64_t j = i * row;
      for (; j + 2 * kLanes <= i * row + count; j += 2 * kLanes) {
        even = larger(even, read(products + j));
        odd = larger(odd, read(products + j + kLanes));
      }
      if (j < i * row + count) {
        even = larger(even, read(products + j));
      }
      maxima[i] = larger(even, odd) * scale;
    }
  }
  const Floats before = read(state.maximum);
  const Floats maximum = larger(before, maxima_of(maxima));
  write(state.maximum, maximum);
  // With nothing visible so far every weight is 2^-inf.
  const Floats base = select(maximum == -kInfinity, Floats{}, maximum);
  float bases[kLanes];
  write(bases, base);
  Floats sums[kLanes] = {};
  for (std::int64_t i = 0; i < rows; ++i) {
    const Floats row_base = broadcast(bases[i]);
    Floats sum = Floats{};
    for (std::int64_t j = i * row; j < i * row + count; j += kLanes) {
      const Floats weight = exp2_weight<kFull>(read(products + j) * scale - row_base);
      sum += weight;
      store_weights(weights + j, weight);
    }
    sums[i] = sum;
  }
  const Floats factor = exp2_weight<true>(before - base);
  write(state.sum, read(state.sum) * factor + sums_of(sums));
  write(factors, factor);
}

}  // namespace
}  // namespace neuron::kernels
