// Attention against a reference in double precision: sizes around every tile edge, strides, masks, values beyond the ordinary, every
// instruction set of the machine.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/floats.h"
#include "kernels/thread_team.h"

namespace neuron::kernels {
namespace {

using testing::Floats;
using Kind = AttentionMask::Kind;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::int64_t batches = 1, query_heads = 2, key_heads = 1, queries = 1, keys = 1, head_size = 8, value_size = 8;
  DataType type = DataType::kFloat32;
  bool causal = false;
  std::int64_t window = 0, shift = 0;
  Kind mask = Kind::kNone;
  bool mask_per_head = false;
  double hidden = 0.3;  // share of masked places
  float scale = 0.25F;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.batches << "x" << c.query_heads << "/" << c.key_heads << " heads, " << c.queries << "x" << c.keys << ", size "
               << c.head_size << "/" << c.value_size << ", type " << int(c.type) << ", causal " << c.causal << ", window " << c.window
               << ", shift " << c.shift << ", mask " << int(c.mask) << ", scale " << c.scale;
  }
};

// The tensors of a case, rows padded and heads beside each other ([batch, row, head, size]) so that no stride is the obvious one.
struct Problem {
  explicit Problem(const Case& c, unsigned seed = 1)
      : given(c),
        query(c.type, c.batches * c.queries * c.query_heads * (c.head_size + 3)),
        key(c.type, c.batches * c.keys * c.key_heads * (c.head_size + 1)),
        value(c.type, c.batches * c.keys * c.key_heads * (c.value_size + 2)),
        output(c.type, c.batches * c.queries * c.query_heads * c.value_size),
        mask(c.mask == Kind::kBFloat16 ? DataType::kBFloat16
             : c.mask == Kind::kHalf   ? DataType::kFloat16
                                       : DataType::kFloat32,
             c.batches * (c.mask_per_head ? c.query_heads : 1) * c.queries * c.keys),
        visible(mask.size(), 1),
        logsumexp(c.batches * c.query_heads * c.queries, -7) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto* tensor : {&query, &key, &value}) {
      for (std::size_t i = 0; i < tensor->size(); ++i) tensor->set(i, normal(random));
    }
    std::uniform_real_distribution<double> uniform(0, 1);
    for (std::size_t i = 0; i < visible.size(); ++i) {
      visible[i] = uniform(random) >= c.hidden ? 1 : 0;
      mask.set(i, visible[i] != 0 ? normal(random) : -std::numeric_limits<float>::infinity());
    }
    const auto heads = c.query_heads, key_heads = c.key_heads;
    const auto d = c.head_size + 3, e = c.head_size + 1, f = c.value_size + 2;
    call.batches = c.batches;
    call.query_heads = heads;
    call.key_heads = key_heads;
    call.queries = c.queries;
    call.keys = c.keys;
    call.head_size = c.head_size;
    call.value_size = c.value_size;
    call.type = c.type;
    call.query = {query.data(), c.queries * heads * d, d, heads * d};
    call.key = {key.data(), c.keys * key_heads * e, e, key_heads * e};
    call.value = {value.data(), c.keys * key_heads * f, f, key_heads * f};
    call.mask.kind = c.mask;
    if (c.mask != Kind::kNone) {
      call.mask.data = c.mask == Kind::kBoolean ? static_cast<const void*>(visible.data()) : mask.data();
      const auto plane = c.queries * c.keys;
      call.mask.batch = (c.mask_per_head ? heads : 1) * plane;
      call.mask.head = c.mask_per_head ? plane : 0;
      call.mask.row = c.keys;
      call.mask.column = 1;
    }
    call.scale = c.scale;
    call.causal = c.causal;
    call.window = c.window;
    call.shift = c.shift;
    call.output = output.data();
    call.output_batch = c.queries * heads * c.value_size;
    call.output_head = c.value_size;
    call.output_row = heads * c.value_size;
    call.logsumexp = logsumexp.data();
    call.logsumexp_batch = heads * c.queries;
    call.logsumexp_head = c.queries;
    call.logsumexp_row = 1;
  }

  [[nodiscard]] double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const auto& c = given;
    if ((c.causal && j > i + c.shift) || (c.window > 0 && j <= i + c.shift - c.window)) return -kInf;
    double sum = 0;
    const auto q = b * call.query.batch + h * call.query.head + i * call.query.row;
    const auto k = b * call.key.batch + h / (c.query_heads / c.key_heads) * call.key.head + j * call.key.row;
    for (std::int64_t d = 0; d < c.head_size; ++d) sum += double{query[q + d]} * double{key[k + d]};
    sum *= c.scale;
    const auto m = b * call.mask.batch + h * call.mask.head + i * call.mask.row + j * call.mask.column;
    if (c.mask == Kind::kBoolean) return visible[m] != 0 ? sum : -kInf;
    return c.mask == Kind::kNone ? sum : sum + double{mask[m]};
  }

  // The largest error of any output, and of any logsumexp, in absolute terms (values are of order 1).
  void expect_close(double bound) const {
    const auto& c = given;
    double worst = 0, worst_logsumexp = 0;
    for (std::int64_t b = 0; b < c.batches; ++b) {
      for (std::int64_t h = 0; h < c.query_heads; ++h) {
        for (std::int64_t i = 0; i < c.queries; ++i) {
          std::vector<double> weights(c.keys);
          double maximum = -kInf, total = 0;
          for (std::int64_t j = 0; j < c.keys; ++j) maximum = std::max(maximum, weights[j] = score(b, h, i, j));
          for (auto& weight : weights) total += weight = maximum == -kInf ? 0 : std::exp(weight - maximum);
          const auto v = b * call.value.batch + h / (c.query_heads / c.key_heads) * call.value.head;
          const auto o = b * call.output_batch + h * call.output_head + i * call.output_row;
          for (std::int64_t d = 0; d < c.value_size; ++d) {
            double expected = 0;
            for (std::int64_t j = 0; j < c.keys; ++j) expected += weights[j] * double{value[v + j * call.value.row + d]};
            expected = total > 0 ? expected / total : 0;
            const auto error = std::abs(double{output[o + d]} - expected);
            worst = std::isnan(error) ? kInf : std::max(worst, error);
          }
          const double expected = maximum == -kInf ? 0 : maximum + std::log(total);
          worst_logsumexp = std::max(worst_logsumexp, std::abs(logsumexp[(b * c.query_heads + h) * c.queries + i] - expected));
        }
      }
    }
    EXPECT_LE(worst, bound);
    EXPECT_LE(worst_logsumexp, 2e-5);
  }

  Case given;
  Floats query, key, value, output, mask;
  std::vector<std::uint8_t> visible;
  std::vector<float> logsumexp;
  Attention call;
};

// Outputs are averages of values of order 1: their rounding to the type, and that of the weights where they are bfloat16.
double bound_of(DataType type) { return type == DataType::kFloat32 ? 4e-6 : type == DataType::kBFloat16 ? 1.6e-2 : 2e-3; }

void check(const Case& c) {
  testing::ThreadTeam team(2);
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(::testing::Message() << isa_name(isa) << ": " << c);
    Problem problem(c);
    attention(problem.call, team, isa, products_of(isa).back());
    problem.expect_close(bound_of(c.type));
  }
}

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

TEST(Attention, SizesAroundTileEdges) {
  for (const auto type : kTypes) {
    for (const std::int64_t queries : {1, 2, 7, 9, 11, 12, 13, 25, 95, 97}) {
      for (const std::int64_t keys : {1, 15, 16, 17, 31, 33, 64, 65, 257}) {
        check({.queries = queries, .keys = keys, .head_size = 16, .value_size = 16, .type = type});
      }
    }
  }
}

TEST(Attention, HeadSizes) {
  for (const auto type : kTypes) {
    for (const std::int64_t size : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 96, 127, 128, 192, 255, 256, 300}) {
      for (const std::int64_t queries : {1, 13}) {
        const float scale = 1 / std::sqrt(static_cast<float>(size));
        check({.queries = queries, .keys = 37, .head_size = size, .value_size = size, .type = type, .scale = scale});
        check({.queries = queries, .keys = 37, .head_size = size, .value_size = size / 2 + 1, .type = type, .scale = scale});
      }
    }
  }
}

TEST(Attention, Groups) {
  for (const std::int64_t queries : {1, 3, 8, 20}) {
    for (const auto& [heads, key_heads] : {std::pair{1, 1}, {6, 3}, {6, 2}, {5, 1}, {16, 1}}) {
      check({.batches = 2, .query_heads = heads, .key_heads = key_heads, .queries = queries, .keys = 70, .type = DataType::kBFloat16});
      check({.batches = 2, .query_heads = heads, .key_heads = key_heads, .queries = queries, .keys = 70});
    }
  }
}

TEST(Attention, ManyChunksOfKeys) {
  for (const auto type : kTypes) {
    check({.queries = 1, .keys = 1500, .type = type});
    check({.queries = 3, .keys = 1021, .type = type, .causal = true, .shift = 1018});
    check({.queries = 2, .keys = 20000, .head_size = 4, .value_size = 4, .type = type});
  }
}

TEST(Attention, CausalAndWindow) {
  for (const auto type : kTypes) {
    for (const std::int64_t queries : {1, 5, 40, 300}) {
      for (const std::int64_t keys : {1, 40, 300}) {
        for (const std::int64_t shift : {std::int64_t{0}, keys - queries, std::int64_t{-3}}) {
          check({.queries = queries, .keys = keys, .type = type, .causal = true, .shift = shift});
          check({.queries = queries, .keys = keys, .type = type, .causal = true, .window = 33, .shift = shift});
          check({.queries = queries, .keys = keys, .type = type, .window = 1, .shift = shift});
        }
      }
    }
  }
}

TEST(Attention, Masks) {
  for (const auto mask : {Kind::kBoolean, Kind::kFloat, Kind::kBFloat16, Kind::kHalf}) {
    for (const std::int64_t queries : {1, 4, 30, 100}) {
      for (const std::int64_t keys : {5, 100, 513}) {
        check({.batches = 2, .queries = queries, .keys = keys, .mask = mask});
        check({.batches = 2, .queries = queries, .keys = keys, .causal = true, .mask = mask, .mask_per_head = true});
        check({.queries = queries, .keys = keys, .type = DataType::kBFloat16, .mask = mask, .hidden = 0.99});
      }
    }
  }
}

TEST(Attention, MaskStrides) {
  testing::ThreadTeam team(2);
  for (const Isa isa : available_isas()) {
    for (const std::int64_t queries : {2, 30}) {
      // One column of a wider mask for all keys, one row for all queries, and columns two apart.
      for (const auto& [row, column] : {std::pair{1, 0}, {0, 1}, {0, 2}}) {
        Problem problem({.queries = queries, .keys = 100, .mask = Kind::kBoolean});
        problem.visible.assign(1000, 1);
        for (std::size_t i = 0; i < problem.visible.size(); i += 3) problem.visible[i] = 0;
        problem.call.mask = {Kind::kBoolean, problem.visible.data(), 0, 0, row, column};
        attention(problem.call, team, isa, products_of(isa).back());
        problem.expect_close(4e-6);
      }
    }
  }
}

TEST(Attention, NothingVisible) {
  for (const auto type : kTypes) {
    for (const std::int64_t queries : {1, 30}) {
      check({.queries = queries, .keys = 300, .type = type, .mask = Kind::kBoolean, .hidden = 1});
      check({.queries = queries, .keys = 300, .type = type, .mask = Kind::kFloat, .hidden = 1});
      check({.queries = queries, .keys = 0, .type = type});
    }
  }
}

TEST(Attention, HiddenKeysAreNotRead) {
  // A static cache: what is masked out may be anything.
  testing::ThreadTeam team(2);
  for (const Isa isa : available_isas()) {
    for (const std::int64_t queries : {1, 20}) {
      Problem problem({.queries = queries, .keys = 600, .mask = Kind::kBoolean, .hidden = 0});
      for (std::int64_t i = 0; i < queries; ++i) {
        std::fill(problem.visible.begin() + i * 600 + 64, problem.visible.begin() + (i + 1) * 600, 0);
      }
      auto expected = problem;
      attention(problem.call, team, isa, products_of(isa).back());
      for (auto i = 64 * problem.call.value.row; i < static_cast<std::int64_t>(problem.value.size()); ++i) {
        problem.value.set(i, std::numeric_limits<float>::quiet_NaN());
      }
      for (auto i = 64 * problem.call.key.row; i < static_cast<std::int64_t>(problem.key.size()); ++i) {
        problem.key.set(i, std::numeric_limits<float>::quiet_NaN());
      }
      attention(problem.call, team, isa, products_of(isa).back());
      for (std::size_t i = 0; i < problem.output.size(); ++i) EXPECT_FALSE(std::isnan(problem.output[i]));
    }
  }
}

TEST(Attention, HugeScoresAndScales) {
  for (const auto type : kTypes) {
    for (const std::int64_t queries : {1, 20}) {
      for (const float scale : {0.0F, -0.5F, 30.0F}) {
        // Large scores make the softmax a choice; the error of a score is then what decides, so keep sizes small.
        check({.queries = queries, .keys = 40, .head_size = 1, .value_size = 4, .type = type, .scale = scale});
      }
    }
  }
}

TEST(Attention, NanAndInfinityStayInTheirRows) {
  testing::ThreadTeam team(2);
  for (const Isa isa : available_isas()) {
    for (const auto type : kTypes) {
      for (const std::int64_t queries : {3, 20}) {
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
          SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << int(type) << " " << queries << " " << bad);
          Problem problem({.query_heads = 1, .queries = queries, .keys = 50, .type = type});
          problem.query.set(1 * problem.call.query.row + 2, bad);
          attention(problem.call, team, isa, products_of(isa).back());
          for (std::int64_t i = 0; i < queries; ++i) EXPECT_EQ(std::isnan(problem.output[i * problem.call.output_row]), i == 1) << i;
        }
      }
    }
  }
}

TEST(Attention, TheNumberOfThreadsDoesNotMatter) {
  for (const Isa isa : available_isas()) {
    for (const auto type : kTypes) {
      for (const Case& c : {Case{.query_heads = 4, .key_heads = 2, .queries = 300, .keys = 300, .head_size = 64, .value_size = 64},
                            Case{.query_heads = 4, .key_heads = 2, .queries = 1, .keys = 3000, .head_size = 64, .value_size = 64}}) {
        auto typed = c;
        typed.type = type;
        Problem alone(typed);
        attention(alone.call, single_thread(), isa, products_of(isa).back());
        for (const int threads : {2, 3, 5}) {
          testing::ThreadTeam team(threads);
          Problem shared(typed);
          attention(shared.call, team, isa, products_of(isa).back());
          EXPECT_TRUE(shared.output == alone.output && shared.logsumexp == alone.logsumexp) << isa_name(isa) << " " << threads;
        }
      }
    }
  }
}

TEST(Attention, ExpandedHeadsAndReversedRows) {
  testing::ThreadTeam team(2);
  for (const Isa isa : available_isas()) {
    for (const std::int64_t queries : {1, 20}) {
      Problem problem({.batches = 2, .query_heads = 4, .key_heads = 4, .queries = queries, .keys = 50});
      problem.call.key.head = 0;
      problem.call.value.batch = 0;
      problem.call.key.data = static_cast<const float*>(problem.call.key.data) + 49 * problem.call.key.row;
      problem.call.key.row = -problem.call.key.row;
      attention(problem.call, team, isa, products_of(isa).back());
      problem.call.key.data = problem.key.data();
      problem.key = [&] {  // the reference reads from the first element
        auto reversed = problem.key;
        const auto row = -problem.call.key.row, batch = problem.call.key.batch;
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t j = 0; j < 50; ++j)
            for (std::int64_t d = 0; d < row; ++d) reversed.set(b * batch + j * row + d, problem.key[b * batch + (49 - j) * row + d]);
        return reversed;
      }();
      problem.call.key.row = -problem.call.key.row;
      problem.expect_close(4e-6);
    }
  }
}

}  // namespace
}  // namespace neuron::kernels
