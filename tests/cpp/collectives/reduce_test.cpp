// Number formats against their definition, and reductions against plain arithmetic, on every instruction set of this machine.
#include "collectives/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "collectives/reduce/number_formats.h"
#include "collectives/schedule.h"

namespace neuron::collectives::testing {
namespace {

// The value of a code by the definition of sign, exponent and mantissa, in double.
double defined_value(std::uint32_t code, int bits, int mantissa_bits, int bias, Specials specials) {
  const std::uint32_t magnitude = code & ((1U << (bits - 1)) - 1);
  const bool negative = (code >> (bits - 1)) != 0;
  const std::uint32_t exponent = magnitude >> mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1U << mantissa_bits) - 1);
  const std::uint32_t top = (1U << (bits - 1 - mantissa_bits)) - 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (specials == Specials::kIeee && exponent == top) {
    return mantissa != 0 ? kNan : (negative ? -1 : 1) * std::numeric_limits<double>::infinity();
  }
  if (specials == Specials::kNanOnly && magnitude == (1U << (bits - 1)) - 1) return kNan;
  if (specials == Specials::kNoMinusZero && negative && magnitude == 0) return kNan;
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                     : std::ldexp((1U << mantissa_bits) | mantissa, static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -value : value;
}

template <typename Format>
void check_format(int mantissa_bits, int bias, Specials specials) {
  constexpr int kBits = sizeof(typename Format::Storage) * 8;
  std::vector<std::pair<double, std::uint32_t>> finite;  // not negative, ascending
  for (std::uint32_t code = 0; code < (1U << kBits); ++code) {
    const double want = defined_value(code, kBits, mantissa_bits, bias, specials);
    const float got = Format::load(static_cast<typename Format::Storage>(code));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
      EXPECT_TRUE(std::isnan(Format::load(Format::store(got)))) << code;
    } else {
      EXPECT_EQ(static_cast<double>(got), want) << code;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
      EXPECT_EQ(Format::store(got), code);
      if (std::isfinite(want) && !std::signbit(want)) finite.emplace_back(want, code);
    }
  }
  // Between two neighbours: below the middle down, above it up, at it to the even code.
  for (std::size_t i = 0; i + 1 < finite.size(); ++i) {
    const auto [low, low_code] = finite[i];
    const auto [high, high_code] = finite[i + 1];
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = low_code % 2 == 0 ? low_code : high_code;
    EXPECT_EQ(Format::store(middle), even) << middle;
    EXPECT_EQ(Format::store(std::nextafter(middle, 0.0F)), low_code) << middle;
    EXPECT_EQ(Format::store(std::nextafter(middle, std::numeric_limits<float>::infinity())), high_code) << middle;
  }
  // Half a step beyond the largest number, and far beyond.
  const double largest = finite.back().first;
  const double step = largest - finite[finite.size() - 2].first;
  const auto edge = static_cast<float>(largest + step / 2);
  const auto overflows = [&](float value) {
    const float stored = Format::load(Format::store(value));
    return specials == Specials::kIeee ? std::isinf(stored) : std::isnan(stored);
  };
  EXPECT_EQ(Format::store(std::nextafter(edge, 0.0F)), finite.back().second);
  EXPECT_TRUE(overflows(std::nextafter(edge, std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(overflows(std::numeric_limits<float>::max()));
  EXPECT_TRUE(overflows(std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::isnan(Format::load(Format::store(-std::numeric_limits<float>::quiet_NaN()))));
}

TEST(NumberFormats, HalfIsAsDefined) { check_format<Half>(10, 15, Specials::kIeee); }
TEST(NumberFormats, Float8E4M3FNIsAsDefined) { check_format<Float8E4M3FN>(3, 7, Specials::kNanOnly); }
TEST(NumberFormats, Float8E5M2IsAsDefined) { check_format<Float8E5M2>(2, 15, Specials::kIeee); }
TEST(NumberFormats, Float8E4M3FNUZIsAsDefined) { check_format<Float8E4M3FNUZ>(3, 8, Specials::kNoMinusZero); }
TEST(NumberFormats, Float8E5M2FNUZIsAsDefined) { check_format<Float8E5M2FNUZ>(2, 16, Specials::kNoMinusZero); }
TEST(NumberFormats, BFloat16IsAsDefined) { check_format<BFloat16>(7, 127, Specials::kIeee); }

TEST(NumberFormats, E8M0HoldsPowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = Float8E8M0FNU::load(static_cast<std::uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0F, code - 127));
    EXPECT_EQ(Float8E8M0FNU::store(value), code);
  }
  EXPECT_TRUE(std::isnan(Float8E8M0FNU::load(255)));
  EXPECT_EQ(Float8E8M0FNU::load(Float8E8M0FNU::store(2.9F)), 2.0F);
  EXPECT_EQ(Float8E8M0FNU::load(Float8E8M0FNU::store(3.0F)), 4.0F);
}

template <typename T>
std::vector<T> reduce_all(ReduceKernel kernel, const std::vector<std::vector<T>>& inputs, const std::vector<double>& factors = {}) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> output(inputs[0].size());
  kernel(sources.data(), static_cast<int>(inputs.size()), factors.data(), output.data(), output.size());
  return output;
}

TEST(Reduce, HasAKernelExactlyWhereThePairHasAMeaning) {
  for (const ReduceTable table : reduce_implementations()) {
    for (const DataType type : all_types()) {
      for (const ReduceOp op : all_ops()) EXPECT_EQ(table(type, op) != nullptr, reducible(type, op)) << name(type) << " " << name(op);
    }
  }
}

TEST(Reduce, ComputesIntegersInTheirWidth) {
  for (const ReduceTable table : reduce_implementations()) {
    const std::vector<std::vector<std::int8_t>> bytes{{100, -7, 3}, {100, -2, 4}, {1, 0, 0}};
    EXPECT_EQ(reduce_all(table(DataType::kInt8, ReduceOp::kSum), bytes), (std::vector<std::int8_t>{-55, -9, 7}));
    EXPECT_EQ(reduce_all(table(DataType::kInt8, ReduceOp::kAverage), bytes), (std::vector<std::int8_t>{-18, -3, 2}));
    EXPECT_EQ(reduce_all(table(DataType::kInt8, ReduceOp::kMinimum), bytes), (std::vector<std::int8_t>{1, -7, 0}));
    EXPECT_EQ(reduce_all(table(DataType::kInt8, ReduceOp::kBitXor), bytes), (std::vector<std::int8_t>{1, 7, 7}));
    const std::vector<std::vector<std::uint64_t>> wide{{~std::uint64_t{0}, 5}, {2, 6}};
    EXPECT_EQ(reduce_all(table(DataType::kUInt64, ReduceOp::kSum), wide), (std::vector<std::uint64_t>{1, 11}));
    EXPECT_EQ(reduce_all(table(DataType::kUInt64, ReduceOp::kMaximum), wide), (std::vector<std::uint64_t>{~std::uint64_t{0}, 6}));
    const std::vector<std::vector<std::int64_t>> negative{{-5}, {0}};
    EXPECT_EQ(reduce_all(table(DataType::kInt64, ReduceOp::kAverage), negative), (std::vector<std::int64_t>{-2}));
  }
}

TEST(Reduce, TreatsBoolAsTruth) {
  for (const ReduceTable table : reduce_implementations()) {
    const std::vector<std::vector<std::uint8_t>> truths{{0, 0, 2, 255}, {0, 1, 0, 1}};
    EXPECT_EQ(reduce_all(table(DataType::kBool, ReduceOp::kSum), truths), (std::vector<std::uint8_t>{0, 1, 1, 1}));
    EXPECT_EQ(reduce_all(table(DataType::kBool, ReduceOp::kProduct), truths), (std::vector<std::uint8_t>{0, 0, 0, 1}));
    EXPECT_EQ(reduce_all(table(DataType::kBool, ReduceOp::kBitXor), truths), (std::vector<std::uint8_t>{0, 1, 1, 0}));
  }
}

TEST(Reduce, RoundsNarrowNumbersOnce) {
  for (const ReduceTable table : reduce_implementations()) {
    // In bfloat16 steps 256 + 1 + 1 would stay 256; rounded once it is 258.
    std::vector<std::vector<std::uint16_t>> inputs;
    for (const float value : {256.0F, 1.0F, 1.0F}) inputs.push_back({BFloat16::store(value)});
    EXPECT_EQ(BFloat16::load(reduce_all(table(DataType::kBFloat16, ReduceOp::kSum), inputs)[0]), 258.0F);
    EXPECT_EQ(BFloat16::load(reduce_all(table(DataType::kBFloat16, ReduceOp::kAverage), inputs)[0]), 86.0F);
    EXPECT_EQ(BFloat16::load(reduce_all(table(DataType::kBFloat16, ReduceOp::kPreMultipliedSum), inputs, {0.5, 2.0, 4.0})[0]), 134.0F);
  }
}

TEST(Reduce, KeepsNanInMinimumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceTable table : reduce_implementations()) {
    for (const ReduceOp op : {ReduceOp::kMinimum, ReduceOp::kMaximum}) {
      const std::vector<std::vector<float>> inputs{{1, nan, 2}, {nan, 3, 4}, {5, 6, 7}};
      const auto output = reduce_all(table(DataType::kFloat, op), inputs);
      EXPECT_TRUE(std::isnan(output[0]) && std::isnan(output[1]));
      EXPECT_EQ(output[2], op == ReduceOp::kMinimum ? 2 : 7);
    }
  }
}

TEST(Reduce, MultipliesComplexNumbers) {
  for (const ReduceTable table : reduce_implementations()) {
    const std::vector<std::vector<float>> inputs{{1, 2, 0, 1}, {3, 4, 0, 1}};
    std::vector<const void*> sources{inputs[0].data(), inputs[1].data()};
    std::vector<float> output(4);
    table(DataType::kComplexFloat, ReduceOp::kProduct)(sources.data(), 2, nullptr, output.data(), 2);
    EXPECT_EQ(output, (std::vector<float>{-5, 10, -1, 0}));
  }
}

// Every pair, with lengths that leave remainders to vector loops and blocks, and in place.
TEST(Reduce, GivesTheSameBitsOnEveryInstructionSet) {
  for (const DataType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (!reducible(type, op)) continue;
      for (const std::size_t count : {1UL, 31UL, 515UL, 1027UL}) {
        for (const int ranks : {1, 2, 3, 5}) {
          std::vector<Bytes> inputs;
          for (int r = 0; r < ranks; ++r) inputs.push_back(input_of(type, count, r, 0, count * element_size(type)));
          const Bytes want = reduced(inputs, type, op, count);
          for (const ReduceTable table : reduce_implementations()) {
            std::vector<Bytes> copies = inputs;
            std::vector<const void*> sources;
            std::vector<double> factors;
            for (int r = 0; r < ranks; ++r) {
              sources.push_back(copies[static_cast<std::size_t>(r)].data());
              factors.push_back(factor_of(r));
            }
            table(type, op)(sources.data(), ranks, factors.data(), copies.back().data(), count);
            ASSERT_EQ(copies.back(), want) << name(type) << " " << name(op) << " " << count << " elements of " << ranks << " ranks";
          }
        }
      }
    }
  }
}

TEST(Types, HaveSizesAndNames) {
  for (const DataType type : all_types()) {
    EXPECT_GE(element_size(type), 1U);
    EXPECT_FALSE(name(type).empty());
  }
  EXPECT_EQ(element_size(DataType::kComplexDouble), 16U);
  EXPECT_EQ(element_size(DataType::kFloat8E8M0FNU), 1U);
  EXPECT_EQ(name(DataType::kBFloat16), "bfloat16");
}

}  // namespace
}  // namespace neuron::collectives::testing
