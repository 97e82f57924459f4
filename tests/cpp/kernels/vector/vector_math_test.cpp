// The error bounds that vector_math.h states, over dense samples and at the edges, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/vector/kernel_table.h"

namespace neuron::kernels::vector {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Op op;
  double (*exact)(double);
  float low;
  float high;
  double ulps;
};

double ulp_of(double x) {
  const auto f = static_cast<float>(std::fabs(x));
  return std::max(std::nextafter(f, kInfinity) - f, std::numeric_limits<float>::denorm_min());
}

std::vector<float> apply(const KernelTable& table, Op op, const std::vector<float>& in) {
  std::vector<float> out(in.size());
  table.elements[static_cast<int>(op)][0][0][0](out.data(), in.data(), nullptr, nullptr, static_cast<std::int64_t>(in.size()));
  return out;
}

TEST(VectorMath, ErrorsStayBelowTheirBounds) {
  const Case cases[] = {
      {Op::kExp, std::exp, -104, 88.7F, 1.6},   {Op::kLog, std::log, 1e-40F, 10, 1.6},
      {Op::kLog, std::log, 0.5F, 2, 1.6},       {Op::kTanh, std::tanh, -10, 10, 1.6},
      {Op::kTanh, std::tanh, -1, 1, 1.6},       {Op::kErf, std::erf, -5, 5, 2.5},
      {Op::kErf, std::erf, -1e-3F, 1e-3F, 1.6}, {Op::kSin, std::sin, -10, 10, 1.6},
      {Op::kSin, std::sin, -2e5F, 2e5F, 1.6},   {Op::kCos, std::cos, -10, 10, 1.6},
      {Op::kCos, std::cos, 1e6F, 9e8F, 1.6},    {Op::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-6F, 1e6F, 1.6},
  };
  for (const KernelTable* table : kernel_tables()) {
    const bool fused = table != kernel_tables()[0];  // the baseline rounds products
    for (const Case& tested : cases) {
      std::vector<float> in;
      constexpr int kCount = 200003;
      for (int i = 0; i < kCount; ++i) {
        in.push_back(tested.low + (tested.high - tested.low) * (static_cast<float>(i) / kCount));
      }
      const std::vector<float> out = apply(*table, tested.op, in);
      double worst = 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        const double exact = tested.exact(in[i]);
        worst = std::max(worst, std::fabs(out[i] - exact) / ulp_of(exact));
      }
      EXPECT_LT(worst, tested.ulps + (fused ? 0 : 1.5)) << table->name << " " << name_of(tested.op) << " from " << tested.low;
    }
  }
}

TEST(VectorMath, Edges) {
  for (const KernelTable* table : kernel_tables()) {
    SCOPED_TRACE(table->name);
    const auto one = [&](Op op, float x) { return apply(*table, op, {x})[0]; };
    EXPECT_EQ(one(Op::kExp, kInfinity), kInfinity);
    EXPECT_EQ(one(Op::kExp, 1000), kInfinity);
    EXPECT_EQ(one(Op::kExp, -kInfinity), 0);
    EXPECT_EQ(one(Op::kExp, -1000), 0);
    EXPECT_EQ(one(Op::kExp, 0), 1);
    EXPECT_EQ(one(Op::kLog, 0), -kInfinity);
    EXPECT_EQ(one(Op::kLog, 1), 0);
    EXPECT_EQ(one(Op::kLog, kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(one(Op::kLog, -1)));
    EXPECT_EQ(one(Op::kTanh, kInfinity), 1);
    EXPECT_EQ(one(Op::kTanh, -kInfinity), -1);
    EXPECT_EQ(one(Op::kErf, kInfinity), 1);
    EXPECT_EQ(one(Op::kErf, -kInfinity), -1);
    EXPECT_EQ(one(Op::kSigmoid, kInfinity), 1);
    EXPECT_EQ(one(Op::kSigmoid, -kInfinity), 0);
    EXPECT_TRUE(std::signbit(one(Op::kTanh, -0.0F)));
    EXPECT_TRUE(std::isnan(one(Op::kSin, kInfinity)));
    for (const Op op :
         {Op::kExp, Op::kLog, Op::kTanh, Op::kErf, Op::kSin, Op::kCos, Op::kSilu, Op::kGelu, Op::kGeluTanh, Op::kSqrt, Op::kRelu}) {
      EXPECT_TRUE(std::isnan(one(op, kNan))) << name_of(op);
    }
    EXPECT_NEAR(one(Op::kLog, std::numeric_limits<float>::denorm_min()), std::log(1.401298464e-45), 1e-5);
  }
}

TEST(VectorMath, RoundsToBFloat16AndHalfAsTheHardwareDoes) {
  for (const KernelTable* table : kernel_tables()) {
    for (const Element type : {Element::kBF16, Element::kF16}) {
      std::vector<float> in;
      for (std::uint32_t bits = 0; bits < 0xffff0000U; bits += 0x8001) in.push_back(std::bit_cast<float>(bits));
      std::vector<float> out(in.size());
      table->convert[0][static_cast<int>(type)](out.data(), in.data(), nullptr, nullptr, static_cast<std::int64_t>(in.size()));
      std::vector<std::uint16_t> stored(in.size());
      table->store[static_cast<int>(type)](stored.data(), in.data(), 1, static_cast<std::int64_t>(in.size()));
      std::vector<float> loaded(in.size());
      table->load[static_cast<int>(type)](loaded.data(), stored.data(), 1, static_cast<std::int64_t>(in.size()));
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (std::isnan(in[i])) {
          ASSERT_TRUE(std::isnan(out[i]) && std::isnan(loaded[i]));
          continue;
        }
        float expected = static_cast<float>(static_cast<_Float16>(in[i]));
        if (type == Element::kBF16) {
          const auto bits = std::bit_cast<std::uint32_t>(in[i]);
          expected = std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
        }
        ASSERT_EQ(out[i], expected) << in[i];
        ASSERT_EQ(loaded[i], expected) << in[i];
      }
    }
  }
}

}  // namespace
}  // namespace neuron::kernels::vector
