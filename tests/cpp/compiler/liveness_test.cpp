// Releases are planned at the last use, and nowhere else.
#include "compiler/liveness.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

Program planned(const char* text) {
  Program program = parse_program(text);
  plan_releases(program);
  verify(program);
  return program;
}

TEST(Liveness, ReleasesEachValueAtItsLastUse) {
  const Program program = planned(R"(program "p" {
    input %0: f32[2]@cpu
    %1 = aten::neg(%0): f32[2]@cpu
    %2 = aten::mul.Tensor(%0, %1): f32[2]@cpu
    %3 = aten::add.Tensor(%2, %2): f32[2]@cpu
    return [%3]
  })");
  EXPECT_TRUE(program.instructions[0].releases.empty());
  EXPECT_EQ(program.instructions[1].releases, (std::vector<ValueId>{0, 1}));
  EXPECT_EQ(program.instructions[2].releases, (std::vector<ValueId>{2}));
}

TEST(Liveness, KeepsOutputsAndConstants) {
  const Program program = planned(R"(program "p" {
    input %0: f32[2]@cpu
    constant %1: f32[2]@cpu
    %2 = aten::mul.Tensor(%0, %1): f32[2]@cpu
    %3 = aten::neg(%2): f32[2]@cpu
    return [%0, [%2], %3]
  })");
  EXPECT_TRUE(program.instructions[0].releases.empty());
  EXPECT_TRUE(program.instructions[1].releases.empty());
}

TEST(Liveness, ReleasesUnreadInputsAtEntryAndForgetsUnreadResults) {
  const Program program = planned(R"(program "p" {
    input %0: f32[2]@cpu
    input %1: f32[2]@cpu
    %2, %3 = aten::max.dim(%1, 0, false): f32[]@cpu, i64[]@cpu
    return [%2]
  })");
  EXPECT_EQ(program.entry_releases, (std::vector<ValueId>{0}));
  EXPECT_EQ(program.instructions[0].results, (std::vector<ValueId>{2, kNoValue}));
}

TEST(Liveness, SeesValuesInsideLists) {
  const Program program = planned(R"(program "p" {
    input %0: f32[2]@cpu
    input %1: f32[2]@cpu
    %2 = aten::cat([%0, %1, %0], 0): f32[6]@cpu
    return [%2]
  })");
  EXPECT_EQ(program.instructions[0].releases, (std::vector<ValueId>{0, 1}));
}

TEST(Liveness, ReplacesAnEarlierPlan) {
  Program program = planned("program \"p\" { input %0: f32[2]@cpu %1 = aten::neg(%0): f32[2]@cpu return [%1] }");
  const Program once = program;
  plan_releases(program);
  EXPECT_EQ(to_string(program), to_string(once));
}

}  // namespace
}  // namespace neuron::compiler
