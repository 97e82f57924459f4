// What the dispatcher knows about an operator.
#include "torch/compile/operator_info.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "torch/compile/torch_types.h"

namespace neuron::compile {
namespace {

using compiler::Argument;

// These share memory between argument and result, or return the argument, without saying so in their schema.
constexpr std::array<std::string_view, 3> kSilentViews{"aten::_unsafe_view", "aten::lift", "_c10d_functional::wait_tensor"};

// Defaults come as values of the schema's type; enumerations are integers there, which is also how they are passed.
Argument default_argument(const c10::IValue& value) {
  if (value.isInt()) {
    return Argument(value.toInt());
  }
  if (value.isDouble()) {
    return Argument(value.toDouble());
  }
  if (value.isBool()) {
    return Argument(value.toBool());
  }
  if (value.isString()) {
    return Argument(value.toStringRef());
  }
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return Argument(std::complex<double>(number.real(), number.imag()));
  }
  if (value.isList()) {
    Argument::List list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(default_argument(element));
    }
    return Argument(std::move(list));
  }
  if (value.isDevice()) {
    return Argument(device_symbol(value.toDevice()));
  }
  TORCH_CHECK(value.isNone(), "a default of type ", value.tagKind(), " is not supported");
  return {};
}

bool is_aten(const c10::FunctionSchema& schema) { return schema.name().starts_with("aten::") || schema.name().starts_with("prims::"); }

// The annotation of a list, Tensor(a!)[], stands on its elements.
bool is_written(const c10::AliasInfo* alias) {
  return alias != nullptr && (alias->isWrite() || std::any_of(alias->containedTypes().begin(), alias->containedTypes().end(),
                                                              [](const c10::AliasInfo& contained) { return is_written(&contained); }));
}

void collect_sets(const c10::AliasInfo* alias, std::unordered_set<c10::Symbol>& sets) {
  if (alias == nullptr) {
    return;
  }
  sets.insert(alias->beforeSets().begin(), alias->beforeSets().end());
  for (const c10::AliasInfo& contained : alias->containedTypes()) {
    collect_sets(&contained, sets);
  }
}

bool shares_memory(const c10::AliasInfo* result, const c10::AliasInfo* argument) {
  std::unordered_set<c10::Symbol> ours;
  std::unordered_set<c10::Symbol> theirs;
  collect_sets(result, ours);
  collect_sets(argument, theirs);
  return std::any_of(ours.begin(), ours.end(), [&](const auto& set) { return theirs.count(set) > 0; });
}

}  // namespace

std::string opcode_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::OperatorHandle find_operator(const std::string& opcode) {
  // The namespace may not contain a dot, the name neither: the first dot starts the overload.
  const std::size_t dot = opcode.find('.');
  const c10::OperatorName name(opcode.substr(0, dot), dot == std::string::npos ? "" : opcode.substr(dot + 1));
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  TORCH_CHECK_NOT_IMPLEMENTED(handle.has_value(), "the operator ", opcode, " is not registered");
  return *handle;
}

std::vector<compiler::Operand> bind_operands(const c10::FunctionSchema& schema, std::vector<Argument> positional,
                                             std::vector<std::pair<std::string, Argument>> named) {
  const auto& parameters = schema.arguments();
  TORCH_CHECK_VALUE(positional.size() <= parameters.size(), schema.name(), " takes ", parameters.size(), " arguments, got ",
                    positional.size());
  std::vector<compiler::Operand> operands;
  operands.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const c10::Argument& parameter = parameters[i];
    compiler::Operand operand;
    operand.name = parameter.kwarg_only() ? parameter.name() : "";
    const auto given = std::find_if(named.begin(), named.end(), [&](const auto& pair) { return pair.first == parameter.name(); });
    if (i < positional.size()) {
      operand.value = std::move(positional[i]);
    } else if (given != named.end()) {
      operand.value = std::move(given->second);
    } else if (parameter.default_value()) {
      operand.value = default_argument(*parameter.default_value());
    } else {
      // What torch.compile traces may leave out optional arguments that have no default.
      TORCH_CHECK_VALUE(parameter.type()->kind() == c10::TypeKind::OptionalType, schema.name(), " misses its argument '", parameter.name(),
                        "'");
    }
    operands.push_back(std::move(operand));
  }
  for (const auto& pair : named) {
    const bool known =
        std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) { return parameter.name() == pair.first; });
    TORCH_CHECK_VALUE(known, schema.name(), " has no argument '", pair.first, "'");
  }
  return operands;
}

compiler::Effects effects_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  compiler::Effects effects;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (is_written(alias)) {
      effects.writes.push_back(static_cast<int>(i));
    }
    if (std::any_of(schema.returns().begin(), schema.returns().end(),
                    [&](const auto& result) { return shares_memory(result.alias_info(), alias); })) {
      effects.views.push_back(static_cast<int>(i));
    }
  }
  if (effects.views.empty() && std::find(kSilentViews.begin(), kSilentViews.end(), schema.name()) != kSilentViews.end()) {
    effects.views.push_back(0);
  }
  // Operators of other libraries may do anything besides (communicate, print): they keep their place.
  effects.ordered = op.hasTag(at::Tag::nondeterministic_seeded) || !is_aten(schema);
  return effects;
}

std::string inplace_variant_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (!is_aten(schema) || schema.is_mutable() || schema.returns().size() != 1 || schema.arguments().empty()) {
    return {};
  }
  const auto variant = c10::Dispatcher::singleton().findSchema({schema.name() + "_", schema.overload_name()});
  if (!variant) {
    return {};
  }
  const auto& ours = schema.arguments();
  const auto& theirs = variant->schema().arguments();
  const bool same = ours.size() == theirs.size() && std::equal(ours.begin(), ours.end(), theirs.begin(), [](const auto& a, const auto& b) {
                      return a.name() == b.name() && *a.type() == *b.type();
                    });
  const c10::AliasInfo* first = same ? theirs.front().alias_info() : nullptr;
  return is_written(first) ? opcode_of(variant->operator_name()) : std::string{};
}

}  // namespace neuron::compile
