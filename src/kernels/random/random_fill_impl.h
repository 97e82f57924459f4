// The random fills as templates over the vector types V of one instruction set. A translation unit per instruction set instantiates them
// with a V in an anonymous namespace, so that no code compiled for a newer instruction set can be linked into another file.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/random/random_fill.h"
#include "kernels/random/random_math.h"

namespace neuron::kernels {

template <class V>
class RandomFillImpl {
  using U64 = typename V::U64;
  using U32 = typename V::U32;
  using F32 = typename V::F32;
  using F64 = typename V::F64;
  // One step computes kBlocks Philox blocks, one per 64-bit lane, and emits kStep elements.
  static constexpr std::uint64_t kBlocks = sizeof(U64) / 8;
  static constexpr std::uint64_t kStep = 4 * kBlocks;

  // The four words of kBlocks blocks, each in the low half of a 64-bit lane (the high halves hold rubbish).
  // Even lanes hold the first half of the blocks and odd lanes the second, so that interleaving two vectors lane by lane gives memory
  // order.
  struct Words {
    U64 w0, w1, w2, w3;
  };

  static Words philox_words(RandomStream stream, std::uint64_t block, std::uint32_t plane) {
    const U64 counter = V::lane_blocks() + block;
    U64 c0 = counter;
    U64 c1 = counter >> 32;
    U64 c2 = U64{} + plane;
    U64 c3 = U64{} + static_cast<std::uint32_t>(PhiloxDomain::kElements);
    const U64 multiplier0 = U64{} + kPhiloxMultiplier0;
    const U64 multiplier1 = U64{} + kPhiloxMultiplier1;
    auto key0 = static_cast<std::uint32_t>(stream.seed);
    auto key1 = static_cast<std::uint32_t>(stream.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const U64 product0 = V::multiply_low32(c0, multiplier0);
      const U64 product1 = V::multiply_low32(c2, multiplier1);
      c0 = (product1 >> 32) ^ c1 ^ std::uint64_t{key0};
      c1 = product1;
      c2 = (product0 >> 32) ^ c3 ^ std::uint64_t{key1};
      c3 = product0;
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    return {c0, c1, c2, c3};
  }

  // low halves of a and b as 64-bit lanes (a in the low half).
  static U64 join(U64 low, U64 high) { return (low & 0xFFFFFFFFu) | (high << 32); }

  struct Step32 {
    U32 first, second;  // kStep words in memory order
  };

  static Step32 words32(RandomStream stream, std::uint64_t block) {
    const Words w = philox_words(stream, block, 0);
    const U64 low = join(w.w0, w.w1);
    const U64 high = join(w.w2, w.w3);
    return {reinterpret_cast<U32>(V::interleave_low(low, high)), reinterpret_cast<U32>(V::interleave_high(low, high))};
  }

  // 64-bit words of the blocks, still one vector per position within the block.
  static Words words64(RandomStream stream, std::uint64_t block) {
    const Words low = philox_words(stream, block, 0);
    const Words high = philox_words(stream, block, 1);
    return {join(low.w0, high.w0), join(low.w1, high.w1), join(low.w2, high.w2), join(low.w3, high.w3)};
  }

  template <class T, class Vector>
  static void store(T* out, Vector value) {
    std::memcpy(out, &value, sizeof(value));
  }

  // Stores four vectors of 64-bit lanes, one per position within the block, as kStep elements in memory order.
  template <class T>
  static void store_blocks(T* out, U64 e0, U64 e1, U64 e2, U64 e3) {
    // Interleaving gives 128-bit units: (e0, e1) or (e2, e3) of one block. The units of a block are then put side by side.
    const auto pair = [&](T* to, U64 front, U64 back) {
      store(to, V::units_low(front, back));
      store(to + kBlocks, V::units_high(front, back));
    };
    pair(out, V::interleave_low(e0, e1), V::interleave_low(e2, e3));
    pair(out + 2 * kBlocks, V::interleave_high(e0, e1), V::interleave_high(e2, e3));
  }

  // Calls step(block, T* out) for every kStep elements of [begin, end). Blocks that stick out of the range go through a buffer.
  template <class T, class Step>
  static void for_each_step(RandomStream stream, std::uint64_t begin, std::uint64_t end, T* out, const Step& step) {
    const std::uint64_t first_block = stream.offset / 4;
    std::uint64_t index = begin;
    const auto ragged = [&](std::uint64_t skip, std::uint64_t count) {
      T buffer[kStep];
      step(first_block + (index - skip) / 4, buffer);
      std::copy_n(buffer + skip, count, out + (index - begin));
      index += count;
    };
    if (index < end && index % 4 != 0) {
      const std::uint64_t skip = index % 4;
      ragged(skip, std::min(kStep - skip, end - index));
      // The buffer may have ended within a block again only if it ended the range.
    }
    for (; end - index >= kStep; index += kStep) step(first_block + index / 4, out + (index - begin));
    if (index < end) ragged(0, end - index);
  }

  // u in (0, 1]: (w + 1) 2^-32 rounded once. Never 0; 32 bits of resolution near 0, where the tails of normal and exponential come from.
  static F32 open_unit(U32 w) {
    const F32 high = __builtin_convertvector(reinterpret_cast<typename V::I32>(w >> 16), F32) * 65536.0f;
    const F32 low = __builtin_convertvector(reinterpret_cast<typename V::I32>(w & 0xFFFFu), F32) + 1.0f;
    return (high + low) * 0x1p-32f;
  }

  // -log of open_unit(w), with 32 bits of resolution at both ends of (0, 1]: near 1 a float is too coarse, and races between many
  // categories are decided there. Those values come from the distance to 1, which is exact: -log(1 - v) = 2 atanh(v / (2 - v)). Never 0.
  static F32 negative_log_unit(U32 w) {
    constexpr std::uint32_t kSqrtHalf = 0xB504F334;  // as a fraction of 2^32; above it the series of vector_log needs no exponent
    const U32 complement = ~w;
    const F32 high = __builtin_convertvector(reinterpret_cast<typename V::I32>(complement >> 16), F32) * 65536.0f;
    const F32 low = __builtin_convertvector(reinterpret_cast<typename V::I32>(complement & 0xFFFFu), F32);
    const F32 distance = (high + low) * 0x1p-32f;
    const F32 s = distance / (2.0f - distance);
    const F32 near_one = 2.0f * s + 2.0f * s * vector_atanh_series<V>(s * s);
    const F32 result = w >= kSqrtHalf ? near_one : vector_log<V>(open_unit(w)) * -1.0f;
    return result < 0x1p-33f ? F32{} + 0x1p-33f : result;
  }

  // k 2^-53 with k in [0, 2^53) from the top 53 bits of w, exact: both halves become doubles as the mantissas of magic numbers.
  static F64 unit(U64 w) {
    constexpr double kMagicLow = 0x1p52;
    constexpr double kMagicHigh = 0x1p84;
    const U64 k = w >> 11;
    const F64 low = reinterpret_cast<F64>((k & 0xFFFFFFFFu) | std::bit_cast<std::uint64_t>(kMagicLow)) - kMagicLow;
    const F64 high = reinterpret_cast<F64>((k >> 32) | std::bit_cast<std::uint64_t>(kMagicHigh)) - kMagicHigh;
    return (high + low) * 0x1p-53;
  }

  static F64 open_unit(U64 w) { return unit(w) + 0x1p-53; }

 public:
  static void bits32(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint32_t* out) {
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, std::uint32_t* to) {
      const Step32 w = words32(stream, block);
      store(to, w.first);
      store(to + kStep / 2, w.second);
    });
  }

  static void bits64(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint64_t* out) {
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, std::uint64_t* to) {
      const Words w = words64(stream, block);
      store_blocks(to, w.w0, w.w1, w.w2, w.w3);
    });
  }

  static void uniform32(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float scale, float shift, float upper,
                        int digits) {
    const int drop = 32 - digits;
    const float unit_scale = 1.0f / static_cast<float>(1u << digits);
    const auto convert = [&](U32 w) {
      const F32 x = __builtin_convertvector(reinterpret_cast<typename V::I32>(w >> drop), F32) * unit_scale;
      const F32 y = x * scale + shift;
      return y > upper ? F32{} + upper : y;
    };
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, float* to) {
      const Step32 w = words32(stream, block);
      store(to, convert(w.first));
      store(to + kStep / 2, convert(w.second));
    });
  }

  static void uniform64(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double scale, double shift,
                        double upper) {
    const auto convert = [&](U64 w) {
      const F64 y = unit(w) * scale + shift;
      return reinterpret_cast<U64>(y > upper ? F64{} + upper : y);
    };
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, double* to) {
      const Words w = words64(stream, block);
      store_blocks(to, convert(w.w0), convert(w.w1), convert(w.w2), convert(w.w3));
    });
  }

  static void normal32(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float mean, float std) {
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, float* to) {
      const Words w = philox_words(stream, block, 0);
      const F32 radius = V::sqrt(vector_log<V>(open_unit(reinterpret_cast<U32>(join(w.w0, w.w2)))) * -2.0f) * std;
      F32 sine, cosine;
      vector_sincos<V>(reinterpret_cast<U32>(join(w.w1, w.w3)), sine, cosine);
      const F32 x = radius * cosine + mean;
      const F32 y = radius * sine + mean;
      store(to, V::interleave_low(x, y));
      store(to + kStep / 2, V::interleave_high(x, y));
    });
  }

  static void normal64(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double mean, double std) {
    const auto pair = [&](U64 u, U64 v, U64& x, U64& y) {
      const F64 radius = V::sqrt(vector_log<V>(open_unit(u)) * -2.0) * std;
      F64 sine, cosine;
      vector_sincos<V>(v, sine, cosine);
      x = reinterpret_cast<U64>(radius * cosine + mean);
      y = reinterpret_cast<U64>(radius * sine + mean);
    };
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, double* to) {
      const Words w = words64(stream, block);
      U64 x0, y0, x1, y1;
      pair(w.w0, w.w1, x0, y0);
      pair(w.w2, w.w3, x1, y1);
      store_blocks(to, x0, y0, x1, y1);
    });
  }

  static void exponential32(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float scale) {
    const auto convert = [&](U32 w) { return negative_log_unit(w) * scale; };
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, float* to) {
      const Step32 w = words32(stream, block);
      store(to, convert(w.first));
      store(to + kStep / 2, convert(w.second));
    });
  }

  static void exponential64(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double scale) {
    const auto convert = [&](U64 w) {
      const F64 x = vector_log<V>(open_unit(w)) * -1.0;
      return reinterpret_cast<U64>((x < 0x1p-54 ? F64{} + 0x1p-54 : x) * scale);
    };
    for_each_step(stream, begin, end, out, [&](std::uint64_t block, double* to) {
      const Words w = words64(stream, block);
      store_blocks(to, convert(w.w0), convert(w.w1), convert(w.w2), convert(w.w3));
    });
  }

  static void bernoulli(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint8_t* out, double p) {
    if (p <= 0.0 || p >= 1.0) {
      std::memset(out, p >= 1.0 ? 1 : 0, end - begin);
    } else if (p < 0x1p-8 || p > 1.0 - 0x1p-8) {
      bernoulli64(stream, begin, end, out, p);
    } else {
      // w <= limit holds for limit + 1 of the 2^32 words; p is far enough from the ends that neither side overflows.
      const auto limit = static_cast<std::uint32_t>(std::llround(p * 0x1p32)) - 1;
      const auto convert = [&](U32 w) { return __builtin_convertvector((w <= limit) & 1, typename V::Bytes); };
      for_each_step(stream, begin, end, out, [&](std::uint64_t block, std::uint8_t* to) {
        const Step32 w = words32(stream, block);
        store(to, convert(w.first));
        store(to + kStep / 2, convert(w.second));
      });
    }
  }

 private:
  static void bernoulli64(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint8_t* out, double p) {
    const bool rare = p < 0.5;
    // Compare with the smaller of p and 1 - p, which is exact in double, so that tiny probabilities keep their relative accuracy.
    const auto threshold = static_cast<std::uint64_t>((rare ? p : 1.0 - p) * 0x1p64);
    constexpr std::uint64_t kChunk = 512;
    std::uint64_t words[kChunk];
    for (std::uint64_t index = begin; index < end; index += kChunk) {
      const std::uint64_t count = std::min(kChunk, end - index);
      bits64(stream, index, index + count, words);
      for (std::uint64_t i = 0; i < count; ++i) out[index - begin + i] = (words[i] < threshold) == rare;
    }
  }
};

template <class V>
constexpr RandomFill random_fill_table(const char* isa) {
  using Impl = RandomFillImpl<V>;
  return {isa,
          Impl::bits32,
          Impl::bits64,
          Impl::uniform32,
          Impl::uniform64,
          Impl::normal32,
          Impl::normal64,
          Impl::exponential32,
          Impl::exponential64,
          Impl::bernoulli};
}

}  // namespace neuron::kernels
