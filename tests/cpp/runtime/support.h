// Helpers of the runtime tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "runtime/environment.h"
#include "runtime/error.h"

namespace neuron::runtime::testing {

// What a throwing call threw: the code and the text. Fails the test when nothing (or something else) was thrown.
struct Thrown {
  std::optional<ErrorCode> code;
  std::string text;
};

inline Thrown error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected neuron::runtime::Error, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected neuron::runtime::Error, nothing was thrown";
  return {};
}

inline Environment environment(std::map<std::string, std::string> values) { return Environment::from_map(std::move(values)); }

// Checks inside processes where GoogleTest's own macros cannot report.
inline void require(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "failed: %s\n", what);
    std::_Exit(1);
  }
}

// Runs `scenario` in a forked child; true when it passed all of its require() checks and did not hang.
inline bool passes_in_forked_child(const std::function<void()>& scenario) {
  constexpr unsigned kSecondsUntilHung = 60;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsUntilHung);
    scenario();
    std::_Exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace neuron::runtime::testing

// Runs the statements in a process that starts from scratch: for what happens once per process, such as initialisation. Ends the process
// with require() on failure.
#define NEURON_IN_FRESH_PROCESS(...)              \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); \
  EXPECT_EXIT(                                    \
      {                                           \
        __VA_ARGS__;                              \
        std::_Exit(0);                            \
      },                                          \
      ::testing::ExitedWithCode(0), "")
