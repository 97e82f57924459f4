// The verifier refuses programs that would read undefined or released memory or write constants.
#include "compiler/verifier.h"

#include <gtest/gtest.h>

#include "compiler/parser.h"

namespace neuron::compiler {
namespace {

std::string verdict(const Program& program) {
  try {
    verify(program);
    return "fine";
  } catch (const VerificationError& error) {
    return error.what();
  }
}

TEST(Verifier, AcceptsASoundProgram) {
  EXPECT_EQ(verdict(parse_program(R"(program "p" {
    input %0: f32[2]@cpu
    constant %1: f32[2]@cpu
    %2 = aten::add.Tensor(%0, %1) releases(%0): f32[2]@cpu
    return [%2]
  })")),
            "fine");
}

TEST(Verifier, RefusesReadsAfterRelease) {
  const Program program = parse_program(R"(program "p" {
    input %0: f32[2]@cpu
    %1 = aten::neg(%0) releases(%0): f32[2]@cpu
    %2 = aten::add.Tensor(%0, %1): f32[2]@cpu
    return [%2]
  })");
  EXPECT_NE(verdict(program).find("%0 is read after its release in: %2 = aten::add.Tensor"), std::string::npos) << verdict(program);
}

TEST(Verifier, RefusesTwoReleases) {
  Program program = parse_program(R"(program "p" {
    input %0: f32[2]@cpu
    release %0
    return []
  })");
  program.entry_releases.push_back(0);
  EXPECT_NE(verdict(program).find("after its release"), std::string::npos);
}

TEST(Verifier, RefusesReleasedOutputs) {
  EXPECT_NE(verdict(parse_program("program \"p\" { input %0: f32[2]@cpu release %0 return [%0] }")).find("after its release"),
            std::string::npos);
}

TEST(Verifier, RefusesUndefinedValues) {
  Program program("p");
  program.outputs.push_back(Argument::value(program.new_value(Type::of(Type::Kind::kInt))));
  EXPECT_NE(verdict(program).find("before it is defined"), std::string::npos);
  program.outputs = {Argument::value(9)};
  EXPECT_NE(verdict(program).find("%9 does not exist"), std::string::npos);
}

TEST(Verifier, RefusesEffectsOnAbsentOperands) {
  EXPECT_NE(verdict(parse_program("program \"p\" { input %0: f32[2]@cpu aten::zero_(%0) writes(1) return [] }")).find("operand 1"),
            std::string::npos);
}

TEST(Verifier, RefusesWritesToConstantsAlsoThroughViews) {
  EXPECT_NE(verdict(parse_program(R"(program "p" {
    constant %0: f32[2]@cpu
    %1 = aten::select.int(%0, 0, 1) views(0): f32[]@cpu
    aten::zero_(%1) writes(0)
    return []
  })"))
                .find("the constant %0 is written"),
            std::string::npos);
}

}  // namespace
}  // namespace neuron::compiler
