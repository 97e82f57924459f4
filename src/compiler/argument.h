// What an instruction is called with: values, literals and lists of them, free of PyTorch so that passes are tested on text.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace neuron::compiler {

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

struct ValueRef {
  ValueId id = kNoValue;
  bool operator==(const ValueRef&) const = default;
};

// A literal with a meaning of its own, written `kind:name`: dtype:bf16, device:neuron:0, layout:strided, memory_format:preserve,
// object:3 (an entry of the program's table of things that have no text).
struct Symbol {
  std::string kind;
  std::string name;
  bool operator==(const Symbol&) const = default;
};

class Argument {
 public:
  using List = std::vector<Argument>;
  using Storage = std::variant<std::monostate, ValueRef, bool, std::int64_t, double, std::complex<double>, std::string, Symbol, List>;

  Argument() = default;  // none
  template <typename T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, Argument>) && std::is_constructible_v<Storage, T>
  Argument(T&& value) : storage_(std::forward<T>(value)) {}

  static Argument value(ValueId id) { return Argument(ValueRef{id}); }

  bool is_none() const { return std::holds_alternative<std::monostate>(storage_); }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&storage_);
  }
  template <typename T>
  T* get_if() {
    return std::get_if<T>(&storage_);
  }
  template <typename Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return std::visit(std::forward<Visitor>(visitor), storage_);
  }
  bool operator==(const Argument&) const = default;

  // Calls `visit(ValueId&)` for each value mentioned, in order.
  template <typename Visitor>
  void for_each_value(Visitor&& visit) {
    if (auto* ref = get_if<ValueRef>()) {
      visit(ref->id);
    } else if (auto* list = get_if<List>()) {
      for (Argument& element : *list) {
        element.for_each_value(visit);
      }
    }
  }
  template <typename Visitor>
  void for_each_value(Visitor&& visit) const {
    if (const auto* ref = get_if<ValueRef>()) {
      visit(ref->id);
    } else if (const auto* list = get_if<List>()) {
      for (const Argument& element : *list) {
        element.for_each_value(visit);
      }
    }
  }

 private:
  Storage storage_;
};

std::string to_string(const Argument& argument);

}  // namespace neuron::compiler
