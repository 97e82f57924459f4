// The random fills for AVX2.
#include <immintrin.h>

#include "kernels/random/random_fill_impl.h"
#include "kernels/random/random_fill_tables.h"

namespace neuron::kernels {
namespace {

struct Avx2 {
  typedef std::uint64_t U64 __attribute__((vector_size(32)));
  typedef std::uint32_t U32 __attribute__((vector_size(32)));
  typedef std::int32_t I32 __attribute__((vector_size(32)));
  typedef float F32 __attribute__((vector_size(32)));
  typedef double F64 __attribute__((vector_size(32)));
  typedef std::uint8_t Bytes __attribute__((vector_size(8)));

  static __m256i raw(U64 a) { return reinterpret_cast<__m256i>(a); }
  static U64 vector(__m256i a) { return reinterpret_cast<U64>(a); }

  static U64 lane_blocks() { return U64{0, 2, 1, 3}; }
  static U64 multiply_low32(U64 a, U64 b) { return vector(_mm256_mul_epu32(raw(a), raw(b))); }
  static U64 interleave_low(U64 a, U64 b) { return vector(_mm256_unpacklo_epi64(raw(a), raw(b))); }
  static U64 interleave_high(U64 a, U64 b) { return vector(_mm256_unpackhi_epi64(raw(a), raw(b))); }
  static F32 interleave_low(F32 a, F32 b) { return _mm256_unpacklo_ps(a, b); }
  static F32 interleave_high(F32 a, F32 b) { return _mm256_unpackhi_ps(a, b); }
  static U64 units_low(U64 a, U64 b) { return vector(_mm256_permute2x128_si256(raw(a), raw(b), 0x20)); }
  static U64 units_high(U64 a, U64 b) { return vector(_mm256_permute2x128_si256(raw(a), raw(b), 0x31)); }
  static F32 sqrt(F32 x) { return _mm256_sqrt_ps(x); }
  static F64 sqrt(F64 x) { return _mm256_sqrt_pd(x); }
};

constexpr RandomFill kTable = random_fill_table<Avx2>("avx2");

}  // namespace

const RandomFill& random_fill_avx2() noexcept { return kTable; }

}  // namespace neuron::kernels
