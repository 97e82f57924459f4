// Sizes, names and permitted reductions of the element types.
#include "collectives/types.h"

#include <array>

namespace neuron::collectives {
namespace {

enum class Kind : std::uint8_t { kTruth, kInteger, kFloating, kComplex };

struct TypeInfo {
  std::string_view name;
  std::uint8_t size;
  Kind kind;
};

// In the order of DataType.
constexpr std::array<TypeInfo, 21> kTypes{{
    {"bool", 1, Kind::kTruth},
    {"uint8", 1, Kind::kInteger},
    {"int8", 1, Kind::kInteger},
    {"int16", 2, Kind::kInteger},
    {"uint16", 2, Kind::kInteger},
    {"int32", 4, Kind::kInteger},
    {"uint32", 4, Kind::kInteger},
    {"int64", 8, Kind::kInteger},
    {"uint64", 8, Kind::kInteger},
    {"float16", 2, Kind::kFloating},
    {"bfloat16", 2, Kind::kFloating},
    {"float32", 4, Kind::kFloating},
    {"float64", 8, Kind::kFloating},
    {"float8_e4m3fn", 1, Kind::kFloating},
    {"float8_e5m2", 1, Kind::kFloating},
    {"float8_e4m3fnuz", 1, Kind::kFloating},
    {"float8_e5m2fnuz", 1, Kind::kFloating},
    {"float8_e8m0fnu", 1, Kind::kFloating},
    {"complex32", 4, Kind::kComplex},
    {"complex64", 8, Kind::kComplex},
    {"complex128", 16, Kind::kComplex},
}};
static_assert(kTypes.size() == static_cast<std::size_t>(DataType::kComplexDouble) + 1);

constexpr std::array<std::string_view, 9> kOps{"sum",         "avg",        "product",     "min",       "max",
                                               "bitwise and", "bitwise or", "bitwise xor", "premul_sum"};
static_assert(kOps.size() == static_cast<std::size_t>(ReduceOp::kPreMultipliedSum) + 1);

const TypeInfo& info(DataType type) noexcept { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::size_t element_size(DataType type) noexcept { return info(type).size; }
std::string_view name(DataType type) noexcept { return info(type).name; }
std::string_view name(ReduceOp op) noexcept { return kOps[static_cast<std::size_t>(op)]; }

bool reducible(DataType type, ReduceOp op) noexcept {
  const Kind kind = info(type).kind;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAverage:
      return kind != Kind::kTruth;
    case ReduceOp::kMinimum:
    case ReduceOp::kMaximum:
      return kind != Kind::kComplex;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return kind == Kind::kTruth || kind == Kind::kInteger;
    case ReduceOp::kPreMultipliedSum:
      return kind == Kind::kFloating || kind == Kind::kComplex;
  }
  return false;
}

}  // namespace neuron::collectives
