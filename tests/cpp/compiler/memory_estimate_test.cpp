// Memory of a program from its shapes alone.
#include "compiler/memory_estimate.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"

namespace neuron::compiler {
namespace {

MemoryEstimate estimate(const char* text) { return estimate_memory(parse_program(text)); }

TEST(MemoryEstimate, CountsWhatLivesAtOnce) {
  const MemoryEstimate found = estimate(R"(program "p" {
    input %0: f32[10]@neuron:0
    constant %1: bf16[4]@neuron:0
    %2 = aten::neg(%0): f32[10]@neuron:0
    %3 = aten::exp(%2): f32[10]@neuron:0
    %4 = aten::cat([%3, %3]): f32[20]@neuron:0
    %5 = aten::sum(%4): f32[]@neuron:0
    return [%5]
  })");
  EXPECT_EQ(found.input_bytes, 40U);
  EXPECT_EQ(found.constant_bytes, 8U);
  EXPECT_EQ(found.peak_bytes, 120U);  // %3 and %4
  EXPECT_EQ(found.peak_instruction, 2);
}

TEST(MemoryEstimate, ViewsCostNothingAndKeepTheirBaseAlive) {
  const MemoryEstimate found = estimate(R"(program "p" {
    input %0: f32[8]@neuron:0
    %1 = aten::neg(%0): f32[8]@neuron:0
    %2 = aten::view(%1, [4, 2]) views(0): f32[4,2]@neuron:0
    %3 = aten::exp(%0): f32[8]@neuron:0
    %4 = aten::view(%0, [4, 2]) views(0): f32[4,2]@neuron:0
    return [%2, %3, %4]
  })");
  EXPECT_EQ(found.peak_bytes, 64U);
  EXPECT_EQ(found.peak_instruction, 2);
}

TEST(MemoryEstimate, BytesFollowStrides) {
  const auto bytes = [](const char* type) {
    return bytes_of(parse_program(std::string("program \"p\" { input %0: ") + type + "@neuron:0 return [] }").type_of(0));
  };
  EXPECT_EQ(bytes("f32[2,3]"), 24U);
  EXPECT_EQ(bytes("f32[2,3]{0,1}"), 12U);
  EXPECT_EQ(bytes("f32[2,3]{10,1}"), 52U);
  EXPECT_EQ(bytes("f32[0,3]"), 0U);
  EXPECT_EQ(bytes("f64[]"), 8U);
}

TEST(MemoryEstimate, AnEmptyProgramNeedsNothing) {
  const MemoryEstimate found = estimate("program \"p\" { return [] }");
  EXPECT_EQ(found.peak_bytes, 0U);
  EXPECT_EQ(found.peak_instruction, -1);
}

}  // namespace
}  // namespace neuron::compiler
