// The key-value store of torch.distributed as the transport sees it.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/rendezvous.h"

namespace neuron::distributed {

// Asks a store. A store that is gone is a DistBackendError that says so; PyTorch's own errors speak of sockets.
template <class Ask>
auto reach_store(const Ask& ask) {
  try {
    return ask();
  } catch (const c10::DistError& error) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("the rank that keeps the store has left, or cannot be reached: ", error.what_without_backtrace()));
  }
}

class StoreAdapter final : public collectives::KeyValueStore {
 public:
  // Works on a connection of its own: a thread that waits for a key must not keep the program from using the store.
  explicit StoreAdapter(c10d::Store& store);

  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const noexcept { return store_; }

  // Called now and then while get() waits; what it throws ends the wait.
  void set_interrupt(std::function<void()> interrupt) { interrupt_ = std::move(interrupt); }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool has(const std::string& key);

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::function<void()> interrupt_ = [] {};
};

}  // namespace neuron::distributed
