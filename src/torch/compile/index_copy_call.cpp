// Writes rows by index.
#include "torch/compile/index_copy_call.h"

#include <algorithm>
#include <cstring>

#include "runtime/guard/access_scope.h"

namespace neuron::compile {
namespace {

// One thread's work at most: more is worth the operator's threads.
constexpr std::int64_t kMostBytes = 1 << 20;

constexpr std::size_t kLine = 64;  // of a cache

// Elements behind dimension `dim`, if they follow each other in memory.
std::optional<std::int64_t> row_elements(const compiler::TensorType& type, std::size_t dim) {
  std::int64_t elements = 1;
  for (std::size_t i = type.sizes.size(); i-- > dim + 1;) {
    if (type.sizes[i] != 1 && type.strides[i] != elements) {
      return std::nullopt;
    }
    elements *= type.sizes[i];
  }
  return elements;
}

// Whether no two elements can share memory: each dimension's steps reach beyond all smaller ones together.
bool is_free_of_overlap(const compiler::TensorType& type) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] > 1) {
      dims.emplace_back(type.strides[i], type.sizes[i]);
    }
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) {
      return false;
    }
    reach += stride * (size - 1);
  }
  return true;
}

}  // namespace

std::optional<IndexCopyCall> IndexCopyCall::make(const compiler::Program& program, const compiler::Instruction& instruction) {
  if (instruction.opcode != "aten::index_copy_" || instruction.operands.size() != 4) {
    return std::nullopt;
  }
  IndexCopyCall call;
  call.target_ = compiler::operand_value(instruction, 0);
  call.places_ = compiler::operand_value(instruction, 2);
  call.source_ = compiler::operand_value(instruction, 3);
  const auto* dimension = instruction.operands[1].value.get_if<std::int64_t>();
  if (call.target_ == compiler::kNoValue || call.places_ == compiler::kNoValue || call.source_ == compiler::kNoValue ||
      dimension == nullptr) {
    return std::nullopt;
  }
  const compiler::TensorType& target = program.type_of(call.target_).tensor;
  const compiler::TensorType& places = program.type_of(call.places_).tensor;
  const compiler::TensorType& source = program.type_of(call.source_).tensor;
  const auto rank = static_cast<std::int64_t>(target.sizes.size());
  const auto dim = static_cast<std::size_t>(*dimension < 0 ? *dimension + rank : *dimension);
  call.target_layout_ = TensorLayout::of(program.type_of(call.target_));
  call.places_layout_ = TensorLayout::of(program.type_of(call.places_));
  call.source_layout_ = TensorLayout::of(program.type_of(call.source_));
  if (rank == 0 || source.sizes.size() != target.sizes.size() || places.sizes.size() != 1 || call.places_layout_.dtype != at::kLong ||
      call.source_layout_.dtype != call.target_layout_.dtype || at::isComplexType(call.target_layout_.dtype) ||
      !is_free_of_overlap(target)) {
    return std::nullopt;
  }
  const auto element = static_cast<std::int64_t>(c10::elementSize(call.target_layout_.dtype));
  const auto elements = row_elements(target, dim);
  if (!elements || row_elements(source, dim) != elements || source.sizes[dim] != places.sizes[0]) {
    return std::nullopt;
  }
  for (std::size_t i = dim; i-- > 0;) {
    if (source.sizes[i] != target.sizes[i]) {
      return std::nullopt;
    }
    if (target.sizes[i] != 1) {
      call.outer_.push_back({target.sizes[i], target.strides[i] * element, source.strides[i] * element});
    }
    call.outer_count_ *= target.sizes[i];
  }
  call.size_ = target.sizes[dim];
  call.count_ = places.sizes[0];
  call.target_stride_ = target.strides[dim] * element;
  call.source_stride_ = source.strides[dim] * element;
  call.row_bytes_ = static_cast<std::size_t>(*elements * element);
  if (call.outer_count_ * call.count_ * *elements * element > kMostBytes) {
    return std::nullopt;
  }
  return call;
}

template <class Visitor>
void IndexCopyCall::for_each_row(const std::int64_t* places, std::int64_t stride, const Visitor& visit) const {
  for (std::int64_t outer = 0; outer < outer_count_; ++outer) {
    std::int64_t to = 0;
    std::int64_t from = 0;
    auto rest = outer;
    for (const Outer& dim : outer_) {
      to += rest % dim.size * dim.target_stride;
      from += rest % dim.size * dim.source_stride;
      rest /= dim.size;
    }
    for (std::int64_t i = 0; i < count_; ++i) {
      visit(to + places[i * stride] * target_stride_, from + i * source_stride_);
    }
  }
}

bool IndexCopyCall::run(const at::Tensor& target, const at::Tensor& places, const at::Tensor& source) const {
  if (!target.is_privateuseone() || places.device() != target.device() || source.device() != target.device() ||
      !target_layout_.matches(target) || !places_layout_.matches(places) || !source_layout_.matches(source) ||
      target.storage().is_alias_of(source.storage()) || target.storage().is_alias_of(places.storage())) {
    return false;
  }
  const auto* place = static_cast<const std::int64_t*>(places.const_data_ptr());
  const auto place_stride = count_ == 1 ? 1 : places.stride(0);
  const runtime::guard::AccessScope access;
  for (std::int64_t i = 0; i < count_; ++i) {
    if (place[i * place_stride] < 0 || place[i * place_stride] >= size_) {
      return false;
    }
  }
  auto* to = static_cast<char*>(target.mutable_data_ptr());
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  // The rows lie apart in a cache that nobody has touched since the last step: all of them are asked for before the first is waited for.
  for_each_row(place, place_stride, [&](std::int64_t to_offset, std::int64_t) {
    for (std::size_t byte = 0; byte < row_bytes_; byte += kLine) {
      __builtin_prefetch(to + to_offset + byte, 1);
    }
  });
  for_each_row(place, place_stride,
               [&](std::int64_t to_offset, std::int64_t from_offset) { std::memcpy(to + to_offset, from + from_offset, row_bytes_); });
  return true;
}

}  // namespace neuron::compile
