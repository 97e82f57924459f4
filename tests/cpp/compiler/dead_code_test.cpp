// What nobody reads goes, and what acts stays: writes, and random numbers, which move the generator also when their result is not read.
#include "compiler/passes/dead_code.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

// The opcodes that remain.
std::vector<std::string> remaining(const char* text, int removed) {
  Program program = parse_program(text);
  EXPECT_EQ(remove_dead_code(program), removed);
  verify(program);
  std::vector<std::string> opcodes;
  for (const Instruction& instruction : program.instructions) {
    opcodes.push_back(instruction.opcode);
  }
  return opcodes;
}

TEST(DeadCode, RemovesChainsThatNobodyReads) {
  EXPECT_EQ(remaining(R"(program "p" {
    input %0: f32[4]@cpu
    %1 = aten::neg(%0): f32[4]@cpu
    %2 = aten::exp(%1): f32[4]@cpu
    %3 = aten::sin(%0): f32[4]@cpu
    return [%3]
  })",
                      2),
            (std::vector<std::string>{"aten::sin"}));
}

TEST(DeadCode, KeepsRandomNumbersThatNobodyReads) {
  EXPECT_EQ(remaining(R"(program "p" {
    input %0: f32[4]@cpu
    %1 = aten::rand([4]) ordered: f32[4]@cpu
    %2 = aten::neg(%1): f32[4]@cpu
    return [%0]
  })",
                      1),
            (std::vector<std::string>{"aten::rand"}));
}

TEST(DeadCode, KeepsWritesAndWhatTheyRead) {
  EXPECT_EQ(remaining(R"(program "p" {
    input %0: f32[4]@cpu
    %1 = aten::exp(%0): f32[4]@cpu
    _ = aten::add_.Tensor(%0, %1) writes(0) views(0)
    return []
  })",
                      0),
            (std::vector<std::string>{"aten::exp", "aten::add_.Tensor"}));
}

}  // namespace
}  // namespace neuron::compiler
