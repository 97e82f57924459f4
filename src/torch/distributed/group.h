// What the parts of one process group share: who its ranks are, the transport between them, and how errors speak of it.
//
// Ranks meet in the background as soon as the group exists, so two of them can exchange messages while others do not use the group.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "torch/distributed/process_bound.h"

namespace neuron::distributed {

struct GroupNames {
  int rank = 0;
  int size = 1;
  std::string name;  // as in the group registry; may be set after construction
  std::string description;
  std::vector<std::uint64_t> global_ranks;  // empty: the same as the group's
};

class Group : public ProcessBound {
 public:
  // How the transport comes into being.
  struct Meeting {
    // Blocks until all ranks are there, for at most the time given. Calls the function now and then, also during operations later;
    // what it throws ends the wait.
    std::function<std::unique_ptr<collectives::Communicator>(std::chrono::milliseconds, std::function<void()>)> meet;
    // After a meeting that failed: the ranks that never created the group.
    std::function<std::vector<int>()> missing;
  };

  Group(GroupNames names, Meeting meeting, std::chrono::milliseconds timeout);
  ~Group() { close(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] GroupNames names() const;
  void rename(const std::string& name, const std::string& description);

  // Waits for the meeting. Throws collectives::Error when it failed or takes longer than the timeout, and after abort().
  collectives::Communicator& communicator(std::chrono::milliseconds timeout);
  // Ends what is under way on all ranks; from any thread.
  void abort(const std::string& why) noexcept;
  [[nodiscard]] bool aborted() const;
  // Gives the transport back; nobody may be using it.
  void close() noexcept;

  // "rank 1 of 4 of process group '0' (default_pg)", with the global ranks where they differ.
  [[nodiscard]] std::string describe() const;

 private:
  void run_meeting(std::chrono::milliseconds timeout) noexcept;
  [[noreturn]] void throw_late(std::chrono::milliseconds timeout);

  mutable std::mutex mutex_;
  std::condition_variable met_;
  GroupNames names_;
  Meeting meeting_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::exception_ptr meeting_error_;
  std::string abort_reason_;
  bool closed_ = false;
  std::atomic<bool> give_up_ = false;
  std::atomic<bool> meeting_over_ = false;
  std::thread thread_;
};

}  // namespace neuron::distributed
