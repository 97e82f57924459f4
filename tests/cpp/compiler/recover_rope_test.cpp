// The rotation of halves is found in both directions, and only where it is one.
#include "compiler/passes/recover_rope.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/passes/fuse_regions.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

const char* const kForward = R"(program "p" {
    input %0: bf16[2,3,8]@neuron:0
    %1 = aten::slice.Tensor(%0, 2, 0, 4, 1) views(0): bf16[2,3,4]{24,8,1}@neuron:0
    %2 = aten::slice.Tensor(%0, 2, 4, 9223372036854775807, 1) views(0): bf16[2,3,4]{24,8,1}@neuron:0
    %3 = aten::neg(%2): bf16[2,3,4]@neuron:0
    %4 = aten::cat([%3, %1], -1): bf16[2,3,8]@neuron:0
    return [%4]
  })";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(RecoverRope, Forward) {
  Program program = parse_program(kForward);
  EXPECT_EQ(recover_rope(program), 1);
  verify(program);
  ASSERT_EQ(program.instructions.size(), 1U);
  EXPECT_EQ(program.instructions[0].opcode, "neuron::rotate_half");
  fuse_regions(program);
  verify(program);
  EXPECT_NE(to_string(program).find("rotate_half(n0): bf16"), std::string::npos) << to_string(program);
}

TEST(RecoverRope, Backward) {
  Program program = parse_program(R"(program "p" {
    input %0: bf16[2,3,8]@neuron:0
    %1 = aten::slice.Tensor(%0, 2, 0, 4, 1) views(0): bf16[2,3,4]{24,8,1}@neuron:0
    %2 = aten::slice.Tensor(%0, 2, 4, 8, 1) views(0): bf16[2,3,4]{24,8,1}@neuron:0
    %3 = aten::neg(%1): bf16[2,3,4]@neuron:0
    %4 = aten::slice_backward(%3, [2, 3, 8], 2, 4, 9223372036854775807, 1): bf16[2,3,8]@neuron:0
    %5 = aten::slice_backward(%2, [2, 3, 8], 2, 0, 4, 1): bf16[2,3,8]@neuron:0
    %6 = aten::add.Tensor(%4, %5, alpha=1): bf16[2,3,8]@neuron:0
    return [%6]
  })");
  EXPECT_EQ(recover_rope(program), 1);
  verify(program);
  ASSERT_EQ(program.instructions.size(), 1U);
  EXPECT_EQ(program.instructions[0].opcode, "neuron::rotate_half_back");
}

TEST(RecoverRope, OtherCutsAreLeftAlone) {
  const auto is_left = [](const std::string& text) {
    Program program = parse_program(text);
    EXPECT_EQ(recover_rope(program), 0) << text;
  };
  is_left(replaced(kForward, "[%3, %1]", "[%1, %3]"));
  is_left(replaced(kForward, "%0, 2, 0, 4, 1)", "%0, 2, 1, 5, 1)"));
  is_left(replaced(kForward, "aten::neg", "aten::exp"));
}

TEST(RecoverRope, WritesBetweenForbidIt) {
  const std::string written = replaced(kForward, "    %4 =", "    _ = aten::zero_(%0) writes(0) views(0)\n    %4 =");
  Program program = parse_program(written);
  EXPECT_EQ(recover_rope(program), 0);
}

}  // namespace
}  // namespace neuron::compiler
