// Views without the dispatcher.
#include "torch/compile/view_call.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include "compiler/passes/view_maps.h"

namespace neuron::compile {

std::optional<ViewCall> ViewCall::make(const compiler::Program& program, const compiler::Instruction& instruction) {
  if (!compiler::ViewMaps::is_view(instruction) || instruction.results[0] == compiler::kNoValue) {
    return std::nullopt;
  }
  ViewCall call;
  call.operand_ = compiler::operand_value(instruction, 0);
  const compiler::Type& base = program.type_of(call.operand_);
  const compiler::Type& view = program.type_of(instruction.results[0]);
  const auto offset = compiler::ViewMaps::offset_of(program, instruction);
  if (!base.is_tensor() || !view.is_tensor() || base.tensor.scalar != view.tensor.scalar || base.tensor.place != view.tensor.place ||
      !offset) {
    return std::nullopt;
  }
  call.base_sizes_ = base.tensor.sizes;
  call.base_strides_ = base.tensor.strides;
  call.sizes_ = view.tensor.sizes;
  call.strides_ = view.tensor.strides;
  call.offset_ = *offset;
  return call;
}

std::optional<at::Tensor> ViewCall::run(const at::Tensor& base) const {
  const c10::TensorImpl* impl = base.unsafeGetTensorImpl();
  if (impl->layout() != at::kStrided || impl->sizes() != at::IntArrayRef(base_sizes_) ||
      impl->strides() != at::IntArrayRef(base_strides_)) {
    return std::nullopt;
  }
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->storage()), impl->key_set(), impl->dtype());
  view->set_sizes_and_strides(sizes_, strides_, impl->storage_offset() + offset_);
  return at::Tensor(std::move(view));
}

at::Tensor ViewCall::run_on_copy(const at::Tensor& base) const {
  TORCH_CHECK(base.sizes() == at::IntArrayRef(base_sizes_), "a view expects a tensor of sizes ", at::IntArrayRef(base_sizes_), ", got ",
              base.sizes());
  at::Tensor copy = at::empty_strided(base_sizes_, base_strides_, base.options());
  copy.copy_(base);
  return *run(copy);
}

}  // namespace neuron::compile
