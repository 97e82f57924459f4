// See gloo_mailbox.h.
#include "torch/distributed/gloo_mailbox.h"

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "collectives/error.h"

namespace neuron::distributed {

at::Tensor host_bytes(std::size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(c10::kCPU).dtype(c10::kByte));
}

GlooMailbox::~GlooMailbox() {
  backend_->abort();  // ends waits that nobody answers
  for (auto& [ticket, message] : messages_) {
    message->waiter.join();
  }
}

GlooMailbox::Ticket GlooMailbox::start(std::unique_ptr<Message> message) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_ticket_++;
  auto* const raw = message.get();
  messages_.emplace(ticket, std::move(message));
  raw->waiter = std::thread([this, raw] {
    std::exception_ptr error;
    try {
      raw->work->wait();
    } catch (const std::exception& gloo) {
      error = std::make_exception_ptr(collectives::Error(collectives::ErrorCode::kPeerDied, gloo.what()));
    }
    {
      const std::lock_guard done(mutex_);
      raw->error = error;
      raw->done = true;
      ++done_count_;
    }
    changed_.notify_all();
  });
  return ticket;
}

GlooMailbox::Ticket GlooMailbox::post_send(int destination, int tag, const void* data, std::size_t bytes) {
  auto message = std::make_unique<Message>();
  message->staged = host_bytes(bytes);
  if (bytes != 0) {
    std::memcpy(message->staged.mutable_data_ptr(), data, bytes);
  }
  message->peer = destination;
  std::vector<at::Tensor> tensors{message->staged};
  message->work = backend_->send(tensors, destination, tag);
  return start(std::move(message));
}

GlooMailbox::Ticket GlooMailbox::post_receive(int source, int tag, void* data, std::size_t bytes) {
  auto message = std::make_unique<Message>();
  message->staged = host_bytes(bytes);
  message->target = data;
  message->peer = source;
  std::vector<at::Tensor> tensors{message->staged};
  message->work = source == kAnySource ? backend_->recvAnysource(tensors, tag) : backend_->recv(tensors, source, tag);
  return start(std::move(message));
}

bool GlooMailbox::progress() {
  const std::lock_guard lock(mutex_);
  const bool moved = done_count_ != seen_count_;
  seen_count_ = done_count_;
  return moved;
}

std::optional<int> GlooMailbox::finished(Ticket ticket) {
  std::unique_ptr<Message> message;
  {
    const std::lock_guard lock(mutex_);
    const auto found = messages_.find(ticket);
    if (found == messages_.end() || !found->second->done) {
      return std::nullopt;
    }
    message = std::move(found->second);
    messages_.erase(found);
  }
  message->waiter.join();
  if (message->error) {
    std::rethrow_exception(message->error);
  }
  if (message->target != nullptr && message->staged.numel() != 0) {
    std::memcpy(message->target, message->staged.const_data_ptr(), message->staged.nbytes());
  }
  return message->peer == kAnySource ? message->work->sourceRank() : message->peer;
}

void GlooMailbox::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return done_count_ != seen_count_; });
}

}  // namespace neuron::distributed
