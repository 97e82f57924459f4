// Collectives of the process group that move: broadcast, all_gather, gather, scatter, all_to_all.
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "torch/distributed/arguments.h"
#include "torch/distributed/data_types.h"
#include "torch/distributed/process_group_neuron.h"

namespace neuron::distributed {
namespace {

using c10d::OpType;
using collectives::Buffer;
using collectives::Call;
using collectives::Communicator;
using collectives::ConstBuffer;

// One of several tensors that a call gathers.
struct GatheredTensor {
  ConstBuffer input;
  std::vector<Buffer> outputs;  // by rank
  collectives::DataType type;
};

Operation::Body gather_each(std::vector<GatheredTensor> tensors) {
  return [tensors = std::move(tensors)](Communicator& communicator, const Call& call) {
    for (const auto& tensor : tensors) {
      communicator.all_gather(tensor.input, tensor.outputs, tensor.type, call);
    }
  };
}

}  // namespace

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && options.rootTensor == 0, "broadcast takes one tensor");
  check_root(options.rootRank);
  auto operation = make_operation(OpType::BROADCAST, "broadcast", options, tensors, tensors);
  const auto data = operation.staging.input_output(tensors.front());
  operation.body = [data, root = static_cast<int>(options.rootRank), type = to_data_type(tensors.front().scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.broadcast(data, root, type, call); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather(TensorLists& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(inputs.size() == 1 && outputs.size() == 1, "all_gather takes one tensor and one list of tensors");
  return allgather_coalesced(outputs, inputs, options);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  // One list: the outputs of one input by rank. Several: for each rank, the outputs of all inputs.
  const bool single = inputs.size() == 1 && outputs.size() == 1;
  Tensors flat;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (single) {
      check_list(outputs.front(), "the output list of all_gather");
      flat = outputs.front();
      break;
    }
    TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(getSize()), "all_gather_coalesced needs one output list for each of the ",
                      getSize(), " ranks, but got ", outputs.size());
    for (const auto& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "each output list of all_gather_coalesced must hold ", inputs.size(), " tensors");
      flat.push_back(list[i]);
    }
  }
  auto operation = make_operation(single ? OpType::ALLGATHER : OpType::ALLGATHER_COALESCED, single ? "all_gather" : "all_gather_coalesced",
                                  options, inputs, flat);
  std::vector<GatheredTensor> parts;
  const auto size = static_cast<std::size_t>(getSize());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    GatheredTensor part{operation.staging.input(inputs[i]), {}, to_data_type(inputs[i].scalar_type())};
    for (std::size_t rank = 0; rank < size; ++rank) {
      const auto& output = flat[i * size + rank];
      check_same_type(output, inputs[i], operation.name);
      part.outputs.push_back(operation.staging.output(output));
    }
    const auto own = part.outputs[static_cast<std::size_t>(getRank())].count;
    TORCH_CHECK_VALUE(own == part.input.count, operation.name, ": the output of this rank has ", own, " elements, its input has ",
                      part.input.count);
    operation.staging.separate({&part.input, 1}, part.outputs, getRank(), inputs[i].options());
    parts.push_back(std::move(part));
  }
  operation.body = gather_each(std::move(parts));
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                    const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "all_gather_into_tensor: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  auto operation = make_operation(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options, inputs, outputs);
  const auto size = static_cast<std::size_t>(getSize());
  std::vector<GatheredTensor> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(outputs[i], inputs[i], operation.name);
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(), "all_gather_into_tensor: the output must have ", getSize(),
                      " times the elements of the input, but they have the sizes ", outputs[i].sizes(), " and ", inputs[i].sizes());
    GatheredTensor part{operation.staging.input(inputs[i]), {}, to_data_type(inputs[i].scalar_type())};
    const auto whole = operation.staging.output(outputs[i]);
    for (std::size_t rank = 0; rank < size; ++rank) {
      part.outputs.push_back(slice(whole, inputs[i].element_size(), rank, part.input.count));
    }
    operation.staging.separate({&part.input, 1}, part.outputs, getRank(), inputs[i].options());
    parts.push_back(std::move(part));
  }
  operation.body = gather_each(std::move(parts));
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  TORCH_CHECK_VALUE(inputs.size() == 1, "gather takes one input tensor");
  check_root(options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = getRank() == root;
  Tensors flat;
  if (is_root) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "gather takes one output list on the root rank");
    check_list(outputs.front(), "the output list of gather");
    flat = outputs.front();
  }
  auto operation = make_operation(OpType::GATHER, "gather", options, inputs, flat);
  auto input = operation.staging.input(inputs.front());
  std::vector<Buffer> buffers;
  for (const auto& output : flat) {
    check_same_type(output, inputs.front(), "gather");
    buffers.push_back(operation.staging.output(output));
  }
  operation.staging.separate({&input, 1}, buffers, getRank(), inputs.front().options());
  operation.body = [input, buffers = std::move(buffers), root, type = to_data_type(inputs.front().scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.gather(input, buffers, root, type, call); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == 1, "scatter takes one output tensor");
  check_root(options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  Tensors flat;
  if (getRank() == root) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "scatter takes one input list on the root rank");
    check_list(inputs.front(), "the input list of scatter");
    flat = inputs.front();
  }
  auto operation = make_operation(OpType::SCATTER, "scatter", options, flat, outputs);
  const auto output = operation.staging.output(outputs.front());
  std::vector<ConstBuffer> buffers;
  for (const auto& input : flat) {
    check_same_type(outputs.front(), input, "scatter");
    buffers.push_back(operation.staging.input(input));
  }
  operation.staging.separate(buffers, {&output, 1}, getRank(), outputs.front().options());
  operation.body = [output, buffers = std::move(buffers), root, type = to_data_type(outputs.front().scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.scatter(buffers, output, root, type, call); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                  std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                                                  const c10d::AllToAllOptions& options) {
  auto operation = make_operation(OpType::ALLTOALL_BASE, "all_to_all_single", options, {input}, {output});
  check_same_type(output, input, operation.name);
  const auto element = static_cast<std::size_t>(input.element_size());
  auto sends = cut(operation.staging.input(input), split_counts(input, input_splits, getSize(), "input"), element);
  auto receives = cut(operation.staging.output(output), split_counts(output, output_splits, getSize(), "output"), element);
  operation.staging.separate(sends, receives, getRank(), input.options());
  operation.body = [sends = std::move(sends), receives = std::move(receives), type = to_data_type(input.scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.all_to_all(sends, receives, type, call); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_list(outputs, "the output list of all_to_all");
  check_list(inputs, "the input list of all_to_all");
  auto operation = make_operation(OpType::ALLTOALL, "all_to_all", options, inputs, outputs);
  std::vector<ConstBuffer> sends;
  std::vector<Buffer> receives;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    check_same_type(inputs[rank], inputs.front(), operation.name);
    check_same_type(outputs[rank], inputs.front(), operation.name);
    sends.push_back(operation.staging.input(inputs[rank]));
    receives.push_back(operation.staging.output(outputs[rank]));
  }
  operation.staging.separate(sends, receives, getRank(), inputs.front().options());
  operation.body = [sends = std::move(sends), receives = std::move(receives), type = to_data_type(inputs.front().scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.all_to_all(sends, receives, type, call); };
  return issue(std::move(operation));
}

}  // namespace neuron::distributed
