// Runs matrix products on tensors.
#include "torch/compile/matmul_call.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "compiler/matmul.h"
#include "runtime/guard/access_scope.h"
#include "torch/threads/torch_threads.h"

namespace neuron::compile {
namespace {

kernels::MatrixView view_of(const compiler::TensorType& type) {
  const auto& strides = type.strides;
  const std::size_t rank = strides.size();
  return {nullptr, strides[rank - 2], strides[rank - 1], rank == 3 ? strides[0] : 0};
}

const void* matrix_at(const kernels::MatrixView& view, const TensorLayout& layout, std::int64_t pick) {
  const std::int64_t count = layout.sizes[0];
  TORCH_CHECK_INDEX(pick >= -count && pick < count, "index ", pick, " is out of bounds for dimension 0 with size ", count);
  return static_cast<const char*>(view.data) +
         (pick < 0 ? pick + count : pick) * view.batch_stride * static_cast<std::int64_t>(c10::elementSize(layout.dtype));
}

}  // namespace

MatmulCall::MatmulCall(const compiler::Program& program, const compiler::Instruction& instruction)
    : result_(TensorLayout::of(program.type_of(instruction.results[0]))),
      core_(static_cast<c10::DeviceIndex>(std::max(0, program.type_of(instruction.results[0]).tensor.place.index))) {
  const compiler::Product product = *compiler::product_of(instruction);
  const compiler::ProductSizes sizes = *compiler::sizes_of(program, product);
  const compiler::Type& result = program.type_of(instruction.results[0]);
  add_operand(program, product.a);
  add_operand(program, product.b);
  gate_ = add_operand(program, product.gate);
  addend_ = add_operand(program, product.addend);
  residual_ = add_operand(program, product.residual);
  a_picks_ = add_operand(program, product.a_picks);
  b_picks_ = add_operand(program, product.b_picks);
  problem_.batch = sizes.batch;
  problem_.m = sizes.m;
  problem_.n = sizes.n;
  problem_.k = sizes.k;
  problem_.type = problem_.c_type = *compiler::matrix_type(result);
  problem_.a = view_of(program.type_of(product.a).tensor);
  problem_.b = view_of(program.type_of(product.b).tensor);
  if (product.gate != compiler::kNoValue) {
    problem_.gate = view_of(program.type_of(product.gate).tensor);
  }
  problem_.c_row_stride = sizes.n;
  problem_.c_batch_stride = sizes.m * sizes.n;
  const auto addend = [&](compiler::ValueId id, double scale) -> kernels::Addend {
    if (id == compiler::kNoValue) {
      return {};
    }
    const compiler::Type& type = program.type_of(id);
    const auto strides = *compiler::strides_within(type.tensor, result.tensor.sizes, sizes);
    return {{nullptr, strides[1], strides[2], strides[0]}, *compiler::matrix_type(type), static_cast<float>(scale)};
  };
  problem_.epilogue = {static_cast<float>(product.scale), addend(product.addend, product.addend_scale), product.activation,
                       addend(product.residual, product.residual_scale)};
}

int MatmulCall::add_operand(const compiler::Program& program, compiler::ValueId id) {
  if (id == compiler::kNoValue) {
    return kAbsent;
  }
  operands_.push_back(id);
  inputs_.push_back(TensorLayout::of(program.type_of(id)));
  return static_cast<int>(operands_.size()) - 1;
}

at::Tensor MatmulCall::run(c10::ArrayRef<const at::Tensor*> inputs) const {
  c10::SmallVector<at::Tensor, 2> copies;
  c10::SmallVector<const void*, 8> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor* tensor = inputs[i];
    if (!inputs_[i].matches(*tensor)) [[unlikely]] {
      copies.push_back(inputs_[i].copy(*tensor));
      tensor = &copies.back();
    }
    pointers.push_back(tensor->const_data_ptr());
  }
  // Where the matrices are, as for any operator: the core of the trace may be another one.
  at::Tensor result = result_.make(inputs[0]->is_privateuseone() ? inputs[0]->device().index() : core_);
  const auto pointer = [&](int operand) { return operand == kAbsent ? nullptr : pointers[static_cast<std::size_t>(operand)]; };
  kernels::Matmul problem = problem_;
  problem.a.data = pointers[0];
  problem.b.data = pointers[1];
  problem.gate.data = pointer(gate_);
  problem.epilogue.addend.view.data = pointer(addend_);
  problem.epilogue.residual.view.data = pointer(residual_);
  problem.c = result.mutable_data_ptr();
  const runtime::guard::AccessScope access;
  if (a_picks_ == kAbsent && b_picks_ == kAbsent) {
    kernels::matmul(problem, device::torch_threads());
  } else {
    multiply_chosen(problem, static_cast<const std::int64_t*>(pointer(a_picks_)), static_cast<const std::int64_t*>(pointer(b_picks_)));
  }
  return result;
}

// Matrix after matrix: a threaded product each, because there are few and they are large.
void MatmulCall::multiply_chosen(const kernels::Matmul& problem, const std::int64_t* a_picks, const std::int64_t* b_picks) const {
  const std::int64_t a_stride = a_picks == nullptr ? 0 : inputs_[static_cast<std::size_t>(a_picks_)].strides[0];
  const std::int64_t b_stride = b_picks == nullptr ? 0 : inputs_[static_cast<std::size_t>(b_picks_)].strides[0];
  for (std::int64_t i = 0; i < problem.batch; ++i) {
    kernels::Matmul entry = kernels::entry_of(problem, i);
    if (a_picks != nullptr) {
      entry.a.data = matrix_at(problem.a, inputs_[0], a_picks[i * a_stride]);
    }
    if (b_picks != nullptr) {
      entry.b.data = matrix_at(problem.b, inputs_[1], b_picks[i * b_stride]);
    }
    kernels::matmul(entry, device::torch_threads());
  }
}

}  // namespace neuron::compile
