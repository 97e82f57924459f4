// Chains of views become one, where nobody could tell.
#include "compiler/passes/fold_views.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

Program folded(const char* text, int expected) {
  Program program = parse_program(text);
  EXPECT_EQ(fold_views(program), expected);
  verify(program);
  return program;
}

TEST(FoldViews, ChainsStartFromTheTensor) {
  const Program program = folded(R"(program "p" {
    input %0: f32[4,6]@neuron:0
    input %1: f32[6,6]@neuron:0
    %2 = aten::slice.Tensor(%0, 0, 1, 4, 1) views(0): f32[3,6]@neuron:0
    %3 = aten::view(%2, [3, 2, 3]) views(0): f32[3,2,3]@neuron:0
    %4 = aten::select.int(%3, 1, 1) views(0): f32[3,3]{6,1}@neuron:0
    %5 = aten::mm(%4, %4): f32[3,3]@neuron:0
    return [%5]
  })",
                                 2);
  ASSERT_EQ(program.instructions.size(), 2U) << to_string(program);
  EXPECT_EQ(to_string(program.instructions[0], program), "%4 = neuron::view(%0, 9) views(0): f32[3,3]{6,1}@neuron:0");
}

TEST(FoldViews, WhatLeavesOrIsWrittenKeepsItsViews) {
  folded(R"(program "p" {
    input %0: f32[4,6]@neuron:0
    %1 = aten::t(%0) views(0): f32[6,4]{1,6}@neuron:0
    %2 = aten::unsqueeze(%1, 0) views(0): f32[1,6,4]{4,1,6}@neuron:0
    return [%2]
  })",
         0);
  folded(R"(program "p" {
    input %0: f32[4,6]@neuron:0
    %1 = aten::t(%0) views(0): f32[6,4]{1,6}@neuron:0
    %2 = aten::unsqueeze(%1, 0) views(0): f32[1,6,4]{4,1,6}@neuron:0
    _ = aten::zero_(%2) writes(0) views(0)
    return []
  })",
         0);
}

}  // namespace
}  // namespace neuron::compiler
