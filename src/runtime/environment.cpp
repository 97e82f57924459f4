// Parsers of environment values.
#include "runtime/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "runtime/error.h"

namespace neuron::runtime {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

template <typename Integer>
std::optional<Integer> parse_integer(std::string_view text) {
  Integer value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// One element of a list: "3" or "0-3". Appends to `indices`; false when it is neither.
bool append_range(std::string_view element, std::vector<int>& indices) {
  constexpr int kLongestRange = 4096;
  const auto dash = element.find('-');
  const auto first = parse_integer<int>(trim(element.substr(0, dash)));
  const auto last = dash == std::string_view::npos ? first : parse_integer<int>(trim(element.substr(dash + 1)));
  if (!first || !last || *first < 0 || *last < *first || *last - *first >= kLongestRange) {
    return false;
  }
  for (int index = *first; index <= *last; ++index) {
    indices.push_back(index);
  }
  return true;
}

}  // namespace

void throw_bad_value(const std::string& name, std::string_view value, const std::string& accepted_form) {
  const std::string shown = trim(value).empty() ? "is set but empty" : "has the value \"" + std::string(value) + "\"";
  throw Error(ErrorCode::kInvalidEnvironment, "Environment variable " + name + " " + shown + ". Accepted: " + accepted_form +
                                                  ". Correct it, or unset it to use the default.");
}

Environment Environment::process() {
  return Environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

Environment Environment::from_map(std::map<std::string, std::string> values) {
  return Environment([values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::optional<bool> Environment::boolean(const std::string& name) const {
  const auto value = raw(name);
  if (!value) {
    return std::nullopt;
  }
  std::string lower(trim(*value));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "1" || lower == "true") {
    return true;
  }
  if (lower == "0" || lower == "false") {
    return false;
  }
  throw_bad_value(name, *value, "0, 1, true or false");
}

std::optional<std::int64_t> Environment::integer(const std::string& name, std::int64_t minimum, std::int64_t maximum) const {
  const auto value = raw(name);
  if (!value) {
    return std::nullopt;
  }
  const auto number = parse_integer<std::int64_t>(trim(*value));
  if (!number || *number < minimum || *number > maximum) {
    throw_bad_value(name, *value, "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
  }
  return number;
}

std::optional<std::vector<int>> Environment::index_list(const std::string& name) const {
  const auto value = raw(name);
  if (!value) {
    return std::nullopt;
  }
  std::vector<int> indices;
  std::string_view rest = *value;
  while (true) {
    const auto comma = rest.find(',');
    if (!append_range(trim(rest.substr(0, comma)), indices)) {
      throw_bad_value(name, *value, "a list such as 0,1,2 or a range such as 0-3");
    }
    if (comma == std::string_view::npos) {
      return indices;
    }
    rest.remove_prefix(comma + 1);
  }
}

std::optional<std::uint64_t> Environment::byte_size(const std::string& name) const {
  const auto value = raw(name);
  if (!value) {
    return std::nullopt;
  }
  constexpr std::array<std::pair<char, unsigned>, 3> kSuffixes{{{'K', 10}, {'M', 20}, {'G', 30}}};
  std::string_view digits = trim(*value);
  unsigned shift = 0;
  for (const auto& [suffix, bits] : kSuffixes) {
    if (!digits.empty() && std::toupper(static_cast<unsigned char>(digits.back())) == suffix) {
      digits.remove_suffix(1);
      shift = bits;
      break;
    }
  }
  const auto number = parse_integer<std::uint64_t>(digits);
  if (!number || *number == 0 || *number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    throw_bad_value(name, *value, "a positive number of bytes, optionally with the suffix K, M or G (for example 512M)");
  }
  return *number << shift;
}

}  // namespace neuron::runtime
