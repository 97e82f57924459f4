// See store_adapter.h.
#include "torch/distributed/store_adapter.h"

#include <algorithm>
#include <thread>

#include "collectives/error.h"

namespace neuron::distributed {

namespace {

// Connecting to a store whose rank has ended takes as long as the store's timeout says, which may be half an hour.
c10::intrusive_ptr<c10d::Store> connect(c10d::Store& store) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(30);
  const auto timeout = store.getTimeout();
  c10::intrusive_ptr<c10d::Store> connection;
  {
    const c10d::StoreTimeoutGuard shortened(store, std::min(timeout, kLongest));
    connection = reach_store([&] { return store.clone(); });
  }
  connection->setTimeout(timeout);
  return connection;
}

}  // namespace

StoreAdapter::StoreAdapter(c10d::Store& store) : store_(connect(store)) {}

void StoreAdapter::set(const std::string& key, const std::string& value) {
  reach_store([&] { store_->set(key, value); });
}

std::string StoreAdapter::get(const std::string& key, std::chrono::milliseconds timeout) {
  // Asked for in growing intervals instead of waited for: no store lets a wait be interrupted.
  constexpr auto kLongestPause = std::chrono::milliseconds(20);
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::microseconds(100);
  while (!has(key)) {
    if (std::chrono::steady_clock::now() - begin >= timeout) {
      throw collectives::Error(collectives::ErrorCode::kTimeout,
                               "the key \"" + key + "\" did not appear in the store within " + std::to_string(timeout.count()) + " ms");
    }
    interrupt_();
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause);
  }
  return reach_store([&] { return store_->get_to_str(key); });
}

std::int64_t StoreAdapter::add(const std::string& key, std::int64_t amount) {
  return reach_store([&] { return store_->add(key, amount); });
}

bool StoreAdapter::has(const std::string& key) {
  return reach_store([&] { return store_->check({key}); });
}

}  // namespace neuron::distributed
