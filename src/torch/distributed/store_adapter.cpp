// See store_adapter.h.
#include "torch/distributed/store_adapter.h"

#include "collectives/error.h"

namespace neuron::distributed {

void StoreAdapter::set(const std::string& key, const std::string& value) { store_->set(key, value); }

std::string StoreAdapter::get(const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store_->wait({key}, timeout);
  } catch (const std::exception& error) {
    throw collectives::Error(collectives::ErrorCode::kTimeout,
                             "the key \"" + key + "\" did not appear in the store within " + std::to_string(timeout.count()) +
                                 " ms (a rank has not reached its first operation on this group, or the store is gone): " + error.what());
  }
  return store_->get_to_str(key);
}

std::int64_t StoreAdapter::add(const std::string& key, std::int64_t amount) { return store_->add(key, amount); }

}  // namespace neuron::distributed
