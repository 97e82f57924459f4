// Streams: modes, pooling, per-thread current stream, errors.
#include "runtime/stream.h"

#include <set>
#include <thread>

#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::error_of;

TEST(StreamRegistry, SingleStreamModeGivesTheDefaultStream) {
  StreamRegistry streams(2, StreamMode::kSingle);
  EXPECT_EQ(streams.new_stream(1, -1), streams.default_stream(1));
  EXPECT_EQ(streams.priority(streams.default_stream(1)), 0);
}

TEST(StreamRegistry, MultipleStreamsAreDistinctAndKeepTheirPriority) {
  StreamRegistry streams(2, StreamMode::kMultiple);
  const Stream first = streams.new_stream(0, 0);
  const Stream second = streams.new_stream(0, -1);
  EXPECT_NE(first, second);
  EXPECT_NE(first, streams.default_stream(0));
  EXPECT_EQ(streams.priority(first), 0);
  EXPECT_EQ(streams.priority(second), -1);
  EXPECT_TRUE(streams.query(first));
  streams.synchronize(second);
  streams.synchronize_device(1);
}

TEST(StreamRegistry, PoolIsBounded) {
  StreamRegistry streams(1, StreamMode::kMultiple);
  std::set<std::int64_t> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.insert(streams.new_stream(0, 3).id);
  }
  EXPECT_EQ(ids.size(), 32U);
}

TEST(StreamRegistry, CurrentStreamIsPerThreadAndPerDevice) {
  StreamRegistry streams(2, StreamMode::kMultiple);
  const Stream mine = streams.new_stream(1);
  streams.set_current_stream(mine);
  EXPECT_EQ(streams.current_stream(1), mine);
  EXPECT_EQ(streams.current_stream(0), streams.default_stream(0));
  std::thread([&] { EXPECT_EQ(streams.current_stream(1), streams.default_stream(1)); }).join();
  streams.set_current_stream(streams.default_stream(1));
  EXPECT_EQ(streams.current_stream(1), streams.default_stream(1));
}

TEST(StreamRegistry, RejectsUnknownDevicesAndStreams) {
  StreamRegistry streams(2, StreamMode::kMultiple);
  for (const int device : {-1, 2, 100}) {
    EXPECT_EQ(error_of([&] { return streams.default_stream(device); }).code, ErrorCode::kInvalidDevice);
    EXPECT_EQ(error_of([&] { return streams.current_stream(device); }).code, ErrorCode::kInvalidDevice);
    EXPECT_EQ(error_of([&] { streams.new_stream(device); }).code, ErrorCode::kInvalidDevice);
    EXPECT_EQ(error_of([&] { streams.synchronize_device(device); }).code, ErrorCode::kInvalidDevice);
  }
  for (const std::int64_t id : {-1, 1}) {
    EXPECT_EQ(error_of([&] { streams.set_current_stream({0, id}); }).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { return streams.query({0, id}); }).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { streams.synchronize({0, id}); }).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { return streams.priority({0, id}); }).code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace neuron::runtime
