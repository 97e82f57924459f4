// The key-value store of torch.distributed as the transport sees it.
#pragma once

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/rendezvous.h"

namespace neuron::distributed {

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
