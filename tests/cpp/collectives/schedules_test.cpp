// Random programs of collectives with 1 to 8 ranks: every collective, type, reduction, size and placement against results computed in one
// process.
#include "collectives/schedule.h"

namespace neuron::collectives::testing {
namespace {

void run_schedule(Communicator& communicator, std::uint64_t seed, int steps) {
  std::mt19937_64 engine(seed);
  for (int i = 0; i < steps; ++i) {
    const Step step = random_step(engine, communicator.size());
    run_step(communicator, step, seed * 1000 + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i) + 1);
  }
}

// 200 schedules in all.
class Schedules : public ::testing::TestWithParam<int> {};

TEST_P(Schedules, GiveWhatOneProcessComputes) {
  const int size = GetParam();
  run_processes(size, [&](int rank, KeyValueStore& store) {
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
      const auto communicator = join(store, rank, size, "s" + std::to_string(seed));
      run_schedule(*communicator, seed * 8 + static_cast<std::uint64_t>(size), 8);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Schedules, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8), ::testing::PrintToStringParamName());

TEST(Schedules, GiveTheSameWithRanksAsThreads) {
  run_threads(3, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 3);
    run_schedule(*communicator, 77, 30);
  });
}

TEST(Schedules, WorkWithThirtyTwoRanks) {
  run_processes(32, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 32);
    run_schedule(*communicator, 99, 10);
  });
}

}  // namespace
}  // namespace neuron::collectives::testing
