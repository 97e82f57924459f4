// One rank's place in a group's segment: its view of the memory, waiting for peers, waking them, and how failures spread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "collectives/error.h"
#include "collectives/shm/layout.h"
#include "collectives/shm/segment.h"

namespace neuron::collectives {

class Member {
 public:
  enum class Outcome { kReady, kTimedOut, kPeerGone };

  // `segment` is mapped; the rank's lock is taken by this constructor.
  Member(std::shared_ptr<Segment> segment, std::string group, int rank, int size, std::function<void()> check_interrupt);
  // Tells the others that the rank has left; not in a forked child.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // To be called when all ranks have mapped the segment: decides from the cores that they share whether spinning makes sense.
  void everybody_is_here() noexcept;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& group() const noexcept { return group_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] Segment& segment() const noexcept { return *segment_; }

  [[nodiscard]] RankState& state(int rank) const noexcept { return at<RankState>(layout_.state(rank)); }
  [[nodiscard]] std::atomic<std::uint64_t>& consumed(int reader, int writer) const noexcept {
    return at<ConsumedCounter>(layout_.consumed(reader, writer)).slots;
  }
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t position) const noexcept { return segment_->data() + layout_.slot(rank, position); }

  // Throws what broke the group: this rank's first error, or another rank's. Cheap while all is well.
  void check() {
    if (broken_.load(std::memory_order_acquire) || failure().state.load(std::memory_order_acquire) != FailureRecord::kNone ||
        fork_generation_ != current_fork_generation()) [[unlikely]] {
      throw_broken();
    }
  }

  // Waits until `ready()`, which depends on what `peer` does (Doorbell::kAnybody: on anyone). Throws as check() does, and what the
  // interruption check throws. `ready` is asked again after `peer` was seen to be gone: what it did before counts.
  template <typename Ready>
  Outcome wait(Doorbell RankState::* bell, int peer, std::chrono::milliseconds timeout, Ready&& ready) {
    for (int i = 0; i <= spins_; ++i) {
      if (ready()) [[likely]] {
        return Outcome::kReady;
      }
      if (i == kSpinsBeforeDoubt && on_my_core(bell, peer)) {
        break;
      }
      pause();
    }
    return sleep(bell, peer, timeout, std::ref(ready));
  }

  // Wakes the peer(s) that sleep because of this rank. To be called after the change that they wait for.
  void notify(Doorbell RankState::* bell, int peer) noexcept;
  void notify_all(Doorbell RankState::* bell) noexcept;

  // Whether the peer's process has ended or its communicator is destroyed. A few system calls.
  [[nodiscard]] bool gone(int peer) const noexcept;
  [[nodiscard]] bool left(int peer) const noexcept { return state(peer).left.load(std::memory_order_acquire) != 0; }

  // Breaks the group with this error and throws it. When this rank is broken already, throws the first error.
  [[noreturn]] void fail(ErrorCode code, const std::string& text);
  // The same for abort(), from any thread, without throwing.
  void break_group(ErrorCode code, const std::string& text_here, const std::string& text_elsewhere) noexcept;

 private:
  template <typename T>
  [[nodiscard]] T& at(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(segment_->data() + offset);
  }
  [[nodiscard]] FailureRecord& failure() const noexcept { return at<GroupHeader>(layout_.header()).failure; }
  static std::uint64_t current_fork_generation() noexcept;
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Whether the peer seems to run on this thread's core, so that it cannot go on while this thread spins.
  bool on_my_core(Doorbell RankState::* bell, int peer) noexcept;
  Outcome sleep(Doorbell RankState::* bell, int peer, std::chrono::milliseconds timeout, const std::function<bool()>& ready);
  void check_for_interrupt();
  [[noreturn]] void throw_broken();
  void ring(Doorbell& bell) const noexcept;
  void ring_everybody() noexcept;

  static constexpr int kSpinsBeforeDoubt = 100;

  std::shared_ptr<Segment> segment_;
  std::string group_;
  int rank_;
  int size_;
  Layout layout_;
  std::function<void()> check_interrupt_;
  std::uint64_t fork_generation_;
  int spins_ = 0;
  int yields_ = 0;

  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::optional<Error> error_;  // the first, while broken_
};

}  // namespace neuron::collectives
