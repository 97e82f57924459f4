// See process_group_neuron.h.
#include "torch/distributed/process_group_neuron.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "collectives/error.h"
#include "runtime/guard/access_scope.h"
#include "torch/distributed/coalesced_work.h"
#include "torch/distributed/data_types.h"
#include "torch/distributed/flight_recorder.h"
#include "torch/distributed/meeting.h"
#include "torch/distributed/sparse_sum.h"

namespace neuron::distributed {
namespace {

using c10d::OpType;
using collectives::Buffer;
using collectives::Call;
using collectives::Communicator;
using collectives::ConstBuffer;

void check_tensor(const at::Tensor& tensor, const char* operation, c10::Device& device, c10::Layout layout = c10::kStrided) {
  TORCH_CHECK_VALUE(tensor.defined(), operation, ": got an undefined tensor");
  TORCH_CHECK(tensor.is_privateuseone(), operation, ": the backend \"neuron\" works on tensors of neuron devices, but got one on ",
              tensor.device(),
              ". Move it with .to(\"neuron\"), or give CPU tensors a backend of their own: "
              "init_process_group(\"cpu:gloo,neuron:neuron\")");
  TORCH_CHECK(tensor.layout() == layout, operation, ": collectives need dense tensors, but got one with layout ", tensor.layout());
  to_data_type(tensor.scalar_type());
  if (device.is_cpu()) {
    device = tensor.device();
  }
  TORCH_CHECK(tensor.device() == device, operation, ": all tensors of a call must be on one core, but found ", device, " and ",
              tensor.device());
}

void check_same_type(const at::Tensor& tensor, const at::Tensor& other, const char* operation) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == other.scalar_type(), operation, ": tensors must have the same dtype, but found ",
                   tensor.scalar_type(), " and ", other.scalar_type());
}

Buffer slice(const Buffer& buffer, std::size_t element, std::size_t index, std::size_t count) {
  return {static_cast<char*>(buffer.data) + index * count * element, count};
}

ConstBuffer slice(const ConstBuffer& buffer, std::size_t element, std::size_t index, std::size_t count) {
  return {static_cast<const char*>(buffer.data) + index * count * element, count};
}

// Rows of dimension 0 for each rank: as given, or equal shares.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size, const char* which) {
  std::vector<std::size_t> counts;
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: the size ", rows, " of dimension 0 of the ", which,
                      " tensor is not divisible by the group's size ", size, "; give split sizes");
    counts.assign(static_cast<std::size_t>(size), static_cast<std::size_t>(tensor.numel() / size));
    return counts;
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<std::size_t>(size), "all_to_all_single: ", splits.size(), " ", which,
                    " split sizes for a group of ", size, " ranks");
  TORCH_CHECK_VALUE(std::all_of(splits.begin(), splits.end(), [](int64_t split) { return split >= 0; }),
                    "all_to_all_single: split sizes must not be negative");
  TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows, "all_to_all_single: the ", which, " split sizes ",
                    splits, " do not add up to the size ", rows, " of dimension 0");
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  for (const int64_t split : splits) {
    counts.push_back(static_cast<std::size_t>(split * row));
  }
  return counts;
}

template <typename BufferType>
std::vector<BufferType> cut(const BufferType& buffer, const std::vector<std::size_t>& counts, std::size_t element) {
  std::vector<BufferType> parts;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    auto part = slice(buffer, element, 1, offset);
    part.count = count;
    parts.push_back(part);
    offset += count;
  }
  return parts;
}

// What users see of an error on the way between ranks; other exceptions (Ctrl-C, bad arguments) pass as they are.
std::exception_ptr describe_error(const Group& group, const std::string& operation, std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const collectives::Error& transport) {
    const auto names = group.names();
    const auto rank = static_cast<std::size_t>(names.rank);
    const auto dump = FlightRecorder::instance().dump_after_failure(rank < names.global_ranks.size() ? names.global_ranks[rank]
                                                                                                     : static_cast<std::uint64_t>(rank));
    const auto text = c10::str(operation, " failed on ", group.describe(), ": ", transport.what(),
                               dump.empty() ? "" : "\nThe last operations of this process are in " + dump);
    if (transport.code() == collectives::ErrorCode::kInvalidArgument) {
      return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text));
    }
    return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

ProcessGroupNeuron::ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)) {
  group_ = std::make_shared<Group>(GroupNames{rank, size, options_->group_name, "", options_->global_ranks_in_group},
                                   meeting_of(store, rank, size), options_->timeout);
  queue_ = std::make_shared<CollectiveQueue>([group = group_](const std::string& why) { group->abort(why); });
  messages_ = std::make_shared<PointToPoint>(group_, [group = group_](const Message& message, std::exception_ptr error) {
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

template <typename C10dOptions>
ProcessGroupNeuron::Operation ProcessGroupNeuron::make_operation(OpType type, const char* name, const C10dOptions& options, Tensors inputs,
                                                                 Tensors outputs, c10::Layout layout) const {
  c10::Device device(c10::kCPU);
  for (const auto* list : {&inputs, &outputs}) {
    for (const auto& tensor : *list) {
      check_tensor(tensor, name, device, layout);
    }
  }
  Operation operation;
  operation.type = type;
  operation.name = name;
  operation.timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  operation.asynchronous = options.asyncOp;
  operation.inputs = std::move(inputs);
  operation.outputs = std::move(outputs);
  operation.group = group_;
  return operation;
}

void ProcessGroupNeuron::Operation::run(std::uint64_t sequence) {
  auto& recorder = FlightRecorder::instance();
  recorder.change(record, FlightRecorder::State::kStarted, sequence);
  try {
    const runtime::guard::AccessScope access;
    Call call;
    call.sequence = sequence;
    call.timeout = timeout;
    const auto& shaped = inputs.empty() ? outputs : inputs;
    if (!shaped.empty()) {
      call.shape = {shaped.front().sizes().data(), shaped.front().sizes().size()};
    }
    auto& communicator = group->communicator(timeout);
    staging.fill();
    body(communicator, call);
    staging.write_back();
    recorder.change(record, FlightRecorder::State::kCompleted, sequence);
  } catch (...) {
    auto error = std::current_exception();
    recorder.change(record, FlightRecorder::State::kFailed, sequence);
    std::rethrow_exception(describe_error(
        *group, c10::str(name, ", sequence number ", sequence, inputs.empty() ? "" : ", of " + describe(inputs), ","), std::move(error)));
  }
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::remember(c10::intrusive_ptr<WorkNeuron> work) {
  if (coalescing_) {
    const std::lock_guard lock(coalescing_mutex_);
    coalesced_.push_back(work);
  }
  return work;
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::issue(Operation operation) {
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

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && options.rootTensor == 0, "broadcast takes one tensor");
  check_root(options.rootRank);
  auto operation = make_operation(OpType::BROADCAST, "broadcast", options, tensors, tensors);
  const auto data = operation.staging.input_output(tensors.front());
  operation.body = [data, root = static_cast<int>(options.rootRank), type = to_data_type(tensors.front().scalar_type())](
                       Communicator& communicator, const Call& call) { communicator.broadcast(data, root, type, call); };
  return issue(std::move(operation));
}

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

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather(TensorLists& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(inputs.size() == 1 && outputs.size() == 1, "all_gather takes one tensor and one list of tensors");
  return allgather_coalesced(outputs, inputs, options);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  struct Part {
    ConstBuffer input;
    std::vector<Buffer> outputs;
    collectives::DataType type;
  };
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
  std::vector<Part> parts;
  const auto size = static_cast<std::size_t>(getSize());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Part part{operation.staging.input(inputs[i]), {}, to_data_type(inputs[i].scalar_type())};
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
  operation.body = [parts = std::move(parts)](Communicator& communicator, const Call& call) {
    for (const auto& part : parts) {
      communicator.all_gather(part.input, part.outputs, part.type, call);
    }
  };
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
  struct Part {
    ConstBuffer input;
    std::vector<Buffer> outputs;
    collectives::DataType type;
  };
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "all_gather_into_tensor: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  auto operation = make_operation(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options, inputs, outputs);
  const auto size = static_cast<std::size_t>(getSize());
  std::vector<Part> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(outputs[i], inputs[i], operation.name);
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(), "all_gather_into_tensor: the output must have ", getSize(),
                      " times the elements of the input, but they have the sizes ", outputs[i].sizes(), " and ", inputs[i].sizes());
    Part part{operation.staging.input(inputs[i]), {}, to_data_type(inputs[i].scalar_type())};
    const auto whole = operation.staging.output(outputs[i]);
    for (std::size_t rank = 0; rank < size; ++rank) {
      part.outputs.push_back(slice(whole, inputs[i].element_size(), rank, part.input.count));
    }
    operation.staging.separate({&part.input, 1}, part.outputs, getRank(), inputs[i].options());
    parts.push_back(std::move(part));
  }
  operation.body = [parts = std::move(parts)](Communicator& communicator, const Call& call) {
    for (const auto& part : parts) {
      communicator.all_gather(part.input, part.outputs, part.type, call);
    }
  };
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

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  auto operation = make_operation(OpType::BARRIER, "barrier", options, {}, {});
  operation.body = [](Communicator& communicator, const Call& call) { communicator.barrier(call); };
  return issue(std::move(operation));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::post(const char* name, Tensors& tensors, int peer, int tag, bool receive) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, " takes one tensor");
  TORCH_CHECK_VALUE(tag >= 0, name, ": the tag must not be negative, but is ", tag);
  auto& tensor = tensors.front();
  c10::Device device(c10::kCPU);
  check_tensor(tensor, name, device);
  Message message;
  Staging staging;
  message.data = receive ? staging.staged_output(tensor, false) : staging.staged_input(tensor);
  staging.fill();
  if (receive && !message.data.is_same(tensor)) {
    message.target = tensor;
  }
  message.peer = peer;
  message.tag = tag;
  message.receive = receive;
  message.timeout = options_->timeout;
  const auto type = !receive ? OpType::SEND : peer == collectives::Mailbox::kAnySource ? OpType::RECVANYSOURCE : OpType::RECV;
  auto work = c10::make_intrusive<WorkNeuron>(messages_, getRank(), type, name, tensors, tensors);
  work->set_sequence(++message_count_);
  message.work = work;
  FlightRecorder::instance().record(uid_, name, work->getSequencenumber(), receive ? Tensors{} : tensors, receive ? tensors : Tensors{});
  messages_->post(std::move(message));
  return remember(std::move(work));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::send(Tensors& tensors, int destination, int tag) {
  check_root(destination);
  return post("send", tensors, destination, tag, false);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recv(Tensors& tensors, int source, int tag) {
  check_root(source);
  return post("recv", tensors, source, tag, true);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recvAnysource(Tensors& tensors, int tag) {
  return post("recv_anysource", tensors, collectives::Mailbox::kAnySource, tag, true);
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

void ProcessGroupNeuron::abort() { group_->abort("abort() was called on " + group_->describe()); }

void ProcessGroupNeuron::shutdown() {
  queue_->stop();
  messages_->stop();
  group_->close();
}

void ProcessGroupNeuron::leave() noexcept {
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
