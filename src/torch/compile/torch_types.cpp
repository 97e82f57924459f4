// Element types, devices and literals.
#include "torch/compile/torch_types.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <array>
#include <utility>

#include "compiler/printer.h"

namespace neuron::compile {
namespace {

using compiler::Argument;
using compiler::ScalarKind;
using compiler::Symbol;

constexpr std::array<std::pair<at::ScalarType, ScalarKind>, 18> kScalarKinds{{
    {at::kFloat, ScalarKind::kFloat32},
    {at::kDouble, ScalarKind::kFloat64},
    {at::kHalf, ScalarKind::kFloat16},
    {at::kBFloat16, ScalarKind::kBFloat16},
    {at::kFloat8_e4m3fn, ScalarKind::kFloat8E4M3},
    {at::kFloat8_e5m2, ScalarKind::kFloat8E5M2},
    {at::kChar, ScalarKind::kInt8},
    {at::kShort, ScalarKind::kInt16},
    {at::kInt, ScalarKind::kInt32},
    {at::kLong, ScalarKind::kInt64},
    {at::kByte, ScalarKind::kUInt8},
    {at::kUInt16, ScalarKind::kUInt16},
    {at::kUInt32, ScalarKind::kUInt32},
    {at::kUInt64, ScalarKind::kUInt64},
    {at::kBool, ScalarKind::kBool},
    {at::kComplexHalf, ScalarKind::kComplex32},
    {at::kComplexFloat, ScalarKind::kComplex64},
    {at::kComplexDouble, ScalarKind::kComplex128},
}};

constexpr std::array<std::pair<at::Layout, const char*>, 3> kLayouts{{
    {at::kStrided, "strided"},
    {at::kSparse, "sparse"},
    {at::kSparseCsr, "sparse_csr"},
}};

constexpr std::array<std::pair<at::MemoryFormat, const char*>, 4> kMemoryFormats{{
    {at::MemoryFormat::Contiguous, "contiguous"},
    {at::MemoryFormat::Preserve, "preserve"},
    {at::MemoryFormat::ChannelsLast, "channels_last"},
    {at::MemoryFormat::ChannelsLast3d, "channels_last_3d"},
}};

// Members without a name of ours are written by number: layout:n4.
template <typename Enum, std::size_t N>
std::string name_in(const std::array<std::pair<Enum, const char*>, N>& table, Enum value) {
  for (const auto& [candidate, name] : table) {
    if (candidate == value) {
      return name;
    }
  }
  return "n" + std::to_string(static_cast<int>(value));
}

template <typename Enum, typename Table>
std::int64_t number_in(const Table& table, const std::string& name) {
  for (const auto& [candidate, text] : table) {
    if (name == text) {
      return static_cast<std::int64_t>(candidate);
    }
  }
  TORCH_CHECK_VALUE(name.size() > 1 && name[0] == 'n', "'", name, "' names no member");
  return std::stoll(name.substr(1));
}

std::int64_t dtype_number(const std::string& name) {
  ScalarKind kind{};
  if (compiler::parse_scalar_kind(name, kind)) {
    for (const auto& [type, candidate] : kScalarKinds) {
      if (candidate == kind) {
        return static_cast<std::int64_t>(type);
      }
    }
  }
  return number_in<at::ScalarType>(std::array<std::pair<at::ScalarType, const char*>, 0>{}, name);
}

[[noreturn]] void refuse(const Argument& argument, const c10::Type& type) {
  TORCH_CHECK_VALUE(false, "cannot pass ", compiler::to_string(argument), " as ", type.repr_str());
}

c10::IValue symbol_to_ivalue(const Symbol& symbol) {
  if (symbol.kind == "dtype") {
    return dtype_number(symbol.name);
  }
  if (symbol.kind == "layout") {
    return number_in<at::Layout>(kLayouts, symbol.name);
  }
  if (symbol.kind == "memory_format") {
    return number_in<at::MemoryFormat>(kMemoryFormats, symbol.name);
  }
  if (symbol.kind == "device") {
    return c10::Device(symbol.name);
  }
  TORCH_CHECK_VALUE(false, "unknown literal ", symbol.kind, ":", symbol.name);
}

c10::IValue scalar_to_ivalue(const Argument& argument, const c10::Type& type) {
  if (const auto* value = argument.get_if<std::int64_t>()) {
    return *value;
  }
  if (const auto* value = argument.get_if<double>()) {
    return *value;
  }
  if (const auto* value = argument.get_if<bool>()) {
    return *value;
  }
  if (const auto* value = argument.get_if<std::complex<double>>()) {
    return c10::complex<double>(value->real(), value->imag());
  }
  refuse(argument, type);
}

// A Python number where the schema says Tensor: a 0-d tensor that does not take part in type promotion.
c10::IValue wrapped_number(const Argument& argument, const c10::Type& type) {
  at::Tensor tensor = at::scalar_to_tensor(scalar_to_ivalue(argument, type).toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue literal(const Argument& argument, const c10::TypePtr& type, std::optional<std::int32_t> repeat);

c10::IValue list_to_ivalue(const Argument::List& list, const c10::TypePtr& element) {
  c10::impl::GenericList values(element->kind() == c10::TypeKind::SymIntType ? c10::TypePtr(c10::IntType::get()) : element);
  values.reserve(list.size());
  for (const Argument& item : list) {
    values.push_back(literal(item, element, std::nullopt));
  }
  return values;
}

// For parameters that take anything (the name of a process group): what the literal itself is.
c10::IValue as_it_is(const Argument& argument, const c10::Type& type) {
  return argument.visit([&](const auto& value) -> c10::IValue {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string> || std::is_same_v<Value, bool> || std::is_same_v<Value, std::int64_t> ||
                  std::is_same_v<Value, double>) {
      return value;
    } else {
      refuse(argument, type);
    }
  });
}

c10::IValue literal(const Argument& argument, const c10::TypePtr& type, std::optional<std::int32_t> repeat) {
  if (const auto* symbol = argument.get_if<Symbol>()) {
    return symbol_to_ivalue(*symbol);
  }
  if (argument.is_none()) {
    return {};
  }
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return literal(argument, type->castRaw<c10::OptionalType>()->getElementType(), repeat);
    case c10::TypeKind::TensorType:
      return wrapped_number(argument, *type);
    case c10::TypeKind::FloatType:
      return scalar_to_ivalue(argument, *type).toScalar().toDouble();
    case c10::TypeKind::ComplexType:
      return scalar_to_ivalue(argument, *type).toScalar().toComplexDouble();
    case c10::TypeKind::BoolType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::NumberType:
      return scalar_to_ivalue(argument, *type);
    case c10::TypeKind::StringType:
      if (const auto* text = argument.get_if<std::string>()) {
        return *text;
      }
      break;
    case c10::TypeKind::AnyType:
      return as_it_is(argument, *type);
    case c10::TypeKind::DeviceObjType:
      if (const auto* text = argument.get_if<std::string>()) {
        return c10::Device(*text);
      }
      break;
    case c10::TypeKind::ListType: {
      const c10::TypePtr& element = type->castRaw<c10::ListType>()->getElementType();
      if (const auto* list = argument.get_if<Argument::List>()) {
        return list_to_ivalue(*list, element);
      }
      // int[2] accepts one integer for both.
      return list_to_ivalue(Argument::List(static_cast<std::size_t>(repeat.value_or(1)), argument), element);
    }
    default:
      break;
  }
  refuse(argument, *type);
}

}  // namespace

ScalarKind to_scalar_kind(at::ScalarType type) {
  for (const auto& [candidate, kind] : kScalarKinds) {
    if (candidate == type) {
      return kind;
    }
  }
  return ScalarKind::kOther;
}

at::ScalarType to_scalar_type(ScalarKind kind) {
  for (const auto& [type, candidate] : kScalarKinds) {
    if (candidate == kind) {
      return type;
    }
  }
  TORCH_CHECK_VALUE(false, "no element type of PyTorch is '", compiler::name_of(kind), "'");
}

compiler::Place to_place(const c10::Device& device) {
  return {c10::DeviceTypeName(device.type(), /*lower_case=*/true), device.has_index() ? device.index() : -1};
}

c10::Device to_device(const compiler::Place& place) { return c10::Device(place.to_string()); }

Symbol dtype_symbol(at::ScalarType type) {
  const ScalarKind kind = to_scalar_kind(type);
  return {"dtype", kind == ScalarKind::kOther ? "n" + std::to_string(static_cast<int>(type)) : std::string(compiler::name_of(kind))};
}

Symbol layout_symbol(at::Layout layout) { return {"layout", name_in(kLayouts, layout)}; }

Symbol memory_format_symbol(at::MemoryFormat format) { return {"memory_format", name_in(kMemoryFormats, format)}; }

Symbol device_symbol(const c10::Device& device) { return {"device", device.str()}; }

c10::IValue to_ivalue(const Argument& argument, const c10::Argument& parameter) {
  return literal(argument, parameter.type(), parameter.N());
}

}  // namespace neuron::compile
