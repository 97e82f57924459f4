// Collectives of the process group that combine: all_reduce, reduce, reduce_scatter.
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "torch/distributed/arguments.h"
#include "torch/distributed/data_types.h"
#include "torch/distributed/process_group_neuron.h"
#include "torch/distributed/sparse_sum.h"

namespace neuron::distributed {
namespace {

using c10d::OpType;
using collectives::Buffer;
using collectives::Call;
using collectives::Communicator;
using collectives::ConstBuffer;

}  // namespace

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "all_reduce takes one tensor");
  if (tensors.front().defined() && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  auto operation = make_operation(OpType::ALLREDUCE, "all_reduce", options, tensors, tensors);
  const auto data = operation.staging.input_output(tensors.front());
  const auto scalar_type = tensors.front().scalar_type();
  operation.body = [data, type = to_data_type(scalar_type), reduction = to_reduction(options.reduceOp, scalar_type)](
                       Communicator& communicator, const Call& call) {
    communicator.all_reduce({data.data, data.count}, data.data, type, reduction, call);
  };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "all_reduce takes one tensor");
  TORCH_CHECK_VALUE(options.reduceOp.op_ == c10d::ReduceOp::SUM, "all_reduce of sparse tensors knows the reduction SUM only");
  auto operation = make_operation(OpType::_ALLREDUCE_SPARSE, "all_reduce (sparse)", options, tensors, tensors, c10::kSparse);
  operation.body = [tensor = tensors.front()](Communicator& communicator, const Call& call) { sum_sparse(communicator, call, tensor); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  struct Part {
    Buffer data;
    collectives::DataType type;
    collectives::Reduction reduction;
  };
  auto operation = make_operation(OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", options, tensors, tensors);
  std::vector<Part> parts;
  for (const auto& tensor : tensors) {
    parts.push_back(
        {operation.staging.input_output(tensor), to_data_type(tensor.scalar_type()), to_reduction(options.reduceOp, tensor.scalar_type())});
  }
  operation.body = [parts = std::move(parts)](Communicator& communicator, const Call& call) {
    for (const auto& part : parts) {
      communicator.all_reduce({part.data.data, part.data.count}, part.data.data, part.type, part.reduction, call);
    }
  };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && options.rootTensor == 0, "reduce takes one tensor");
  check_root(options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  auto operation = make_operation(OpType::REDUCE, "reduce", options, tensors, tensors);
  const auto scalar_type = tensors.front().scalar_type();
  const bool is_root = getRank() == root;
  const auto data = is_root ? operation.staging.input_output(tensors.front()) : Buffer{};
  const auto input = is_root ? ConstBuffer{data.data, data.count} : operation.staging.input(tensors.front());
  operation.body = [data, input, root, type = to_data_type(scalar_type), reduction = to_reduction(options.reduceOp, scalar_type)](
                       Communicator& communicator, const Call& call) {
    communicator.reduce(input, data.data, root, type, reduction, call);
  };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1, "reduce_scatter takes one tensor and one list of tensors");
  check_list(inputs.front(), "the input list of reduce_scatter");
  auto operation = make_operation(OpType::REDUCE_SCATTER, "reduce_scatter", options, inputs.front(), outputs);
  const auto& output = outputs.front();
  std::vector<ConstBuffer> buffers;
  for (const auto& input : inputs.front()) {
    check_same_type(output, input, "reduce_scatter");
    buffers.push_back(operation.staging.input(input));
  }
  const auto own = buffers[static_cast<std::size_t>(getRank())].count;
  TORCH_CHECK_VALUE(own == static_cast<std::size_t>(output.numel()), "reduce_scatter: the input for this rank has ", own,
                    " elements, its output has ", output.numel());
  const auto data = operation.staging.output(output);
  operation.staging.separate(buffers, {&data, 1}, getRank(), output.options());
  operation.body = [buffers = std::move(buffers), data, type = to_data_type(output.scalar_type()),
                    reduction = to_reduction(options.reduceOp, output.scalar_type())](Communicator& communicator, const Call& call) {
    communicator.reduce_scatter(buffers, data, type, reduction, call);
  };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                         const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                                    const c10d::ReduceScatterOptions& options) {
  struct Part {
    std::vector<ConstBuffer> inputs;
    Buffer output;
    collectives::DataType type;
    collectives::Reduction reduction;
  };
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "reduce_scatter_tensor: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  auto operation = make_operation(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options, inputs, outputs);
  const auto size = static_cast<std::size_t>(getSize());
  std::vector<Part> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(outputs[i], inputs[i], operation.name);
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * getSize(), "reduce_scatter_tensor: the input must have ", getSize(),
                      " times the elements of the output, but they have the sizes ", inputs[i].sizes(), " and ", outputs[i].sizes());
    const auto whole = operation.staging.input(inputs[i]);
    const auto scalar_type = inputs[i].scalar_type();
    Part part{{}, operation.staging.output(outputs[i]), to_data_type(scalar_type), to_reduction(options.reduceOp, scalar_type)};
    for (std::size_t rank = 0; rank < size; ++rank) {
      part.inputs.push_back(slice(whole, inputs[i].element_size(), rank, part.output.count));
    }
    operation.staging.separate(part.inputs, {&part.output, 1}, getRank(), inputs[i].options());
    parts.push_back(std::move(part));
  }
  operation.body = [parts = std::move(parts)](Communicator& communicator, const Call& call) {
    for (const auto& part : parts) {
      communicator.reduce_scatter(part.inputs, part.output, part.type, part.reduction, call);
    }
  };
  return issue(std::move(operation));
}

}  // namespace neuron::distributed
