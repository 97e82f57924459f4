// The random fills for AVX-512 (F, DQ, BW, VL).
#include <immintrin.h>

#include "kernels/random/random_fill_impl.h"
#include "kernels/random/random_fill_tables.h"

namespace neuron::kernels {
namespace {

struct Avx512 {
  typedef std::uint64_t U64 __attribute__((vector_size(64)));
  typedef std::uint32_t U32 __attribute__((vector_size(64)));
  typedef std::int32_t I32 __attribute__((vector_size(64)));
  typedef float F32 __attribute__((vector_size(64)));
  typedef double F64 __attribute__((vector_size(64)));
  typedef std::uint8_t Bytes __attribute__((vector_size(16)));

  static __m512i raw(U64 a) { return reinterpret_cast<__m512i>(a); }
  static U64 vector(__m512i a) { return reinterpret_cast<U64>(a); }

  static U64 lane_blocks() { return U64{0, 4, 1, 5, 2, 6, 3, 7}; }
  static U64 multiply_low32(U64 a, U64 b) { return vector(_mm512_mul_epu32(raw(a), raw(b))); }
  static U64 interleave_low(U64 a, U64 b) { return vector(_mm512_unpacklo_epi64(raw(a), raw(b))); }
  static U64 interleave_high(U64 a, U64 b) { return vector(_mm512_unpackhi_epi64(raw(a), raw(b))); }
  static F32 interleave_low(F32 a, F32 b) { return _mm512_unpacklo_ps(a, b); }
  static F32 interleave_high(F32 a, F32 b) { return _mm512_unpackhi_ps(a, b); }
  static U64 units_low(U64 a, U64 b) {
    return vector(_mm512_permutex2var_epi64(raw(a), _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), raw(b)));
  }
  static U64 units_high(U64 a, U64 b) {
    return vector(_mm512_permutex2var_epi64(raw(a), _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), raw(b)));
  }
  static F32 sqrt(F32 x) { return _mm512_sqrt_ps(x); }
  static F64 sqrt(F64 x) { return _mm512_sqrt_pd(x); }
};

constexpr RandomFill kTable = random_fill_table<Avx512>("avx512");

}  // namespace

const RandomFill& random_fill_avx512() noexcept { return kTable; }

}  // namespace neuron::kernels
