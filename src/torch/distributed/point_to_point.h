// send and recv of one group: every message is posted at once and progresses independently of collectives and of the order in which works
// are waited for, so ranks that all send first do not wait for each other.
//
// Whoever waits drives all messages of the group; a thread of its own does so while messages are under way and nobody waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "torch/distributed/group.h"
#include "torch/distributed/work.h"

namespace neuron::distributed {

struct Message {
  c10::intrusive_ptr<WorkNeuron> work;
  at::Tensor data;    // contiguous; sent from or received into
  at::Tensor target;  // defined: where a received message is copied to
  int peer = 0;       // collectives::Mailbox::kAnySource is allowed when receiving
  int tag = 0;
  bool receive = false;
  std::chrono::milliseconds timeout{0};
};

class PointToPoint final : public WorkDriver {
 public:
  // `describe` turns an error of a message into the exception that users see.
  using Describe = std::function<std::exception_ptr(const Message&, std::exception_ptr)>;

  PointToPoint(std::shared_ptr<Group> group, Describe describe) : group_(std::move(group)), describe_(std::move(describe)) {}
  ~PointToPoint() override { stop(); }

  // Raises what keeps the transport from being made.
  void post(Message message);
  bool wait_for(const WorkNeuron& work, Deadline deadline) override;
  void abort(const std::string& why) noexcept override { group_->abort(why); }

  [[nodiscard]] bool idle() const {
    const std::lock_guard lock(mutex_);
    return posted_.empty();
  }
  // Waits until every message is done, then ends the thread.
  void stop();

 private:
  struct Posted {
    Message message;
    collectives::Mailbox::Ticket ticket;
    Deadline deadline;
  };
  struct Done {
    Message message;
    std::exception_ptr error;
  };

  // Moves what can be moved; the lock is held, except while works complete.
  void step(std::unique_lock<std::mutex>& lock);
  void collect(std::vector<Done>& done);
  void expire(std::vector<Done>& done);
  void run_thread();
  // Sleeps for a moment or until a message may move.
  void doze(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<Group> group_;
  Describe describe_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  collectives::Mailbox* mailbox_ = nullptr;  // once there is a transport
  std::vector<Posted> posted_;
  // The transport may still write into messages that timed out.
  std::vector<Message> abandoned_;
  std::atomic<int> drivers_ = 0;  // waiting threads that drive
  std::atomic<int> posting_ = 0;  // threads that want to post
  std::uint64_t activity_ = 0;    // messages posted
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace neuron::distributed
