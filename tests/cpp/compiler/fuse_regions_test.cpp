// What goes into a region, and what must not.
#include "compiler/passes/fuse_regions.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

Program fused(const char* text) {
  Program program = parse_program(text);
  fuse_regions(program);
  verify(program);
  // The text form says everything; reading it numbers the values anew.
  const std::string printed = to_string(parse_program(to_string(program)));
  EXPECT_EQ(to_string(parse_program(printed)), printed);
  return program;
}

std::vector<std::string> opcodes(const Program& program) {
  std::vector<std::string> names;
  for (const Instruction& instruction : program.instructions) {
    names.push_back(instruction.opcode);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(FuseRegions, RmsNormIsOneRegion) {
  const Program program = fused(R"(program "p" {
    input %0: bf16[1,8,64]@neuron:0
    input %1: bf16[64]@neuron:0
    %2 = aten::_to_copy(%0, dtype=dtype:f32): f32[1,8,64]@neuron:0
    %3 = aten::pow.Tensor_Scalar(%2, 2): f32[1,8,64]@neuron:0
    %4 = aten::mean.dim(%3, [-1], true, dtype=none): f32[1,8,1]@neuron:0
    %5 = aten::add.Tensor(%4, 1e-06, alpha=1): f32[1,8,1]@neuron:0
    %6 = aten::rsqrt(%5): f32[1,8,1]@neuron:0
    %7 = aten::mul.Tensor(%2, %6): f32[1,8,64]@neuron:0
    %8 = aten::_to_copy(%7, dtype=dtype:bf16): bf16[1,8,64]@neuron:0
    %9 = aten::mul.Tensor(%1, %8): bf16[1,8,64]@neuron:0
    return [%9, %6]
  })");
  ASSERT_EQ(opcodes(program), Names{"neuron::fused"});
  EXPECT_EQ(to_string(program), R"(program "p" {
  input %0: bf16[1,8,64]@neuron:0
  input %1: bf16[64]@neuron:0
  %6, %9 = neuron::fused(%0, %1) body={
    over [8,64]
    n0 = load(0): bf16{64,1}
    n1 = cast(n0): f32
    n2 = square(n1): f32
    n3 = sum(n2): f32
    n4 = div(n3, 64.0): f32
    n5 = add(n4, 9.999999974752427e-07): f32
    n6 = rsqrt(n5): f32
    n7 = mul(n1, n6): f32
    n8 = cast(n7): bf16
    n9 = load(1): bf16{0,1}
    n10 = mul(n9, n8): bf16
    store n6 {1,0}
    store n10 {64,1}
  }: f32[1,8,1]@neuron:0, bf16[1,8,64]@neuron:0
  return [%9, %6]
}
)");
}

TEST(FuseRegions, ReadsThroughViewsAndDropsThem) {
  const Program program = fused(R"(program "p" {
    input %0: f32[2,3,4]@neuron:0
    input %1: f32[4]@neuron:0
    %2 = aten::transpose.int(%0, 1, 2) views(0): f32[2,4,3]{12,1,4}@neuron:0
    %3 = aten::slice.Tensor(%2, 2, 1, 3, 1) views(0): f32[2,4,2]{12,1,4}@neuron:0
    %4 = aten::unsqueeze(%1, 1) views(0): f32[4,1]@neuron:0
    %5 = aten::expand(%4, [2, 4, 2], implicit=false) views(0): f32[2,4,2]{0,1,0}@neuron:0
    %6 = aten::mul.Tensor(%3, %5): f32[2,4,2]@neuron:0
    return [%6]
  })");
  ASSERT_EQ(opcodes(program), Names{"neuron::fused"});
  const std::string text = to_string(program);
  EXPECT_NE(text.find("load(0): f32{12,1,4} offset 4"), std::string::npos) << text;
  EXPECT_NE(text.find("load(1): f32{0,1,0}"), std::string::npos) << text;
}

TEST(FuseRegions, TransposesOfMembersAreIndexArithmetic) {
  const Program program = fused(R"(program "p" {
    input %0: f32[2,3,4]@neuron:0
    input %1: f32[2,4,3]@neuron:0
    %2 = aten::exp(%0): f32[2,3,4]@neuron:0
    %3 = aten::transpose.int(%2, 1, 2) views(0): f32[2,4,3]{12,1,4}@neuron:0
    %4 = aten::add.Tensor(%3, %1, alpha=1): f32[2,4,3]@neuron:0
    return [%4]
  })");
  EXPECT_EQ(opcodes(program), Names{"neuron::fused"});
}

TEST(FuseRegions, ElementsThatDoNotMeetStayApart) {
  // x + x transposed: the second operand needs other elements of the first region.
  const Program program = fused(R"(program "p" {
    input %0: f32[3,3]@neuron:0
    %1 = aten::exp(%0): f32[3,3]@neuron:0
    %2 = aten::t(%1) views(0): f32[3,3]{1,3}@neuron:0
    %3 = aten::add.Tensor(%1, %2, alpha=1): f32[3,3]@neuron:0
    return [%3]
  })");
  EXPECT_EQ(opcodes(program), (Names{"neuron::fused", "neuron::fused"}));
}

TEST(FuseRegions, PartsOfAMemberAreReadFromMemory) {
  const Program program = fused(R"(program "p" {
    input %0: f32[4,6]@neuron:0
    %1 = aten::exp(%0): f32[4,6]@neuron:0
    %2 = aten::slice.Tensor(%1, 1, 3, 6, 1) views(0): f32[4,3]{6,1}@neuron:0
    %3 = aten::slice.Tensor(%1, 1, 0, 3, 1) views(0): f32[4,3]{6,1}@neuron:0
    %4 = aten::mul.Tensor(%2, %3): f32[4,3]@neuron:0
    return [%4]
  })");
  EXPECT_EQ(opcodes(program), (Names{"neuron::fused", "neuron::fused"}));
}

TEST(FuseRegions, DoesNotGoAroundWhatLiesBetween) {
  // The product comes between: exp and add as one would need their own result.
  const Program program = fused(R"(program "p" {
    input %0: f32[4,4]@neuron:0
    %1 = aten::exp(%0): f32[4,4]@neuron:0
    %2 = aten::mm(%1, %0): f32[4,4]@neuron:0
    %3 = aten::add.Tensor(%1, %2, alpha=1): f32[4,4]@neuron:0
    return [%3]
  })");
  EXPECT_EQ(opcodes(program), (Names{"neuron::fused", "aten::mm", "neuron::fused"}));
}

TEST(FuseRegions, ReadsStayOnTheirSideOfWrites) {
  const Program program = fused(R"(program "p" {
    input %0: f32[4]@neuron:0
    input %1: f32[4]@neuron:0
    %2 = aten::exp(%0): f32[4]@neuron:0
    _ = aten::add_.Tensor(%0, %2, alpha=1) writes(0) views(0)
    %4 = aten::mul.Tensor(%2, %0): f32[4]@neuron:0
    _ = aten::zero_(%0) writes(0) views(0)
    %6 = aten::add.Tensor(%4, %0, alpha=1): f32[4]@neuron:0
    return [%6]
  })");
  EXPECT_EQ(opcodes(program), (Names{"neuron::fused", "aten::add_.Tensor", "neuron::fused", "aten::zero_", "neuron::fused"}));
}

TEST(FuseRegions, RandomNumbersKeepTheirOrder) {
  const Program program = fused(R"(program "p" {
    input %0: f32[4]@neuron:0
    %1 = aten::rand([4]) ordered: f32[4]@neuron:0
    %2 = aten::mul.Tensor(%0, %1): f32[4]@neuron:0
    %3 = aten::rand([4]) ordered: f32[4]@neuron:0
    %4 = aten::mul.Tensor(%2, %3): f32[4]@neuron:0
    return [%4]
  })");
  EXPECT_EQ(opcodes(program), (Names{"aten::rand", "aten::rand", "neuron::fused"}));
}

TEST(FuseRegions, NumbersInTensorsBecomeNumbersAndCountsAreComputed) {
  const Program program = fused(R"(program "p" {
    input %0: i64[1]@neuron:0
    %1 = aten::arange(8, dtype=none): i64[8]@neuron:0
    %2 = aten::le.Tensor(%1, %0): i1[8]@neuron:0
    %3 = aten::scalar_tensor(-inf, dtype=dtype:bf16): bf16[]@neuron:0
    %4 = aten::scalar_tensor(0.0, dtype=dtype:bf16): bf16[]@neuron:0
    %5 = aten::where.self(%2, %4, %3): bf16[8]@neuron:0
    return [%5]
  })");
  ASSERT_EQ(opcodes(program), Names{"neuron::fused"});
  EXPECT_NE(to_string(program).find("where(n2, 0.0, -inf): bf16"), std::string::npos) << to_string(program);
}

TEST(FuseRegions, LeavesOtherDevicesTypesAndEmptyTensorsAlone) {
  const Program program = fused(R"(program "p" {
    input %0: f32[4]@cpu
    input %1: c64[4]@neuron:0
    input %2: f32[0,4]@neuron:0
    %3 = aten::exp(%0): f32[4]@cpu
    %4 = aten::exp(%1): c64[4]@neuron:0
    %5 = aten::exp(%2): f32[0,4]@neuron:0
    return [%3, %4, %5]
  })");
  EXPECT_EQ(opcodes(program), (Names{"aten::exp", "aten::exp", "aten::exp"}));
}

TEST(FuseRegions, ValuesPerRowMeetOtherRows) {
  // Statistics of one tensor applied to another of the same shape.
  const Program program = fused(R"(program "p" {
    input %0: f32[4,64]@neuron:0
    input %1: f32[4,64]@neuron:0
    %2 = aten::amax(%0, [-1], true): f32[4,1]@neuron:0
    %3 = aten::sub.Tensor(%1, %2, alpha=1): f32[4,64]@neuron:0
    return [%3]
  })");
  EXPECT_EQ(opcodes(program), Names{"neuron::fused"});
}

TEST(FuseRegions, LoneCopiesStayWithTheirViews) {
  const Program program = fused(R"(program "p" {
    input %0: f32[4,64]@neuron:0
    %1 = aten::t(%0) views(0): f32[64,4]{1,64}@neuron:0
    %2 = aten::clone(%1, memory_format=memory_format:contiguous): f32[64,4]@neuron:0
    return [%2]
  })");
  EXPECT_EQ(opcodes(program), (Names{"aten::t", "aten::clone"}));
}

}  // namespace
}  // namespace neuron::compiler
