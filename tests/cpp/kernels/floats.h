// An array of any float dtype that tests read and write as floats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/data_type.h"

namespace neuron::kernels::testing {

class Floats {
 public:
  Floats(DataType type, std::size_t size) : type_(type), bytes_(size * width()) {}

  [[nodiscard]] std::size_t size() const { return bytes_.size() / width(); }
  [[nodiscard]] DataType type() const { return type_; }
  [[nodiscard]] const void* data() const { return bytes_.data(); }
  [[nodiscard]] void* data() { return bytes_.data(); }
  bool operator==(const Floats&) const = default;

  [[nodiscard]] float operator[](std::size_t i) const {
    switch (type_) {
      case DataType::kBFloat16:
        return std::bit_cast<float>(std::uint32_t{element<std::uint16_t>(i)} << 16);
      case DataType::kFloat16:
        return static_cast<float>(element<_Float16>(i));
      default:
        return element<float>(i);
    }
  }

  // Rounds to nearest even.
  void set(std::size_t i, float x) {
    switch (type_) {
      case DataType::kBFloat16: {
        const auto bits = std::bit_cast<std::uint32_t>(x);
        put<std::uint16_t>(i, std::isnan(x) ? 0x7FC0 : static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
        break;
      }
      case DataType::kFloat16:
        put<_Float16>(i, static_cast<_Float16>(x));
        break;
      default:
        put<float>(i, x);
    }
  }

 private:
  [[nodiscard]] std::size_t width() const { return type_ == DataType::kFloat32 ? 4 : 2; }
  template <class T>
  [[nodiscard]] T element(std::size_t i) const {
    T x;
    std::memcpy(&x, &bytes_[i * sizeof x], sizeof x);
    return x;
  }
  template <class T>
  void put(std::size_t i, T x) {
    std::memcpy(&bytes_[i * sizeof x], &x, sizeof x);
  }

  DataType type_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace neuron::kernels::testing
