// Copies with non-temporal stores. SSE2 suffices: four stores fill the write-combining buffer of a line, whatever their width.
#include "collectives/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace neuron::collectives {

void copy(void* destination, const void* source, std::size_t bytes, bool streaming) noexcept {
  if (bytes == 0) {
    return;  // the pointers may be null
  }
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  if (streaming && bytes >= 16 * kLine) {
    auto* to = static_cast<std::byte*>(destination);
    const auto* from = static_cast<const std::byte*>(source);
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      const auto* in = reinterpret_cast<const __m128i*>(from);
      auto* out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    std::memcpy(to, from, bytes);
    _mm_sfence();  // other threads must see the result once they are told of it by ordinary stores
    return;
  }
#endif
  std::memcpy(destination, source, bytes);
}

}  // namespace neuron::collectives
