// Frames, matching and flow control of point-to-point messages.
#include "collectives/shm/mailbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace neuron::collectives {
namespace {

constexpr std::chrono::milliseconds kLivenessPeriod{100};

}  // namespace

SharedMemoryMailbox::SharedMemoryMailbox(Member& member) : member_(member), peers_(static_cast<std::size_t>(member.size())) {}

ByteStream SharedMemoryMailbox::stream(int from, int to) const noexcept {
  std::byte* const base = member_.segment().data();
  const Layout& layout = member_.layout();
  return {*reinterpret_cast<MailboxControl*>(base + layout.mailbox_control(from, to)), base + layout.mailbox(from, to),
          layout.mailbox_bytes()};
}

Mailbox::Ticket SharedMemoryMailbox::post_send(int destination, int tag, const void* data, std::size_t bytes) {
  if (destination < 0 || destination >= member_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "send: rank " + std::to_string(destination) + " is not in the group");
  }
  member_.check();
  const Ticket ticket = next_ticket_++;
  Send send{.ticket = ticket, .tag = tag, .data = static_cast<const std::byte*>(data), .bytes = bytes};
  if (destination == member_.rank()) {
    arrive({.source = destination, .tag = tag, .message = 0, .bytes = bytes, .data = {}, .local = send});
    return ticket;
  }
  Peer& to = peer(destination);
  send.message = to.next_message++;
  to.beginnings.push_back(send);
  write_to(destination);
  return ticket;
}

Mailbox::Ticket SharedMemoryMailbox::post_receive(int source, int tag, void* data, std::size_t bytes) {
  if (source != kAnySource && (source < 0 || source >= member_.size())) {
    throw Error(ErrorCode::kInvalidArgument, "receive: rank " + std::to_string(source) + " is not in the group");
  }
  member_.check();
  const Receive receive{.ticket = next_ticket_++, .source = source, .tag = tag, .data = static_cast<std::byte*>(data), .bytes = bytes};
  const auto found = std::find_if(arrived_.begin(), arrived_.end(), [&](const Arrived& message) {
    return message.tag == tag && (source == kAnySource || message.source == source);
  });
  if (found == arrived_.end()) {
    receives_.push_back(receive);
  } else {
    const Arrived message = std::move(*found);
    arrived_.erase(found);
    match(receive, message);
  }
  return receive.ticket;
}

void SharedMemoryMailbox::arrive(Arrived message) {
  const auto found = std::find_if(receives_.begin(), receives_.end(), [&](const Receive& receive) {
    return receive.tag == message.tag && (receive.source == kAnySource || receive.source == message.source);
  });
  if (found == receives_.end()) {
    arrived_.push_back(std::move(message));
  } else {
    const Receive receive = *found;
    receives_.erase(found);
    match(receive, message);
  }
}

void SharedMemoryMailbox::match(const Receive& receive, const Arrived& message) {
  if (receive.bytes != message.bytes) {
    member_.fail(ErrorCode::kMismatch, "group " + member_.group() + ": rank " + std::to_string(message.source) + " sent " +
                                           std::to_string(message.bytes) + " bytes with tag " + std::to_string(message.tag) + " to rank " +
                                           std::to_string(member_.rank()) + ", whose receive expects " + std::to_string(receive.bytes));
  }
  const std::byte* const data = message.local ? message.local->data : message.data.data();
  if (message.local || message.bytes <= small_bytes()) {
    if (message.bytes > 0) std::memcpy(receive.data, data, message.bytes);
    if (message.local) done(message.local->ticket, message.source);
    done(receive.ticket, message.source);
    return;
  }
  Peer& from = peer(message.source);
  from.incoming.emplace(message.message, Incoming{receive});
  from.permissions.push_back({.kind = FrameKind::kPermission, .tag = 0, .message = message.message, .bytes = 0, .following = 0});
  write_to(message.source);
}

bool SharedMemoryMailbox::read_from(int source) {
  ByteStream in = stream(source, member_.rank());
  Peer& from = peer(source);
  bool moved = false;
  while (in.readable() >= sizeof(Frame)) {
    Frame frame;
    in.peek(0, &frame, sizeof(frame));
    moved = true;
    switch (frame.kind) {
      case FrameKind::kMessage: {
        Arrived message{.source = source, .tag = frame.tag, .message = frame.message, .bytes = frame.bytes, .data = {}, .local = {}};
        message.data.resize(frame.following);
        in.peek(sizeof(frame), message.data.data(), frame.following);
        in.consume(sizeof(frame) + frame.following);
        arrive(std::move(message));
        break;
      }
      case FrameKind::kPermission: {
        const auto waiting = from.waiting.extract(frame.message);
        in.consume(sizeof(frame));
        from.sending.push_back(waiting.mapped());
        break;
      }
      case FrameKind::kPiece: {
        const auto found = from.incoming.find(frame.message);
        Incoming& incoming = found->second;
        in.peek(sizeof(frame), incoming.receive.data + incoming.received, frame.following);
        in.consume(sizeof(frame) + frame.following);
        incoming.received += frame.following;
        if (incoming.received == incoming.receive.bytes) {
          done(incoming.receive.ticket, source);
          from.incoming.erase(found);
        }
        break;
      }
    }
    // At once, so that the sender goes on while this rank copies the next piece.
    member_.notify(&RankState::mailbox, source);
  }
  return moved;
}

bool SharedMemoryMailbox::write_to(int destination) {
  Peer& to = peer(destination);
  if (!to.has_output()) {
    return false;
  }
  if (!to.committed) {
    member_.segment().commit(member_.layout().mailbox(member_.rank(), destination), member_.layout().mailbox_bytes());
    to.committed = true;
  }
  ByteStream out = stream(member_.rank(), destination);
  bool moved = false;
  static constexpr std::byte kNoData[1]{};
  const auto write = [&](const Frame& frame, const std::byte* data) {
    if (out.writable() < sizeof(frame) + frame.following) {
      return false;
    }
    out.write(&frame, sizeof(frame), data, frame.following);
    member_.notify(&RankState::mailbox, destination);
    moved = true;
    return true;
  };
  while (!to.permissions.empty() && write(to.permissions.front(), kNoData)) {
    to.permissions.pop_front();
  }
  while (!to.beginnings.empty()) {
    const Send send = to.beginnings.front();
    const bool small = send.bytes <= small_bytes();
    const Frame frame{
        .kind = FrameKind::kMessage, .tag = send.tag, .message = send.message, .bytes = send.bytes, .following = small ? send.bytes : 0};
    if (!write(frame, send.data)) {
      break;
    }
    to.beginnings.pop_front();
    if (small) {
      done(send.ticket, destination);
    } else {
      to.waiting.emplace(send.message, send);
    }
  }
  const std::size_t largest_piece = member_.layout().mailbox_bytes() / 4 - sizeof(Frame);
  while (!to.sending.empty()) {
    Send& send = to.sending.front();
    const std::uint64_t now = std::min<std::uint64_t>(send.bytes - send.sent, largest_piece);
    if (!write({.kind = FrameKind::kPiece, .tag = 0, .message = send.message, .bytes = 0, .following = now}, send.data + send.sent)) {
      break;
    }
    send.sent += now;
    if (send.sent == send.bytes) {
      done(send.ticket, destination);
      to.sending.pop_front();
    }
  }
  return moved;
}

bool SharedMemoryMailbox::progress() {
  bool moved = false;
  for (int other = 0; other < member_.size(); ++other) {
    if (other == member_.rank()) continue;
    moved = read_from(other) || moved;
    moved = write_to(other) || moved;
  }
  return moved;
}

std::optional<int> SharedMemoryMailbox::finished(Ticket ticket) {
  if (const auto found = done_.find(ticket); found != done_.end()) {
    const int other = found->second;
    done_.erase(found);
    return other;
  }
  member_.check();
  return std::nullopt;
}

bool SharedMemoryMailbox::could_move() noexcept {
  for (int other = 0; other < member_.size(); ++other) {
    if (other == member_.rank()) continue;
    if (stream(other, member_.rank()).readable() > 0) {
      return true;
    }
    // A quarter is room for any frame; less would wake this rank for every small piece that the peer takes out.
    if (peer(other).has_output() && stream(member_.rank(), other).writable() >= member_.layout().mailbox_bytes() / 4) {
      return true;
    }
  }
  return false;
}

void SharedMemoryMailbox::check_awaited_peers() {
  const auto now = std::chrono::steady_clock::now();
  const bool ask_kernel = now >= next_liveness_check_;
  if (ask_kernel) {
    next_liveness_check_ = now + kLivenessPeriod;
  }
  int left = 0;
  bool any_source = false;
  std::vector<bool> awaited(peers_.size());
  for (const Receive& receive : receives_) {
    any_source = any_source || receive.source == kAnySource;
    if (receive.source >= 0) awaited[static_cast<std::size_t>(receive.source)] = true;
  }
  for (int other = 0; other < member_.size(); ++other) {
    if (other == member_.rank()) continue;
    const bool has_left = member_.left(other);
    left += has_left ? 1 : 0;
    const bool has_died = !has_left && ask_kernel && member_.gone(other);
    const bool needed = awaited[static_cast<std::size_t>(other)] || peer(other).is_awaited();
    if (((has_left || has_died) && needed) || (has_died && any_source)) {
      if (could_move()) return;  // what it sent before counts
      member_.fail(ErrorCode::kPeerDied, "group " + member_.group() + ": rank " + std::to_string(member_.rank()) +
                                             " exchanges messages with rank " + std::to_string(other) + ", which " +
                                             (has_left ? "has left the group" : "has died"));
    }
  }
  if (any_source && left == member_.size() - 1 && !could_move() && member_.size() > 1) {
    member_.fail(ErrorCode::kPeerDied, "group " + member_.group() + ": rank " + std::to_string(member_.rank()) +
                                           " receives from any rank, and all others have left the group");
  }
}

void SharedMemoryMailbox::wait(std::chrono::milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  auto remaining = at_most;
  do {
    // In parts, since the ranks that outstanding tickets need may be gone, of which nothing tells.
    const auto part = std::min(remaining, kLivenessPeriod);
    if (member_.wait(&RankState::mailbox, Doorbell::kAnybody, part, [this] { return could_move(); }) == Member::Outcome::kReady) {
      return;
    }
    check_awaited_peers();
    remaining = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  } while (remaining > std::chrono::milliseconds(0));
}

}  // namespace neuron::collectives
