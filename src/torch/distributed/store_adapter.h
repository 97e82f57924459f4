// The key-value store of torch.distributed as the transport sees it.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/rendezvous.h"

namespace neuron::distributed {

class StoreAdapter final : public collectives::KeyValueStore {
 public:
  // Works on a connection of its own: a thread that waits for a key must not keep the program from using the store.
  explicit StoreAdapter(const c10::intrusive_ptr<c10d::Store>& store) : store_(store->clone()) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace neuron::distributed
