// Equal instructions are merged, unless somebody could tell their results apart.
#include "compiler/passes/common_subexpressions.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

Program read(const std::string& body) { return parse_program("program \"p\" {\n" + body + "}\n"); }

int merged(const std::string& body) {
  Program program = read(body);
  const int count = merge_common_subexpressions(program);
  verify(program);
  return count;
}

TEST(CommonSubexpressions, MergesChains) {
  Program program = read(R"(
    input %0: f32[4]@cpu
    %1 = aten::arange(4, dtype=dtype:f32): f32[4]@cpu
    %2 = aten::where.self(%0, %1): f32[4]@cpu
    %3 = aten::arange(4, dtype=dtype:f32): f32[4]@cpu
    %4 = aten::where.self(%0, %3): f32[4]@cpu
    %5 = aten::mul.Tensor(%2, %4): f32[4]@cpu
    return [%5])");
  EXPECT_EQ(merge_common_subexpressions(program), 2);
  EXPECT_EQ(to_string(parse_program(to_string(program))), to_string(read(R"(
    input %0: f32[4]@cpu
    %1 = aten::arange(4, dtype=dtype:f32): f32[4]@cpu
    %2 = aten::where.self(%0, %1): f32[4]@cpu
    %3 = aten::mul.Tensor(%2, %2): f32[4]@cpu
    return [%3])")));
}

TEST(CommonSubexpressions, MergesSeveralResults) {
  EXPECT_EQ(merged(R"(
    input %0: f32[4]@cpu
    %1, %2 = aten::max.dim(%0, 0, false): f32[]@cpu, i64[]@cpu
    %3, %4 = aten::max.dim(%0, 0, false): f32[]@cpu, i64[]@cpu
    %5 = aten::add.Tensor(%1, %4): f32[]@cpu
    return [%5])"),
            1);
}

TEST(CommonSubexpressions, TellsArgumentsApart) {
  EXPECT_EQ(merged(R"(
    input %0: f32[4]@cpu
    %1 = aten::add.Tensor(%0, 1): f32[4]@cpu
    %2 = aten::add.Tensor(%0, 1.0): f32[4]@cpu
    %3 = aten::add.Scalar(%0, 1): f32[4]@cpu
    %4 = aten::cat([%1, %2, %3], 0): f32[12]@cpu
    return [%4])"),
            0);
}

TEST(CommonSubexpressions, KeepsResultsThatLeaveAlsoThroughViews) {
  EXPECT_EQ(merged(R"(
    input %0: f32[4]@cpu
    %1 = aten::neg(%0): f32[4]@cpu
    %2 = aten::neg(%0): f32[4]@cpu
    %3 = aten::view(%2, [2, 2]) views(0): f32[2,2]@cpu
    return [%1, %3])"),
            0);
}

TEST(CommonSubexpressions, KeepsResultsThatAreWritten) {
  EXPECT_EQ(merged(R"(
    input %0: f32[4]@cpu
    %1 = aten::zeros([4]): f32[4]@cpu
    %2 = aten::zeros([4]): f32[4]@cpu
    aten::add_.Tensor(%2, %0) writes(0)
    %3 = aten::add.Tensor(%1, %2): f32[4]@cpu
    return [%3])"),
            0);
}

TEST(CommonSubexpressions, SeesWritesToOperands) {
  EXPECT_EQ(merged(R"(
    input %0: f32[4]@cpu
    %1 = aten::neg(%0): f32[4]@cpu
    %2 = aten::neg(%0): f32[4]@cpu
    aten::zero_(%0) writes(0)
    %3 = aten::neg(%0): f32[4]@cpu
    %4 = aten::neg(%0): f32[4]@cpu
    %5 = aten::cat([%1, %2, %3, %4], 0): f32[16]@cpu
    return [%5])"),
            2);
}

TEST(CommonSubexpressions, NeverMergesRandomNumbers) {
  EXPECT_EQ(merged(R"(
    %1 = aten::rand([4]) ordered: f32[4]@cpu
    %2 = aten::rand([4]) ordered: f32[4]@cpu
    %3 = aten::add.Tensor(%1, %2): f32[4]@cpu
    return [%3])"),
            0);
}

}  // namespace
}  // namespace neuron::compiler
