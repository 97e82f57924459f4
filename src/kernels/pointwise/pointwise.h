// Element-wise arithmetic on contiguous arrays, for operands that need no broadcasting and no type promotion.
// Results are rounded once per operation, as PyTorch's CPU kernels do; bfloat16 computes in float.
#pragma once

#include <cstdint>

namespace neuron::kernels {

// A bfloat16 as stored: the upper half of an IEEE float.
struct BFloat16 {
  std::uint16_t bits;
};

// out[i] = a[i] op b[i], 0 <= i < n. `out` may be `a` or `b` themselves, but not overlap them otherwise.
void add(float* out, const float* a, const float* b, std::int64_t n);
void add(BFloat16* out, const BFloat16* a, const BFloat16* b, std::int64_t n);
void multiply(float* out, const float* a, const float* b, std::int64_t n);
void multiply(BFloat16* out, const BFloat16* a, const BFloat16* b, std::int64_t n);

// out[i] = a[i] op scalar.
void add(float* out, const float* a, float scalar, std::int64_t n);
void add(BFloat16* out, const BFloat16* a, float scalar, std::int64_t n);
void multiply(float* out, const float* a, float scalar, std::int64_t n);
void multiply(BFloat16* out, const BFloat16* a, float scalar, std::int64_t n);

}  // namespace neuron::kernels
