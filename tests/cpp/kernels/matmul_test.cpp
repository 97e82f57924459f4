// Matrix products of every level that this machine runs, against sums in double.
//
// The bound: |error| <= (k * 2^-24 + output) * sum |a||b| (+ the same of the epilogue's terms), where k * 2^-24 is the worst rounding of k
// additions in float in any order, and `output` the half unit in the last place of the output's type.
#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "kernels/thread_team.h"

namespace neuron::kernels {
namespace {

float decode(DataType type, const char* at) {
  if (type == DataType::kFloat32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (type == DataType::kBFloat16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

void encode(DataType type, float value, char* at) {
  if (type == DataType::kFloat32) {
    std::memcpy(at, &value, 4);
  } else if (type == DataType::kBFloat16) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto bits = static_cast<std::uint16_t>(std::isnan(value) ? 0x7fc0U : (word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
    std::memcpy(at, &bits, 2);
  } else {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(at, &half, 2);
  }
}

double half_unit(DataType type) {
  return type == DataType::kFloat32 ? std::ldexp(1.0, -24) : type == DataType::kBFloat16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -11);
}

std::int64_t size_of_type(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// A matrix in memory of its own, at an odd place, with numbers around it that must not change.
class Matrix {
 public:
  Matrix(DataType type, std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride,
         std::int64_t batch_stride, std::uint32_t seed)
      : type_(type), rows_(rows), columns_(columns), row_stride_(row_stride), column_stride_(column_stride), batch_stride_(batch_stride) {
    const auto last =
        rows * columns * batch == 0 ? 0 : (batch - 1) * batch_stride + (rows - 1) * row_stride + (columns - 1) * column_stride + 1;
    bytes_.resize((last + 2 * kMargin) * size_of_type(type) + 64);
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < last + 2 * kMargin; ++i) {
      encode(type, uniform(random), bytes_.data() + i * size_of_type(type));
    }
  }

  char* data() { return bytes_.data() + kMargin * size_of_type(type_); }
  MatrixView view() { return {data(), row_stride_, column_stride_, batch_stride_}; }
  char* at(std::int64_t batch, std::int64_t row, std::int64_t column) {
    return data() + (batch * batch_stride_ + row * row_stride_ + column * column_stride_) * size_of_type(type_);
  }
  float get(std::int64_t batch, std::int64_t row, std::int64_t column) { return decode(type_, at(batch, row, column)); }
  void set(std::int64_t batch, std::int64_t row, std::int64_t column, float value) { encode(type_, value, at(batch, row, column)); }
  const std::vector<char>& bytes() const { return bytes_; }
  DataType type() const { return type_; }

 private:
  static constexpr std::int64_t kMargin = 7;
  DataType type_;
  std::int64_t rows_, columns_, row_stride_, column_stride_, batch_stride_;
  std::vector<char> bytes_;
};

Matrix dense(DataType type, std::int64_t rows, std::int64_t columns, bool by_rows, std::uint32_t seed, std::int64_t batch = 1) {
  return by_rows ? Matrix(type, batch, rows, columns, columns, 1, rows * columns, seed)
                 : Matrix(type, batch, rows, columns, 1, rows, rows * columns, seed);
}

struct Way {
  Isa isa;
  Bf16Products products;
};

std::vector<Way> ways(DataType type) {
  std::vector<Way> all;
  for (const Isa isa : available_isas()) {
    for (const auto products : products_of(isa)) {
      if (products == Bf16Products::kWiden || type == DataType::kBFloat16) {
        all.push_back({isa, products});
      }
    }
  }
  return all;
}

std::string describe(const Way& way, const Matmul& p) {
  std::ostringstream text;
  text << isa_name(way.isa) << " " << products_name(way.products) << " type " << static_cast<int>(p.type) << " batch " << p.batch << " ["
       << p.m << ", " << p.n << ", " << p.k << "] a " << p.a.row_stride << "," << p.a.column_stride << " b " << p.b.row_stride << ","
       << p.b.column_stride << " c " << p.c_row_stride << "," << p.c_column_stride;
  return text.str();
}

double exact_activation(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

struct Extra {
  Matrix* addend = nullptr;
  Matrix* residual = nullptr;
  Matrix* gate = nullptr;
};

// Runs the problem in every way and compares each element; C's surroundings must not change.
void check(Matmul problem, Matrix& a, Matrix& b, Matrix& c, Threads& threads, Extra extra = {}) {
  problem.type = a.type();
  problem.c_type = c.type();
  problem.a = a.view();
  problem.b = b.view();
  problem.c = c.data();
  problem.c_row_stride = c.view().row_stride;
  problem.c_column_stride = c.view().column_stride;
  problem.c_batch_stride = c.view().batch_stride;
  struct Element {
    double value;
    double bound;
  };
  std::vector<Element> exact;
  for (std::int64_t index = 0; index < problem.batch; ++index) {
    for (std::int64_t i = 0; i < problem.m; ++i) {
      for (std::int64_t j = 0; j < problem.n; ++j) {
        double sum = 0, size = 0, gate_sum = 0, gate_size = 0;
        for (std::int64_t l = 0; l < problem.k; ++l) {
          const double product = static_cast<double>(a.get(index, i, l)) * b.get(index, l, j);
          sum += product;
          size += std::abs(product);
          if (extra.gate != nullptr) {
            const double other = static_cast<double>(a.get(index, i, l)) * extra.gate->get(index, l, j);
            gate_sum += other;
            gate_size += std::abs(other);
          }
        }
        const auto& epilogue = problem.epilogue;
        sum *= epilogue.scale;
        size *= std::abs(epilogue.scale);
        gate_sum *= epilogue.scale;
        gate_size *= std::abs(epilogue.scale);
        if (extra.addend != nullptr) {
          const double term = epilogue.addend.scale * static_cast<double>(extra.addend->get(index, i, j));
          sum += term;
          size += std::abs(term);
        }
        double value = exact_activation(epilogue.activation, sum);
        // Activations grow by at most 1.13 times their argument's error; their own is below 1e-6.
        double slack = 1.13 * size + (epilogue.activation == Activation::kNone ? 0 : 1.0);
        if (extra.gate != nullptr) {
          slack = slack * std::abs(gate_sum) + gate_size * std::abs(value) + slack * gate_size;
          value *= gate_sum;
        }
        if (extra.residual != nullptr) {
          const double term = epilogue.residual.scale * static_cast<double>(extra.residual->get(index, i, j));
          value += term;
          slack += std::abs(term);
        }
        exact.push_back({value, (static_cast<double>(problem.k) + 16) * std::ldexp(1.0, -24) * slack +
                                    half_unit(problem.c_type) * std::abs(value) + 1e-7});
      }
    }
  }
  const auto before = c.bytes();
  for (const auto& way : ways(problem.type)) {
    SCOPED_TRACE(describe(way, problem));
    Matrix out = c;
    problem.c = out.data();
    if (extra.addend == &c) {
      problem.epilogue.addend.view.data = out.data();
    }
    matmul(problem, threads, way.isa, way.products);
    Matrix around = c;
    auto expected = exact.begin();
    for (std::int64_t index = 0; index < problem.batch; ++index) {
      for (std::int64_t i = 0; i < problem.m; ++i) {
        for (std::int64_t j = 0; j < problem.n; ++j, ++expected) {
          const double got = out.get(index, i, j);
          ASSERT_LE(std::abs(got - expected->value), expected->bound)
              << "at " << index << ", " << i << ", " << j << ": " << got << " for " << expected->value;
          std::memcpy(around.at(index, i, j), out.at(index, i, j), size_of_type(problem.c_type));
        }
      }
    }
    EXPECT_EQ(around.bytes(), out.bytes()) << "bytes outside C changed";
  }
  ASSERT_EQ(before, c.bytes());
}

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

TEST(Matmul, SizesAroundEveryEdge) {
  testing::ThreadTeam team(2);
  for (const auto type : kTypes) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 31, 32, 33, 49, 97, 100}) {
      for (const std::int64_t n : {1, 3, 8, 13, 16, 17, 32, 33, 47, 49, 65}) {
        for (const std::int64_t k : {1, 2, 15, 33, 64}) {
          for (const int layout : {0, 1, 2, 3}) {
            if ((m + n + k + layout) % 3 != 0 && m > 12) {
              continue;  // a third of the large ones
            }
            auto a = dense(type, m, k, (layout & 1) == 0, 1);
            auto b = dense(type, k, n, (layout & 2) != 0, 2);
            auto c = dense((m + n) % 2 == 0 ? type : DataType::kFloat32, m, n, true, 3);
            check({.m = m, .n = n, .k = k}, a, b, c, team);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Matmul, LongSumsAreDividedAndRowsAtMultiplesOfThePage) {
  testing::ThreadTeam team(2);
  for (const auto type : kTypes) {
    for (const std::int64_t m : {1, 6, 20, 130}) {
      for (const std::int64_t k : {2048, 4099, 9000}) {
        for (const int layout : {0, 1, 2, 3}) {
          auto a = dense(type, m, k, (layout & 1) == 0, 4);
          auto b = dense(type, k, 35, (layout & 2) != 0, 5);
          auto c = dense(type, m, 35, true, 6);
          check({.m = m, .n = 35, .k = k}, a, b, c, team);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The usual error of a sum of floats grows with its length unless it is divided: 6e-7 and more for one term after the other.
TEST(Matmul, LongSumsOfFloatsAreNearlyAsExactAsShortOnes) {
  testing::ThreadTeam team(2);
  constexpr std::int64_t kTerms = 4096;
  constexpr std::int64_t kColumns = 64;
  for (const std::int64_t m : {1, 4, 10, 40, 150}) {
    for (const bool by_rows : {false, true}) {
      auto a = dense(DataType::kFloat32, m, kTerms, true, 4);
      auto b = dense(DataType::kFloat32, kTerms, kColumns, by_rows, 5);
      auto c = dense(DataType::kFloat32, m, kColumns, true, 6);
      Matmul problem{.m = m, .n = kColumns, .k = kTerms};
      problem.a = a.view();
      problem.b = b.view();
      problem.c = c.data();
      problem.c_row_stride = kColumns;
      for (const auto& way : ways(DataType::kFloat32)) {
        SCOPED_TRACE(describe(way, problem));
        matmul(problem, team, way.isa, way.products);
        double errors = 0;
        double squares = 0;
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < kColumns; ++j) {
            double exact = 0;
            for (std::int64_t l = 0; l < kTerms; ++l) {
              exact += static_cast<double>(a.get(0, i, l)) * b.get(0, l, j);
            }
            errors += (c.get(0, i, j) - exact) * (c.get(0, i, j) - exact);
            squares += exact * exact;
          }
        }
        EXPECT_LT(std::sqrt(errors / squares), 3.5e-7);
      }
    }
  }
}

TEST(Matmul, ManyRowsAreDividedIntoBlocks) {
  testing::ThreadTeam team(3);
  for (const auto type : kTypes) {
    for (const bool by_rows : {true, false}) {
      auto a = dense(type, 1111, 40, by_rows, 7);
      auto b = dense(type, 40, 37, by_rows, 8);
      auto c = dense(type, 1111, 37, by_rows, 9);
      check({.m = 1111, .n = 37, .k = 40}, a, b, c, team);
    }
  }
}

TEST(Matmul, AnyStrides) {
  for (const auto type : kTypes) {
    for (const std::int64_t m : {1, 5, 40}) {
      for (const std::int64_t gap : {2, 3}) {
        Matrix a(type, 2, m, 21, 21 * gap + 1, gap, m * (21 * gap + 1), 10);
        Matrix b(type, 2, 21, 19, 19 * gap + 5, gap, 0, 11);
        Matrix c(type, 2, m, 19, 19 * gap + 3, gap, m * (19 * gap + 3), 12);
        check({.batch = 2, .m = m, .n = 19, .k = 21}, a, b, c, single_thread());
        Matrix rows(type, 1, m, 21, 31, 1, 0, 13);
        Matrix same_row(type, 1, 21, 19, 0, 1, 0, 14);
        Matrix wide(type, 1, m, 19, 23, 1, 0, 15);
        check({.m = m, .n = 19, .k = 21}, rows, same_row, wide, single_thread());
      }
    }
  }
}

TEST(Matmul, Batches) {
  for (const int count : {1, 2, 3}) {
    testing::ThreadTeam team(count);
    for (const auto type : kTypes) {
      for (const std::int64_t batch : {1, 2, 5, 33}) {
        auto a = dense(type, 9, 18, true, 16, batch);
        auto b = dense(type, 18, 10, false, 17, batch);
        auto c = dense(type, 9, 10, true, 18, batch);
        check({.batch = batch, .m = 9, .n = 10, .k = 18}, a, b, c, team);
      }
    }
  }
}

TEST(Matmul, Epilogues) {
  testing::ThreadTeam team(2);
  for (const auto type : kTypes) {
    for (const std::int64_t m : {1, 4, 20, 100}) {
      for (const bool weight_by_rows : {false, true}) {
        for (const auto activation :
             {Activation::kNone, Activation::kRelu, Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh}) {
          auto a = dense(type, m, 30, true, 19);
          auto b = dense(type, 30, 41, weight_by_rows, 20);
          auto c = dense(type, m, 41, true, 21);
          Matrix bias(type, 1, m, 41, 0, 1, 0, 22);
          auto residual = dense(DataType::kFloat32, m, 41, false, 23);
          Matmul problem{.m = m, .n = 41, .k = 30};
          problem.epilogue.scale = 0.5F;
          problem.epilogue.addend = {bias.view(), type, 1.5F};
          problem.epilogue.activation = activation;
          problem.epilogue.residual = {residual.view(), DataType::kFloat32, -1.0F};
          check(problem, a, b, c, team, {.addend = &bias, .residual = &residual});

          auto gate = dense(type, 30, 41, weight_by_rows, 24);
          Matmul gated{.m = m, .n = 41, .k = 30};
          gated.gate = gate.view();
          gated.epilogue.activation = activation;
          check(gated, a, b, c, team, {.gate = &gate});

          Matmul accumulated{.m = m, .n = 41, .k = 30};
          accumulated.epilogue.addend = {c.view(), type, 1.0F};
          accumulated.epilogue.activation = activation;
          check(accumulated, a, b, c, team, {.addend = &c});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More columns than one block has, and sums that are kept from one block along k to the next, beside a gate's.
TEST(Matmul, GatedProductsOfSeveralBlocks) {
  testing::ThreadTeam team(2);
  for (const std::int64_t m : {7, 70}) {
    for (const std::int64_t k : {600, 1100, 9000}) {
      for (const bool weight_by_rows : {false, true}) {
        auto a = dense(DataType::kBFloat16, m, k, true, 28);
        auto b = dense(DataType::kBFloat16, k, 300, weight_by_rows, 29);
        auto gate = dense(DataType::kBFloat16, k, 300, weight_by_rows, 30);
        auto c = dense(DataType::kBFloat16, m, 300, true, 31);
        Matmul gated{.m = m, .n = 300, .k = k};
        gated.gate = gate.view();
        gated.epilogue.activation = Activation::kSilu;
        check(gated, a, b, c, team, {.gate = &gate});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Matmul, EmptySizes) {
  for (const auto type : kTypes) {
    for (const std::int64_t m : {0, 1, 2, 8, 20, 120, 200}) {
      for (const std::int64_t n : {0, 1, 20, 300}) {
        for (const int layout : {0, 1, 2, 3}) {
          auto a = dense(type, m, 0, (layout & 1) == 0, 25);
          auto b = dense(type, 0, n, (layout & 2) == 0, 26);
          auto c = dense(type, m, n, true, 27);
          check({.m = m, .n = n, .k = 0}, a, b, c, single_thread());
          Matmul gated{.m = m, .n = n, .k = 0};
          gated.gate = b.view();
          check(gated, a, b, c, single_thread(), {.gate = &b});
          Matmul problem{.m = m, .n = n, .k = 0};
          problem.epilogue.addend = {c.view(), type, 2.0F};
          check(problem, a, b, c, single_thread(), {.addend = &c});
        }
      }
    }
  }
}

TEST(Matmul, SpecialNumbersStayInTheirRowAndColumn) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto type : kTypes) {
    for (const std::int64_t m : {2, 20, 100}) {
      for (const bool weight_by_rows : {false, true}) {
        auto a = dense(type, m, 35, true, 28);
        auto b = dense(type, 35, 50, weight_by_rows, 29);
        a.set(0, 1, 34, kNan);
        b.set(0, 34, 49, kInfinity);
        for (const auto& way : ways(type)) {
          auto c = dense(type, m, 50, true, 30);
          Matmul problem{
              .m = m, .n = 50, .k = 35, .type = type, .c_type = type, .a = a.view(), .b = b.view(), .c = c.data(), .c_row_stride = 50};
          matmul(problem, single_thread(), way.isa, way.products);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < 50; ++j) {
              const auto value = c.get(0, i, j);
              if (i == 1) {
                EXPECT_TRUE(std::isnan(value)) << describe(way, problem) << " at " << i << ", " << j;
              } else if (j == 49) {
                EXPECT_EQ(value, a.get(0, i, 34) > 0 ? kInfinity : -kInfinity) << describe(way, problem) << " at " << i;
              } else {
                EXPECT_TRUE(std::isfinite(value)) << describe(way, problem) << " at " << i << ", " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, SubnormalNumbersCountUnlessDotProductsDropThem) {
  const float tiny = std::ldexp(1.0F, -130);
  for (const auto& way : ways(DataType::kBFloat16)) {
    for (const std::int64_t m : {1, 20, 100}) {
      auto a = dense(DataType::kBFloat16, m, 4, true, 31);
      auto b = dense(DataType::kBFloat16, 4, 20, false, 32);
      for (std::int64_t l = 0; l < 4; ++l) {
        for (std::int64_t i = 0; i < m; ++i) a.set(0, i, l, tiny);
        for (std::int64_t j = 0; j < 20; ++j) b.set(0, l, j, 1024.0F);
      }
      auto c = dense(DataType::kFloat32, m, 20, true, 33);
      Matmul problem{.m = m, .n = 20, .k = 4, .type = DataType::kBFloat16, .a = a.view(), .b = b.view(), .c = c.data(), .c_row_stride = 20};
      matmul(problem, single_thread(), way.isa, way.products);
      EXPECT_EQ(c.get(0, m - 1, 19), way.products != Bf16Products::kWiden ? 0.0F : 4096 * tiny) << describe(way, problem);
    }
  }
}

TEST(Matmul, TheNumberOfThreadsDoesNotChangeABit) {
  for (const auto type : kTypes) {
    for (const std::int64_t m : {1, 7, 24, 70, 300}) {
      for (const bool weight_by_rows : {false, true}) {
        auto a = dense(type, m, 100, true, 34);
        auto b = dense(type, 100, 130, weight_by_rows, 35);
        const auto run = [&](int count) {
          testing::ThreadTeam team(count);
          auto c = dense(type, m, 130, true, 36);
          matmul(
              {.m = m, .n = 130, .k = 100, .type = type, .c_type = type, .a = a.view(), .b = b.view(), .c = c.data(), .c_row_stride = 130},
              team);
          return c.bytes();
        };
        const auto one = run(1);
        for (const int count : {2, 3, 8}) {
          EXPECT_EQ(run(count), one) << m << " rows, " << count << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace neuron::kernels
