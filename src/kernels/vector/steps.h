// What a region is lowered to: steps on registers, in phases.
//
// Steps work on vector registers (one element per element of the chunk), row registers (one per row) and numbers. Loads of float32, float64
// and int64 that lie densely are no copies: the register is the memory itself. A reduction over a long row ends a *phase*: what depends on
// it runs in another sweep over the row, which loads its operands again or finds what was kept in a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/vector/kernel_table.h"
#include "kernels/vector/row_layout.h"

namespace neuron::kernels::vector {

struct Ref {
  enum class Kind : std::uint8_t { kNone, kVector, kRow, kNumber };
  Kind kind = Kind::kNone;
  std::uint8_t size = 4;  // bytes of an element
  int index = 0;
};

struct Step {
  enum class Kind : std::uint8_t {
    kLoad,      // memory to vector
    kBind,      // the vector is the memory
    kLoadRows,  // one element of each row to a row register
    kIota,
    kIotaRows,
    kStore,  // vector to memory
    kStoreRows,
    kElements,     // vectors, rows and numbers to a vector
    kElementRows,  // rows and numbers to a row register
    kSpread,       // a row register to a vector
    kReduce,
    kRotate,
  };
  Kind kind = Kind::kElements;
  ElementKernel element = nullptr;
  LoadKernel load = nullptr;
  StoreKernel store = nullptr;
  ReduceKernel reduce = nullptr;
  int access = -1;
  bool by_rows = false;  // an operand is a row register
  Ref out;
  Ref arguments[3];
};

struct Phase {
  std::vector<Step> before;  // once per block
  std::vector<Step> body;    // per chunk
};

struct VectorRegister {
  std::size_t offset = 0;  // in the scratch memory
  std::uint8_t size = 4;   // bytes of an element
  bool whole_row = false;  // kept for another phase
  bool bound = false;      // is memory of a tensor
};

struct Steps {
  std::vector<RowAccess> accesses;
  std::vector<Phase> phases;
  std::vector<VectorRegister> vectors;
  std::vector<std::size_t> row_offsets;  // of row registers in the scratch memory
  std::vector<std::int64_t> numbers;     // 8 bytes each, in the lanes' formats
  std::size_t scratch_bytes = 0;
};

}  // namespace neuron::kernels::vector
