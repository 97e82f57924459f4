// Environment parsers: accepted forms, and errors that name variable, value and accepted form.
#include "runtime/environment.h"

#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::environment;
using testing::error_of;

TEST(Environment, UnsetVariablesGiveNothing) {
  const Environment empty = environment({});
  EXPECT_FALSE(empty.boolean("A"));
  EXPECT_FALSE(empty.integer("A", 0, 9));
  EXPECT_FALSE(empty.index_list("A"));
  EXPECT_FALSE(empty.byte_size("A"));
}

TEST(Environment, Booleans) {
  for (const char* text : {"1", "true", "TRUE", "True", " true "}) {
    EXPECT_EQ(environment({{"A", text}}).boolean("A"), true) << text;
  }
  for (const char* text : {"0", "false", "FALSE", "fAlse"}) {
    EXPECT_EQ(environment({{"A", text}}).boolean("A"), false) << text;
  }
}

TEST(Environment, IntegersWithinBounds) {
  EXPECT_EQ(environment({{"A", " 7 "}}).integer("A", 0, 7), 7);
  EXPECT_EQ(environment({{"A", "-3"}}).integer("A", -3, 7), -3);
}

TEST(Environment, ListsAndRanges) {
  EXPECT_EQ(environment({{"A", "3"}}).index_list("A"), (std::vector<int>{3}));
  EXPECT_EQ(environment({{"A", "0-3"}}).index_list("A"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(environment({{"A", "0, 2 ,4-5"}}).index_list("A"), (std::vector<int>{0, 2, 4, 5}));
}

TEST(Environment, ByteSizes) {
  EXPECT_EQ(environment({{"A", "123"}}).byte_size("A"), 123U);
  EXPECT_EQ(environment({{"A", "2k"}}).byte_size("A"), 2048U);
  EXPECT_EQ(environment({{"A", "512M"}}).byte_size("A"), 512ULL << 20U);
  EXPECT_EQ(environment({{"A", "3G"}}).byte_size("A"), 3ULL << 30U);
}

TEST(Environment, ErrorsNameVariableValueAndAcceptedForm) {
  const auto error = error_of([] { return environment({{"SOME_FLAG", "yes"}}).boolean("SOME_FLAG"); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidEnvironment);
  EXPECT_NE(error.text.find("SOME_FLAG"), std::string::npos);
  EXPECT_NE(error.text.find("\"yes\""), std::string::npos);
  EXPECT_NE(error.text.find("0, 1, true or false"), std::string::npos);
}

TEST(Environment, RejectsBadIntegers) {
  for (const char* text : {"", "8", "-1", "x", "1x", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(error_of([&] { return environment({{"A", text}}).integer("A", 0, 7); }).code, ErrorCode::kInvalidEnvironment) << text;
  }
}

TEST(Environment, RejectsBadLists) {
  for (const char* text : {"", " ", ",", "0,", ",1", "a", "1-", "-1", "3-1", "0-1-2", "0..3", "0-999999999"}) {
    EXPECT_EQ(error_of([&] { return environment({{"A", text}}).index_list("A"); }).code, ErrorCode::kInvalidEnvironment) << text;
  }
}

TEST(Environment, RejectsBadByteSizes) {
  for (const char* text : {"", "0", "M", "-1", "1.5G", "1T", "99999999999G", "1GG"}) {
    EXPECT_EQ(error_of([&] { return environment({{"A", text}}).byte_size("A"); }).code, ErrorCode::kInvalidEnvironment) << text;
  }
}

TEST(Environment, EmptyValueIsSaidToBeEmpty) {
  const auto error = error_of([] { return environment({{"A", ""}}).index_list("A"); });
  EXPECT_NE(error.text.find("set but empty"), std::string::npos);
}

}  // namespace
}  // namespace neuron::runtime
