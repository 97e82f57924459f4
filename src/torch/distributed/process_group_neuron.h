// The process group "neuron": torch.distributed's collectives and messages on neuron tensors.
//
// Eager work of this device is finished when a call returns, so the inputs of a collective are ready when it is issued. A synchronous call
// has finished when it returns and returns no work. An asynchronous one returns a work (work.h) at once.
//
// Where its functions are: process_group_neuron.cpp (its life, and how operations are issued), process_group_reductions.cpp,
// process_group_movements.cpp, process_group_messages.cpp.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "torch/distributed/collective_queue.h"
#include "torch/distributed/group.h"
#include "torch/distributed/operation.h"
#include "torch/distributed/point_to_point.h"

namespace neuron::distributed {

class ProcessGroupNeuron final : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : c10d::Backend::Options("neuron", timeout) {}
  };
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  // Does not wait for the other ranks; the first operation does.
  ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override { return "neuron"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setGroupUid(const std::string& uid) override;
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return queue_->sequence(); }
  c10d::ErrorType getError() override { return group_->aborted() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }

  // Tensors of all operations but one are dense neuron tensors of one core each. Raises RuntimeError for tensors elsewhere, TypeError for
  // dtypes that differ or cannot be moved, ValueError for shapes and reductions that do not fit, DistBackendError for what goes wrong
  // between ranks.
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // Of sparse tensors, in place; ranks may differ in the number of entries. allreduce() ends here as well.
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  // Operations in between run as ever; the end returns one work for all of them.
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  // The group of the given ranks of this one, or null on other ranks.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                                          const int& size) override;

  void abort() override;
  // Waits for what was issued and leaves the group.
  void shutdown() override;
  // Leaves the group at once; what is under way ends with an error. Like shutdown() and abort(), nothing in a forked child.
  void leave() noexcept;

 private:
  // Checks the tensors.
  Operation make_operation(c10d::OpType type, const char* name, std::chrono::milliseconds timeout, bool asynchronous, Tensors inputs,
                           Tensors outputs, c10::Layout layout) const;
  template <typename C10dOptions>
  Operation make_operation(c10d::OpType type, const char* name, const C10dOptions& options, Tensors inputs, Tensors outputs,
                           c10::Layout layout = c10::kStrided) const {
    return make_operation(type, name, options.timeout, options.asyncOp, std::move(inputs), std::move(outputs), layout);
  }
  // Runs it, or has it run.
  WorkPointer issue(Operation operation);
  WorkPointer post(const char* name, Tensors& tensors, int peer, int tag, bool receive);
  WorkPointer remember(c10::intrusive_ptr<WorkNeuron> work);
  void check_root(int64_t root) const;
  void check_list(const Tensors& tensors, const char* what) const;

  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<CollectiveQueue> queue_;
  std::shared_ptr<PointToPoint> messages_;
  std::atomic<std::uint64_t> message_count_ = 0;
  std::string uid_;
  std::string described_;
  std::mutex coalescing_mutex_;
  bool coalescing_ = false;
  std::vector<WorkPointer> coalesced_;
};

}  // namespace neuron::distributed
