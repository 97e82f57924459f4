// Operators on rows against references in double precision: every dtype and instruction set, sizes around the vectors' edges, NaN,
// infinity.
#include "kernels/rows/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/floats.h"
#include "kernels/thread_team.h"

namespace neuron::kernels {
namespace {

using testing::Floats;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};
constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 257, 1000};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Floats random(DataType type, std::size_t size, float scale = 1, unsigned seed = 1) {
  Floats values(type, size);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < size; ++i) values.set(i, scale * normal(generator));
  return values;
}

// The spacing of a dtype near 1.
double unit(DataType type) { return type == DataType::kFloat32 ? 0x1p-23 : type == DataType::kBFloat16 ? 0x1p-7 : 0x1p-10; }

// `ulps` units of the dtype, relative where the value is large and absolute where it is below 1.
void expect_near(float actual, double expected, DataType type, double ulps) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected);
  } else {
    EXPECT_NEAR(actual, expected, ulps * unit(type) * std::max(1.0, std::abs(expected)));
  }
}

void each(const std::function<void(Isa, DataType, std::int64_t)>& body) {
  for (const Isa isa : available_isas()) {
    for (const auto type : kTypes) {
      for (const auto size : kSizes) {
        SCOPED_TRACE(::testing::Message() << isa_name(isa) << ", type " << int(type) << ", size " << size);
        body(isa, type, size);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

double as_type(double x, DataType type) {
  Floats one(type, 1);
  one.set(0, static_cast<float>(x));
  return one[0];
}

TEST(Rows, Norms) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t size) {
    for (const auto kind : {Norm::Kind::kLayer, Norm::Kind::kRms}) {
      for (const bool with_residual : {false, true}) {
        constexpr std::int64_t kRows = 3;
        const auto row = size + 5;
        auto input = random(type, kRows * row), residual = random(type, kRows * row, 1, 2);
        const auto weight = random(type, size, 1, 3), bias = random(type, size, 1, 4);
        for (std::int64_t j = 0; j < size; ++j) input.set(j, input[j] + 3);  // a mean that is not 0
        Floats output(type, kRows * row), sum(type, kRows * row);
        std::vector<float> mean(kRows), inverse(kRows);
        Norm call;
        call.kind = kind;
        call.type = call.parameter_type = type;
        call.rows = kRows;
        call.size = size;
        call.input = input.data();
        call.input_row = call.output_row = call.residual_row = row;
        call.residual = with_residual ? residual.data() : nullptr;
        call.sum = with_residual ? sum.data() : nullptr;
        call.weight = weight.data();
        call.bias = kind == Norm::Kind::kLayer ? bias.data() : nullptr;
        call.round_before_weight = kind == Norm::Kind::kRms;
        call.epsilon = 1e-3F;
        call.output = output.data();
        call.mean = mean.data();
        call.inverse = inverse.data();
        normalize(call, team, isa);
        for (std::int64_t i = 0; i < kRows; ++i) {
          std::vector<double> x(size);
          double average = 0, squares = 0;
          for (std::int64_t j = 0; j < size; ++j) {
            x[j] = with_residual ? as_type(double{input[i * row + j]} + residual[i * row + j], type) : input[i * row + j];
            if (with_residual) {
              EXPECT_EQ(sum[i * row + j], x[j]);
            }
            average += x[j] / static_cast<double>(size);
          }
          if (kind == Norm::Kind::kRms) average = 0;
          for (const auto value : x) squares += (value - average) * (value - average) / static_cast<double>(size);
          const double scale = 1 / std::sqrt(squares + 1e-3F);
          expect_near(mean[i], average, DataType::kFloat32, 8);
          expect_near(inverse[i], scale, DataType::kFloat32, 16);
          for (std::int64_t j = 0; j < size; ++j) {
            const double expected = (x[j] - average) * scale * weight[j] + (call.bias != nullptr ? bias[j] : 0.0F);
            expect_near(output[i * row + j], expected, type, type == DataType::kFloat32 ? 60 : 3);
          }
        }
      }
    }
  });
}

TEST(Rows, Softmax) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t size) {
    for (const bool logarithm : {false, true}) {
      constexpr std::int64_t kRows = 6;
      const auto row = size + 3;
      auto input = random(type, kRows * row, 4);
      for (std::int64_t j = 0; j < size; ++j) input.set(row + j, -kInf);
      input.set(2 * row + size / 2, kNan);
      input.set(3 * row + size / 2, kInf);
      if (size > 1) input.set(4 * row + size / 2, -kInf);
      for (std::int64_t j = 0; j < size; ++j) input.set(5 * row + j, input[5 * row + j] * 1000);
      Floats output(type, kRows * row);
      softmax({type, logarithm, kRows, size, input.data(), row, output.data(), row}, team, isa);
      for (std::int64_t i = 0; i < kRows; ++i) {
        double maximum = -kInf, total = 0;
        for (std::int64_t j = 0; j < size; ++j) maximum = std::max<double>(maximum, input[i * row + j]);
        for (std::int64_t j = 0; j < size; ++j) total += std::exp(input[i * row + j] - maximum);
        for (std::int64_t j = 0; j < size; ++j) {
          const double distance = input[i * row + j] - maximum;
          const double expected = logarithm ? distance - std::log(total) : std::exp(distance) / total;
          expect_near(output[i * row + j], expected, type, 4);
        }
      }
    }
  });
}

TEST(Rows, SmallWeightsOfASoftmaxKeepTheirDigits) {
  for (const Isa isa : available_isas()) {
    std::vector<float> input, output(200);
    for (int i = 0; i < 200; ++i) input.push_back(-0.4F * static_cast<float>(i));
    softmax({DataType::kFloat32, false, 1, 200, input.data(), 200, output.data(), 200}, single_thread(), isa);
    double total = 0;
    for (const float x : input) total += std::exp(double{x});
    for (int i = 0; i < 200; ++i)
      EXPECT_NEAR(output[i] / (std::exp(double{input[i]}) / total), 1, 6 * 0x1p-24) << isa_name(isa) << " " << i;
  }
}

TEST(Rows, Rope) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t half) {
    const auto size = 2 * half;
    for (const bool interleaved : {false, true}) {
      constexpr std::int64_t kBatches = 2, kHeads = 3, kLength = 4;
      const auto row = size + 1;
      const auto input = random(type, kBatches * kHeads * kLength * row);
      const auto cosine = random(type, kLength * size, 1, 2), sine = random(type, kLength * size, 1, 3);
      Floats output(type, kBatches * kLength * kHeads * size);
      Rope call;
      call.type = type;
      call.interleaved = interleaved;
      call.batches = kBatches;
      call.heads = kHeads;
      call.length = kLength;
      call.size = size;
      call.input = input.data();
      call.input_batch = kHeads * kLength * row;
      call.input_head = kLength * row;
      call.input_row = row;
      call.output = output.data();
      call.output_batch = kLength * kHeads * size;
      call.output_head = size;
      call.output_row = kHeads * size;
      call.cosine = cosine.data();
      call.sine = sine.data();
      call.angle_row = size;
      rope(call, team, isa);
      auto in_place = input;
      call.input = call.output = in_place.data();
      call.output_batch = call.input_batch;
      call.output_head = call.input_head;
      call.output_row = call.input_row;
      rope(call, team, isa);
      for (std::int64_t i = 0; i < kBatches * kHeads * kLength; ++i) {
        const auto length = i % kLength, head = i / kLength % kHeads, batch = i / kLength / kHeads;
        for (std::int64_t j = 0; j < size; ++j) {
          const auto other = interleaved ? j ^ 1 : j < half ? j + half : j - half;
          const double sign = (interleaved ? j % 2 == 0 : j < half) ? -1 : 1;
          const double expected =
              double{input[i * row + j]} * cosine[length * size + j] + sign * input[i * row + other] * sine[length * size + j];
          const auto actual = output[batch * kLength * kHeads * size + head * size + length * kHeads * size + j];
          expect_near(actual, expected, type, 4);
          EXPECT_EQ(in_place[i * row + j], actual);
        }
      }
    }
  });
}

TEST(Rows, GatedActivations) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t size) {
    for (const auto activation : {Activation::kRelu, Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh}) {
      const auto gate = random(type, 3 * size, 3), up = random(type, 3 * size, 1, 2);
      Floats output(type, 3 * size);
      gated({type, activation, false, 3, size, gate.data(), size, up.data(), size, output.data(), size}, team, isa);
      for (std::int64_t i = 0; i < 3 * size; ++i) {
        const double x = gate[i];
        const double cube = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        const double active = activation == Activation::kRelu      ? std::max(x, 0.0)
                              : activation == Activation::kSilu    ? x / (1 + std::exp(-x))
                              : activation == Activation::kGeluErf ? 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))
                                                                   : 0.5 * x * (1 + std::tanh(cube));
        expect_near(output[i], active * up[i], type, type == DataType::kFloat32 ? 20 : 1);
      }
    }
  });
}

TEST(Rows, CrossEntropy) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t size) {
    constexpr std::int64_t kRows = 4;
    const auto logits = random(type, kRows * size, 5);
    const std::vector<std::int64_t> target{0, size - 1, -100, size / 2};
    std::vector<float> loss(kRows), logsumexp(kRows);
    cross_entropy({type, kRows, size, logits.data(), size, target.data(), -100, loss.data(), logsumexp.data()}, team, isa);
    for (std::int64_t i = 0; i < kRows; ++i) {
      double total = 0;
      for (std::int64_t j = 0; j < size; ++j) total += std::exp(double{logits[i * size + j]});
      expect_near(logsumexp[i], std::log(total), DataType::kFloat32, 8);
      expect_near(loss[i], target[i] == -100 ? 0 : std::log(total) - logits[i * size + target[i]], DataType::kFloat32, 16);
    }
  });
}

TEST(Rows, IndicesOutOfRangeAreErrors) {
  const std::vector<float> logits(10);
  std::vector<float> loss(1);
  for (const std::int64_t bad : {-1, 10, 1 << 30}) {
    EXPECT_THROW(cross_entropy({DataType::kFloat32, 1, 10, logits.data(), 10, &bad, -100, loss.data(), nullptr}, single_thread()),
                 std::out_of_range);
    EXPECT_THROW(gather({1, 4, logits.data(), 10, &bad, loss.data()}, single_thread()), std::out_of_range);
  }
}

TEST(Rows, Gather) {
  testing::ThreadTeam team(2);
  std::vector<std::int32_t> table(100 * 7), output(5000 * 7);
  std::vector<std::int64_t> index(5000);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(i * 37 % 100);
  gather({5000, 28, table.data(), 100, index.data(), output.data()}, team);
  for (std::size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], index[i / 7] * 7 + static_cast<std::int64_t>(i % 7));
}

TEST(Rows, TheNumberOfThreadsDoesNotMatter) {
  for (const Isa isa : available_isas()) {
    const auto input = random(DataType::kFloat32, 300 * 500);
    Floats one(DataType::kFloat32, 300 * 500), many = one;
    testing::ThreadTeam team(3);
    softmax({DataType::kFloat32, false, 300, 500, input.data(), 500, one.data(), 500}, single_thread(), isa);
    softmax({DataType::kFloat32, false, 300, 500, input.data(), 500, many.data(), 500}, team, isa);
    EXPECT_TRUE(one == many);
  }
}

}  // namespace
}  // namespace neuron::kernels
