// What is where in a group's segment. All ranks compute the same from the number of ranks.
//
// Concurrency: every word has one writing rank, except the failure record. Counters only grow, and are never reset between operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neuron::collectives {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr int kShapeDimensions = 8;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The first failure of the group, which ends the calls of all ranks.
struct alignas(kCacheLine) FailureRecord {
  enum State : std::uint32_t { kNone, kBeingWritten, kWritten };
  std::atomic<std::uint32_t> state;
  std::int32_t code;
  char text[2048 - 8];
};

struct alignas(kCacheLine) GroupHeader {
  std::uint64_t magic;
  std::uint32_t size;
  FailureRecord failure;
};

// Where one thread of a rank sleeps. A peer rings after changing something that the sleeper waits for.
struct alignas(kCacheLine) Doorbell {
  static constexpr std::int32_t kNobody = -1;
  static constexpr std::int32_t kAnybody = -2;
  std::atomic<std::int32_t> waits_for;  // a rank, kAnybody, or kNobody when awake
  std::atomic<std::uint32_t> rings;
  std::atomic<std::int32_t> core;  // where the thread last waited
};

// Where a rank's shareable memory is: an open file of its process. No bytes: there is none.
struct MemoryFile {
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t bytes;
  std::int32_t process;
  std::int32_t descriptor;
};

struct RankState {
  // What a rank is and whether it still is there.
  alignas(kCacheLine) std::uint64_t process_token;
  std::uint64_t cores[16];  // the cores that its threads may run on
  MemoryFile memory;
  std::atomic<std::uint32_t> left;  // set when its communicator is destroyed in an orderly way

  Doorbell collectives;
  Doorbell mailbox;

  // How many slots of its ring the rank has filled, and in how many of them it has put its share of the result (all_reduce).
  alignas(kCacheLine) std::atomic<std::uint64_t> filled;
  std::atomic<std::uint64_t> reduced;
  // How many stages of operations on the ranks' own memory the rank has finished.
  alignas(kCacheLine) std::atomic<std::uint64_t> stages;
};

// What a rank is about to do: one cache line that every peer reads in every operation.
struct alignas(kCacheLine) Announcement {
  std::atomic<std::uint64_t> operation;  // counted from 1 by the communicator; written last
  std::uint64_t signature;               // equal on ranks whose calls fit together
  std::uint64_t sequence;
  double factor;
  std::uint64_t first_slot;  // where in its ring the data of this operation begins
  std::uint64_t count;
  std::uint32_t slots;  // how many slots its data takes; 0 when it is inline, or there is none
  std::uint32_t piece;  // bytes per slot and destination
  std::int16_t root;
  std::uint8_t collective;
  std::uint8_t type;
  std::uint8_t op;
  std::uint8_t dimensions;  // how many of the shape's are kept
  std::uint8_t is_inline;
  std::uint8_t is_direct;  // the others can reach the data where it is
};
static_assert(sizeof(Announcement) == kCacheLine);

// What is read only when needed: for messages, and where counts differ between ranks.
struct alignas(kCacheLine) AnnouncedShape {
  std::int64_t shape[kShapeDimensions];
};

struct alignas(kCacheLine) ConsumedCounter {
  std::atomic<std::uint64_t> slots;
};

// A byte stream from one rank to another.
struct MailboxControl {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;
  alignas(kCacheLine) std::atomic<std::uint64_t> read;
};

class Layout {
 public:
  static constexpr int kMaxRanks = 256;
  static constexpr int kSlots = 4;

  explicit Layout(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
    // Small enough that 32 ranks, or several groups, fit into the 64 MB that containers have; large enough that hand-offs cost little.
    inline_bytes_ = ranks <= 4 ? 16 << 10 : ranks <= 8 ? 8 << 10 : 4 << 10;
    slot_bytes_ = ranks <= 4 ? 128 << 10 : ranks <= 8 ? 64 << 10 : 32 << 10;
    mailbox_bytes_ = ranks <= 8 ? 128 << 10 : 16 << 10;
    std::size_t end = 0;
    const auto place = [&](std::size_t bytes, std::size_t alignment) {
      const std::size_t offset = (end + alignment - 1) / alignment * alignment;
      end = offset + bytes;
      return offset;
    };
    header_ = place(sizeof(GroupHeader), kCacheLine);
    states_ = place(ranks_ * sizeof(RankState), kCacheLine);
    consumed_ = place(ranks_ * ranks_ * sizeof(ConsumedCounter), kCacheLine);
    counts_bytes_ = (4 * ranks_ * sizeof(std::uint64_t) + kCacheLine - 1) / kCacheLine * kCacheLine;
    announcement_stride_ = sizeof(Announcement) + sizeof(AnnouncedShape) + counts_bytes_ + inline_bytes_;
    announcements_ = place(2 * ranks_ * announcement_stride_, kCacheLine);
    mailbox_controls_ = place(ranks_ * ranks_ * sizeof(MailboxControl), kCacheLine);
    rings_ = place(ranks_ * kSlots * slot_bytes_, kPage);
    committed_ = (end + kPage - 1) / kPage * kPage;
    mailboxes_ = place(ranks_ * ranks_ * mailbox_bytes_, kPage);
    total_ = end;
  }

  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_; }
  // The part in use from the start; a mailbox is committed by its first message.
  [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_; }
  [[nodiscard]] std::size_t inline_bytes() const noexcept { return inline_bytes_; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t mailbox_bytes() const noexcept { return mailbox_bytes_; }

  [[nodiscard]] std::size_t header() const noexcept { return header_; }
  [[nodiscard]] std::size_t state(int rank) const noexcept { return states_ + at(rank) * sizeof(RankState); }
  // How much of `writer`'s ring `reader` no longer needs.
  [[nodiscard]] std::size_t consumed(int reader, int writer) const noexcept {
    return consumed_ + (at(reader) * ranks_ + at(writer)) * sizeof(ConsumedCounter);
  }
  // Two lists of counts and two of places per announcement.
  [[nodiscard]] std::size_t counts_bytes() const noexcept { return counts_bytes_; }
  // Announcements alternate between two places: a rank that announces operation k + 2 has seen every rank's k + 1, hence nobody still reads
  // its k.
  [[nodiscard]] std::size_t announcement(int rank, std::uint64_t operation) const noexcept {
    return announcements_ + (2 * at(rank) + (operation & 1)) * announcement_stride_;
  }
  [[nodiscard]] std::size_t slot(int rank, std::uint64_t position) const noexcept {
    return rings_ + (at(rank) * kSlots + position % kSlots) * slot_bytes_;
  }
  [[nodiscard]] std::size_t mailbox_control(int from, int to) const noexcept {
    return mailbox_controls_ + (at(from) * ranks_ + at(to)) * sizeof(MailboxControl);
  }
  [[nodiscard]] std::size_t mailbox(int from, int to) const noexcept { return mailboxes_ + (at(from) * ranks_ + at(to)) * mailbox_bytes_; }

 private:
  static constexpr std::size_t kPage = 4096;
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank); }

  std::size_t ranks_;
  std::size_t inline_bytes_;
  std::size_t slot_bytes_;
  std::size_t mailbox_bytes_;
  std::size_t header_;
  std::size_t states_;
  std::size_t consumed_;
  std::size_t counts_bytes_;
  std::size_t announcement_stride_;
  std::size_t announcements_;
  std::size_t mailbox_controls_;
  std::size_t rings_;
  std::size_t committed_;
  std::size_t mailboxes_;
  std::size_t total_;
};

}  // namespace neuron::collectives
