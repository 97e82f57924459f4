// Names of element types and the text form of types.
#include "compiler/type.h"

#include <array>
#include <utility>

namespace neuron::compiler {
namespace {

constexpr std::array<std::pair<ScalarKind, std::string_view>, 19> kScalarNames{{
    {ScalarKind::kFloat32, "f32"},   {ScalarKind::kFloat64, "f64"},       {ScalarKind::kFloat16, "f16"},
    {ScalarKind::kBFloat16, "bf16"}, {ScalarKind::kFloat8E4M3, "f8e4m3"}, {ScalarKind::kFloat8E5M2, "f8e5m2"},
    {ScalarKind::kInt8, "i8"},       {ScalarKind::kInt16, "i16"},         {ScalarKind::kInt32, "i32"},
    {ScalarKind::kInt64, "i64"},     {ScalarKind::kUInt8, "u8"},          {ScalarKind::kUInt16, "u16"},
    {ScalarKind::kUInt32, "u32"},    {ScalarKind::kUInt64, "u64"},        {ScalarKind::kBool, "i1"},
    {ScalarKind::kComplex32, "c32"}, {ScalarKind::kComplex64, "c64"},     {ScalarKind::kComplex128, "c128"},
    {ScalarKind::kOther, "other"},
}};

void append_list(std::string& text, char open, const std::vector<std::int64_t>& values, char close) {
  text += open;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) {
      text += ',';
    }
    text += std::to_string(values[i]);
  }
  text += close;
}

}  // namespace

std::string_view name_of(ScalarKind kind) { return kScalarNames[static_cast<std::size_t>(kind)].second; }

bool parse_scalar_kind(std::string_view name, ScalarKind& kind) {
  for (const auto& [candidate, text] : kScalarNames) {
    if (text == name) {
      kind = candidate;
      return true;
    }
  }
  return false;
}

std::int64_t TensorType::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return count;
}

bool TensorType::is_contiguous() const { return strides == contiguous_strides(sizes); }

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}

std::string to_string(const Type& type) {
  switch (type.kind) {
    case Type::Kind::kInt:
      return "int";
    case Type::Kind::kFloat:
      return "float";
    case Type::Kind::kBool:
      return "bool";
    case Type::Kind::kObject:
      return "object";
    case Type::Kind::kTensor:
      break;
  }
  std::string text(name_of(type.tensor.scalar));
  append_list(text, '[', type.tensor.sizes, ']');
  if (!type.tensor.is_contiguous()) {
    append_list(text, '{', type.tensor.strides, '}');
  }
  return text + "@" + type.tensor.place.to_string();
}

}  // namespace neuron::compiler
