// Collectives on memory that the ranks read from each other: results, fallbacks, and ranks that die in the middle.
#include <csignal>
#include <fstream>
#include <thread>

#include "collectives/copy.h"
#include "collectives/schedule.h"
#include "runtime/telemetry.h"

namespace neuron::collectives::testing {
namespace {

std::uint64_t direct_operations() { return runtime::counters()["direct_collectives"]; }

void run_schedule(Communicator& communicator, std::uint64_t seed, int steps) {
  std::mt19937_64 engine(seed);
  for (int i = 0; i < steps; ++i) {
    const Step step = random_step(engine, communicator.size());
    run_step(communicator, step, seed * 1000 + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i) + 1);
  }
}

Step even_step(Collective collective, DataType type, int size, std::size_t count, bool in_place) {
  Step step{
      .collective = collective, .type = type, .op = ReduceOp::kSum, .root = size - 1, .in_place = in_place, .counts = {}, .matrix = {}};
  step.counts.assign(static_cast<std::size_t>(size), count);
  step.matrix.assign(static_cast<std::size_t>(size), step.counts);
  return step;
}

class Direct : public ::testing::TestWithParam<int> {};

TEST_P(Direct, SchedulesGiveWhatOneProcessComputes) {
  const int size = GetParam();
  run_processes(size, [&](int rank, KeyValueStore& store) {
    Arena::open();
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const auto communicator = join(store, rank, size, "s" + std::to_string(seed), direct_options());
      run_schedule(*communicator, seed * 8 + static_cast<std::uint64_t>(size), 8);
    }
    require(direct_operations() > 10, "operations went without rings: " + std::to_string(direct_operations()));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(2, 3, 4, 5, 6, 7, 8), ::testing::PrintToStringParamName());

constexpr Collective kDirect[] = {Collective::kAllReduce,     Collective::kReduce,   Collective::kBroadcast, Collective::kAllGather,
                                  Collective::kReduceScatter, Collective::kAllToAll, Collective::kGather,    Collective::kScatter};

// Around the smallest size, and around the size from which results are written past the caches; odd counts leave every part but the first
// unaligned.
TEST(DirectExchange, GivesTheSameOnBothSidesOfItsLimits) {
  for (const int size : {2, 3}) {
    run_processes(size, [size](int rank, KeyValueStore& store) {
      Arena::open(std::size_t{128} << 20);
      constexpr std::size_t kSmallest = 40'000;
      const auto communicator = join(store, rank, size, "g", direct_options(kSmallest));
      std::uint64_t sequence = 0;
      for (const Collective collective : kDirect) {
        const bool lists =
            collective == Collective::kAllGather || collective == Collective::kAllToAll || collective == Collective::kReduceScatter;
        // Of gather and scatter, what one rank has decides: the others do not know of the rest.
        const std::size_t parts = lists ? static_cast<std::size_t>(size) : 1;
        for (const std::size_t bytes : {kSmallest - 12, kSmallest, kSmallest + 12, kStreamingBytes - 12, kStreamingBytes + 12}) {
          for (const bool in_place : {false, true}) {
            const std::size_t count = (bytes + 4 * parts - 1) / 4 / parts;
            const std::uint64_t before = direct_operations();
            ++sequence;
            run_step(*communicator, even_step(collective, DataType::kFloat, size, count, in_place), sequence, sequence);
            const bool wanted = count * parts * 4 >= kSmallest && !(collective == Collective::kAllToAll && in_place);
            if (wanted) require(direct_operations() == before + 1, "without rings");
            if (count * parts * 4 < kSmallest) require(direct_operations() == before, "through rings");
          }
        }
      }
    });
  }
}

TEST(DirectExchange, WorksWithRanksAsThreads) {
  run_processes(1, [](int, KeyValueStore&) {  // a process of its own for the arena
    Arena::open();
    const std::uint64_t before = direct_operations();
    run_threads(3, [](int rank, KeyValueStore& store) {
      const auto communicator = join(store, rank, 3, "g", direct_options());
      run_schedule(*communicator, 77, 30);
    });
    require(!::testing::Test::HasFailure() && direct_operations() > before, "without rings");
  });
}

// One rank without shared memory, or with its data elsewhere: all take the rings.
TEST(DirectExchange, IsLeftWhereOneRankCannot) {
  run_processes(3, [](int rank, KeyValueStore& store) {
    if (rank != 1) Arena::open();
    const auto communicator = join(store, rank, 3, "g", rank == 1 ? SharedMemoryOptions{} : direct_options());
    run_schedule(*communicator, 5, 20);
    require(direct_operations() == 0, "through rings");
  });
  run_processes(2, [](int rank, KeyValueStore& store) {
    Arena::open();
    const auto communicator = join(store, rank, 2, "g", direct_options());
    std::vector<float> elsewhere(100'000, 1.0F);
    Bytes here(400'000);
    std::memcpy(here.data(), elsewhere.data(), here.size());
    void* const data = rank == 0 ? static_cast<void*>(elsewhere.data()) : here.data();
    for (std::uint64_t i = 1; i <= 20; ++i) communicator->all_reduce({data, 100'000}, data, DataType::kFloat, {}, call(i));
    require(static_cast<float*>(data)[99'999] == 1048576.0F && direct_operations() == 0, "through rings");
  });
}

// Outputs over inputs that others still read: as through rings.
TEST(DirectExchange, RefusesOutputsOverInputs) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    Arena::open();
    const auto communicator = join(store, rank, 2, "g", direct_options());
    constexpr std::size_t kHalf = 100'000;
    Bytes bytes(2 * kHalf * 4);
    auto* const data = reinterpret_cast<float*>(bytes.data());
    std::fill_n(data, kHalf, static_cast<float>(10 * rank));
    std::fill_n(data + kHalf, kHalf, static_cast<float>(10 * rank + 1));
    const std::vector<ConstBuffer> inputs{{data, kHalf}, {data + kHalf, kHalf}};
    // Both exchange in place, then each sums into the other's part.
    const std::vector<Buffer> outputs{{data, kHalf}, {data + kHalf, kHalf}};
    communicator->all_to_all(inputs, outputs, DataType::kFloat, call(1));
    require(data[5] == static_cast<float>(rank) && data[2 * kHalf - 5] == static_cast<float>(10 + rank), "all_to_all in place");
    float* const other = rank == 0 ? data + kHalf : data;
    communicator->reduce_scatter(inputs, {other, kHalf}, DataType::kFloat, {}, call(2));
    require(other[7] == (rank == 0 ? 1.0F : 21.0F), "reduce_scatter into the other's part: " + std::to_string(other[7]));
    require(direct_operations() == 0, "through rings");
  });
}

TEST(DirectExchange, SurvivesOnlyWithAllRanks) {
  run_processes(3,
                [](int rank, KeyValueStore& store) {
                  Arena::open();
                  const auto communicator = join(store, rank, 3, "g", direct_options());
                  Bytes bytes(4 << 20);
                  auto* const data = reinterpret_cast<float*>(bytes.data());
                  const std::size_t count = bytes.size() / 4;
                  if (rank == 2) {
                    std::thread([] {
                      std::this_thread::sleep_for(milliseconds(150));
                      kill(getpid(), SIGKILL);
                    }).detach();
                  }
                  std::uint64_t sequence = 0;
                  const auto begin = std::chrono::steady_clock::now();
                  const Thrown thrown = error_of([&] {
                    while (true) communicator->all_reduce({data, count}, data, DataType::kFloat, {}, call(++sequence));
                  });
                  require(direct_operations() > 0, "without rings");
                  require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "rank 2 has died"), thrown.text);
                  require(std::chrono::steady_clock::now() - begin < milliseconds(5000), "noticed in time");
                },
                {2});
}

TEST(DirectExchange, TimesOutWhenARankStopsInTheMiddle) {
  run_processes(2,
                [](int rank, KeyValueStore& store) {
                  Arena::open();
                  const auto communicator = join(store, rank, 2, "g", direct_options());
                  Bytes bytes(4 << 20);
                  void* const data = bytes.data();
                  if (rank == 1) {
                    store.set("pid", std::to_string(getpid()));
                    while (true) communicator->all_reduce({data, 1 << 20}, data, DataType::kFloat, {}, call(1));
                  }
                  const pid_t other = static_cast<pid_t>(std::stol(store.get("pid", kPatience)));
                  std::thread stopper([&] {
                    std::this_thread::sleep_for(milliseconds(100));
                    kill(other, SIGSTOP);
                  });
                  const Thrown thrown = error_of([&] {
                    while (true) communicator->all_reduce({data, 1 << 20}, data, DataType::kFloat, {}, call(1, milliseconds(500)));
                  });
                  stopper.join();
                  kill(other, SIGKILL);
                  require(thrown.code == ErrorCode::kTimeout && contains(thrown.text, "rank 1"), thrown.text);
                  require(!runtime::SharedSegments::of_device().offset_of(data, 1), "out of reach of a rank that goes on one day");
                },
                {1});
}

// The results of gather lie in several places, in all of which others write.
TEST(DirectExchange, TakesAllResultsOfAGatherBack) {
  run_processes(2,
                [](int rank, KeyValueStore& store) {
                  constexpr std::size_t kBytes = std::size_t{8} << 20;
                  Arena::open();
                  const auto communicator = join(store, rank, 2, "g", direct_options());
                  auto& memory = Arena::memory();
                  void* const places[] = {memory.map(kBytes, kBytes), memory.map(kBytes, kBytes), memory.map(kBytes, kBytes)};
                  for (void* const place : places) require(memory.offset_of(place, kBytes).has_value(), "memory to share");
                  const std::vector<Buffer> outputs{{places[0], kBytes}, {places[1], kBytes}};
                  const auto gather = [&](milliseconds timeout) {
                    communicator->gather({places[2], kBytes}, rank == 0 ? std::span<const Buffer>(outputs) : std::span<const Buffer>(), 0,
                                         DataType::kUInt8, call(1, timeout));
                  };
                  if (rank == 1) {
                    store.set("pid", std::to_string(getpid()));
                    while (true) gather(kPatience);
                  }
                  const pid_t other = static_cast<pid_t>(std::stol(store.get("pid", kPatience)));
                  std::thread stopper([&] {
                    std::this_thread::sleep_for(milliseconds(100));
                    kill(other, SIGSTOP);
                  });
                  const Thrown thrown = error_of([&] {
                    while (true) gather(milliseconds(500));
                  });
                  stopper.join();
                  kill(other, SIGKILL);
                  require(direct_operations() > 0, "without rings");
                  require(thrown.code == ErrorCode::kTimeout, thrown.text);
                  require(!memory.offset_of(places[0], 1) && !memory.offset_of(places[1], 1), "the results, taken back");
                  require(memory.offset_of(places[2], 1).has_value(), "the input, which nobody writes");
                },
                {1});
}

// What a rank uses for something else after its operation failed, one that was late does not overwrite.
TEST(DirectExchange, ALateRankWritesIntoNobodysMemory) {
  for (int round = 0; round < 4; ++round) {
    run_processes(2, [round](int rank, KeyValueStore& store) {
      constexpr std::size_t kCount = std::size_t{16} << 20;
      Arena::open(std::size_t{66} << 20);
      Bytes bytes(kCount * 4, 1);
      const auto communicator = join(store, rank, 2, "g", direct_options());
      const auto reduce_until_it_fails = [&](milliseconds timeout) {
        const Thrown thrown = error_of([&] {
          while (true) communicator->all_reduce({bytes.data(), kCount}, bytes.data(), DataType::kFloat, {}, call(1, timeout));
        });
        require(direct_operations() > 0, "without rings");
        require(thrown.code == ErrorCode::kTimeout, thrown.text);
      };
      if (rank == 1) {
        store.set("pid", std::to_string(getpid()));
        reduce_until_it_fails(kPatience);
        store.set("went on", "yes");
        return;
      }
      const pid_t other = static_cast<pid_t>(std::stol(store.get("pid", kPatience)));
      std::thread stopper([&] {
        std::this_thread::sleep_for(milliseconds(100 + 3 * round));  // somewhere in one of many operations
        kill(other, SIGSTOP);
      });
      reduce_until_it_fails(milliseconds(500));
      stopper.join();
      std::memset(bytes.data(), 77, bytes.size());
      kill(other, SIGCONT);
      store.get("went on", kPatience);
      const auto written = std::find_if(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != 77; });
      require(written == bytes.end(), "round " + std::to_string(round) + ", at byte " + std::to_string(written - bytes.begin()));
    });
  }
}

// The memory of one group's failed operation may hold the results of another group's: better no results than wrong ones.
TEST(DirectExchange, FailsWhereItsResultsWereWithdrawn) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    Arena::open();
    const auto communicator = join(store, rank, 2, "g", direct_options());
    Bytes bytes(1 << 20, 1);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(400));
    std::thread other_group([&] {
      std::this_thread::sleep_for(milliseconds(rank == 0 ? 100 : 0));  // rank 0 has announced the operation and waits
      if (rank == 0) runtime::SharedSegments::of_device().withdraw(bytes.data());
    });
    const Thrown thrown = error_of([&] {
      for (std::uint64_t i = 1;; ++i) {
        communicator->all_reduce({bytes.data(), bytes.size()}, bytes.data(), DataType::kUInt8, {}, call(i));
        require(rank == 1, "rank 0 got a result");
      }
    });
    other_group.join();
    require(contains(thrown.text, "rank 0") && contains(thrown.text, "took its memory back"), thrown.text);
  });
}

// A rank's forked child has none of the peers' memory, and ends without disturbing the group.
TEST(DirectExchange, IsNotInherited) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    Arena::open();
    const auto communicator = join(store, rank, 2, "g", direct_options());
    Bytes bytes(1 << 20, 1);
    communicator->all_reduce({bytes.data(), bytes.size()}, bytes.data(), DataType::kUInt8, {}, call(1));
    const auto windows = [] {  // mappings of a whole file: far larger than any segment
      std::ifstream maps("/proc/self/maps");
      int found = 0;
      for (std::string line; std::getline(maps, line);) {
        std::size_t end = 0;
        const auto from = std::stoull(line, &end, 16);
        const auto to = std::stoull(line.substr(end + 1), nullptr, 16);
        found += contains(line, "softneuron-device-memory") && to - from >= std::size_t{1} << 30 ? 1 : 0;
      }
      return found;
    };
    require(windows() == 1, "one peer's file: " + std::to_string(windows()));
    const pid_t child = fork();
    if (child == 0) std::_Exit(windows() == 0 ? 0 : 1);
    int status = 0;
    require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "none in the child");
    communicator->all_reduce({bytes.data(), bytes.size()}, bytes.data(), DataType::kUInt8, {}, call(2));
    require(bytes.back() == 4, "and the group goes on");
  });
}

}  // namespace
}  // namespace neuron::collectives::testing
