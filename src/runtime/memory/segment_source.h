// Where segments come from. The allocator uses anonymous mappings; tests inject sources that fail.
#pragma once

#include <cstddef>

namespace neuron::runtime {

class SegmentSource {
 public:
  SegmentSource() = default;
  SegmentSource(const SegmentSource&) = delete;
  SegmentSource& operator=(const SegmentSource&) = delete;
  SegmentSource(SegmentSource&&) = delete;
  SegmentSource& operator=(SegmentSource&&) = delete;
  virtual ~SegmentSource() = default;

  // `size` is a multiple of the page size. Zeroed memory that is committed when touched, or nullptr when the host refuses.
  // `huge_prefix`: bytes from the start that are expected to be touched as a whole, so huge pages waste nothing there.
  virtual void* map(std::size_t size, std::size_t huge_prefix) noexcept = 0;
  virtual void unmap(void* base, std::size_t size) noexcept = 0;

  // Private anonymous mappings, never reserved up front. Leaked singleton.
  static SegmentSource& anonymous_memory() noexcept;
};

}  // namespace neuron::runtime
