// The interpreter against float64 element by element, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/vector/plan.h"
#include "reference.h"

namespace neuron::kernels::vector {
namespace {

using testing::Reference;
using Bytes = std::vector<std::byte>;

Access dense(const std::vector<std::int64_t>& sizes) {
  Access access;
  access.strides.resize(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    access.strides[i] = sizes[i] == 1 ? 0 : stride;
  }
  return access;
}

Access last_dimension_only(const std::vector<std::int64_t>& sizes) {
  Access access{std::vector<std::int64_t>(sizes.size(), 0), 0};
  access.strides.back() = 1;
  return access;
}

Access rows_only(const std::vector<std::int64_t>& sizes) {
  auto outer = sizes;
  outer.back() = 1;
  return dense(outer);
}

// Room for every element that an access may reach.
std::size_t bytes_for(const std::vector<std::int64_t>& sizes, const Access& access, Element type) {
  std::int64_t last = access.offset;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    last += std::max<std::int64_t>(sizes[i] - 1, 0) * access.strides[i];
  }
  return static_cast<std::size_t>((last + 1) * size_of(type));
}

void expect_close(double actual, double expected, Element type, double tolerance, const std::string& where) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << where;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected) << where;
  } else {
    const double ulp = type == Element::kBF16 ? 0x1p-7 : type == Element::kF16 ? 0x1p-10 : tolerance;
    EXPECT_NEAR(actual, expected, std::max(std::fabs(expected), 0.1) * std::max(ulp, tolerance)) << where;
  }
}

// Fills the inputs at random, runs, compares every stored element.
void check_against_reference(const Region& region, unsigned seed, double tolerance = 2e-6, double low = -3, double high = 3) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<Bytes> inputs(static_cast<std::size_t>(region.inputs));
  for (const Node& node : region.nodes) {
    if (node.op != Op::kLoad) continue;
    Bytes& bytes = inputs[static_cast<std::size_t>(node.tensor)];
    bytes.resize(std::max(bytes.size(), bytes_for(region.sizes, node.access, node.type)));
    for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(size_of(node.type)); ++i) {
      const double x = uniform(generator);
      testing::put(node.type, bytes.data(), static_cast<std::int64_t>(i), node.type == Element::kBool ? (x > 0 ? 1.0 : 0.0) : x);
    }
  }
  std::vector<const std::byte*> pointers;
  for (const Bytes& bytes : inputs) pointers.push_back(bytes.data());
  const Reference reference(region, pointers);
  for (const KernelTable* table : kernel_tables()) {
    const Plan plan(region, *table);
    std::vector<Bytes> tensors = inputs;
    for (const Store& store : region.stores) tensors.emplace_back(bytes_for(region.sizes, store.access, store.type));
    testing::run(plan, tensors, 1 + seed % 3);
    for (std::size_t i = 0; i < region.stores.size(); ++i) {
      const Store& store = region.stores[i];
      std::size_t at = 0;
      testing::for_each_point(region.sizes, [&](const std::vector<std::int64_t>& point) {
        const double actual = testing::element_at(store.type, tensors[inputs.size() + i].data(), testing::offset_of(store.access, point));
        std::string where = std::string(table->name) + " result " + std::to_string(i) + " at";
        for (const std::int64_t p : point) where += " " + std::to_string(p);
        expect_close(actual, reference.value(store.node, at++), store.type, tolerance, where);
      });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

Argument n(int node) { return Argument::of(node); }
Argument number(double value) { return Argument::of_number(value); }
Node load(Element type, Access access, int tensor) { return {Op::kLoad, type, {}, tensor, std::move(access)}; }
Node op(Op op, Element type, std::vector<Argument> arguments) { return {op, type, std::move(arguments), -1, {}}; }

Region rms_norm(const std::vector<std::int64_t>& sizes, Element type) {
  Region region{sizes, 2, {}, {}};
  region.nodes = {load(type, dense(sizes), 0),
                  load(type, last_dimension_only(sizes), 1),
                  op(Op::kCopy, Element::kF32, {n(0)}),
                  op(Op::kSquare, Element::kF32, {n(2)}),
                  op(Op::kSum, Element::kF32, {n(3)}),
                  op(Op::kDivide, Element::kF32, {n(4), number(static_cast<double>(sizes.back()))}),
                  op(Op::kAdd, Element::kF32, {n(5), number(1e-6)}),
                  op(Op::kRsqrt, Element::kF32, {n(6)}),
                  op(Op::kMultiply, Element::kF32, {n(2), n(7)}),
                  op(Op::kCopy, type, {n(8)}),
                  op(Op::kMultiply, type, {n(1), n(9)})};
  region.stores = {{10, type, dense(sizes)}, {7, Element::kF32, rows_only(sizes)}};
  return region;
}

TEST(VectorPlan, RmsNormOfShortAndLongRows) {
  for (const Element type : {Element::kF32, Element::kBF16, Element::kF16}) {
    for (const std::int64_t row : {1, 2, 15, 16, 64, 127, 1024, 1025, 3000}) {
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(row));
      check_against_reference(rms_norm({2, 3, row}, type), static_cast<unsigned>(row));
    }
  }
}

TEST(VectorPlan, SoftmaxOfShortAndLongRows) {
  for (const Element type : {Element::kF32, Element::kBF16}) {
    for (const std::int64_t row : {1, 7, 33, 1024, 2500}) {
      const std::vector<std::int64_t> sizes{3, row};
      Region region{sizes, 1, {}, {}};
      region.nodes = {load(type, dense(sizes), 0),
                      op(Op::kCopy, Element::kF32, {n(0)}),
                      op(Op::kAmax, Element::kF32, {n(1)}),
                      op(Op::kSubtract, Element::kF32, {n(1), n(2)}),
                      op(Op::kExp, Element::kF32, {n(3)}),
                      op(Op::kSum, Element::kF32, {n(4)}),
                      op(Op::kDivide, Element::kF32, {n(4), n(5)}),
                      op(Op::kCopy, type, {n(6)})};
      region.stores = {{7, type, dense(sizes)}};
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(row));
      check_against_reference(region, static_cast<unsigned>(row), 4e-6);
    }
  }
}

TEST(VectorPlan, RotatesHalves) {
  for (const Op rotation : {Op::kRotateHalf, Op::kRotateHalfBack}) {
    for (const std::int64_t row : {2, 16, 80, 128, 2048}) {
      const std::vector<std::int64_t> sizes{2, 3, 2, row};
      Region region{sizes, 3, {}, {}};
      Access transposed = dense({2, 2, 3, row});  // memory has the middle dimensions swapped
      std::swap(transposed.strides[1], transposed.strides[2]);
      region.nodes = {load(Element::kBF16, transposed, 0),
                      load(Element::kBF16, last_dimension_only(sizes), 1),
                      load(Element::kBF16, last_dimension_only(sizes), 2),
                      op(Op::kMultiply, Element::kBF16, {n(0), n(1)}),
                      op(rotation, Element::kBF16, {n(0)}),
                      op(Op::kMultiply, Element::kBF16, {n(4), n(2)}),
                      op(Op::kAdd, Element::kBF16, {n(3), n(5)})};
      region.stores = {{6, Element::kBF16, dense(sizes)}};
      check_against_reference(region, static_cast<unsigned>(row));
    }
  }
}

TEST(VectorPlan, EveryOperationOfEveryLane) {
  const std::vector<std::int64_t> sizes{3, 37};
  for (int i = 0; i < kOpCount; ++i) {
    const Op tested = static_cast<Op>(i);
    if (is_source(tested) || is_rotation(tested) || tested == Op::kMultiplyAdd) continue;
    for (const Element type : {Element::kF32, Element::kBF16, Element::kF16, Element::kF64, Element::kI64, Element::kI32, Element::kBool}) {
      const bool integers = lane_of(type) == Lane::kInteger;
      const bool logical = tested == Op::kAnd || tested == Op::kOr || tested == Op::kXor || tested == Op::kNot;
      const bool offered =
          kernel_tables()[0]->elements[i][static_cast<int>(lane_of(type))][0][0] != nullptr || is_reduction(tested) || tested == Op::kCopy;
      if (!offered || (type == Element::kBool) != (logical && !integers)) continue;
      SCOPED_TRACE(std::string(name_of(tested)) + " " + std::string(name_of(type)));
      Region region{sizes, 3, {}, {}};
      region.nodes = {load(type, dense(sizes), 0), load(type, last_dimension_only(sizes), 1), load(type, rows_only(sizes), 2),
                      op(Op::kGreater, Element::kBool, {n(1), n(0)})};
      const bool truth = is_comparison(tested) || tested == Op::kIsNan || tested == Op::kNot;
      const Element result = truth ? Element::kBool : type;
      const Argument some = type == Element::kBool ? Argument{-1, 1, 1} : Argument{-1, 2, 2};
      std::vector<std::vector<Argument>> variants;
      if (arity_of(tested) == 1) variants = {{n(0)}, {n(2)}};
      if (arity_of(tested) == 2) variants = {{n(0), n(1)}, {n(0), n(2)}, {n(2), n(0)}, {n(2), n(2)}, {n(0), some}, {some, n(1)}};
      if (tested == Op::kWhere) variants = {{n(3), n(0), n(1)}, {n(3), n(2), some}, {n(3), Argument{-1, 1, 1}, n(2)}};
      for (auto& arguments : variants) {
        region.nodes.push_back(op(tested, result, arguments));
        region.stores.push_back(
            {static_cast<int>(region.nodes.size()) - 1, result, is_reduction(tested) ? rows_only(sizes) : dense(sizes)});
      }
      const bool positive = tested == Op::kLog || tested == Op::kSqrt || tested == Op::kRsqrt || tested == Op::kPow ||
                            tested == Op::kLog2 || tested == Op::kLog1p || tested == Op::kDivide || tested == Op::kReciprocal;
      // GELU's gradient cancels near its zero.
      const bool cancels = tested == Op::kGeluBackward || tested == Op::kGeluTanhBackward;
      check_against_reference(region, 1, cancels ? 1e-4 : 1e-5, positive ? 0.1 : -5, 5);
    }
  }
}

TEST(VectorPlan, CastsBetweenAllElementTypes) {
  for (int from = 0; from < kElementCount; ++from) {
    const std::vector<std::int64_t> sizes{2, 70};
    Region region{sizes, 1, {load(static_cast<Element>(from), dense(sizes), 0)}, {}};
    for (int to = 0; to < kElementCount; ++to) {
      region.nodes.push_back(op(Op::kCopy, static_cast<Element>(to), {n(0)}));
      region.stores.push_back({to + 1, static_cast<Element>(to), dense(sizes)});
    }
    SCOPED_TRACE(name_of(static_cast<Element>(from)));
    check_against_reference(region, 7, 0, 0, 100);
  }
}

TEST(VectorPlan, CountsAndStridesAndOffsets) {
  const std::vector<std::int64_t> sizes{3, 5, 9};
  Region region{sizes, 2, {}, {}};
  region.nodes = {{Op::kIota, Element::kI64, {}, -1, {{0, 2, 1}, 5}}, {Op::kIota, Element::kI64, {}, -1, {{7, 0, 0}, 0}},
                  op(Op::kAdd, Element::kI64, {n(0), n(1)}),          op(Op::kCopy, Element::kF32, {n(2)}),
                  load(Element::kF32, {{100, 1, 10}, 3}, 0),          load(Element::kF32, {{0, 0, 0}, 1}, 1),
                  op(Op::kMultiply, Element::kF32, {n(4), n(5)}),     op(Op::kAdd, Element::kF32, {n(6), n(3)})};
  region.stores = {{7, Element::kF32, {{9, 60, 2}, 4}}, {2, Element::kI64, dense(sizes)}};
  check_against_reference(region, 3);
}

TEST(VectorPlan, NoDimensionsAndNoElements) {
  Region scalar{{}, 1, {load(Element::kF32, {}, 0), op(Op::kExp, Element::kF32, {n(0)})}, {{1, Element::kF32, {}}}};
  check_against_reference(scalar, 1);
  Region empty{
      {3, 0, 4}, 1, {load(Element::kF32, {{0, 4, 1}, 0}, 0), op(Op::kExp, Element::kF32, {n(0)})}, {{1, Element::kF32, {{0, 4, 1}, 0}}}};
  const Plan plan(empty);
  EXPECT_EQ(plan.units(), 0);
}

TEST(VectorPlan, LongRowsAreTiledAndPartsAddUp) {
  const std::vector<std::int64_t> sizes{2, 50000};
  Region region{sizes, 2, {}, {}};
  region.nodes = {load(Element::kBF16, dense(sizes), 0), load(Element::kF32, rows_only(sizes), 1), op(Op::kCopy, Element::kF32, {n(0)}),
                  op(Op::kMultiply, Element::kF32, {n(2), n(1)}), op(Op::kSilu, Element::kF32, {n(3)})};
  region.stores = {{4, Element::kF32, dense(sizes)}};
  EXPECT_GT(Plan(region).units(), 2);
  check_against_reference(region, 2);
}

// Random graphs over random layouts.
TEST(VectorPlan, RandomRegions) {
  constexpr Op kOps[] = {Op::kTanh,    Op::kSigmoid, Op::kNegate, Op::kAbs,        Op::kAdd,  Op::kMultiply, Op::kSubtract, Op::kMaximum,
                         Op::kMinimum, Op::kSum,     Op::kAmax,   Op::kRotateHalf, Op::kCopy, Op::kSilu,     Op::kWhere,    Op::kRelu};
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 generator(seed);
    const auto pick = [&](int count) { return static_cast<int>(generator() % static_cast<unsigned>(count)); };
    constexpr std::int64_t kRows[] = {1, 2, 8, 34, 600, 1500};
    std::vector<std::int64_t> sizes;
    for (int dim = pick(3); dim > 0; --dim) sizes.push_back(1 + pick(4));
    sizes.push_back(kRows[pick(6)]);
    Region region{sizes, 0, {}, {}};
    const auto random_access = [&](bool broadcasts) {
      Access access = dense(sizes);
      if (broadcasts && pick(3) == 0) access = last_dimension_only(sizes);
      if (broadcasts && pick(4) == 0) access = rows_only(sizes);
      const std::int64_t spread = pick(4) == 0 ? 2 : 1;
      for (auto& stride : access.strides) stride *= spread;
      access.offset = pick(3);
      return access;
    };
    for (int i = 0; i < 3; ++i) {
      constexpr Element kTypes[] = {Element::kF32, Element::kBF16, Element::kF16};
      region.nodes.push_back(load(kTypes[pick(3)], random_access(true), region.inputs++));
    }
    for (int i = 0; i < 3; ++i) region.nodes.push_back(op(Op::kCopy, Element::kF32, {n(i)}));
    for (int i = 0; i < 8; ++i) {
      const Op chosen = kOps[pick(16)];
      const auto any = [&] { return n(3 + pick(static_cast<int>(region.nodes.size()) - 3)); };
      if (chosen == Op::kRotateHalf && sizes.back() % 2 != 0) continue;
      Node node = op(chosen, Element::kF32, {});
      if (chosen == Op::kWhere) {
        node.arguments.push_back(any());
      }
      node.arguments.push_back(any());
      if (arity_of(chosen) >= 2) node.arguments.push_back(pick(5) == 0 ? number(0.5) : any());
      region.nodes.push_back(node);
      if (chosen == Op::kSum) {  // keeps values small
        region.nodes.push_back(
            op(Op::kDivide, Element::kF32, {n(static_cast<int>(region.nodes.size()) - 1), number(static_cast<double>(sizes.back()))}));
      }
    }
    for (int i = 0; i < 1 + pick(3); ++i) {
      const int stored = 3 + pick(static_cast<int>(region.nodes.size()) - 3);
      region.stores.push_back({stored, region.nodes[static_cast<std::size_t>(stored)].type, random_access(false)});
    }
    region.stores.push_back({static_cast<int>(region.nodes.size()) - 1, Element::kF32, dense(sizes)});
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_against_reference(region, seed, 3e-5);
    if (HasFailure()) return;
  }
}

TEST(VectorPlan, RefusesMalformedRegions) {
  const auto refused = [](Region region) { EXPECT_THROW(Plan{region}, std::invalid_argument); };
  refused({{4}, 0, {op(Op::kExp, Element::kF32, {n(0)})}, {{0, Element::kF32, {{1}, 0}}}});
  refused({{4}, 1, {load(Element::kF32, {{1}, 0}, 1)}, {{0, Element::kF32, {{1}, 0}}}});
  refused({{4}, 1, {load(Element::kF32, {{1}, 0}, 0)}, {}});
  refused({{4}, 1, {load(Element::kF32, {{1, 2}, 0}, 0)}, {{0, Element::kF32, {{1}, 0}}}});
  refused({{3}, 1, {load(Element::kF32, {{1}, 0}, 0), op(Op::kRotateHalf, Element::kF32, {n(0)})}, {{1, Element::kF32, {{1}, 0}}}});
  refused({{4}, 1, {load(Element::kI64, {{1}, 0}, 0), op(Op::kExp, Element::kI64, {n(0)})}, {{1, Element::kI64, {{1}, 0}}}});
}

}  // namespace
}  // namespace neuron::kernels::vector
