// What the parts of one process group share: who its ranks are, the transport between them, and how errors speak of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace neuron::distributed {

struct GroupNames {
  int rank = 0;
  int size = 1;
  std::string name;                         // as in the group registry; may be set after construction
  std::string description;
  std::vector<std::uint64_t> global_ranks;  // empty: the same as the group's
};

class Group {
 public:
  // Makes the transport when it is first needed; blocks until the ranks that it needs have come, for at most the time given.
  using Factory = std::function<std::unique_ptr<collectives::Communicator>(std::chrono::milliseconds)>;

  Group(GroupNames names, Factory factory) : names_(std::move(names)), factory_(std::move(factory)) {}

  [[nodiscard]] GroupNames names() const;
  void rename(const std::string& name, const std::string& description);

  // Throws what the factory threw, now or before, and after abort().
  collectives::Communicator& communicator(std::chrono::milliseconds timeout);
  // Ends what is under way on all ranks; from any thread.
  void abort(const std::string& why) noexcept;
  [[nodiscard]] bool aborted() const;
  // Gives the transport back; nobody may be using it.
  void close() noexcept;

  // "rank 1 of 4 of process group '0' (default_pg)", with the global ranks where they differ.
  [[nodiscard]] std::string describe() const;

 private:
  mutable std::mutex mutex_;  // of names and state; never held while something blocks
  std::mutex creation_;
  GroupNames names_;
  Factory factory_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::exception_ptr creation_error_;
  std::string abort_reason_;
  bool closed_ = false;
};

}  // namespace neuron::distributed
