// What becomes part of a matrix product, and what must not.
#include "compiler/passes/fuse_matmul.h"

#include <gtest/gtest.h>

#include "compiler/matmul.h"
#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// The program's text after the pass, which must still be one that can be read back.
std::string fused(const std::string& text) {
  Program program = parse_program(text);
  fuse_matmul(program);
  verify(program);
  const std::string again = to_string(parse_program(to_string(program)));  // numbered anew
  EXPECT_EQ(to_string(parse_program(again)), again);
  return to_string(program);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

void expect_line(const std::string& text, const std::string& line) { EXPECT_NE(text.find(line), std::string::npos) << text; }

// A linear layer of three dimensions with gelu and a residual, as AOTAutograd writes it.
const char* const kLayer = R"(program "p" {
    input %0: bf16[2,3,8]@neuron:0
    input %1: bf16[4,8]@neuron:0
    input %2: bf16[4]@neuron:0
    input %3: bf16[2,3,4]@neuron:0
    %4 = aten::view(%0, [6, 8]) views(0): bf16[6,8]@neuron:0
    %5 = aten::t(%1) views(0): bf16[8,4]{1,8}@neuron:0
    %6 = aten::addmm(%2, %4, %5, beta=1, alpha=1): bf16[6,4]@neuron:0
    %7 = aten::view(%6, [2, 3, 4]) views(0): bf16[2,3,4]@neuron:0
    %8 = aten::gelu(%7, approximate="none"): bf16[2,3,4]@neuron:0
    %9 = aten::add.Tensor(%8, %3, alpha=1): bf16[2,3,4]@neuron:0
    return [%9]
  })";

TEST(FuseMatmul, BiasActivationAndResidualAreOneInstruction) {
  const std::string text = fused(kLayer);
  expect_line(text, R"(%9 = neuron::matmul(%4, %5, addend=%2, residual=%3, activation="gelu"): bf16[2,3,4])");
  EXPECT_EQ(count(text, " = "), 3U) << text;
}

TEST(FuseMatmul, ScalesAndSides) {
  std::string text = replaced(kLayer, "beta=1, alpha=1", "beta=2, alpha=0.5");
  text = fused(replaced(text, "%9 = aten::add.Tensor(%8, %3, alpha=1)", "%9 = aten::add.Tensor(%8, %3, alpha=3)"));
  expect_line(text, R"(addend=%2, residual=%3, scale=0.5, addend_scale=2.0, residual_scale=3.0, activation="gelu")");
  // 3 times the product itself is another matter.
  text = fused(replaced(kLayer, "%9 = aten::add.Tensor(%8, %3, alpha=1)", "%9 = aten::add.Tensor(%3, %8, alpha=3)"));
  expect_line(text, "aten::add.Tensor(%3, %8, alpha=3)");
  expect_line(text, R"(%8 = neuron::matmul(%4, %5, addend=%2, activation="gelu"))");
}

TEST(FuseMatmul, AnAddendTimesNothingIsNotRead) {
  expect_line(fused(replaced(kLayer, "beta=1", "beta=0")), R"(neuron::matmul(%4, %5, residual=%3, activation="gelu"))");
}

TEST(FuseMatmul, EveryActivationByItsName) {
  expect_line(fused(replaced(kLayer, R"(approximate="none")", R"(approximate="tanh")")), R"(activation="gelu_tanh")");
  expect_line(fused(replaced(kLayer, R"(aten::gelu(%7, approximate="none"))", "aten::relu(%7)")), R"(activation="relu")");
  expect_line(fused(replaced(kLayer, R"(aten::gelu(%7, approximate="none"))", "aten::silu(%7)")), R"(activation="silu")");
}

TEST(FuseMatmul, WhatOthersReadStays) {
  const std::string shown = fused(replaced(kLayer, "return [%9]", "return [%9, %7]"));
  expect_line(shown, "%6 = neuron::matmul(%4, %5, addend=%2)");
  expect_line(shown, "aten::gelu(%7");
  expect_line(shown, "aten::add.Tensor(%8, %3, alpha=1)");
  expect_line(fused(replaced(kLayer, "return [%9]", "return [%9, %8]")), "aten::add.Tensor(%8, %3, alpha=1)");
}

TEST(FuseMatmul, ASumWithItselfStays) {
  expect_line(fused(replaced(kLayer, "aten::add.Tensor(%8, %3", "aten::add.Tensor(%8, %8")), "aten::add.Tensor(%8, %8");
}

TEST(FuseMatmul, AWiderResultStays) {
  std::string text = replaced(kLayer, "input %3: bf16[2,3,4]", "input %3: f32[2,3,4]");
  text = fused(replaced(text, "alpha=1): bf16[2,3,4]@neuron:0\n    return", "alpha=1): f32[2,3,4]@neuron:0\n    return"));
  expect_line(text, "aten::add.Tensor(%8, %3, alpha=1): f32[2,3,4]");
  text = replaced(kLayer, "input %3: bf16[2,3,4]", "input %3: bf16[5,2,3,4]");
  text = fused(replaced(text, "alpha=1): bf16[2,3,4]@neuron:0\n    return", "alpha=1): bf16[5,2,3,4]@neuron:0\n    return"));
  expect_line(text, "aten::add.Tensor(%8, %3, alpha=1): bf16[5,2,3,4]");
}

TEST(FuseMatmul, BroadcastResiduals) {
  expect_line(fused(replaced(kLayer, "input %3: bf16[2,3,4]", "input %3: bf16[1,1,4]")), "residual=%3");
  expect_line(fused(replaced(kLayer, "input %3: bf16[2,3,4]", "input %3: bf16[]")), "residual=%3");
  // Its rows repeat in the batch: two strides along the rows of the product.
  expect_line(fused(replaced(kLayer, "input %3: bf16[2,3,4]", "input %3: bf16[3,4]")), "aten::add.Tensor(%8, %3");
}

TEST(FuseMatmul, ALaterWriteKeepsTheOrder) {
  const std::string text = replaced(kLayer, "    %8 =", "    _ = aten::zero_(%3) writes(0) views(0)\n    %8 =");
  expect_line(fused(text), "residual=%3");  // read where it was read before
  const std::string weight = replaced(kLayer, "    %8 =", "    _ = aten::zero_(%1) writes(0) views(0)\n    %8 =");
  const std::string kept = fused(weight);
  expect_line(kept, "%6 = neuron::matmul(%4, %5, addend=%2)");
  EXPECT_LT(kept.find("neuron::matmul"), kept.find("aten::zero_"));
}

TEST(FuseMatmul, OtherTypesAndPlacesStay) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = R"(program "p" {
      input %0: f32[2,3]@neuron:0
      input %1: f32[3,2]@neuron:0
      %2 = aten::mm(%0, %1): f32[2,2]@neuron:0
      return [%2]
    })";
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    return text;
  };
  expect_line(fused(with("none", "none")), "neuron::matmul(%0, %1): f32[2,2]");
  for (const char* type : {"f64[", "i64[", "c64["}) {
    expect_line(fused(with("f32[", type)), "aten::mm");
  }
  expect_line(fused(with("neuron:0", "cpu")), "aten::mm");
}

const char* const kGated = R"(program "p" {
    input %0: bf16[32,8]@neuron:0
    input %1: bf16[8,4]{1,8}@neuron:0
    input %2: bf16[8,4]{1,8}@neuron:0
    %3 = aten::mm(%0, %1): bf16[32,4]@neuron:0
    %4 = aten::silu(%3): bf16[32,4]@neuron:0
    %5 = aten::mm(%0, %2): bf16[32,4]@neuron:0
    %6 = aten::mul.Tensor(%4, %5): bf16[32,4]@neuron:0
    return [%6]
  })";

TEST(FuseMatmul, GatedPairs) {
  expect_line(fused(kGated), R"(%6 = neuron::matmul(%0, %1, gate=%2, activation="silu"): bf16[32,4])");
  expect_line(fused(replaced(kGated, "mul.Tensor(%4, %5)", "mul.Tensor(%5, %4)")), "gate=%2");
}

TEST(FuseMatmul, NoPairsOfDifferentThings) {
  const std::string other = replaced(kGated, "input %2:", "input %7: bf16[32,8]@neuron:0\n    input %2:");
  expect_line(fused(replaced(other, "aten::mm(%0, %2)", "aten::mm(%7, %2)")), "aten::mul.Tensor");
  expect_line(fused(replaced(kGated, "return [%6]", "return [%6, %5]")), "aten::mul.Tensor");
  std::string few = kGated;
  for (auto at = few.find("[32,"); at != std::string::npos; at = few.find("[32,")) {
    few.replace(at, 4, "[8,");
  }
  expect_line(fused(few), "aten::mul.Tensor");
}

const char* const kExperts = R"(program "p" {
    input %0: bf16[8,6,4]@neuron:0
    input %1: i64[2]@neuron:0
    input %2: bf16[2,4,1]@neuron:0
    %3 = aten::index.Tensor(%0, [%1]): bf16[2,6,4]@neuron:0
    %4 = aten::bmm(%3, %2): bf16[2,6,1]@neuron:0
    return [%4]
  })";

TEST(FuseMatmul, ChosenMatricesAreNotCopied) {
  const std::string text = fused(kExperts);
  expect_line(text, "%4 = neuron::matmul(%0, %2, a_picks=%1): bf16[2,6,1]");
  EXPECT_EQ(count(text, "aten::"), 0U) << text;
}

TEST(FuseMatmul, OtherChoicesAreCopies) {
  expect_line(fused(replaced(kExperts, "[%1])", "[none, %1])")), "aten::index.Tensor");
  expect_line(fused(replaced(kExperts, "return [%4]", "return [%4, %3]")), "neuron::matmul(%3, %2)");
  expect_line(fused(replaced(kExperts, "    %4 =", "    _ = aten::zero_(%0) writes(0) views(0)\n    %4 =")), "neuron::matmul(%3, %2)");
}

TEST(FuseMatmul, ZeroSizes) {
  std::string text = kLayer;
  for (const auto& [from, to] : {std::pair{"[2,3,", "[0,3,"}, {"[6,", "[0,"}, {"[6, 8]", "[0, 8]"}, {"[2, 3, 4]", "[0, 3, 4]"}}) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
      text.replace(at, std::string_view(from).size(), to);
    }
  }
  expect_line(fused(text), "residual=%3");
}

TEST(Matmul, StridesOfWhatIsAdded) {
  const auto strides = [](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, const ProductSizes& product) {
    return strides_within(TensorType{ScalarKind::kFloat32, std::move(sizes), std::move(strides), {}}, {2, 3, 4}, product);
  };
  using Strides = std::array<std::int64_t, 3>;
  const ProductSizes rows{1, 6, 4, 8};
  const ProductSizes batches{2, 3, 4, 8};
  EXPECT_EQ(strides({2, 3, 4}, {12, 4, 1}, rows), (Strides{0, 4, 1}));
  EXPECT_EQ(strides({2, 3, 4}, {1, 2, 6}, rows), std::nullopt);
  EXPECT_EQ(strides({2, 3, 4}, {1, 2, 6}, batches), (Strides{1, 2, 6}));
  EXPECT_EQ(strides({2, 3, 4}, {3, 1, 6}, rows), (Strides{0, 1, 6}));
  EXPECT_EQ(strides({4}, {7}, rows), (Strides{0, 0, 7}));
  EXPECT_EQ(strides({3, 1}, {5, 1}, batches), (Strides{0, 5, 0}));
  EXPECT_EQ(strides({3, 1}, {5, 1}, rows), std::nullopt);
  EXPECT_EQ(strides({5}, {1}, rows), std::nullopt);
  EXPECT_EQ(strides({2, 3, 4}, {12, 4, 1}, ProductSizes{1, 4, 6, 8}), std::nullopt);
  EXPECT_EQ(strides({2, 3, 4}, {12, 4, 1}, ProductSizes{1, 2, 12, 8}), (Strides{0, 12, 1}));
}

TEST(Matmul, TheVerifierKnowsProducts) {
  const auto is_refused = [](const std::string& line, const std::string& why) {
    try {
      verify(parse_program("program \"p\" {\n input %0: f32[2,3]@neuron:0\n input %1: f32[3,4]@neuron:0\n" + line + "\n return [%2]\n}"));
      ADD_FAILURE() << line;
    } catch (const VerificationError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  verify(parse_program(
      "program \"p\" {\n input %0: f32[2,3]@neuron:0\n input %1: f32[3,4]@neuron:0\n %2 = neuron::matmul(%0, %1): f32[8]@neuron:0\n return [%2]\n}"));
  is_refused("%2 = neuron::matmul(%1, %0): f32[2,4]@neuron:0", "do not fit each other");
  is_refused("%2 = neuron::matmul(%0, %1): f32[2,5]@neuron:0", "another type");
  is_refused("%2 = neuron::matmul(%0, %1): f32[2,4]{1,2}@neuron:0", "another type");
  is_refused("%2 = neuron::matmul(%0, %1, bias=%0): f32[2,4]@neuron:0", "cannot have");
  is_refused("%2 = neuron::matmul(%0, %1, activation=\"sine\"): f32[2,4]@neuron:0", "cannot have");
  is_refused("%2 = neuron::matmul(%0, %1, addend=%1): f32[2,4]@neuron:0", "does not fit it");
}

}  // namespace
}  // namespace neuron::compiler
