// Segments that other processes of the host can read and write where they are, for collectives without copies in between.
//
// One sparse file in memory (memfd) per process holds all of them; a peer maps it once and finds a segment by its offset, which stays right
// when segments come and go. Nothing is shared before enable(), nor what was mapped before.
//
// Shared memory has huge pages only where somebody asks for each of them (the system's default for shmem is "never"): one page in 2 MiB is
// touched and the range collapsed, which takes as long as the page faults of private memory would. Where that does not work, segments stay
// private: kernels on small pages would be slower.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "runtime/memory/segment_source.h"
#include "runtime/spin_lock.h"

namespace neuron::runtime {

class SharedSegments final : public SegmentSource {
 public:
  SharedSegments() = default;
  ~SharedSegments() override;

  // That of the device's allocators. Leaked singleton.
  static SharedSegments& of_device() noexcept;

  // From now on large segments are shared. Returns false, and changes nothing, where the system has no such files. Thread-safe, idempotent.
  bool enable() noexcept;

  // As SegmentSource says; `huge_prefix` is committed at once where the segment is shared. Small and very large segments, and all before
  // enable(), are those of anonymous_memory().
  void* map(std::size_t size, std::size_t huge_prefix) noexcept override;
  void unmap(void* base, std::size_t size) noexcept override;

  // The file, as long as this object lives; none before enable() and in a forked child.
  struct File {
    int descriptor;
    std::uint64_t bytes;  // what a peer should map
  };
  [[nodiscard]] std::optional<File> file() const noexcept;
  // Where in the file [data, data + bytes) is; nothing if it is not, or not in one segment.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const noexcept;

  // Makes the segment of `data`, which must not be unmapped meanwhile, private for the rest of its life: what others write to the file from
  // now on does not reach it. Its bytes stay, also in the file, as long as the segment does; no other segment gets its place there.
  void withdraw(const void* data) noexcept;

  // Around fork(). The child, which may not use the device, does not write to its parent's memory: pages that it writes become its own. Of
  // the others it sees what the parent writes later, unlike those of private segments.
  void before_fork() noexcept { lock_.lock(); }
  void after_fork_in_parent() noexcept { lock_.unlock(); }
  void after_fork_in_child() noexcept;

 private:
  struct Range {
    std::size_t size;
    std::uint64_t offset;
    bool withdrawn = false;
  };
  using Ranges = std::map<std::uintptr_t, Range>;

  // The range that `address` is in, or the end. The lock is held.
  [[nodiscard]] Ranges::const_iterator find(std::uintptr_t address) const noexcept;
  void* map_shared(std::size_t size, std::size_t huge_prefix) noexcept;
  std::optional<std::uint64_t> take_space(std::size_t size);
  void give_space_back(std::uint64_t offset, std::size_t size) noexcept;

  mutable SpinLock lock_;
  std::atomic<bool> enabled_ = false;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  Ranges ranges_;                                // by base address
  std::map<std::uint64_t, std::uint64_t> free_;  // offset, size
};

}  // namespace neuron::runtime
