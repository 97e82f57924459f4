// Events carry real time.
#include "runtime/event.h"

#include <chrono>
#include <thread>

#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::error_of;

TEST(Event, ElapsedTimeIsRealTime) {
  using Clock = std::chrono::steady_clock;
  Event start;
  Event end;
  const auto outer_start = Clock::now();
  start.record({0, 0});
  const auto inner_start = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto inner_end = Clock::now();
  end.record({0, 0});
  const auto outer_end = Clock::now();
  // Between what was surely inside and what was surely around, whatever the machine's load.
  const auto milliseconds = [](auto duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
  EXPECT_GE(Event::elapsed_ms(start, end), milliseconds(inner_end - inner_start));
  EXPECT_LE(Event::elapsed_ms(start, end), milliseconds(outer_end - outer_start));
  EXPECT_DOUBLE_EQ(Event::elapsed_ms(end, start), -Event::elapsed_ms(start, end));
}

TEST(Event, RecordingAgainReplacesTheTime) {
  Event start;
  Event end;
  end.record({0, 0});
  start.record({0, 0});
  EXPECT_LE(Event::elapsed_ms(start, end), 0.0);
  end.record({1, 0});
  EXPECT_GE(Event::elapsed_ms(start, end), 0.0);
  EXPECT_EQ(end.device(), 1);
}

TEST(Event, NeverRecordedCountsAsComplete) {
  const Event event;
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(event.recorded());
  EXPECT_EQ(event.device(), -1);
  event.synchronize();
  event.block({0, 0});
}

TEST(Event, ElapsedTimeNeedsBothRecordedWithTiming) {
  Event recorded;
  recorded.record({0, 0});
  const Event never;
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(recorded, never); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(never, recorded); }).code, ErrorCode::kInvalidArgument);
  Event untimed(false);
  untimed.record({0, 0});
  EXPECT_TRUE(untimed.recorded());
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(recorded, untimed); }).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace neuron::runtime
