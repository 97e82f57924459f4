// See data_types.h.
#include "torch/distributed/data_types.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace neuron::distributed {

using collectives::DataType;
using collectives::ReduceOp;

DataType to_data_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return DataType::kBool;
    case c10::ScalarType::Byte:
      return DataType::kUInt8;
    case c10::ScalarType::Char:
      return DataType::kInt8;
    case c10::ScalarType::Short:
      return DataType::kInt16;
    case c10::ScalarType::UInt16:
      return DataType::kUInt16;
    case c10::ScalarType::Int:
      return DataType::kInt32;
    case c10::ScalarType::UInt32:
      return DataType::kUInt32;
    case c10::ScalarType::Long:
      return DataType::kInt64;
    case c10::ScalarType::UInt64:
      return DataType::kUInt64;
    case c10::ScalarType::Half:
      return DataType::kHalf;
    case c10::ScalarType::BFloat16:
      return DataType::kBFloat16;
    case c10::ScalarType::Float:
      return DataType::kFloat;
    case c10::ScalarType::Double:
      return DataType::kDouble;
    case c10::ScalarType::Float8_e4m3fn:
      return DataType::kFloat8E4M3FN;
    case c10::ScalarType::Float8_e5m2:
      return DataType::kFloat8E5M2;
    case c10::ScalarType::Float8_e4m3fnuz:
      return DataType::kFloat8E4M3FNUZ;
    case c10::ScalarType::Float8_e5m2fnuz:
      return DataType::kFloat8E5M2FNUZ;
    case c10::ScalarType::Float8_e8m0fnu:
      return DataType::kFloat8E8M0FNU;
    case c10::ScalarType::ComplexHalf:
      return DataType::kComplexHalf;
    case c10::ScalarType::ComplexFloat:
      return DataType::kComplexFloat;
    case c10::ScalarType::ComplexDouble:
      return DataType::kComplexDouble;
    default:
      TORCH_CHECK_TYPE(false, "collectives of the neuron device do not move tensors of dtype ", type);
  }
}

namespace {

ReduceOp to_operation(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMinimum;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMaximum;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPreMultipliedSum;
    default:
      TORCH_CHECK_VALUE(false, "unknown reduction ", static_cast<int>(op.op_));
  }
}

double factor_of(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "PREMUL_SUM needs a factor: make it with torch.distributed._make_nccl_premul_sum(factor)");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

collectives::Reduction to_reduction(const c10d::ReduceOp& op, c10::ScalarType type) {
  const auto operation = to_operation(op);
  TORCH_CHECK_VALUE(collectives::reducible(to_data_type(type), operation), "the reduction ", collectives::name(operation),
                    " is not defined for tensors of dtype ", type);
  return {operation, operation == ReduceOp::kPreMultipliedSum ? factor_of(op) : 1.0};
}

std::string describe(const at::Tensor& tensor) { return c10::str(tensor.scalar_type(), " ", tensor.sizes()); }

std::string describe(at::TensorList tensors) {
  constexpr std::size_t kMostShown = 8;
  std::string text;
  for (std::size_t i = 0; i < tensors.size() && i < kMostShown; ++i) {
    text += (i == 0 ? "" : ", ") + describe(tensors[i]);
  }
  if (tensors.size() > kMostShown) {
    text += c10::str(", ... (", tensors.size(), " tensors)");
  }
  return text;
}

}  // namespace neuron::distributed
