// Linear-scan assignment of vector registers; row registers and buffers of whole rows have memory of their own.
#include "kernels/vector/registers.h"

#include <algorithm>
#include <map>

namespace neuron::kernels::vector {
namespace {

constexpr std::size_t kAlignment = 64;

// Linear scan; an operand that dies gives its register to the result if their elements are equally large. Returns how many are used.
int assign_phase(const std::vector<Step>& body, std::vector<VectorRegister>& vectors, std::size_t base, std::size_t register_bytes) {
  std::map<int, std::size_t> last_use;
  for (std::size_t i = 0; i < body.size(); ++i) {
    for (const Ref& ref : body[i].arguments) {
      if (ref.kind == Ref::Kind::kVector) {
        last_use[ref.index] = i;
      }
    }
  }
  std::vector<int> free;
  std::map<int, int> assigned;
  int count = 0;
  const auto release = [&](const Ref& ref, std::size_t step) {
    const auto found = ref.kind == Ref::Kind::kVector ? assigned.find(ref.index) : assigned.end();
    if (found != assigned.end() && last_use[ref.index] == step) {
      free.push_back(found->second);
      assigned.erase(found);
    }
  };
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Step& step = body[i];
    const bool in_place = step.kind == Step::Kind::kElements;
    for (const Ref& ref : step.arguments) {
      if (in_place && ref.size == step.out.size) {
        release(ref, i);
      }
    }
    if (step.out.kind == Ref::Kind::kVector) {
      VectorRegister& vector = vectors[static_cast<std::size_t>(step.out.index)];
      if (!vector.whole_row && !vector.bound) {
        if (free.empty()) {
          free.push_back(count++);
        }
        const int taken = free.back();
        free.pop_back();
        vector.offset = base + static_cast<std::size_t>(taken) * register_bytes;
        if (last_use.contains(step.out.index)) {
          assigned[step.out.index] = taken;
        } else {
          free.push_back(taken);
        }
      }
    }
    for (const Ref& ref : step.arguments) {
      release(ref, i);
    }
  }
  return count;
}

}  // namespace

void assign_registers(Steps& steps, const RowLayout& layout) {
  const auto align = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  std::size_t bytes = 0;
  for (std::size_t& offset : steps.row_offsets) {
    offset = bytes;
    bytes = align(bytes + static_cast<std::size_t>(layout.rows_per_block) * 8);
  }
  std::size_t widest = 4;
  for (VectorRegister& vector : steps.vectors) {
    widest = std::max<std::size_t>(widest, vector.size);
    if (vector.whole_row) {
      vector.offset = bytes;
      bytes = align(bytes + static_cast<std::size_t>(layout.row_size) * vector.size);
    }
  }
  const std::size_t register_bytes = align(static_cast<std::size_t>(layout.chunk * layout.rows_per_block) * widest);
  int count = 0;
  for (Phase& phase : steps.phases) {
    count = std::max(count, assign_phase(phase.body, steps.vectors, bytes, register_bytes));
  }
  steps.scratch_bytes = bytes + static_cast<std::size_t>(count) * register_bytes;
}

}  // namespace neuron::kernels::vector
