// See meeting.h.
#include "torch/distributed/meeting.h"

#include <algorithm>
#include <map>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/error.h"
#include "collectives/shared_memory_communicator.h"
#include "runtime/environment.h"
#include "runtime/memory/shared_segments.h"
#include "runtime/runtime.h"
#include "torch/distributed/hierarchical_communicator.h"
#include "torch/distributed/host_identity.h"
#include "torch/distributed/store_adapter.h"

namespace neuron::distributed {
namespace {

using Milliseconds = std::chrono::milliseconds;

GlooFactory& gloo_factory() {
  static auto& factory = *new GlooFactory;  // leaked: it may be a Python object
  return factory;
}

// One way of a rank to its group.
class Meeting {
 public:
  Meeting(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)
      // Every rank passes here once per group of this name, so the count tells apart groups that follow each other under one name in one
      // store. On the store's own connection, where a store that is gone shows at once.
      : name_("generation" + std::to_string((reach_store([&] { return store->add("arrivals", 1); }) - 1) / size)),
        adapter_(*store),
        rank_(rank),
        size_(size) {
    adapter_.set(place(rank), host_identity());
    // From here on, large tensors are in memory that the other ranks of the host can read.
    if (size > 1 && runtime::Environment::process().boolean("TORCH_NEURONX_SHARE_MEMORY").value_or(true)) {
      runtime::Runtime::instance().share_memory();
    }
  }

  std::unique_ptr<collectives::Communicator> meet(Milliseconds timeout, std::function<void()> interrupt) {
    adapter_.set_interrupt(interrupt);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto left = [&] {
      return std::max(std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now()), Milliseconds(1));
    };
    std::vector<std::vector<int>> hosts;
    std::map<std::string, std::size_t> numbers;
    for (int other = 0; other < size_; ++other) {
      const auto [found, is_new] = numbers.try_emplace(adapter_.get(place(other), left()), hosts.size());
      if (is_new) {
        hosts.emplace_back();
      }
      hosts[found->second].push_back(other);
    }
    const auto my_host = numbers.at(host_identity());
    const auto& here = hosts[my_host];
    collectives::SharedMemoryOptions options;
    options.check_interrupt = std::move(interrupt);
    options.memory = &runtime::SharedSegments::of_device();
    auto local = collectives::make_shared_memory_communicator(adapter_, name_ + "/host" + std::to_string(my_host),
                                                              static_cast<int>(std::find(here.begin(), here.end(), rank_) - here.begin()),
                                                              static_cast<int>(here.size()), left(), std::move(options));
    if (hosts.size() == 1) {
      return local;
    }
    if (!gloo_factory()) {
      throw collectives::Error(collectives::ErrorCode::kSystem, "the ranks are on several hosts, but this PyTorch has no Gloo");
    }
    const auto store = StoreAdapter(*adapter_.store()).store();  // on which Gloo may wait
    const auto connect = [&](const char* purpose) {
      return gloo_factory()(c10::make_intrusive<c10d::PrefixStore>(name_ + "/" + purpose, store), rank_, size_, left());
    };
    auto collectives = connect("collectives");
    auto messages = connect("messages");
    return std::make_unique<HierarchicalCommunicator>(rank_, std::move(hosts), std::move(local), std::move(collectives),
                                                      std::move(messages));
  }

  std::vector<int> missing() {
    std::vector<int> ranks;
    for (int other = 0; other < size_; ++other) {
      if (!adapter_.has(place(other))) {
        ranks.push_back(other);
      }
    }
    return ranks;
  }

 private:
  [[nodiscard]] std::string place(int rank) const { return name_ + "/rank" + std::to_string(rank); }

  std::string name_;
  StoreAdapter adapter_;
  int rank_;
  int size_;
};

}  // namespace

void set_gloo_factory(GlooFactory factory) { gloo_factory() = std::move(factory); }

Group::Meeting meeting_of(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const auto meeting = std::make_shared<Meeting>(store, rank, size);
  return {[meeting](Milliseconds timeout, std::function<void()> interrupt) { return meeting->meet(timeout, std::move(interrupt)); },
          [meeting] { return meeting->missing(); }};
}

}  // namespace neuron::distributed
