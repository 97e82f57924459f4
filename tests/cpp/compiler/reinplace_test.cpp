// Functional updates of inputs become in-place writes exactly when nobody can tell the difference.
#include "compiler/passes/reinplace.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

std::string rewritten(const std::string& body) {
  Program program = parse_program("program \"p\" {\n" + body + "}\n");
  reinplace_input_updates(program);
  verify(program);
  return to_string(parse_program(to_string(program)));  // renumbered
}

std::string same(const std::string& body) { return to_string(parse_program("program \"p\" {\n" + body + "}\n")); }

constexpr const char* kInputs = R"(
  input %0: f32[8,4]@cpu
  input %1: i64[2]@cpu
  input %2: f32[2,4]@cpu
)";

TEST(Reinplace, WritesAStaticCacheInPlace) {
  EXPECT_EQ(rewritten(std::string(kInputs) + R"(
  %3 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %4 = aten::mm(%2, %3): f32[2,4]@cpu
  _ = aten::copy_(%0, %3, false) writes(0) views(0)
  return [%4])"),
            same(std::string(kInputs) + R"(
  %3 = aten::index_copy_(%0, 0, %1, %2) writes(0) views(0): f32[8,4]@cpu
  %4 = aten::mm(%2, %3): f32[2,4]@cpu
  return [%4])"));
}

TEST(Reinplace, FollowsAChainOfUpdates) {
  EXPECT_EQ(rewritten(std::string(kInputs) + R"(
  %3 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %4 = aten::mul.Tensor(%3, 2.0) inplace(aten::mul_.Tensor): f32[8,4]@cpu
  %5 = aten::sum(%4): f32[]@cpu
  _ = aten::copy_(%0, %4, false) writes(0) views(0)
  return [%5])"),
            same(std::string(kInputs) + R"(
  %3 = aten::index_copy_(%0, 0, %1, %2) writes(0) views(0): f32[8,4]@cpu
  %4 = aten::mul_.Tensor(%3, 2.0) writes(0) views(0): f32[8,4]@cpu
  %5 = aten::sum(%4): f32[]@cpu
  return [%5])"));
}

TEST(Reinplace, KeepsTheCopyWhenTheOldValueIsReadLater) {
  const std::string text = std::string(kInputs) + R"(
  %3 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %4 = aten::mm(%2, %3): f32[2,4]@cpu
  %5 = aten::sum(%0): f32[]@cpu
  _ = aten::copy_(%0, %3, false) writes(0) views(0)
  return [%4, %5])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, KeepsTheCopyWhenAViewOfTheOldValueIsReadLater) {
  const std::string text = std::string(kInputs) + R"(
  %3 = aten::select.int(%0, 0, 1) views(0): f32[4]@cpu
  %4 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %5 = aten::mv(%4, %3): f32[8]@cpu
  _ = aten::copy_(%0, %4, false) writes(0) views(0)
  return [%5])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, PutsTheUpdateInPlaceOfTheCopyWhenOnlyTheCopyReadsIt) {
  EXPECT_EQ(rewritten(R"(
  input %0: i64[]@cpu
  input %1: i64[2]@cpu
  %2 = aten::add.Tensor(%0, 1, alpha=1) inplace(aten::add_.Tensor): i64[]@cpu
  %3 = aten::add.Tensor(%1, %0, alpha=1): i64[2]@cpu
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [%3])"),
            same(R"(
  input %0: i64[]@cpu
  input %1: i64[2]@cpu
  %3 = aten::add.Tensor(%1, %0, alpha=1): i64[2]@cpu
  %4 = aten::add_.Tensor(%0, 1, alpha=1) writes(0) views(0): i64[]@cpu
  return [%3])"));
}

TEST(Reinplace, DoesNotMoveAnUpdateBehindAWriteToItsOperands) {
  const std::string text = R"(
  input %0: f32[2]@cpu
  input %1: f32[2]@cpu
  %2 = aten::add.Tensor(%0, %1) inplace(aten::add_.Tensor): f32[2]@cpu
  %3 = aten::mul.Tensor(%1, %0) : f32[2]@cpu
  _ = aten::copy_(%1, %3, false) writes(0) views(0)
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, KeepsTheCopyWhenOldOrNewValueLeaves) {
  for (const char* output : {"%0", "%3", "%4"}) {
    const std::string text = std::string(kInputs) + R"(
  %3 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %4 = aten::t(%3) views(0): f32[4,8]{1,4}@cpu
  _ = aten::copy_(%0, %3, false) writes(0) views(0)
  return [)" + output + "]";
    const std::string before = same(text);
    const std::string after = rewritten(text);
    EXPECT_NE(after.find("aten::index_copy("), std::string::npos) << after;
    EXPECT_NE(after.find("aten::copy_("), std::string::npos) << after;
  }
}

TEST(Reinplace, KeepsTheCopyWhenAnotherOperandSharesMemory) {
  const std::string text = R"(
  input %0: f32[8,4]@cpu
  input %1: i64[2]@cpu
  %2 = aten::slice.Tensor(%0, 0, 0, 2, 1) views(0): f32[2,4]@cpu
  %3 = aten::index_copy(%0, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  _ = aten::copy_(%0, %3, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, KeepsTheCopyWhenTypesDiffer) {
  const std::string text = R"(
  input %0: bf16[8]@cpu
  input %1: f32[8]@cpu
  %2 = aten::add.Tensor(%0, %1) inplace(aten::add_.Tensor): f32[8]@cpu
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, KeepsTheCopyIntoExpandedMemory) {
  const std::string text = R"(
  input %0: f32[8,4]{0,1}@cpu
  %2 = aten::add.Tensor(%0, 1) inplace(aten::add_.Tensor): f32[8,4]{0,1}@cpu
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, NeverTouchesRandomUpdates) {
  const std::string text = R"(
  input %0: f32[8]@cpu
  %2 = aten::bernoulli.p(%0, 0.5) ordered inplace(aten::bernoulli_.float): f32[8]@cpu
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, KeepsCopiesOfUnrelatedValues) {
  const std::string text = R"(
  input %0: f32[8]@cpu
  input %1: f32[8]@cpu
  %2 = aten::neg(%1) inplace(aten::neg_): f32[8]@cpu
  _ = aten::copy_(%0, %2, false) writes(0) views(0)
  return [])";
  EXPECT_EQ(rewritten(text), same(text));
}

TEST(Reinplace, WritesASliceThroughAView) {
  EXPECT_EQ(rewritten(std::string(kInputs) + R"(
  %3 = aten::slice.Tensor(%0, 0, 2, 4, 1) views(0): f32[2,4]@cpu
  %4 = aten::copy(%3, %2, false) inplace(aten::copy_): f32[2,4]@cpu
  %5 = aten::slice_scatter(%0, %4, 0, 2, 4, 1): f32[8,4]@cpu
  %6 = aten::sum(%5): f32[]@cpu
  _ = aten::copy_(%0, %5, false) writes(0) views(0)
  return [%6])"),
            same(std::string(kInputs) + R"(
  %3 = aten::slice.Tensor(%0, 0, 2, 4, 1) views(0): f32[2,4]@cpu
  _ = aten::copy_(%3, %2, false) writes(0) views(0)
  %6 = aten::sum(%0): f32[]@cpu
  return [%6])"));
}

// cache[1][:, 2:4] = x, and cache[1].index_copy_(...): the update of a view of a view.
TEST(Reinplace, WritesNestedSubscriptsInPlace) {
  EXPECT_EQ(rewritten(R"(
  input %0: f32[3,8,4]@cpu
  input %1: i64[2]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, 1) views(0): f32[8,4]@cpu
  %4 = aten::index_copy(%3, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %5 = aten::select_scatter(%0, %4, 0, 1): f32[3,8,4]@cpu
  %6 = aten::select.int(%5, 0, 1) views(0): f32[8,4]@cpu
  %7 = aten::mm(%2, %6): f32[2,4]@cpu
  _ = aten::copy_(%0, %5, false) writes(0) views(0)
  return [%7])"),
            same(R"(
  input %0: f32[3,8,4]@cpu
  input %1: i64[2]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, 1) views(0): f32[8,4]@cpu
  _ = aten::index_copy_(%3, 0, %1, %2) writes(0) views(0)
  %6 = aten::select.int(%0, 0, 1) views(0): f32[8,4]@cpu
  %7 = aten::mm(%2, %6): f32[2,4]@cpu
  return [%7])"));
}

TEST(Reinplace, WritesASliceOfALayerWithoutCopyingTheLayer) {
  const std::string text = rewritten(R"(
  input %0: f32[3,8,4]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, -1) views(0): f32[8,4]@cpu
  %4 = aten::slice.Tensor(%3, 0, 2, 4, 1) views(0): f32[2,4]@cpu
  %5 = aten::copy(%4, %2, false) inplace(aten::copy_): f32[2,4]@cpu
  %6 = aten::slice_scatter(%3, %5, 0, 2, 4, 1): f32[8,4]@cpu
  %7 = aten::select_scatter(%0, %6, 0, -1): f32[3,8,4]@cpu
  _ = aten::copy_(%0, %7, false) writes(0) views(0)
  return [])");
  EXPECT_EQ(text, same(R"(
  input %0: f32[3,8,4]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, -1) views(0): f32[8,4]@cpu
  %4 = aten::slice.Tensor(%3, 0, 2, 4, 1) views(0): f32[2,4]@cpu
  _ = aten::copy_(%4, %2, false) writes(0) views(0)
  return [])"));
}

TEST(Reinplace, CopiesWhenAnInnerUpdateIsOfAnotherView) {
  const std::string text = rewritten(R"(
  input %0: f32[3,8,4]@cpu
  input %1: i64[2]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, 0) views(0): f32[8,4]@cpu
  %4 = aten::index_copy(%3, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %5 = aten::select_scatter(%0, %4, 0, 1): f32[3,8,4]@cpu
  _ = aten::copy_(%0, %5, false) writes(0) views(0)
  return [])");
  EXPECT_EQ(text, same(R"(
  input %0: f32[3,8,4]@cpu
  input %1: i64[2]@cpu
  input %2: f32[2,4]@cpu
  %3 = aten::select.int(%0, 0, 0) views(0): f32[8,4]@cpu
  %4 = aten::index_copy(%3, 0, %1, %2) inplace(aten::index_copy_): f32[8,4]@cpu
  %5 = aten::select.int(%0, 0, 1) views(0): f32[8,4]@cpu
  _ = aten::copy_(%5, %4, false) writes(0) views(0)
  return [])"));
}

TEST(Reinplace, HandlesSeveralInputs) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += "input %" + std::to_string(i) + ": f32[4]@cpu\n";
  }
  for (int i = 0; i < 3; ++i) {
    text += "%" + std::to_string(10 + i) + " = aten::mul.Tensor(%" + std::to_string(i) + ", 2) inplace(aten::mul_.Tensor): f32[4]@cpu\n";
  }
  for (int i = 0; i < 3; ++i) {
    text += "_ = aten::copy_(%" + std::to_string(i) + ", %" + std::to_string(10 + i) + ", false) writes(0) views(0)\n";
  }
  Program program = parse_program("program \"p\" {\n" + text + "return [] }");
  EXPECT_EQ(reinplace_input_updates(program), 3);
  EXPECT_EQ(to_string(program).find("aten::copy_"), std::string::npos);
}

}  // namespace
}  // namespace neuron::compiler
