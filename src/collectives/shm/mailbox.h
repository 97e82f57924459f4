// Point-to-point messages between the ranks of a group, over one byte stream per ordered pair.
//
// A stream carries frames: a message's beginning (small messages with their bytes), the receiver's permission to send the rest, and pieces
// of it. Frames are always taken out of a stream at once, whatever is waited for: beginnings that no receive matches yet are remembered,
// and large messages send nothing before they are matched. So neither the order of tags nor both sides sending first can block, and
// unmatched messages cost memory only when small.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/shm/byte_stream.h"
#include "collectives/shm/member.h"

namespace neuron::collectives {

class SharedMemoryMailbox final : public Mailbox {
 public:
  explicit SharedMemoryMailbox(Member& member);

  Ticket post_send(int destination, int tag, const void* data, std::size_t bytes) override;
  Ticket post_receive(int source, int tag, void* data, std::size_t bytes) override;
  bool progress() override;
  std::optional<int> finished(Ticket ticket) override;
  void wait(std::chrono::milliseconds at_most) override;

 private:
  enum class FrameKind : std::uint32_t { kMessage, kPermission, kPiece };
  struct Frame {
    FrameKind kind;
    std::int32_t tag;         // kMessage
    std::uint64_t message;    // number of the message in its stream
    std::uint64_t bytes;      // kMessage: of the whole message
    std::uint64_t following;  // bytes behind this frame
  };

  struct Send {
    Ticket ticket = 0;
    int tag = 0;
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t message = 0;
    std::uint64_t sent = 0;
  };
  struct Receive {
    Ticket ticket;
    int source;
    int tag;
    std::byte* data;
    std::uint64_t bytes;
  };
  // A message whose beginning has arrived and that no receive has matched.
  struct Arrived {
    int source;
    int tag;
    std::uint64_t message;
    std::uint64_t bytes;
    std::vector<std::byte> data;  // small messages
    std::optional<Send> local;    // messages of this rank to itself
  };
  struct Incoming {
    Receive receive;
    std::uint64_t received = 0;
  };
  // What concerns one peer.
  struct Peer {
    std::deque<Send> beginnings;  // messages that the stream has not taken yet, in order
    std::deque<Frame> permissions;
    std::map<std::uint64_t, Send> waiting;       // large messages without permission
    std::deque<Send> sending;                    // with permission
    std::map<std::uint64_t, Incoming> incoming;  // large messages being received, by number
    std::uint64_t next_message = 0;
    bool committed = false;

    [[nodiscard]] bool has_output() const noexcept { return !beginnings.empty() || !permissions.empty() || !sending.empty(); }
    [[nodiscard]] bool is_awaited() const noexcept { return has_output() || !waiting.empty() || !incoming.empty(); }
  };

  [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] ByteStream stream(int from, int to) const noexcept;
  [[nodiscard]] std::size_t small_bytes() const noexcept { return member_.layout().mailbox_bytes() / 8; }

  bool read_from(int source);
  bool write_to(int destination);
  // Hands an arrived message to the first receive that it fits, or remembers it.
  void arrive(Arrived message);
  void match(const Receive& receive, const Arrived& message);
  void done(Ticket ticket, int source) { done_[ticket] = source; }
  [[nodiscard]] bool could_move() noexcept;
  // Throws Error(kPeerDied) when a rank that outstanding tickets depend on is gone.
  void check_awaited_peers();

  Member& member_;
  std::vector<Peer> peers_;
  std::list<Receive> receives_;  // not matched, in order of posting
  std::list<Arrived> arrived_;   // in order of arrival
  std::map<Ticket, int> done_;   // and the other rank
  Ticket next_ticket_ = 1;
  std::chrono::steady_clock::time_point next_liveness_check_{};
};

}  // namespace neuron::collectives
