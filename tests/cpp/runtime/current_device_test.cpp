// Current device: per thread, inherited from the main thread, checked.
#include "runtime/current_device.h"

#include <thread>

#include "runtime/runtime.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::error_of;

class CurrentDevice : public ::testing::Test {
 protected:
  void TearDown() override { unchecked_exchange_device(0); }
};

TEST_F(CurrentDevice, StartsAtZero) { EXPECT_EQ(current_device(), 0); }

TEST_F(CurrentDevice, ExchangeGivesThePreviousDevice) {
  EXPECT_EQ(exchange_device(2), 0);
  EXPECT_EQ(current_device(), 2);
  EXPECT_EQ(unchecked_exchange_device(1), 2);
  EXPECT_EQ(current_device(), 1);
}

TEST_F(CurrentDevice, ThreadsInheritWhatTheMainThreadSelectedLast) {
  set_device(3);
  std::thread([] { EXPECT_EQ(current_device(), 3); }).join();
  set_device(1);
  std::thread([] { EXPECT_EQ(current_device(), 1); }).join();
}

TEST_F(CurrentDevice, ChoiceOfAThreadIsItsOwn) {
  set_device(1);
  std::thread([] {
    set_device(2);
    std::thread([] { EXPECT_EQ(current_device(), 1); }).join();
    EXPECT_EQ(current_device(), 2);
  }).join();
  EXPECT_EQ(current_device(), 1);
}

TEST_F(CurrentDevice, OutOfRangeIsRefusedAndChangesNothing) {
  set_device(1);
  for (const int device : {-1, 4, 7, 1000}) {
    const auto error = error_of([=] { set_device(device); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidDevice);
    EXPECT_NE(error.text.find("neuron:" + std::to_string(device)), std::string::npos) << error.text;
    EXPECT_NE(error.text.find("neuron:0 to neuron:3"), std::string::npos) << error.text;
    EXPECT_EQ(error_of([=] { exchange_device(device); }).code, ErrorCode::kInvalidDevice);
  }
  EXPECT_EQ(current_device(), 1);
}

TEST_F(CurrentDevice, SettingDoesNotInitialise) {
  NEURON_IN_FRESH_PROCESS(set_device(2); testing::require(!Runtime::instance().initialized(), "not initialised"));
}

TEST_F(CurrentDevice, NegativeIndexChangesNothing) {
  set_device(2);
  EXPECT_EQ(unchecked_exchange_device(-1), 2);
  EXPECT_EQ(current_device(), 2);
}

TEST_F(CurrentDevice, ForkingThreadIsTheMainThreadOfTheChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support new threads after a fork of a process with several threads";
#endif
  set_device(1);
  std::thread([] {
    set_device(2);
    EXPECT_TRUE(testing::passes_in_forked_child([] {
      testing::require(current_device() == 2, "inherits the forking thread's device");
      set_device(3);
      std::thread([] { testing::require(current_device() == 3, "threads of the child inherit its choice"); }).join();
    }));
  }).join();
}

}  // namespace
}  // namespace neuron::runtime
