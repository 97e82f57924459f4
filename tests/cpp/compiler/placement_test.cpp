// Programs of host tensors move to the device as a whole; mixed instructions get device copies of their host operands.
#include "compiler/passes/placement.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"
#include "compiler/printer.h"
#include "compiler/verifier.h"

namespace neuron::compiler {
namespace {

Program read(const std::string& body) { return parse_program("program \"p\" {\n" + body + "}\n"); }

std::string renumbered(const Program& program) {
  verify(program);
  return to_string(parse_program(to_string(program)));
}

TEST(Placement, KnowsHostPrograms) {
  EXPECT_TRUE(is_host_program(read("input %0: f32[2]@cpu return []")));
  EXPECT_FALSE(is_host_program(read("input %0: f32[]@cpu return []"))) << "0-d tensors are scalars";
  EXPECT_FALSE(is_host_program(read("input %0: f32[2]@cpu input %1: f32[2]@neuron:0 return []")));
  EXPECT_FALSE(is_host_program(read("input %0: f32[2]@cpu %1 = aten::_to_copy(%0, device=device:neuron:0): f32[2]@neuron:0 return [%1]")));
  EXPECT_FALSE(is_host_program(read("%0 = aten::zeros([2]): f32[2]@cpu return [%0]"))) << "nothing was passed in";
}

TEST(Placement, MovesAProgramWithItsFactoriesConstantsAndResults) {
  Program program = read(R"(
    input %0: f32[2]@cpu
    constant %1: f32[2]@cpu
    %2 = aten::arange(2, dtype=none, device=device:cpu): f32[2]@cpu
    %3 = aten::addcmul(%0, %1, %2): f32[2]@cpu
    return [%3, %0, 7])");
  move_to_device(program, {"neuron", 1});
  EXPECT_EQ(renumbered(program), renumbered(read(R"(
    input %0: f32[2]@cpu
    constant %1: f32[2]@neuron:1
    %9 = aten::_to_copy(%0, dtype=none, layout=none, device=device:neuron:1, pin_memory=none, non_blocking=false, memory_format=none): f32[2]@neuron:1
    %2 = aten::arange(2, dtype=none, device=device:neuron:1): f32[2]@neuron:1
    %3 = aten::addcmul(%9, %1, %2): f32[2]@neuron:1
    %4 = softneuron::copy_storages([%3], device:cpu, true) views(0): f32[2]@cpu
    return [%4, %0, 7])")));
}

TEST(Placement, ResultsThatAreViewsOfAnInputAreMadeOnTheHost) {
  Program program = read(R"(
    input %0: f32[2,3]@cpu
    %1 = aten::t(%0) views(0): f32[3,2]{1,3}@cpu
    %2, %3 = aten::split.Tensor(%1, 2) views(0): f32[2,2]{1,3}@cpu, f32[1,2]{1,3}@cpu
    %4 = aten::neg(%2): f32[2,2]{1,2}@cpu
    return [%2, %3, %4])");
  move_to_device(program, {"neuron", 0});
  EXPECT_EQ(renumbered(program), renumbered(read(R"(
    input %0: f32[2,3]@cpu
    %5 = aten::_to_copy(%0, dtype=none, layout=none, device=device:neuron:0, pin_memory=none, non_blocking=false, memory_format=none): f32[2,3]@neuron:0
    %1 = aten::t(%5) views(0): f32[3,2]{1,3}@neuron:0
    %2, %3 = aten::split.Tensor(%1, 2) views(0): f32[2,2]{1,3}@neuron:0, f32[1,2]{1,3}@neuron:0
    %4 = aten::neg(%2): f32[2,2]{1,2}@neuron:0
    %6 = softneuron::copy_storages([%4], device:cpu, true) views(0): f32[2,2]{1,2}@cpu
    %7 = aten::t(%0) views(0): f32[3,2]{1,3}@cpu
    %8, %9 = aten::split.Tensor(%7, 2) views(0): f32[2,2]{1,3}@cpu, f32[1,2]{1,3}@cpu
    return [%8, %9, %6])")));
}

TEST(Placement, CopiesResultsBackTogetherAndOnce) {
  Program program = read(R"(
    input %0: f32[2,3]@cpu
    %1 = aten::neg(%0): f32[2,3]@cpu
    %2 = aten::select.int(%1, 0, 1) views(0): f32[3]@cpu
    return [%2, %1, %2])");
  move_to_device(program, {"neuron", 0});
  EXPECT_EQ(program.instructions.back().opcode, "softneuron::copy_storages");
  EXPECT_EQ(program.instructions.back().results.size(), 2U);
  ASSERT_EQ(program.outputs.size(), 3U);
  EXPECT_EQ(program.outputs[0], program.outputs[2]);
  EXPECT_NE(program.outputs[0], program.outputs[1]);
  verify(program);
}

TEST(Placement, KeepsTheMemoryOfInputsThatAreReadByOffset) {
  Program program = read(R"(
    input %0: f32[2]{2}@cpu
    input %1: f32[2]{2}@cpu
    %2 = aten::view(%0, [2]) views(0): f32[2]{2}@cpu
    %3 = aten::as_strided(%2, [2], [1], 0) views(0): f32[2]@cpu
    %4 = aten::mul.Tensor(%3, %1): f32[2]@cpu
    return [%4])");
  move_to_device(program, {"neuron", 0});
  EXPECT_EQ(program.instructions[0].opcode, "softneuron::copy_storages");
  EXPECT_EQ(program.instructions[0].operands[2].value, Argument(true));
  EXPECT_EQ(program.instructions[1].opcode, "aten::_to_copy");
  verify(program);
}

TEST(Placement, KeepsTheStridesOfExpandedInputs) {
  Program program = read(R"(
    input %0: f32[2,8]{0,1}@cpu
    %1 = aten::exp(%0): f32[2,8]@cpu
    return [%1])");
  move_to_device(program, {"neuron", 0});
  EXPECT_EQ(program.instructions[0].opcode, "softneuron::copy_storages");
  EXPECT_EQ(program.instructions[0].operands[2].value, Argument(false)) << "the rest of the storage may be large";
  verify(program);
}

TEST(Placement, CopiesWrittenInputsBack) {
  Program program = read(R"(
    input %0: f32[2]@cpu
    %1 = aten::view(%0, [2]) views(0): f32[2]@cpu
    aten::zero_(%1) writes(0)
    return [])");
  move_to_device(program, {"neuron", 0});
  EXPECT_EQ(program.instructions.back().opcode, "aten::copy_");
  EXPECT_EQ(program.instructions.back().operands[0].value, Argument::value(0));
  verify(program);
}

TEST(Placement, CopiesHostOperandsOfMixedInstructionsOnce) {
  Program program = read(R"(
    input %0: f32[4,2]@neuron:0
    input %1: i64[3]@cpu
    input %2: f32[]@cpu
    %3 = aten::embedding(%0, %1): f32[3,2]@neuron:0
    %4 = aten::mul.Tensor(%3, %2): f32[3,2]@neuron:0
    %5 = aten::embedding(%0, %1): f32[3,2]@neuron:0
    %6 = aten::index.Tensor(%0, [%1]): f32[3,2]@neuron:0
    %7 = aten::neg(%1): i64[3]@cpu
    return [%4, %5, %6, %7])");
  EXPECT_EQ(copy_host_operands(program), 1);
  EXPECT_EQ(renumbered(program), renumbered(read(R"(
    input %0: f32[4,2]@neuron:0
    input %1: i64[3]@cpu
    input %2: f32[]@cpu
    %9 = aten::_to_copy(%1, dtype=none, layout=none, device=device:neuron:0, pin_memory=none, non_blocking=false, memory_format=none): i64[3]@neuron:0
    %3 = aten::embedding(%0, %9): f32[3,2]@neuron:0
    %4 = aten::mul.Tensor(%3, %2): f32[3,2]@neuron:0
    %5 = aten::embedding(%0, %9): f32[3,2]@neuron:0
    %6 = aten::index.Tensor(%0, [%1]): f32[3,2]@neuron:0
    %7 = aten::neg(%1): i64[3]@cpu
    return [%4, %5, %6, %7])")));
}

TEST(Placement, CopiesAWrittenHostTensorEachTime) {
  Program program = read(R"(
    input %0: f32[2]@neuron:0
    input %1: f32[2]@cpu
    %2 = aten::add.Tensor(%0, %1): f32[2]@neuron:0
    _ = aten::copy_(%1, %2, false) writes(0) views(0)
    %3 = aten::add.Tensor(%0, %1): f32[2]@neuron:0
    return [%3])");
  EXPECT_EQ(copy_host_operands(program), 2);
}

TEST(Placement, LeavesPureProgramsAlone) {
  for (const char* place : {"cpu", "neuron:0"}) {
    Program program = read(std::string("input %0: f32[2]@") + place + " %1 = aten::neg(%0): f32[2]@" + place + " return [%1]");
    const Program before = program;
    EXPECT_EQ(copy_host_operands(program), 0);
    EXPECT_EQ(to_string(program), to_string(before));
  }
}

}  // namespace
}  // namespace neuron::compiler
