// See live_groups.h.
#include "torch/distributed/live_groups.h"

#include <mutex>
#include <utility>
#include <vector>

namespace neuron::distributed {
namespace {

struct LiveGroups {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<ProcessGroupNeuron>> groups;
};

LiveGroups& live() {
  static auto& instance = *new LiveGroups;  // leaked: groups may outlive everything
  return instance;
}

}  // namespace

c10::intrusive_ptr<ProcessGroupNeuron> make_live(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 c10::intrusive_ptr<ProcessGroupNeuron::Options> options) {
  auto group = c10::make_intrusive<ProcessGroupNeuron>(store, rank, size, std::move(options));
  const std::lock_guard lock(live().mutex);
  std::erase_if(live().groups, [](const auto& weak) { return weak.expired(); });
  live().groups.emplace_back(group);
  return group;
}

void leave_all() noexcept {
  std::vector<c10::weak_intrusive_ptr<ProcessGroupNeuron>> groups;
  {
    const std::lock_guard lock(live().mutex);
    groups.swap(live().groups);
  }
  for (const auto& weak : groups) {
    if (const auto group = weak.lock()) {
      group->leave();
    }
  }
}

}  // namespace neuron::distributed
