// What collectives take of tensors: which ones, and how lists and splits of them become buffers by rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/types.h"

namespace neuron::distributed {

// Raises unless the tensor is one of `device` (of any core where that is still the CPU; then it becomes the tensor's) with this layout and
// a dtype that can be moved.
void check_tensor(const at::Tensor& tensor, const char* operation, c10::Device& device, c10::Layout layout = c10::kStrided);
// Raises TypeError.
void check_same_type(const at::Tensor& tensor, const at::Tensor& other, const char* operation);

// Elements for each rank of a tensor that is cut along dimension 0: as many rows as `splits` say, or equal shares where it is empty.
// `which` tells input from output in errors.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int size, const char* which);

// Part `index` of equal parts of `count` elements of `width` bytes.
collectives::Buffer slice(const collectives::Buffer& buffer, std::size_t width, std::size_t index, std::size_t count);
collectives::ConstBuffer slice(const collectives::ConstBuffer& buffer, std::size_t width, std::size_t index, std::size_t count);

// Parts of so many elements each, one after the other.
template <typename BufferType>
std::vector<BufferType> cut(const BufferType& buffer, const std::vector<std::size_t>& counts, std::size_t width) {
  std::vector<BufferType> parts;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    auto part = slice(buffer, width, 1, offset);
    part.count = count;
    parts.push_back(part);
    offset += count;
  }
  return parts;
}

}  // namespace neuron::distributed
