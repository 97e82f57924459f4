// Compares an estimate with the allocator's figures.
#include "torch/compile/memory_demand.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "compiler/printer.h"
#include "runtime/memory/out_of_memory.h"
#include "runtime/runtime.h"
#include "torch/device/compat.h"

namespace neuron::compile {
namespace {

// Less is not worth asking the allocator for.
constexpr std::uint64_t kSmallest = std::uint64_t{1} << 20;

// Fake tensors and other subclasses say the device's name, but may have no memory there.
bool on_device(const c10::IValue& input) {
  return input.isTensor() && input.toTensor().is_privateuseone() && input.toTensor().layout() == at::kStrided &&
         !input.toTensor().key_set().has(c10::DispatchKey::Python);
}

// Of the inputs that die with this run.
std::uint64_t bytes_given_up(const std::vector<c10::IValue>& inputs) {
  std::uint64_t bytes = 0;
  for (const c10::IValue& input : inputs) {
    if (on_device(input) && input.toTensor().use_count() == 1 && input.toTensor().storage().use_count() == 1) {
      bytes += input.toTensor().storage().nbytes();
    }
  }
  return bytes;
}

}  // namespace

void MemoryDemand::check(const compiler::Program& program, const std::vector<c10::IValue>& inputs) const {
  if (estimate_.peak_bytes < kSmallest) {
    return;
  }
  const auto placed = std::find_if(inputs.begin(), inputs.end(), on_device);
  if (placed == inputs.end()) {
    return;
  }
  const int core = placed->toTensor().device().index();
  runtime::CachingAllocator& allocator = runtime::Runtime::instance().allocator(core);
  const auto unused = allocator.total_bytes() - std::min(allocator.total_bytes(), allocator.allocated_bytes());
  if (estimate_.peak_bytes <= unused || estimate_.peak_bytes <= unused + bytes_given_up(inputs)) {
    return;
  }
  allocator.count_out_of_memory();
  const auto at = static_cast<std::size_t>(estimate_.peak_instruction);
  device::compat::throw_error<c10::OutOfMemoryError>(
      c10::str("Neuron out of memory. The graph was not begun: neuron:", core, " has ", runtime::format_bytes(allocator.total_bytes()),
               " of HBM, of which tensors leave ", runtime::format_bytes(unused), ". The most is needed while executing ",
               compiler::to_string(program.instructions[at], program), " (instruction ", at + 1, " of ", program.instructions.size(),
               " in graph ", program.name(), ")"));
}

}  // namespace neuron::compile
