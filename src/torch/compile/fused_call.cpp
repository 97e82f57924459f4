// Runs fused regions on tensors.
#include "torch/compile/fused_call.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runtime/guard/access_scope.h"

namespace neuron::compile {
namespace {

// Elements per thread at least: below, waking a thread costs more than it helps (PyTorch's own grain for element-wise work).
constexpr std::int64_t kGrain = 32768;
constexpr std::size_t kAlignment = 64;

// Registers of the interpreter, kept by each thread.
class Scratch {
 public:
  std::byte* at_least(std::size_t bytes) {
    if (bytes > size_) {
      size_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_)));
      TORCH_CHECK(memory_ != nullptr, "no host memory for the registers of a fused region (", size_, " bytes)");
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

std::byte* scratch(std::size_t bytes) {
  thread_local Scratch memory;
  return memory.at_least(bytes);
}

}  // namespace

FusedCall::FusedCall(const compiler::Program& program, const compiler::Instruction& instruction)
    : core_(static_cast<c10::DeviceIndex>(std::max(0, program.type_of(instruction.results[0]).tensor.place.index))),
      plan_(*instruction.body) {
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    operands_.push_back(compiler::operand_value(instruction, i));
    inputs_.push_back(TensorLayout::of(program.type_of(operands_.back())));
  }
  for (const compiler::ValueId id : instruction.results) {
    results_.push_back(TensorLayout::of(program.type_of(id)));
  }
}

c10::SmallVector<at::Tensor, 4> FusedCall::run(c10::ArrayRef<const at::Tensor*> inputs) const {
  c10::SmallVector<at::Tensor, 4> results;
  c10::SmallVector<at::Tensor, 2> copies;
  c10::SmallVector<void*, 16> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor* tensor = inputs[i];
    if (!inputs_[i].matches(*tensor)) [[unlikely]] {
      copies.push_back(inputs_[i].copy(*tensor));
      tensor = &copies.back();
    }
    pointers.push_back(const_cast<void*>(tensor->const_data_ptr()));
  }
  // Where the inputs are, as for any operator: the core of the trace may be another one.
  const auto placed = std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor* tensor) { return tensor->is_privateuseone(); });
  const c10::DeviceIndex core = placed == inputs.end() ? core_ : (*placed)->device().index();
  for (const TensorLayout& layout : results_) {
    results.push_back(layout.make(core));
    pointers.push_back(results.back().mutable_data_ptr());
  }
  compute(pointers.data());
  return results;
}

void FusedCall::compute(void* const* tensors) const {
  const runtime::guard::AccessScope access;
  const std::int64_t units = plan_.units();
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, plan_.unit_elements()));
  if (units <= grain) {
    plan_.run(tensors, 0, units, scratch(plan_.scratch_bytes()));
    return;
  }
  at::parallel_for(0, units, grain,
                   [&](std::int64_t first, std::int64_t last) { plan_.run(tensors, first, last, scratch(plan_.scratch_bytes())); });
}

}  // namespace neuron::compile
