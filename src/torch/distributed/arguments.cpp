// See arguments.h.
#include "torch/distributed/arguments.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "torch/distributed/data_types.h"

namespace neuron::distributed {

using collectives::Buffer;
using collectives::ConstBuffer;

void check_tensor(const at::Tensor& tensor, const char* operation, c10::Device& device, c10::Layout layout) {
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

Buffer slice(const Buffer& buffer, std::size_t width, std::size_t index, std::size_t count) {
  return {static_cast<char*>(buffer.data) + index * count * width, count};
}

ConstBuffer slice(const ConstBuffer& buffer, std::size_t width, std::size_t index, std::size_t count) {
  return {static_cast<const char*>(buffer.data) + index * count * width, count};
}

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

}  // namespace neuron::distributed
