// The other ranks' memory where it is: each maps the files that hold the others' device memory (runtime/memory/shared_segments.h). A rank
// whose operation failed while others may write its results takes the memory out of the file before it uses it for something else
// (withdraw), so that one that is late does no harm. The memory of a rank that is gone stays until the others leave the group as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/shm/member.h"
#include "runtime/memory/shared_segments.h"

namespace neuron::collectives {

class FileWindow;

// What a rank tells the others of its file; to be called before they may look, on the thread that creates the member.
void publish_memory_file(RankState& mine, const runtime::SharedSegments* memory) noexcept;

class PeerMemory {
 public:
  // `memory`: where this rank's shareable memory is from; may be null.
  PeerMemory(Member& member, runtime::SharedSegments* memory);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Whether this rank can read the memory of all others. The first call maps their files, which fails where /proc does not show their
  // descriptors (another user or pid namespace).
  [[nodiscard]] bool attached();

  // Where `data` is in this rank's file. Empty data is anywhere.
  [[nodiscard]] std::optional<std::uint64_t> place_of(const void* data, std::size_t bytes) const noexcept {
    if (bytes == 0) return 0;
    return memory_->offset_of(data, bytes);
  }
  // What `rank` has at such a place. Only when attached().
  [[nodiscard]] std::byte* at(int rank, std::uint64_t place) const noexcept;
  // Takes the segment of `data` out of this rank's file.
  void withdraw(const void* data) noexcept { memory_->withdraw(data); }

 private:
  bool attach();

  Member& member_;
  runtime::SharedSegments* memory_;
  std::vector<std::shared_ptr<FileWindow>> windows_;  // by rank; none for this one
  bool tried_ = false;
};

}  // namespace neuron::collectives
