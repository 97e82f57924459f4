// Teams of threads: every member once, the partition of work, errors.
#include "kernels/threads.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "kernels/thread_team.h"

namespace neuron::kernels {
namespace {

TEST(Threads, EveryMemberRunsOnceInEachCall) {
  for (int count : {1, 2, 5}) {
    testing::ThreadTeam team(count);
    std::vector<int> calls(count, 0);
    for (int round = 1; round <= 100; ++round) {
      team.run([&](int member, int size) {
        EXPECT_EQ(size, count);
        ++calls[member];
      });
      EXPECT_EQ(calls, std::vector<int>(count, round));
    }
  }
}

TEST(Threads, ErrorsReachTheCaller) {
  testing::ThreadTeam team(3);
  EXPECT_THROW(team.run([](int member, int) {
    if (member == 2) throw std::runtime_error("member");
  }),
               std::runtime_error);
  int calls = 0;
  single_thread().run([&](int, int) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Threads, SharesCoverTheWholeInOrderAtMultiplesOfTheUnit) {
  for (std::int64_t total : {0, 1, 11, 12, 13, 1000}) {
    for (int count : {1, 2, 7}) {
      std::int64_t next = 0;
      for (int member = 0; member < count; ++member) {
        const auto [begin, end] = share_of(total, 12, member, count);
        EXPECT_EQ(begin, next);
        EXPECT_LE(begin, end);
        EXPECT_TRUE(end == total || end % 12 == 0);
        next = end;
      }
      EXPECT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace neuron::kernels
