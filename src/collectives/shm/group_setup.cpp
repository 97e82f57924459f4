// Set-up of a group: three keys in the store, "<group>/segment", "<group>/rank/<r>" and "<group>/ready".
#include "collectives/shm/group_setup.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/error.h"
#include "collectives/shm/peer_memory.h"

namespace neuron::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x4E4555524F4E0002;  // changes with the layout
constexpr const char* kOk = "ok";
constexpr char kFailed = '!';  // before a reason, where a name or "ok" would stand

std::string failed_value(const std::exception& error) { return kFailed + std::string(error.what()); }

void throw_if_failed(const std::string& value, const std::string& whose, const std::string& group) {
  if (!value.empty() && value.front() == kFailed) {
    throw Error(ErrorCode::kSystem, "cannot set up group " + group + ": " + whose + ": " + value.substr(1));
  }
}

}  // namespace

std::unique_ptr<Member> meet(KeyValueStore& store, const std::string& group, int rank, int size, std::chrono::milliseconds timeout,
                             std::function<void()> check_interrupt, const runtime::SharedSegments* memory) {
  const auto deadline = Clock::now() + timeout;
  const auto remaining = [&] {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()), std::chrono::milliseconds(1));
  };
  const std::string segment_key = group + "/segment";
  const std::string ready_key = group + "/ready";
  const auto rank_key = [&](int r) { return group + "/rank/" + std::to_string(r); };
  const Layout layout(size);

  std::unique_ptr<Member> member;
  const auto join = [&](const std::shared_ptr<Segment>& segment) {
    member = std::make_unique<Member>(segment, group, rank, size, std::move(check_interrupt));
    publish_memory_file(member->state(rank), memory);
  };
  if (rank == 0) {
    std::shared_ptr<Segment> segment;
    try {
      segment = Segment::create(layout.total_bytes(), layout.committed_bytes());
      auto* const header =
          new (segment->data() + layout.header()) GroupHeader;  // the file is zeroed, which is what all counters start with
      header->magic = kMagic;
      header->size = static_cast<std::uint32_t>(size);
      join(segment);
    } catch (const std::exception& error) {
      store.set(segment_key, failed_value(error));
      throw;
    }
    store.set(segment_key, segment->name());
    std::string outcome = kOk;
    try {
      for (int r = 1; r < size; ++r) {
        throw_if_failed(store.get(rank_key(r), remaining()), "rank " + std::to_string(r), group);
      }
    } catch (const std::exception& error) {
      segment->unlink();
      store.set(ready_key, failed_value(error));
      throw;
    }
    segment->unlink();
    store.set(ready_key, outcome);
  } else {
    const std::string name = store.get(segment_key, remaining());
    throw_if_failed(name, "rank 0", group);
    try {
      const auto segment = Segment::open(name, layout.total_bytes());
      const auto& header = *reinterpret_cast<const GroupHeader*>(segment->data() + layout.header());
      if (header.magic != kMagic || header.size != static_cast<std::uint32_t>(size)) {
        throw Error(ErrorCode::kSystem, "rank 0 runs another version, or was given another size of the group");
      }
      join(segment);
    } catch (const std::exception& error) {
      store.set(rank_key(rank), failed_value(error));
      throw;
    }
    store.set(rank_key(rank), kOk);
    throw_if_failed(store.get(ready_key, remaining()), "rank 0", group);
  }
  member->everybody_is_here();
  return member;
}

}  // namespace neuron::collectives
