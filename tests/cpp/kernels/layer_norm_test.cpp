// Layer norm against a reference in double precision: every dtype and instruction set, sizes around the vectors' edges, NaN, infinity.
#include "kernels/norm/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
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

TEST(LayerNorm, IsTheReferences) {
  testing::ThreadTeam team(2);
  each([&](Isa isa, DataType type, std::int64_t size) {
    for (const auto parameter_type : {type, DataType::kFloat32}) {
      for (const bool has_parameters : {false, true}) {
        constexpr std::int64_t kRows = 3;
        const auto row = size + 5;
        auto input = random(type, kRows * row);
        const auto weight = random(parameter_type, size, 1, 3), bias = random(parameter_type, size, 1, 4);
        for (std::int64_t j = 0; j < kRows * row; ++j) input.set(j, input[j] + 3);  // a mean that is not 0
        Floats output(type, kRows * row);
        Floats mean(parameter_type, kRows), inverse(parameter_type, kRows);
        LayerNorm call;
        call.type = type;
        call.parameter_type = parameter_type;
        call.rows = kRows;
        call.size = size;
        call.input = input.data();
        call.input_row = call.output_row = row;
        call.weight = has_parameters ? weight.data() : nullptr;
        call.bias = has_parameters ? bias.data() : nullptr;
        call.epsilon = 1e-3F;
        call.output = output.data();
        call.statistics_type = parameter_type;
        call.mean = mean.data();
        call.inverse = inverse.data();
        layer_norm(call, team, isa);
        for (std::int64_t i = 0; i < kRows; ++i) {
          double average = 0, squares = 0;
          for (std::int64_t j = 0; j < size; ++j) average += double{input[i * row + j]} / static_cast<double>(size);
          for (std::int64_t j = 0; j < size; ++j) squares += (input[i * row + j] - average) * (input[i * row + j] - average);
          const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-3F);
          expect_near(mean[i], average, parameter_type, 8);
          expect_near(inverse[i], scale, parameter_type, 16);
          for (std::int64_t j = 0; j < size; ++j) {
            const double normal = (input[i * row + j] - average) * scale;
            const double expected = has_parameters ? normal * weight[j] + bias[j] : normal;
            expect_near(output[i * row + j], expected, type, type == DataType::kFloat32 ? 60 : 3);
          }
          EXPECT_EQ(output[i * row + size], 0) << "written behind the row";
        }
      }
    }
  });
}

TEST(LayerNorm, ARowWithNanOrInfinityIsNanAndTheOthersAreNot) {
  each([&](Isa isa, DataType type, std::int64_t size) {
    auto input = random(type, 3 * size);
    input.set(size / 2, kNan);
    input.set(size + size / 2, kInf);
    Floats output(type, 3 * size);
    LayerNorm call;
    call.type = type;
    call.rows = 3;
    call.size = call.input_row = call.output_row = size;
    call.input = input.data();
    call.output = output.data();
    layer_norm(call, single_thread(), isa);
    for (std::int64_t j = 0; j < 3 * size; ++j) EXPECT_EQ(std::isnan(output[j]), j < 2 * size) << j;
  });
}

TEST(LayerNorm, TheNumberOfThreadsDoesNotMatter) {
  for (const Isa isa : available_isas()) {
    const auto input = random(DataType::kFloat32, 300 * 500);
    Floats one(DataType::kFloat32, 300 * 500), many = one;
    testing::ThreadTeam team(3);
    LayerNorm call;
    call.rows = 300;
    call.size = call.input_row = call.output_row = 500;
    call.input = input.data();
    call.output = one.data();
    layer_norm(call, single_thread(), isa);
    call.output = many.data();
    layer_norm(call, team, isa);
    EXPECT_TRUE(one == many);
  }
}

}  // namespace
}  // namespace neuron::kernels
