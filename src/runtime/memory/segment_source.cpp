// Segments from mmap.
#include "runtime/memory/segment_source.h"

#include <sys/mman.h>

#include <cstdint>

#include "runtime/memory/size_class.h"

namespace neuron::runtime {
namespace {

class AnonymousMemory final : public SegmentSource {
 public:
  void* map(std::size_t size, std::size_t huge_prefix) noexcept override {
    const bool huge = huge_prefix >= kHugePage;
    // mmap aligns to 4 KiB only: ask for more and cut both ends off.
    const std::size_t slack = huge ? kHugePage - kPage : 0;
    void* mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      return nullptr;
    }
    if (!huge) {
      return mapped;
    }
    auto* const start = static_cast<std::byte*>(mapped);
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
    std::byte* const base = start + head;
    if (head != 0) {
      munmap(start, head);
    }
    if (head != slack) {
      munmap(base + size, slack - head);
    }
    madvise(base, huge_prefix / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice only: works the same without
    return base;
  }

  void unmap(void* base, std::size_t size) noexcept override { munmap(base, size); }
};

}  // namespace

SegmentSource& SegmentSource::anonymous_memory() noexcept {
  static auto& source = *new AnonymousMemory;  // leaked: nothing runs at exit
  return source;
}

}  // namespace neuron::runtime
