// Makes and runs plans: the interpreter's loop.
#include "kernels/vector/plan.h"

#include <algorithm>

#include "kernels/vector/lowering.h"
#include "kernels/vector/registers.h"

namespace neuron::kernels::vector {

// The state of one thread.
struct Plan::Block {
  void* const* tensors;
  std::byte* scratch;
  std::int64_t row = 0;  // the first
  std::int64_t rows = 1;
  std::int64_t column = 0;  // the first
  std::int64_t columns = 0;
  std::vector<std::byte*> vectors;

  std::byte* at(const Plan& plan, const Ref& ref) const {
    switch (ref.kind) {
      case Ref::Kind::kVector:
        return vectors[static_cast<std::size_t>(ref.index)];
      case Ref::Kind::kRow:
        return scratch + plan.steps_.row_offsets[static_cast<std::size_t>(ref.index)];
      case Ref::Kind::kNumber:
        return reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(&plan.steps_.numbers[static_cast<std::size_t>(ref.index)]));
      default:
        return nullptr;
    }
  }
};

namespace {

const Region& checked(const Region& region) {
  check(region);
  return region;
}

}  // namespace

Plan::Plan(const Region& region, const KernelTable& table)
    : table_(&table), layout_(checked(region)), steps_(lower(region, layout_, table)) {
  assign_registers(steps_, layout_);
}

std::size_t Plan::step_count() const {
  std::size_t count = 0;
  for (const Phase& phase : steps_.phases) {
    count += phase.before.size() + phase.body.size();
  }
  return count;
}

std::int64_t Plan::offset_of(const RowAccess& access, std::int64_t row) const {
  std::int64_t offset = access.offset;
  if (layout_.outer_sizes.size() == 1) {
    return offset + row * access.outer[0];
  }
  for (std::size_t dim = layout_.outer_sizes.size(); dim-- > 0 && row > 0;) {
    const std::int64_t size = layout_.outer_sizes[dim];
    offset += row % size * access.outer[dim];
    row /= size;
  }
  return offset;
}

void Plan::run_elements(const Step& step, Block& block) const {
  std::byte* out = block.at(*this, step.out);
  std::byte* operands[3];
  for (int i = 0; i < 3; ++i) {
    operands[i] = block.at(*this, step.arguments[i]);
  }
  if (!step.by_rows || block.rows == 1) {
    const std::int64_t n = step.kind == Step::Kind::kElementRows ? block.rows : block.rows * block.columns;
    step.element(out, operands[0], operands[1], operands[2], n);
    return;
  }
  std::int64_t advance[3];
  for (int i = 0; i < 3; ++i) {
    const Ref& ref = step.arguments[i];
    advance[i] = ref.kind == Ref::Kind::kVector ? block.columns * ref.size : ref.kind == Ref::Kind::kRow ? ref.size : 0;
  }
  for (std::int64_t row = 0; row < block.rows; ++row) {
    step.element(out, operands[0], operands[1], operands[2], block.columns);
    out += block.columns * step.out.size;
    for (int i = 0; i < 3; ++i) {
      operands[i] += advance[i];
    }
  }
}

void Plan::run_steps(const std::vector<Step>& steps, Block& block) const {
  const auto memory = [&](const RowAccess& access, std::int64_t row) {
    const std::int64_t element = offset_of(access, row) + block.column * access.inner;
    return static_cast<std::byte*>(block.tensors[access.tensor]) + element * access.element_size;
  };
  for (const Step& step : steps) {
    const RowAccess* const access = step.access < 0 ? nullptr : &steps_.accesses[static_cast<std::size_t>(step.access)];
    switch (step.kind) {
      case Step::Kind::kBind:
        block.vectors[static_cast<std::size_t>(step.out.index)] = memory(*access, block.row);
        break;
      case Step::Kind::kLoad: {
        std::byte* out = block.at(*this, step.out);
        if (access->dense) {
          step.load(out, memory(*access, block.row), access->inner, block.rows * block.columns);
          break;
        }
        for (std::int64_t row = 0; row < block.rows; ++row, out += block.columns * step.out.size) {
          step.load(out, memory(*access, block.row + row), access->inner, block.columns);
        }
        break;
      }
      case Step::Kind::kStore: {
        const std::byte* in = block.at(*this, step.arguments[0]);
        if (access->dense) {
          step.store(memory(*access, block.row), in, access->inner, block.rows * block.columns);
          break;
        }
        for (std::int64_t row = 0; row < block.rows; ++row, in += block.columns * step.arguments[0].size) {
          step.store(memory(*access, block.row + row), in, access->inner, block.columns);
        }
        break;
      }
      case Step::Kind::kLoadRows:
      case Step::Kind::kStoreRows: {
        const bool loads = step.kind == Step::Kind::kLoadRows;
        const Ref& ref = loads ? step.out : step.arguments[0];
        std::byte* registers = block.at(*this, ref);
        if (layout_.outer_sizes.size() <= 1) {
          const std::int64_t stride = layout_.outer_sizes.empty() ? 0 : access->outer[0];
          if (loads) {
            step.load(registers, memory(*access, block.row), stride, block.rows);
          } else {
            step.store(memory(*access, block.row), registers, stride, block.rows);
          }
          break;
        }
        for (std::int64_t row = 0; row < block.rows; ++row, registers += ref.size) {
          if (loads) {
            step.load(registers, memory(*access, block.row + row), 1, 1);
          } else {
            step.store(memory(*access, block.row + row), registers, 1, 1);
          }
        }
        break;
      }
      case Step::Kind::kIota:
      case Step::Kind::kIotaRows: {
        std::byte* out = block.at(*this, step.out);
        const std::int64_t count = step.kind == Step::Kind::kIota ? block.columns : 1;
        for (std::int64_t row = 0; row < block.rows; ++row, out += count * 8) {
          table_->iota(out, offset_of(*access, block.row + row) + block.column * access->inner, access->inner, count);
        }
        break;
      }
      case Step::Kind::kElements:
      case Step::Kind::kElementRows:
        run_elements(step, block);
        break;
      case Step::Kind::kSpread: {
        std::byte* out = block.at(*this, step.out);
        const std::byte* in = block.at(*this, step.arguments[0]);
        for (std::int64_t row = 0; row < block.rows; ++row, out += block.columns * step.out.size, in += step.out.size) {
          step.element(out, in, nullptr, nullptr, block.columns);
        }
        break;
      }
      case Step::Kind::kReduce: {
        std::byte* out = block.at(*this, step.out);
        const std::byte* in = block.at(*this, step.arguments[0]);
        for (std::int64_t row = 0; row < block.rows; ++row, in += block.columns * step.out.size, out += step.out.size) {
          step.reduce(out, in, block.columns);
        }
        break;
      }
      case Step::Kind::kRotate: {
        std::byte* out = block.at(*this, step.out);
        const std::byte* in = block.at(*this, step.arguments[0]);
        for (std::int64_t row = 0; row < block.rows; ++row, out += block.columns * 4, in += block.columns * 4) {
          step.element(out, in, nullptr, nullptr, block.columns);
        }
        break;
      }
    }
  }
}

void Plan::run_unit(Block& block, std::int64_t unit) const {
  const std::int64_t tile = unit % layout_.tiles_per_row;
  block.row = unit / layout_.tiles_per_row * layout_.rows_per_block;
  block.rows = std::min(layout_.rows_per_block, layout_.row_count - block.row);
  const std::int64_t begin = tile * layout_.tile;
  const std::int64_t end = std::min(begin + layout_.tile, layout_.row_size);
  for (const Phase& phase : steps_.phases) {
    block.column = 0;
    block.columns = 1;
    run_steps(phase.before, block);
    if (phase.body.empty()) {
      continue;
    }
    for (block.column = begin; block.column < end; block.column += layout_.chunk) {
      block.columns = std::min(layout_.chunk, end - block.column);
      for (std::size_t i = 0; i < steps_.vectors.size(); ++i) {
        if (steps_.vectors[i].whole_row) {
          block.vectors[i] = block.scratch + steps_.vectors[i].offset + static_cast<std::size_t>(block.column) * steps_.vectors[i].size;
        }
      }
      run_steps(phase.body, block);
    }
  }
}

void Plan::run(void* const* tensors, std::int64_t first, std::int64_t last, std::byte* scratch) const {
  Block block{.tensors = tensors, .scratch = scratch, .vectors = {}};
  block.vectors.resize(steps_.vectors.size());
  for (std::size_t i = 0; i < steps_.vectors.size(); ++i) {
    block.vectors[i] = steps_.vectors[i].bound ? nullptr : scratch + steps_.vectors[i].offset;
  }
  for (std::int64_t unit = first; unit < last; ++unit) {
    run_unit(block, unit);
  }
}

}  // namespace neuron::kernels::vector
