// Bulk random numbers: the published Philox vectors, equality of all instruction sets, independence of how a stream is split, and the
// distributions.
#include "kernels/random/random_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

namespace neuron::kernels {
namespace {

using Bytes = std::vector<unsigned char>;

// Seeds and offsets that exercise the high halves of key and counter.
constexpr RandomStream kStreams[] = {{0, 0}, {42, 4}, {0xFEDCBA9876543210u, 0x0000000FFFFFFFF0u}, {~std::uint64_t{0}, 0x7FFFFFFFFFFFF000u}};

// One fill with fixed parameters, as bytes, so that all fills can be compared alike.
struct Case {
  std::string name;
  std::size_t element_size;
  std::function<void(const RandomFill&, RandomStream, std::uint64_t, std::uint64_t, void*)> run;

  Bytes operator()(const RandomFill& fill, RandomStream stream, std::uint64_t begin, std::uint64_t end) const {
    Bytes bytes((end - begin) * element_size + 1, 0xAB);  // the last byte must survive
    run(fill, stream, begin, end, bytes.data());
    EXPECT_EQ(bytes.back(), 0xAB) << name << " wrote past the end";
    bytes.pop_back();
    return bytes;
  }
};

template <class T, class Call>
Case make_case(std::string name, Call call) {
  return {std::move(name), sizeof(T),
          [call](const RandomFill& fill, RandomStream stream, std::uint64_t begin, std::uint64_t end, void* out) {
            call(fill, stream, begin, end, static_cast<T*>(out));
          }};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      make_case<std::uint32_t>("bits32", [](auto& f, auto s, auto b, auto e, auto* out) { f.bits32(s, b, e, out); }),
      make_case<std::uint64_t>("bits64", [](auto& f, auto s, auto b, auto e, auto* out) { f.bits64(s, b, e, out); }),
      make_case<float>("uniform32", [](auto& f, auto s, auto b, auto e, auto* out) { f.uniform32(s, b, e, out, 3.7f, -1.1f, 2.5f, 24); }),
      make_case<float>("uniform32 of 8 digits",
                       [](auto& f, auto s, auto b, auto e, auto* out) { f.uniform32(s, b, e, out, 1.0f, 0.0f, 1.0f, 8); }),
      make_case<double>("uniform64", [](auto& f, auto s, auto b, auto e, auto* out) { f.uniform64(s, b, e, out, 3.7, -1.1, 2.5); }),
      make_case<float>("normal32", [](auto& f, auto s, auto b, auto e, auto* out) { f.normal32(s, b, e, out, 0.3f, 1.7f); }),
      make_case<double>("normal64", [](auto& f, auto s, auto b, auto e, auto* out) { f.normal64(s, b, e, out, 0.3, 1.7); }),
      make_case<float>("exponential32", [](auto& f, auto s, auto b, auto e, auto* out) { f.exponential32(s, b, e, out, 0.7f); }),
      make_case<double>("exponential64", [](auto& f, auto s, auto b, auto e, auto* out) { f.exponential64(s, b, e, out, 0.7); }),
      make_case<std::uint8_t>("bernoulli", [](auto& f, auto s, auto b, auto e, auto* out) { f.bernoulli(s, b, e, out, 0.3); }),
      make_case<std::uint8_t>("rare bernoulli", [](auto& f, auto s, auto b, auto e, auto* out) { f.bernoulli(s, b, e, out, 0.001); }),
      make_case<std::uint8_t>("frequent bernoulli", [](auto& f, auto s, auto b, auto e, auto* out) { f.bernoulli(s, b, e, out, 0.999); }),
  };
  return all;
}

// The word of one element computed by the scalar definition.
std::uint32_t reference_word(RandomStream stream, std::uint64_t element, std::uint32_t plane) {
  const std::uint64_t index = stream.offset + element;
  const std::uint64_t block = index / 4;
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), plane, 0}, philox_key(stream.seed))[index % 4];
}

std::uint64_t reference_word64(RandomStream stream, std::uint64_t element) {
  return reference_word(stream, element, 0) | std::uint64_t{reference_word(stream, element, 1)} << 32;
}

TEST(Philox, MatchesTheVectorsPublishedWithRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class RandomFillTest : public testing::TestWithParam<const RandomFill*> {
 protected:
  const RandomFill& fill() const { return *GetParam(); }

  template <class T>
  std::vector<T> draw(void (*function)(RandomStream, std::uint64_t, std::uint64_t, T*), RandomStream stream, std::uint64_t count) const {
    std::vector<T> values(count);
    function(stream, 0, count, values.data());
    return values;
  }
};

TEST_P(RandomFillTest, BitsAreTheScalarDefinition) {
  for (const RandomStream stream : kStreams) {
    for (const std::uint64_t begin : {0u, 1u, 5u, 63u}) {
      std::vector<std::uint32_t> words(203);
      std::vector<std::uint64_t> long_words(203);
      fill().bits32(stream, begin, begin + words.size(), words.data());
      fill().bits64(stream, begin, begin + long_words.size(), long_words.data());
      for (std::size_t i = 0; i < words.size(); ++i) {
        ASSERT_EQ(words[i], reference_word(stream, begin + i, 0)) << "element " << begin + i;
        ASSERT_EQ(long_words[i], reference_word64(stream, begin + i)) << "element " << begin + i;
      }
    }
  }
}

TEST_P(RandomFillTest, EveryInstructionSetGivesTheSameBits) {
  const RandomFill& portable = *random_fill_implementations().front();
  for (const Case& test : cases()) {
    for (const RandomStream stream : kStreams) EXPECT_EQ(test(fill(), stream, 3, 100'003), test(portable, stream, 3, 100'003)) << test.name;
  }
}

TEST_P(RandomFillTest, SplittingAStreamChangesNothing) {
  constexpr std::uint64_t kCount = 1000;
  for (const Case& test : cases()) {
    const Bytes whole = test(fill(), kStreams[2], 0, kCount);
    for (const std::uint64_t step : {1u, 2u, 3u, 7u, 64u, 129u, 999u}) {
      Bytes parts;
      for (std::uint64_t begin = 0; begin < kCount; begin += step) {
        const Bytes part = test(fill(), kStreams[2], begin, std::min(kCount, begin + step));
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << test.name << " in steps of " << step;
    }
  }
}

TEST_P(RandomFillTest, AnOffsetIsAnIndex) {
  for (const Case& test : cases()) EXPECT_EQ(test(fill(), {7, 400}, 0, 300), test(fill(), {7, 0}, 400, 700)) << test.name;
}

TEST_P(RandomFillTest, EmptyRangesWriteNothing) {
  for (const Case& test : cases()) EXPECT_TRUE(test(fill(), {7, 0}, 5, 5).empty()) << test.name;
}

TEST_P(RandomFillTest, UniformsAreTheTopBits) {
  const RandomStream stream{9, 16};
  std::vector<float> x(1001);
  std::vector<float> coarse(1001);
  std::vector<double> y(1001);
  fill().uniform32(stream, 0, x.size(), x.data(), 1, 0, 1, 24);
  fill().uniform32(stream, 0, coarse.size(), coarse.data(), 1, 0, 1, 8);
  fill().uniform64(stream, 0, y.size(), y.data(), 1, 0, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i], static_cast<float>(reference_word(stream, i, 0) >> 8) * 0x1p-24f);
    ASSERT_EQ(coarse[i], static_cast<float>(reference_word(stream, i, 0) >> 24) * 0x1p-8f);
    ASSERT_EQ(y[i], static_cast<double>(reference_word64(stream, i) >> 11) * 0x1p-53);
  }
}

TEST_P(RandomFillTest, UniformsStayBelowTheUpperBound) {
  // Half of the results would round to 1e8 + 8: the spacing of floats there is 8.
  std::vector<float> x(1000);
  const float upper = 1e8f;
  fill().uniform32({1, 0}, 0, x.size(), x.data(), 8.0f, 1e8f, upper, 24);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), upper);
  std::vector<double> y(1000);
  fill().uniform64({1, 0}, 0, y.size(), y.data(), 1.0, 1e16, 1e16);
  EXPECT_EQ(*std::max_element(y.begin(), y.end()), 1e16);
}

TEST_P(RandomFillTest, NormalsAreBoxMullerOfTheirBlock) {
  const RandomStream stream{11, 8};
  const auto z32 = [&] {
    std::vector<float> values(4000);
    fill().normal32(stream, 0, values.size(), values.data(), 0, 1);
    return values;
  }();
  const auto z64 = [&] {
    std::vector<double> values(4000);
    fill().normal64(stream, 0, values.size(), values.data(), 0, 1);
    return values;
  }();
  const auto radius = [](double u) { return std::sqrt(-2 * std::log(u)); };
  for (std::size_t i = 0; i < z32.size(); i += 2) {
    const double r = radius((reference_word(stream, i, 0) + 1.0) * 0x1p-32);
    const double angle = 2 * std::numbers::pi * reference_word(stream, i + 1, 0) * 0x1p-32;
    ASSERT_NEAR(z32[i], r * std::cos(angle), 1e-6 * (1 + r));
    ASSERT_NEAR(z32[i + 1], r * std::sin(angle), 1e-6 * (1 + r));
    const double r64 = radius((static_cast<double>(reference_word64(stream, i) >> 11) + 1) * 0x1p-53);
    const double angle64 = 2 * std::numbers::pi * (static_cast<double>(reference_word64(stream, i + 1) >> 10) * 0x1p-54);
    ASSERT_NEAR(z64[i], r64 * std::cos(angle64), 3e-15 * (1 + r64));
    ASSERT_NEAR(z64[i + 1], r64 * std::sin(angle64), 3e-15 * (1 + r64));
  }
}

TEST_P(RandomFillTest, ExponentialsAreLogarithmsOfTheirWord) {
  const RandomStream stream{12, 8};
  std::vector<float> x(4000);
  std::vector<double> y(4000);
  fill().exponential32(stream, 0, x.size(), x.data(), 2.0f);
  fill().exponential64(stream, 0, y.size(), y.data(), 2.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u32 = (reference_word(stream, i, 0) + 1.0) * 0x1p-32;
    const double u64 = (static_cast<double>(reference_word64(stream, i) >> 11) + 1) * 0x1p-53;
    ASSERT_NEAR(x[i], std::max(-2 * std::log(u32), 0x1p-32), 3e-7 * x[i]);
    ASSERT_NEAR(y[i], std::max(-2 * std::log(u64), 0x1p-53), 1e-15 * y[i]);
    ASSERT_GT(x[i], 0.0f);
    ASSERT_GT(y[i], 0.0);
  }
}

// Races between many categories are decided by the smallest numbers: those must be as fine as the word that they are made of.
TEST_P(RandomFillTest, SmallExponentialsKeepTheResolutionOfTheirWord) {
  const RandomStream stream{16, 0};
  std::vector<float> x(1 << 20);
  fill().exponential32(stream, 0, x.size(), x.data(), 1.0f);
  std::size_t small = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = (4294967295.0 - reference_word(stream, i, 0)) * 0x1p-32;
    if (v > 0 && v < 1e-3) {
      ASSERT_NEAR(x[i], -std::log1p(-v), 2e-7 * x[i]);
      ++small;
    }
  }
  EXPECT_GT(small, x.size() / 2000);
}

TEST_P(RandomFillTest, CoinsAreComparisonsOfTheirWord) {
  const RandomStream stream{13, 0};
  std::vector<std::uint8_t> coins(5000);
  for (const double p : {0.25, 0.5, 0.9, 1.0 / 3}) {
    fill().bernoulli(stream, 0, coins.size(), coins.data(), p);
    for (std::size_t i = 0; i < coins.size(); ++i) ASSERT_EQ(coins[i], reference_word(stream, i, 0) < std::floor(p * 0x1p32 + 0.5)) << p;
  }
  for (const double p : {0.0, 1.0}) {
    fill().bernoulli(stream, 0, coins.size(), coins.data(), p);
    EXPECT_EQ(std::count(coins.begin(), coins.end(), static_cast<std::uint8_t>(p)), static_cast<std::ptrdiff_t>(coins.size()));
  }
}

TEST_P(RandomFillTest, RareCoinsKeepTheirProbability) {
  constexpr std::uint64_t kCount = 4'000'000;
  std::vector<std::uint8_t> coins(kCount);
  const double p = 1e-4;
  const double deviation = std::sqrt(kCount * p);
  fill().bernoulli({14, 0}, 0, kCount, coins.data(), p);
  EXPECT_NEAR(static_cast<double>(std::count(coins.begin(), coins.end(), 1)), kCount * p, 5 * deviation);
  fill().bernoulli({15, 0}, 0, kCount, coins.data(), 1 - p);
  EXPECT_NEAR(static_cast<double>(std::count(coins.begin(), coins.end(), 0)), kCount * p, 5 * deviation);
}

// The largest distance between the empirical distribution function of `values` and `cdf`, times sqrt(n): above 1.95 with probability 0.001.
template <class T, class Cdf>
double kolmogorov_smirnov(std::vector<T> values, Cdf cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = cdf(static_cast<double>(values[i]));
    distance = std::max({distance, std::fabs(static_cast<double>(i) / n - expected), std::fabs(static_cast<double>(i + 1) / n - expected)});
  }
  return distance * std::sqrt(n);
}

TEST_P(RandomFillTest, DistributionsPassKolmogorovSmirnov) {
  constexpr std::uint64_t kCount = 200'000;
  const auto normal_cdf = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const auto exponential_cdf = [](double x) { return -std::expm1(-x); };
  std::vector<float> x(kCount);
  std::vector<double> y(kCount);
  fill().normal32({21, 0}, 0, kCount, x.data(), 0, 1);
  EXPECT_LT(kolmogorov_smirnov(x, normal_cdf), 1.95);
  fill().normal64({22, 0}, 0, kCount, y.data(), 0, 1);
  EXPECT_LT(kolmogorov_smirnov(y, normal_cdf), 1.95);
  fill().exponential32({23, 0}, 0, kCount, x.data(), 1);
  EXPECT_LT(kolmogorov_smirnov(x, exponential_cdf), 1.95);
  fill().exponential64({24, 0}, 0, kCount, y.data(), 1);
  EXPECT_LT(kolmogorov_smirnov(y, exponential_cdf), 1.95);
  fill().uniform32({25, 0}, 0, kCount, x.data(), 1, 0, 1, 24);
  EXPECT_LT(kolmogorov_smirnov(x, [](double v) { return v; }), 1.95);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RandomFillTest, testing::ValuesIn(random_fill_implementations()),
                         [](const auto& info) { return std::string(info.param->isa); });

TEST(RandomFill, TheNewestInstructionSetIsChosen) { EXPECT_EQ(&random_fill(), random_fill_implementations().back()); }

}  // namespace
}  // namespace neuron::kernels
