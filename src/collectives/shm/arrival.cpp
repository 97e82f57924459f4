// Announcing, comparing, and the messages that say who did what.
#include "collectives/shm/arrival.h"

#include <algorithm>
#include <map>
#include <vector>

namespace neuron::collectives {
namespace {

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Announcement& Arrival::prepare(const Operation& operation, const Call& call) {
  member_.check();
  ++operation_;
  timeout_ = call.timeout;
  Announcement& mine = announcement(member_.rank(), operation_);
  mine.signature = signature(operation, call.sequence);
  mine.sequence = call.sequence;
  mine.factor = operation.reduction.factor;
  mine.first_slot = 0;
  mine.count = operation.count;
  mine.slots = 0;
  mine.piece = 0;
  mine.root = static_cast<std::int16_t>(operation.root);
  mine.collective = static_cast<std::uint8_t>(operation.collective);
  mine.type = static_cast<std::uint8_t>(operation.type);
  mine.op = static_cast<std::uint8_t>(operation.reduction.op);
  mine.dimensions = static_cast<std::uint8_t>(std::min<std::size_t>(call.shape.size(), kShapeDimensions + 1));
  mine.is_inline = 0;
  mine.is_direct = 0;
  std::copy_n(call.shape.begin(), std::min<std::size_t>(mine.dimensions, kShapeDimensions), shape(member_.rank(), operation_).shape);
  return mine;
}

void Arrival::announce() noexcept {
  announcement(member_.rank(), operation_).operation.store(operation_, std::memory_order_release);
  member_.notify_all(&RankState::collectives);
}

void Arrival::await_all() {
  const std::uint64_t expected = of(member_.rank()).signature;
  bool agree = true;
  for (int peer = 0; peer < member_.size(); ++peer) {
    const Announcement& theirs = of(peer);
    await(peer, [&] { return theirs.operation.load(std::memory_order_acquire) == operation_; });
    agree = agree && theirs.signature == expected;
  }
  if (!agree) [[unlikely]] {
    mismatch("ranks of group " + member_.group() + " called operations that do not fit together");
  }
}

std::string Arrival::describe(int rank, std::uint64_t operation) const {
  const Announcement& call = announcement(rank, operation);
  const auto collective = static_cast<Collective>(call.collective);
  std::string text = std::string(name(collective)) + " #" + std::to_string(call.sequence);
  if (collective == Collective::kBarrier) {
    return text;
  }
  text += " (";
  if (collective == Collective::kAllReduce || collective == Collective::kReduce || collective == Collective::kReduceScatter) {
    text += std::string(name(static_cast<ReduceOp>(call.op))) + ", ";
  }
  text += std::string(name(static_cast<DataType>(call.type))) + ", " + std::to_string(call.count) +
          (call.count == 1 ? " element" : " elements");
  if (call.dimensions > 0) {
    text += ", shape [";
    for (int i = 0; i < std::min<int>(call.dimensions, kShapeDimensions); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(shape(rank, operation).shape[i]);
    }
    text += call.dimensions > kShapeDimensions ? ", ...]" : "]";
  }
  if (call.root >= 0) {
    text += ", root " + std::to_string(call.root);
  }
  return text + ")";
}

std::string Arrival::last_call(int rank) const {
  const std::uint64_t last = std::max(announcement(rank, 0).operation.load(std::memory_order_acquire),
                                      announcement(rank, 1).operation.load(std::memory_order_acquire));
  return last == 0 ? "no call yet" : "last call " + describe(rank, last);
}

void Arrival::mismatch(const std::string& what) {
  // Ranks with the same call share a line's part.
  std::map<std::string, std::vector<int>> calls;
  for (int rank = 0; rank < member_.size(); ++rank) {
    calls[describe(rank, operation_)].push_back(rank);
  }
  std::string text = what + ": ";
  bool first = true;
  for (const auto& [call, ranks] : calls) {
    text += (first ? "" : "; ") + listed(ranks) + ": " + call;
    first = false;
  }
  member_.fail(ErrorCode::kMismatch, text);
}

void Arrival::give_up(int peer, Member::Outcome outcome) {
  const std::string here =
      "rank " + std::to_string(member_.rank()) + " in " + describe(member_.rank(), operation_) + " of group " + member_.group() + ": ";
  if (outcome == Member::Outcome::kPeerGone) {
    const std::string how = member_.left(peer) ? " has left the group" : " has died";
    member_.fail(ErrorCode::kPeerDied, here + "rank " + std::to_string(peer) + how + " (" + last_call(peer) + ")");
  }
  std::string missing;
  for (int rank = 0; rank < member_.size(); ++rank) {
    if (of(rank).operation.load(std::memory_order_acquire) != operation_) {
      missing += (missing.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) + " (" + last_call(rank) + ")";
    }
  }
  const std::string waited = "timed out after " + std::to_string(timeout_.count()) + " ms; ";
  if (!missing.empty()) {
    member_.fail(ErrorCode::kTimeout, here + waited + "not arrived: " + missing);
  }
  member_.fail(ErrorCode::kTimeout, here + waited + "rank " + std::to_string(peer) + " arrived but does not move on");
}

}  // namespace neuron::collectives
