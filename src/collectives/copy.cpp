// Copies with non-temporal stores. SSE2 suffices: four stores fill the write-combining buffer of a line, whatever their width.
#include "collectives/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace neuron::collectives {

namespace {

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;

// Calls each(offset) for every line that is stored past the caches.
template <typename Each>
void stream(void* destination, const void* source, std::size_t bytes, Each&& each) noexcept {
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  std::size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    each(done);
    const auto* in = reinterpret_cast<const __m128i*>(from + done);
    auto* out = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

bool worth_streaming(std::size_t bytes) noexcept { return bytes >= 16 * kLine; }
#endif

}  // namespace

void end_of_blocks() noexcept {
#if defined(__x86_64__)
  _mm_sfence();  // other threads must see the result once they are told of it by ordinary stores
#endif
}

void copy(void* destination, const void* source, std::size_t bytes, bool streaming) noexcept {
  if (bytes == 0) {
    return;  // the pointers may be null
  }
#if defined(__x86_64__)
  if (streaming && worth_streaming(bytes)) {
    stream(destination, source, bytes, [](std::size_t) {});
    return end_of_blocks();
  }
#endif
  std::memcpy(destination, source, bytes);
}

void copy_block_and_fetch(void* destination, const void* source, std::size_t bytes, std::span<const void* const> next) noexcept {
#if defined(__x86_64__)
  if (worth_streaming(bytes)) {
    return stream(destination, source, bytes, [next](std::size_t offset) {
      for (const void* from : next) __builtin_prefetch(static_cast<const std::byte*>(from) + offset, 0, 3);
    });
  }
#endif
  std::memcpy(destination, source, bytes);
}

}  // namespace neuron::collectives
