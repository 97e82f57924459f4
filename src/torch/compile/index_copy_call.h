// Rows that are written at places known only when the program runs (`index_copy_`: a static key-value cache), without the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "compiler/program.h"
#include "torch/compile/tensor_layout.h"

namespace neuron::compile {

class IndexCopyCall {
 public:
  // Nothing if the instruction is another one, or copies so much or in such pieces that the operator's own kernel is the better one.
  static std::optional<IndexCopyCall> make(const compiler::Program& program, const compiler::Instruction& instruction);

  compiler::ValueId target() const { return target_; }
  compiler::ValueId places() const { return places_; }
  compiler::ValueId source() const { return source_; }

  // False if nothing was done: a tensor does not lie in memory as the program says, two of them overlap, or a place is not there, so that
  // the operator itself must look, or name the error.
  bool run(const at::Tensor& target, const at::Tensor& places, const at::Tensor& source) const;

 private:
  // One of the dimensions before the one that is indexed. Strides in bytes.
  struct Outer {
    std::int64_t size;
    std::int64_t target_stride;
    std::int64_t source_stride;
  };

  IndexCopyCall() = default;

  // Calls visit(offset in the target, offset in the source) for each row, in bytes, in order.
  template <class Visitor>
  void for_each_row(const std::int64_t* places, std::int64_t stride, const Visitor& visit) const;

  compiler::ValueId target_ = compiler::kNoValue;
  compiler::ValueId places_ = compiler::kNoValue;
  compiler::ValueId source_ = compiler::kNoValue;
  TensorLayout target_layout_;
  TensorLayout places_layout_;
  TensorLayout source_layout_;
  std::vector<Outer> outer_;  // the last one first
  std::int64_t outer_count_ = 1;
  std::int64_t size_ = 0;           // of the indexed dimension
  std::int64_t count_ = 0;          // places
  std::int64_t target_stride_ = 0;  // from row to row, in bytes
  std::int64_t source_stride_ = 0;
  std::size_t row_bytes_ = 0;
};

}  // namespace neuron::compile
