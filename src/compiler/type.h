// What a value of a program is: a tensor with element type, sizes, strides and device, or something that is not a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace neuron::compiler {

enum class ScalarKind : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  kComplex32,
  kComplex64,
  kComplex128,
  kOther,  // an element type that no kernel of ours reads (quantised, sub-byte): it only passes through calls
};

std::string_view name_of(ScalarKind kind);
// False when `name` is no element type.
bool parse_scalar_kind(std::string_view name, ScalarKind& kind);

struct Place {
  std::string type = "neuron";  // "neuron", "cpu", "meta"
  int index = -1;               // -1: no index was named

  bool operator==(const Place&) const = default;
  std::string to_string() const { return index < 0 ? type : type + ":" + std::to_string(index); }
};

struct TensorType {
  ScalarKind scalar = ScalarKind::kFloat32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  Place place;

  bool operator==(const TensorType&) const = default;
  std::int64_t element_count() const;
  bool is_contiguous() const;
};

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& sizes);

struct Type {
  enum class Kind : std::uint8_t { kTensor, kInt, kFloat, kBool, kObject };

  Kind kind = Kind::kTensor;
  TensorType tensor;  // meaningful for kTensor only

  static Type of_tensor(TensorType tensor) { return Type{Kind::kTensor, std::move(tensor)}; }
  static Type of(Kind kind) { return Type{kind, {}}; }
  bool is_tensor() const { return kind == Kind::kTensor; }
  bool operator==(const Type&) const = default;
};

// "f32[2,3]@neuron:0", with "{1,2}" strides after the sizes unless contiguous; "int", "float", "bool", "object".
std::string to_string(const Type& type);

}  // namespace neuron::compiler
