// Typed, validated access to environment variables. The source of the values is injectable, so tests never touch the process environment.
//
// One rule for all variables: unset means "use the default"; a value that is set but empty (or blank) is bad input, never a default.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neuron::runtime {

class Environment {
 public:
  using Lookup = std::function<std::optional<std::string>(const std::string&)>;

  explicit Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

  // The variables of this process, read when asked for (not copied).
  static Environment process();
  static Environment from_map(std::map<std::string, std::string> values);

  // The raw text, or nothing when unset.
  [[nodiscard]] std::optional<std::string> raw(const std::string& name) const { return lookup_(name); }

  // The parsers below return nothing when the variable is unset and throw Error(kInvalidEnvironment) naming the variable, its value and
  // the accepted form when it does not parse.

  // 0, 1, true or false in any case.
  [[nodiscard]] std::optional<bool> boolean(const std::string& name) const;
  // A decimal integer in [minimum, maximum].
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& name, std::int64_t minimum, std::int64_t maximum) const;
  // "3", "0,1,2", "0-3" or a mixture ("0-1,2"): the numbers in the order written.
  [[nodiscard]] std::optional<std::vector<int>> index_list(const std::string& name) const;
  // A positive number of bytes with an optional suffix K, M or G (powers of 1024), for example 512M.
  [[nodiscard]] std::optional<std::uint64_t> byte_size(const std::string& name) const;

 private:
  Lookup lookup_;
};

// Builds the error every bad value ends in; for checks that need more than one value, such as a core index out of range.
[[noreturn]] void throw_bad_value(const std::string& name, std::string_view value, const std::string& accepted_form);

}  // namespace neuron::runtime
