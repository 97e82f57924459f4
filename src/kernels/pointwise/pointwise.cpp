// One loop for all element-wise operations; the compiler vectorises it for each instruction set and the loader picks the machine's.
#include "kernels/pointwise/pointwise.h"

#include <bit>

namespace neuron::kernels {
namespace {

inline float load(float value) { return value; }
inline float load(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

inline void store(float* to, float value) { *to = value; }
inline void store(BFloat16* to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto rounded = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  to->bits = value == value ? rounded : std::uint16_t{0x7fc0};
}

struct Add {
  static float apply(float a, float b) { return a + b; }
};
struct Multiply {
  static float apply(float a, float b) { return a * b; }
};

template <typename Operation, typename T>
[[gnu::always_inline]] inline void elementwise(T* out, const T* a, const T* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    store(out + i, Operation::apply(load(a[i]), load(b[i])));
  }
}

template <typename Operation, typename T>
[[gnu::always_inline]] inline void elementwise(T* out, const T* a, float scalar, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    store(out + i, Operation::apply(load(a[i]), scalar));
  }
}

}  // namespace

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NEURON_EVERY_X86 [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define NEURON_EVERY_X86
#endif

NEURON_EVERY_X86 void add(float* out, const float* a, const float* b, std::int64_t n) { elementwise<Add>(out, a, b, n); }
NEURON_EVERY_X86 void add(BFloat16* out, const BFloat16* a, const BFloat16* b, std::int64_t n) { elementwise<Add>(out, a, b, n); }
NEURON_EVERY_X86 void multiply(float* out, const float* a, const float* b, std::int64_t n) { elementwise<Multiply>(out, a, b, n); }
NEURON_EVERY_X86 void multiply(BFloat16* out, const BFloat16* a, const BFloat16* b, std::int64_t n) { elementwise<Multiply>(out, a, b, n); }
NEURON_EVERY_X86 void add(float* out, const float* a, float scalar, std::int64_t n) { elementwise<Add>(out, a, scalar, n); }
NEURON_EVERY_X86 void add(BFloat16* out, const BFloat16* a, float scalar, std::int64_t n) { elementwise<Add>(out, a, scalar, n); }
NEURON_EVERY_X86 void multiply(float* out, const float* a, float scalar, std::int64_t n) { elementwise<Multiply>(out, a, scalar, n); }
NEURON_EVERY_X86 void multiply(BFloat16* out, const BFloat16* a, float scalar, std::int64_t n) { elementwise<Multiply>(out, a, scalar, n); }

}  // namespace neuron::kernels
