// The process group's life, and how its operations are issued.
#include "torch/distributed/process_group_neuron.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "torch/distributed/arguments.h"
#include "torch/distributed/coalesced_work.h"
#include "torch/distributed/data_types.h"
#include "torch/distributed/flight_recorder.h"
#include "torch/distributed/meeting.h"

namespace neuron::distributed {

ProcessGroupNeuron::ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)) {
  group_ = make_process_bound<Group>(GroupNames{rank, size, options_->group_name, "", options_->global_ranks_in_group},
                                     meeting_of(store, rank, size), options_->timeout);
  queue_ = make_process_bound<CollectiveQueue>([group = group_](const std::string& why) { group->abort(why); });
  messages_ = make_process_bound<PointToPoint>(group_, [group = group_](const Message& message, std::exception_ptr error) {
    const auto peer = message.peer < 0 ? std::string("any rank") : "rank " + std::to_string(message.peer);
    return describe_error(
        *group, c10::str(message.receive ? "recv from " : "send to ", peer, " with tag ", message.tag, " of ", describe(message.data)),
        std::move(error));
  });
  init();
}

ProcessGroupNeuron::~ProcessGroupNeuron() = default;

void ProcessGroupNeuron::setGroupUid(const std::string& uid) {
  c10d::Backend::setGroupUid(uid);
  uid_ = uid;
  group_->rename(uid, getGroupDesc());
}

void ProcessGroupNeuron::check_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "root rank ", root, " is not one of the group's ranks 0 to ", getSize() - 1);
}

void ProcessGroupNeuron::check_list(const Tensors& tensors, const char* what) const {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<std::size_t>(getSize()), what, " must hold one tensor for each of the group's ",
                    getSize(), " ranks, but holds ", tensors.size());
}

Operation ProcessGroupNeuron::make_operation(c10d::OpType type, const char* name, std::chrono::milliseconds timeout, bool asynchronous,
                                             Tensors inputs, Tensors outputs, c10::Layout layout) const {
  c10::Device device(c10::kCPU);
  for (const auto* list : {&inputs, &outputs}) {
    for (const auto& tensor : *list) {
      check_tensor(tensor, name, device, layout);
    }
  }
  Operation operation;
  operation.type = type;
  operation.name = name;
  operation.timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  operation.asynchronous = asynchronous;
  operation.inputs = std::move(inputs);
  operation.outputs = std::move(outputs);
  operation.group = group_;
  return operation;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::remember(c10::intrusive_ptr<WorkNeuron> work) {
  if (coalescing_) {
    const std::lock_guard lock(coalescing_mutex_);
    coalesced_.push_back(work);
  }
  return work;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::issue(Operation operation) {
  group_->check_not_inherited();
  if (described_ != getGroupDesc()) {
    described_ = getGroupDesc();
    group_->rename(uid_.empty() ? options_->group_name : uid_, described_);
  }
  operation.record = FlightRecorder::instance().record(uid_, operation.name, 0, operation.inputs, operation.outputs);
  if (!operation.asynchronous) {
    std::uint64_t sequence = 0;
    if (queue_->try_enter(sequence)) {
      struct Leave {
        CollectiveQueue& queue;
        ~Leave() { queue.leave(); }
      } leave{*queue_};
      operation.run(sequence);
      return nullptr;
    }
  }
  const bool wait = !operation.asynchronous;
  Tensors held = operation.inputs;
  held.insert(held.end(), operation.outputs.begin(), operation.outputs.end());
  auto work = c10::make_intrusive<WorkNeuron>(queue_, getRank(), operation.type, operation.name, operation.outputs, std::move(held));
  queue_->push(work, [shared = std::make_shared<Operation>(std::move(operation))](std::uint64_t sequence) { shared->run(sequence); });
  if (wait) {
    work->wait();
    return nullptr;
  }
  return remember(std::move(work));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  auto operation = make_operation(c10d::OpType::BARRIER, "barrier", options, {}, {});
  operation.body = [](collectives::Communicator& communicator, const collectives::Call& call) { communicator.barrier(call); };
  return issue(std::move(operation));
}

void ProcessGroupNeuron::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  coalescing_ = true;
  coalesced_.clear();
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(getRank(), std::exchange(coalesced_, {}));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), getRank());
  if (place == ranks.end()) {
    return nullptr;
  }
  auto own = c10::make_intrusive<Options>(options->timeout);
  own->group_name = options->group_name;
  const auto parents = group_->names().global_ranks;
  for (const int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "split: rank ", rank, " is not one of the group's ranks 0 to ", getSize() - 1);
    own->global_ranks_in_group.push_back(parents.empty() ? static_cast<std::uint64_t>(rank) : parents[static_cast<std::size_t>(rank)]);
  }
  // The parent's store serves all groups that are split off it.
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("neuron/" + options->group_name + "/", store);
  return c10::make_intrusive<ProcessGroupNeuron>(prefixed, static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()),
                                                 std::move(own));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                            const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                                                            const int& size) {
  auto own = c10::make_intrusive<Options>(options->timeout);
  own->group_name = options->group_name;
  return c10::make_intrusive<ProcessGroupNeuron>(c10::make_intrusive<c10d::PrefixStore>("neuron/", store), rank, size, std::move(own));
}

void ProcessGroupNeuron::abort() {
  if (!group_->inherited()) {
    group_->abort("abort() was called on " + group_->describe());
  }
}

void ProcessGroupNeuron::shutdown() {
  if (group_->inherited()) {
    return;  // the parent's
  }
  queue_->stop();
  messages_->stop();
  group_->close();
}

void ProcessGroupNeuron::leave() noexcept {
  if (group_->inherited()) {
    return;
  }
  try {
    if (!queue_->idle() || !messages_->idle()) {
      group_->abort("the process of " + group_->describe() + " ended with operations under way");
    }
    shutdown();
  } catch (const std::exception& error) {
    TORCH_WARN("while leaving a process group: ", error.what());
  }
}

}  // namespace neuron::distributed
