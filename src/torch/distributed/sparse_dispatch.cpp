// What torch.distributed does with sparse tensors of the device: all_reduce adds them up, everything else says that it cannot. Without this
// the fallback would take them to the host, for which a group may have no backend.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace neuron::distributed {
namespace {

// As torch/csrc/distributed/c10d/Ops.cpp does for the sparse tensors of other devices.
std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> all_reduce(at::TensorList tensors,
                                                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                                               const c10::intrusive_ptr<c10d::ReduceOp>& operation,
                                                                               const std::optional<at::Tensor>& /*sparse_indices*/,
                                                                               bool asynchronous, int64_t timeout) {
  auto list = tensors.vec();
  c10d::AllreduceOptions options;
  options.reduceOp = *operation;
  options.timeout = std::chrono::milliseconds(timeout);
  options.asyncOp = asynchronous;
  auto work = group->getBackend(c10::kPrivateUse1)->allreduce_sparse(list, options);
  return {std::move(list), std::move(work)};
}

void refuse(const c10::OperatorHandle& operation, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK(false, operation.schema().name(), ": collectives need dense tensors, but got a sparse one; of those, all_reduce alone works");
}

constexpr std::array kDenseOnly{"broadcast_",
                                "allreduce_coalesced_",
                                "reduce_",
                                "allgather_",
                                "_allgather_base_",
                                "allgather_coalesced_",
                                "gather_",
                                "allgather_into_tensor_coalesced_",
                                "scatter_",
                                "reduce_scatter_",
                                "_reduce_scatter_base_",
                                "reduce_scatter_tensor_coalesced_",
                                "alltoall_",
                                "alltoall_base_",
                                "send",
                                "recv_",
                                "recv_any_source_"};

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", &all_reduce);
  for (const char* name : kDenseOnly) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

}  // namespace
}  // namespace neuron::distributed
