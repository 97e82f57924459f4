// Messages between ranks on several hosts, carried by PyTorch's Gloo.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/communicator.h"

namespace neuron::distributed {

// Uninitialised memory of the host.
at::Tensor host_bytes(std::size_t bytes);

class GlooMailbox final : public collectives::Mailbox {
 public:
  explicit GlooMailbox(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}
  ~GlooMailbox() override;

  Ticket post_send(int destination, int tag, const void* data, std::size_t bytes) override;
  Ticket post_receive(int source, int tag, void* data, std::size_t bytes) override;
  bool progress() override;
  std::optional<int> finished(Ticket ticket) override;
  void wait(std::chrono::milliseconds at_most) override;

 private:
  // Gloo's works only complete in wait(), so each message has a thread that waits for it.
  struct Message {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor staged;       // host memory: Gloo's threads must not touch device memory
    void* target = nullptr;  // of a receive
    int peer = -1;
    bool done = false;
    std::exception_ptr error;
    std::thread waiter;
  };

  Ticket start(std::unique_ptr<Message> message);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Ticket, std::unique_ptr<Message>> messages_;
  Ticket next_ticket_ = 1;
  std::uint64_t done_count_ = 0;
  std::uint64_t seen_count_ = 0;
};

}  // namespace neuron::distributed
