// See scratch.h.
#include "kernels/scratch.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

namespace neuron::kernels {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Buffer {
  std::unique_ptr<void, Free> memory;
  std::size_t size = 0;
};

}  // namespace

void* scratch(Scratch purpose, std::size_t bytes) {
  thread_local std::array<Buffer, static_cast<std::size_t>(Scratch::kCount)> buffers;
  auto& buffer = buffers[static_cast<std::size_t>(purpose)];
  if (buffer.size < bytes) {
    constexpr std::size_t kPage = 4096;
    const auto size = (bytes + bytes / 4 + kPage - 1) / kPage * kPage;
    buffer.memory.reset();
    buffer.size = 0;
    buffer.memory.reset(std::aligned_alloc(kPage, size));
    if (!buffer.memory) {
      throw std::bad_alloc();
    }
    buffer.size = size;
  }
  return buffer.memory.get();
}

}  // namespace neuron::kernels
