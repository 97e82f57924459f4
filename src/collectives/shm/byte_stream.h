// A stream of bytes from one rank to another through a ring in shared memory. One writer, one reader, no waiting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/shm/layout.h"

namespace neuron::collectives {

class ByteStream {
 public:
  ByteStream(MailboxControl& control, std::byte* ring, std::size_t capacity) noexcept
      : control_(&control), ring_(ring), capacity_(capacity) {}

  // Bytes that can be read, or written, now.
  [[nodiscard]] std::size_t readable() const noexcept {
    return control_->written.load(std::memory_order_acquire) - control_->read.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t writable() const noexcept {
    return capacity_ - (control_->written.load(std::memory_order_relaxed) - control_->read.load(std::memory_order_acquire));
  }

  // Both parts must fit into writable(). They become readable together.
  void write(const void* first, std::size_t first_bytes, const void* second, std::size_t second_bytes) noexcept {
    const std::uint64_t position = control_->written.load(std::memory_order_relaxed);
    put(position, first, first_bytes);
    put(position + first_bytes, second, second_bytes);
    control_->written.store(position + first_bytes + second_bytes, std::memory_order_release);
  }
  // `bytes` of readable(), from `offset` on; they stay until consume().
  void peek(std::size_t offset, void* to, std::size_t bytes) const noexcept {
    if (bytes == 0) return;  // `to` may be null
    const std::size_t at = (control_->read.load(std::memory_order_relaxed) + offset) % capacity_;
    const std::size_t straight = std::min(bytes, capacity_ - at);
    std::memcpy(to, ring_ + at, straight);
    if (bytes > straight) std::memcpy(static_cast<std::byte*>(to) + straight, ring_, bytes - straight);
  }
  void consume(std::size_t bytes) noexcept {
    control_->read.store(control_->read.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  }

 private:
  void put(std::uint64_t position, const void* from, std::size_t bytes) noexcept {
    if (bytes == 0) return;  // `from` may be null
    const std::size_t at = position % capacity_;
    const std::size_t straight = std::min(bytes, capacity_ - at);
    std::memcpy(ring_ + at, from, straight);
    if (bytes > straight) std::memcpy(ring_, static_cast<const std::byte*>(from) + straight, bytes - straight);
  }

  MailboxControl* control_;
  std::byte* ring_;
  std::size_t capacity_;
};

}  // namespace neuron::collectives
