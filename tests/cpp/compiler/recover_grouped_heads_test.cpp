// Attention gets the heads before their repetition, unless the memory changed since.
#include "compiler/passes/recover_grouped_heads.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

std::string attention(const std::string& between) {
  return R"(program "p" {
    input %0: bf16[1,4,1,16]@neuron:0
    input %1: bf16[1,2,8,16]@neuron:0
    %2 = aten::unsqueeze(%1, 2) views(0): bf16[1,2,1,8,16]@neuron:0
    %3 = aten::expand(%2, [1, 2, 2, 8, 16], implicit=false) views(0): bf16[1,2,2,8,16]{256,128,0,16,1}@neuron:0
    %4 = aten::clone(%3, memory_format=memory_format:contiguous): bf16[1,2,2,8,16]@neuron:0
    %5 = aten::_unsafe_view(%4, [1, 4, 8, 16]) views(0): bf16[1,4,8,16]@neuron:0
)" + between +
         R"(
    %6, _ = aten::_scaled_dot_product_flash_attention_for_cpu(%0, %5, %5, 0.0, false) ordered: bf16[1,4,1,16]@neuron:0
    return [%6]
  })";
}

TEST(RecoverGroupedHeads, TheCopyIsGone) {
  Program program = parse_program(attention(""));
  EXPECT_EQ(recover_grouped_heads(program), 2);
  verify(program);
  ASSERT_EQ(program.instructions.size(), 1U) << to_string(program);
  EXPECT_EQ(operand_value(program.instructions[0], 1), program.inputs()[1]);
}

TEST(RecoverGroupedHeads, ACacheThatIsWrittenAfterTheCopyKeepsIt) {
  Program program = parse_program(attention("    _ = aten::zero_(%1) writes(0) views(0)"));
  EXPECT_EQ(recover_grouped_heads(program), 0);
}

}  // namespace
}  // namespace neuron::compiler
