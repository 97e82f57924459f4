// Waiting, waking and failing.
#include "collectives/shm/member.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "collectives/shm/futex.h"
#include "collectives/shm/process_identity.h"

namespace neuron::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterruptPeriod{50};
constexpr std::chrono::milliseconds kLivenessPeriod{200};

// About as long as going to sleep and being woken would take.
constexpr int kSpins = 2000;
// With more ranks than cores the awaited rank is probably not running: let it, and sleep when that did not help.
constexpr int kYields = 4;

}  // namespace

Member::Member(std::shared_ptr<Segment> segment, std::string group, int rank, int size, std::function<void()> check_interrupt)
    : segment_(std::move(segment)),
      group_(std::move(group)),
      rank_(rank),
      size_(size),
      layout_(size),
      check_interrupt_(std::move(check_interrupt)),
      fork_generation_(fork_generation()) {
  segment_->hold(rank);
  RankState& mine = state(rank);
  mine.process_token = process_token();
  for (Doorbell* const bell : {&mine.collectives, &mine.mailbox}) {
    bell->waits_for.store(Doorbell::kNobody, std::memory_order_relaxed);
    bell->core.store(-1, std::memory_order_relaxed);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    static_assert(sizeof(set) >= sizeof(mine.cores));
    std::memcpy(mine.cores, &set, sizeof(mine.cores));
  }
}

Member::~Member() {
  if (fork_generation_ != fork_generation()) {
    return;
  }
  state(rank_).left.store(1, std::memory_order_release);
  ring_everybody();
}

void Member::everybody_is_here() noexcept {
  int cores = 0;
  for (std::size_t word = 0; word < std::size(state(0).cores); ++word) {
    std::uint64_t any = 0;
    for (int r = 0; r < size_; ++r) {
      any |= state(r).cores[word];
    }
    cores += std::popcount(any);
  }
  spins_ = size_ <= cores ? kSpins : 0;
  yields_ = size_ <= cores ? 0 : kYields;
}

std::uint64_t Member::current_fork_generation() noexcept { return fork_generation(); }

void Member::ring(Doorbell& bell) const noexcept {
  bell.rings.fetch_add(1, std::memory_order_release);
  futex_wake_all(bell.rings);
}

void Member::notify(Doorbell RankState::* bell, int peer) noexcept {
  // Pairs with the fence in sleep(): either the peer sees the change before it sleeps, or it is seen to sleep here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Doorbell& theirs = state(peer).*bell;
  const std::int32_t awaited = theirs.waits_for.load(std::memory_order_relaxed);
  if (awaited == rank_ || awaited == Doorbell::kAnybody) {
    ring(theirs);
  }
}

void Member::notify_all(Doorbell RankState::* bell) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    Doorbell& theirs = state(peer).*bell;
    const std::int32_t awaited = theirs.waits_for.load(std::memory_order_relaxed);
    if (awaited == rank_ || awaited == Doorbell::kAnybody) {
      ring(theirs);
    }
  }
}

void Member::ring_everybody() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < size_; ++peer) {
    ring(state(peer).collectives);
    ring(state(peer).mailbox);
  }
}

bool Member::gone(int peer) const noexcept {
  if (peer == rank_) {
    return false;
  }
  const bool same_process = state(peer).process_token == state(rank_).process_token;
  return left(peer) || (!same_process && !segment_->held_elsewhere(peer));
}

bool Member::on_my_core(Doorbell RankState::* bell, int peer) noexcept {
  const int core = sched_getcpu();
  (state(rank_).*bell).core.store(core, std::memory_order_relaxed);
  return peer >= 0 && (state(peer).*bell).core.load(std::memory_order_relaxed) == core;
}

Member::Outcome Member::sleep(Doorbell RankState::* bell, int peer, std::chrono::milliseconds timeout, const std::function<bool()>& ready) {
  for (int i = 0; i < yields_; ++i) {
    std::this_thread::yield();
    if (ready()) {
      return Outcome::kReady;
    }
  }
  // Marks this thread as awake again however the wait ends.
  struct Asleep {
    Doorbell& bell;
    ~Asleep() { bell.waits_for.store(Doorbell::kNobody, std::memory_order_relaxed); }
  };
  Doorbell& mine = state(rank_).*bell;
  const auto begin = Clock::now();
  auto next_interrupt_check = begin + kInterruptPeriod;
  auto next_liveness_check = begin + kLivenessPeriod;
  mine.waits_for.store(peer, std::memory_order_relaxed);
  const Asleep asleep{mine};
  while (true) {
    const std::uint32_t rings = mine.rings.load(std::memory_order_acquire);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ready()) {
      return Outcome::kReady;
    }
    check();
    if (peer >= 0 && left(peer)) {
      return ready() ? Outcome::kReady : Outcome::kPeerGone;
    }
    const auto now = Clock::now();
    if (now >= next_liveness_check) {
      next_liveness_check = now + kLivenessPeriod;
      if (peer >= 0 && gone(peer)) {
        return ready() ? Outcome::kReady : Outcome::kPeerGone;
      }
    }
    if (now >= next_interrupt_check) {
      next_interrupt_check = now + kInterruptPeriod;
      check_for_interrupt();
    }
    const auto remaining = begin + timeout - now;
    if (remaining <= Clock::duration::zero()) {
      return Outcome::kTimedOut;
    }
    futex_wait(mine.rings, rings, std::min<Clock::duration>(remaining, kInterruptPeriod));
  }
}

void Member::check_for_interrupt() {
  if (!check_interrupt_) {
    return;
  }
  try {
    check_interrupt_();
  } catch (const std::exception& error) {
    const std::string why = error.what();
    break_group(ErrorCode::kAborted, "interrupted: " + why,
                "rank " + std::to_string(rank_) + " of group " + group_ + " was interrupted: " + why);
    throw;
  } catch (...) {
    break_group(ErrorCode::kAborted, "interrupted", "rank " + std::to_string(rank_) + " of group " + group_ + " was interrupted");
    throw;
  }
}

void Member::break_group(ErrorCode code, const std::string& text_here, const std::string& text_elsewhere) noexcept {
  {
    const std::lock_guard guard(mutex_);
    if (error_) {
      return;
    }
    error_.emplace(code, text_here);
    broken_.store(true, std::memory_order_release);
  }
  FailureRecord& record = failure();
  std::uint32_t expected = FailureRecord::kNone;
  if (record.state.compare_exchange_strong(expected, FailureRecord::kBeingWritten)) {
    record.code = static_cast<std::int32_t>(code);
    const std::size_t length = std::min(text_elsewhere.size(), sizeof(record.text) - 1);
    std::memcpy(record.text, text_elsewhere.data(), length);
    record.text[length] = '\0';
    record.state.store(FailureRecord::kWritten, std::memory_order_release);
  }
  ring_everybody();
}

void Member::fail(ErrorCode code, const std::string& text) {
  break_group(code, text, text);
  throw_broken();
}

void Member::throw_broken() {
  if (fork_generation_ != fork_generation()) {
    throw Error(ErrorCode::kInvalidArgument, "group " + group_ + " belongs to the parent process: a forked child cannot use it");
  }
  const std::lock_guard guard(mutex_);
  if (!error_) {
    FailureRecord& record = failure();
    // Its writer may have died while writing: do not wait for ever.
    for (int i = 0; i < 100 && record.state.load(std::memory_order_acquire) != FailureRecord::kWritten; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (record.state.load(std::memory_order_acquire) == FailureRecord::kWritten) {
      error_.emplace(static_cast<ErrorCode>(record.code), record.text);
    } else {
      error_.emplace(ErrorCode::kPeerDied, "a rank of group " + group_ + " failed and died before it could say why");
    }
    broken_.store(true, std::memory_order_release);
  }
  throw Error(*error_);
}

}  // namespace neuron::collectives
