// Each collective with each type, at the sizes where its path changes, and several groups at once.
#include "collectives/schedule.h"

namespace neuron::collectives::testing {
namespace {

constexpr Collective kAll[] = {Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
                               Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
                               Collective::kGather,    Collective::kScatter,       Collective::kBarrier};

Step even_step(Collective collective, DataType type, ReduceOp op, int size, std::size_t count, bool in_place) {
  Step step{.collective = collective, .type = type, .op = op, .root = size - 1, .in_place = in_place, .counts = {}, .matrix = {}};
  step.counts.assign(static_cast<std::size_t>(size), count);
  step.matrix.assign(static_cast<std::size_t>(size), step.counts);
  return step;
}

TEST(Collectives, MoveEveryType) {
  run_processes(3, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 3);
    std::uint64_t sequence = 0;
    for (const Collective collective : kAll) {
      for (const DataType type : all_types()) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{100'000}}) {
          run_step(*communicator, even_step(collective, type, ReduceOp::kSum, 3, count, (sequence & 1) != 0), sequence + 1, sequence + 1);
          ++sequence;
        }
      }
    }
  });
}

TEST(Collectives, ReduceEveryPair) {
  run_processes(4, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 4);
    std::uint64_t sequence = 0;
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
      for (const DataType type : all_types()) {
        for (const ReduceOp op : all_ops()) {
          if (!reducible(type, op)) continue;
          for (const std::size_t count : {std::size_t{77}, std::size_t{30'011}}) {
            run_step(*communicator, even_step(collective, type, op, 4, count, (sequence & 1) != 0), sequence + 1, sequence + 1);
            ++sequence;
          }
        }
      }
    }
  });
}

// Beyond the limit where results are written past the caches.
TEST(Collectives, MoveLargeData) {
  for (const int size : {2, 4}) {
    run_processes(size, [size](int rank, KeyValueStore& store) {
      const auto communicator = join(store, rank, size);
      std::uint64_t sequence = 0;
      for (const Collective collective : kAll) {
        for (const bool in_place : {false, true}) {
          run_step(*communicator, even_step(collective, DataType::kFloat, ReduceOp::kAverage, size, 2'500'003, in_place), sequence + 1,
                   sequence + 1);
          ++sequence;
        }
      }
    });
  }
}

TEST(Collectives, GiveTheSameBitsOnEveryRankAndFromRunToRun) {
  std::vector<Bytes> runs;
  for (int run = 0; run < 2; ++run) {
    constexpr std::size_t kCount = 50'000;
    auto* const results = static_cast<float*>(mmap(nullptr, 3 * kCount * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    run_processes(3, [&](int rank, KeyValueStore& store) {
      const auto communicator = join(store, rank, 3);
      const Bytes input = input_of(DataType::kFloat, 5, rank, 0, kCount * 4);
      communicator->all_reduce({input.data(), kCount}, results + static_cast<std::size_t>(rank) * kCount, DataType::kFloat, {}, call(1));
    });
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(results);
    for (std::size_t r = 0; r < 3; ++r) runs.emplace_back(bytes + r * kCount * 4, bytes + (r + 1) * kCount * 4);
    munmap(results, 3 * kCount * 4);
  }
  for (const Bytes& result : runs) EXPECT_EQ(result, runs[0]);
}

TEST(Collectives, WorkInSeveralGroupsAtOnce) {
  run_processes(4, [](int rank, KeyValueStore& store) {
    // All, rows and columns of a 2 x 2 mesh, interleaved; columns in another thread.
    const auto all = join(store, rank, 4, "all");
    const auto row = join(store, rank % 2, 2, "row" + std::to_string(rank / 2));
    const auto column = join(store, rank / 2, 2, "column" + std::to_string(rank % 2));
    std::string failure;
    std::thread other([&] {
      try {
        std::mt19937_64 engine(1);
        for (std::uint64_t i = 1; i <= 40; ++i) run_step(*column, random_step(engine, 2), i, i);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
    std::mt19937_64 engine(2);
    for (std::uint64_t i = 1; i <= 20; ++i) {
      run_step(*all, random_step(engine, 4), 100 + i, i);
      run_step(*row, random_step(engine, 2), 200 + i, i);
    }
    other.join();
    require(failure.empty(), failure);
  });
}

TEST(Collectives, RejectArgumentsThatMakeNoSense) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    float numbers[4] = {1, 2, 3, 4};
    const auto invalid = [&](const std::function<void()>& body, const std::string& part) {
      const Thrown thrown = error_of(body);
      require(thrown.code == ErrorCode::kInvalidArgument && contains(thrown.text, part), thrown.text);
    };
    invalid([&] { communicator->broadcast({numbers, 4}, 2, DataType::kFloat, call(1)); }, "root");
    invalid([&] { communicator->all_reduce({numbers, 4}, numbers, DataType::kFloat, {ReduceOp::kBitAnd}, call(1)); },
            "no bitwise and of float32");
    const std::vector<Buffer> one{{numbers, 4}};
    invalid([&] { communicator->all_gather({numbers, 4}, one, DataType::kFloat, call(1)); }, "one entry per rank");
    const std::vector<Buffer> two{{numbers, 2}, {numbers + 2, 2}};
    invalid([&] { communicator->all_gather({numbers, 4}, two, DataType::kFloat, call(1)); }, "size");
    // Nothing was sent and nothing is broken.
    communicator->all_reduce({numbers, 4}, numbers, DataType::kFloat, {}, call(1));
    require(numbers[3] == 8, "the sum after the errors");
  });
  SharedStore store;
  EXPECT_EQ(error_of([&] { join(store, 3, 2); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { join(store, 0, 1000); }).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace neuron::collectives::testing
