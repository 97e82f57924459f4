// The portable random fills: 128-bit vectors that every compiler maps to what the baseline has (SSE2, NEON).
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/random/random_fill_impl.h"
#include "kernels/random/random_fill_tables.h"

namespace neuron::kernels {
namespace {

struct Generic {
  typedef std::uint64_t U64 __attribute__((vector_size(16)));
  typedef std::uint32_t U32 __attribute__((vector_size(16)));
  typedef std::int32_t I32 __attribute__((vector_size(16)));
  typedef float F32 __attribute__((vector_size(16)));
  typedef double F64 __attribute__((vector_size(16)));
  typedef std::uint8_t Bytes __attribute__((vector_size(4)));

  static U64 lane_blocks() { return U64{0, 1}; }
  static U64 multiply_low32(U64 a, U64 b) {
#if defined(__SSE2__)
    return reinterpret_cast<U64>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
  }
  static U64 interleave_low(U64 a, U64 b) { return U64{a[0], b[0]}; }
  static U64 interleave_high(U64 a, U64 b) { return U64{a[1], b[1]}; }
  static F32 interleave_low(F32 a, F32 b) { return F32{a[0], b[0], a[1], b[1]}; }
  static F32 interleave_high(F32 a, F32 b) { return F32{a[2], b[2], a[3], b[3]}; }
  static U64 units_low(U64 a, U64) { return a; }
  static U64 units_high(U64, U64 b) { return b; }
  static F32 sqrt(F32 x) { return F32{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])}; }
  static F64 sqrt(F64 x) { return F64{__builtin_sqrt(x[0]), __builtin_sqrt(x[1])}; }
};

constexpr RandomFill kTable = random_fill_table<Generic>("generic");

}  // namespace

const RandomFill& random_fill_generic() noexcept { return kTable; }

}  // namespace neuron::kernels
