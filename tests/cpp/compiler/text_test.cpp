// Printer and parser: text -> program -> the same text, and errors that name the line.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/parser.h"
#include "compiler/printer.h"

namespace neuron::compiler {
namespace {

constexpr const char* kEverything = R"(program "model_0_inference_0" {
  input %0: f32[2,3]@neuron:0
  input %1: i64[]@cpu
  input %2: bf16[4,8]{1,4}@neuron
  constant %3: i1[0,5]@neuron:1
  release %1
  %4 = aten::add.Tensor(%0, 1, alpha=2.5) inplace(aten::add_.Tensor) releases(%2): f32[2,3]@neuron:0
  %5, _ = aten::max.dim(%4, -1, false): f32[2]@neuron:0
  _ = aten::copy_(%0, %4, false) writes(0) views(0)
  aten::_foreach_zero_([%4, %0]) writes(0)
  %6 = aten::rand([2, 3], dtype=dtype:bf16, device=device:neuron:0, memory_format=memory_format:preserve, pin_memory=none) ordered: bf16[2,3]@neuron:0
  %7 = aten::index.Tensor(%4, [none, %1]) : f32[2]@neuron:0
  %8 = aten::gelu(%4, approximate="tanh \"x\"\n\\") : f32[2,3]@neuron:0
  %9, %10 = python::call(%4, object:3) views(0) ordered releases(%4, %8): object, int
  return [%6, none, 3, -1.5, true, [%7, %5]]
}
)";

TEST(Text, PrintingIsAFixedPoint) {
  const std::string once = to_string(parse_program(kEverything));
  EXPECT_EQ(once, to_string(parse_program(once)));
}

TEST(Text, ParsesEveryPart) {
  const Program program = parse_program(kEverything);
  EXPECT_EQ(program.name(), "model_0_inference_0");
  ASSERT_EQ(program.inputs().size(), 3U);
  EXPECT_EQ(program.type_of(2).tensor.strides, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(program.type_of(2).tensor.place, (Place{"neuron", -1}));
  EXPECT_EQ(program.type_of(3).tensor.scalar, ScalarKind::kBool);
  EXPECT_EQ(program.entry_releases, (std::vector<ValueId>{1}));
  const Instruction& add = program.instructions[0];
  EXPECT_EQ(add.opcode, "aten::add.Tensor");
  EXPECT_EQ(add.operands[1].value, Argument(std::int64_t{1}));
  EXPECT_EQ(add.operands[2].name, "alpha");
  EXPECT_EQ(add.operands[2].value, Argument(2.5));
  EXPECT_EQ(add.inplace_opcode, "aten::add_.Tensor");
  EXPECT_EQ(add.releases, (std::vector<ValueId>{2}));
  EXPECT_EQ(program.instructions[1].results, (std::vector<ValueId>{5, kNoValue}));
  EXPECT_EQ(program.instructions[2].effects, (Effects{{0}, {0}, false}));
  EXPECT_TRUE(program.instructions[3].results.empty());
  EXPECT_EQ(program.instructions[4].operands[1].value, Argument(Symbol{"dtype", "bf16"}));
  EXPECT_TRUE(program.instructions[4].effects.ordered);
  EXPECT_EQ(program.instructions[6].operands[1].value, Argument(std::string("tanh \"x\"\n\\")));
  EXPECT_EQ(program.type_of(9).kind, Type::Kind::kObject);
  EXPECT_EQ(program.type_of(10).kind, Type::Kind::kInt);
  EXPECT_EQ(program.outputs.size(), 6U);
}

TEST(Text, FloatsKeepTheirBits) {
  for (const double value : {0.1, 1e-300, -1e22, 3.0, 1.0 / 3.0, 6.02214076e23, -0.0, HUGE_VAL, -HUGE_VAL}) {
    Program program("p");
    program.outputs.emplace_back(value);
    const Program read = parse_program(to_string(program));
    const auto* back = read.outputs[0].get_if<double>();
    ASSERT_NE(back, nullptr) << to_string(program);
    EXPECT_EQ(*back, value);
    EXPECT_EQ(std::signbit(*back), std::signbit(value));
  }
}

TEST(Text, NanAndComplexAreRead) {
  const Program program = parse_program("program \"p\" { return [nan, complex(1.0, -2.5)] }");
  EXPECT_TRUE(std::isnan(*program.outputs[0].get_if<double>()));
  EXPECT_EQ(*program.outputs[1].get_if<std::complex<double>>(), std::complex<double>(1.0, -2.5));
}

TEST(Text, ValuesMayHaveAnyNumbers) {
  const Program program = parse_program("program \"p\" { input %7: f32[1]@cpu %100 = aten::neg(%7): f32[1]@cpu return [%100] }");
  EXPECT_EQ(program.outputs[0], Argument::value(1));
}

TEST(Text, CommentsAreSkipped) { EXPECT_EQ(parse_program("# head\nprogram \"p\" { # inside\n return [] }").name(), "p"); }

struct BadText {
  const char* text;
  const char* message;
};

class TextErrors : public testing::TestWithParam<BadText> {};

TEST_P(TextErrors, NamesLineAndCause) {
  try {
    parse_program(GetParam().text);
    FAIL() << "parsed";
  } catch (const ParseError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, TextErrors,
                         testing::Values(BadText{"", "line 1: expected 'program'"},
                                         BadText{"program \"p\" {\n return [%1] }", "line 2: %1 is used before"},
                                         BadText{"program \"p\" {\n\n input %1: f33[2]@cpu", "line 3: 'f33' is no element type"},
                                         BadText{"program \"p\" { input %1: f32[x]@cpu", "expected an integer"},
                                         BadText{"program \"p\" { input %1: f32[1]@cpu input %1: f32[1]@cpu", "%1 is defined twice"},
                                         BadText{"program \"p\" { return [\"abc", "the string does not end"},
                                         BadText{"program \"p\" { return [what] }", "'what' is no argument"},
                                         BadText{"program \"p\" { return [1.2.3] }", "'1.2.3' is not a number"},
                                         BadText{"program \"p\" { return [] } more", "text after"},
                                         BadText{"program \"p\" { %1 = aten::neg() return [] }", "expected ':'"}));

}  // namespace
}  // namespace neuron::compiler
