// Ranks that call something else, hang, die, abort, are interrupted or fork: the others end in time with an error that says who and what.
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <numeric>

#include "collectives/support.h"

namespace neuron::collectives::testing {
namespace {

using Clock = std::chrono::steady_clock;

milliseconds since(Clock::time_point begin) { return std::chrono::duration_cast<milliseconds>(Clock::now() - begin); }

// What each rank does as operation 3, after two that fit. All ranks must get a mismatch whose text has the given parts.
void expect_mismatch(const std::vector<std::function<void(Communicator&)>>& calls, const std::vector<std::string>& parts) {
  const int size = static_cast<int>(calls.size());
  run_processes(size, [&](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, size);
    communicator->barrier(call(1));
    communicator->barrier(call(2));
    const Thrown thrown = error_of([&] { calls[static_cast<std::size_t>(rank)](*communicator); });
    require(thrown.code == ErrorCode::kMismatch, thrown.text);
    for (const std::string& part : parts) require(contains(thrown.text, part), "no \"" + part + "\" in: " + thrown.text);
    const Thrown again = error_of([&] { communicator->barrier(call(4)); });
    require(again.code == ErrorCode::kMismatch && again.text == thrown.text, "the first error again: " + again.text);
    require(error_of([&] { communicator->mailbox().post_send(rank, 0, nullptr, 0); }).code == ErrorCode::kMismatch,
            "the mailbox is broken too");
  });
}

std::vector<float> numbers(1'000'000);
constexpr std::int64_t kShape[] = {4, 25};

std::function<void(Communicator&)> sum(std::size_t count, DataType type = DataType::kFloat, ReduceOp op = ReduceOp::kSum,
                                       std::uint64_t sequence = 3) {
  return [=](Communicator& c) { c.all_reduce({numbers.data(), count}, numbers.data(), type, {op}, call(sequence, kPatience, kShape)); };
}

TEST(Mismatch, OfCollectives) {
  expect_mismatch({sum(100), [](Communicator& c) { c.barrier(call(3)); }, sum(100)},
                  {"group g", "ranks 0, 2: all_reduce #3 (sum, float32, 100 elements, shape [4, 25])", "rank 1: barrier #3"});
}
TEST(Mismatch, OfCounts) {
  expect_mismatch({sum(100), sum(101)}, {"rank 0: all_reduce", "100 elements", "rank 1: all_reduce", "101 elements"});
}
TEST(Mismatch, OfLargeCounts) { expect_mismatch({sum(1'000'000), sum(10)}, {"1000000 elements", "10 elements"}); }
TEST(Mismatch, OfTypes) { expect_mismatch({sum(100), sum(100, DataType::kInt32)}, {"float32", "int32"}); }
TEST(Mismatch, OfReductions) { expect_mismatch({sum(100), sum(100, DataType::kFloat, ReduceOp::kMaximum)}, {"(sum,", "(max,"}); }
TEST(Mismatch, OfSequenceNumbers) { expect_mismatch({sum(100), sum(100, DataType::kFloat, ReduceOp::kSum, 9)}, {"#3", "#9"}); }
TEST(Mismatch, OfRoots) {
  const auto from = [](int root) {
    return [root](Communicator& c) { c.broadcast({numbers.data(), 10}, root, DataType::kFloat, call(3)); };
  };
  expect_mismatch({from(0), from(1)}, {"root 0", "root 1"});
}
TEST(Mismatch, OfListsOfCounts) {
  const auto gather = [](std::size_t second) {
    return [second](Communicator& c) {
      const std::vector<Buffer> outputs{{numbers.data(), 5}, {numbers.data() + 5, second}};
      c.all_gather({numbers.data() + 100, outputs[static_cast<std::size_t>(c.rank())].count}, outputs, DataType::kFloat, call(3));
    };
  };
  expect_mismatch({gather(5), gather(6)}, {"all_gather"});
}
TEST(Mismatch, OfGatheredSizes) {
  const auto gather = [](Communicator& c) {
    const std::vector<Buffer> outputs(3, Buffer{numbers.data(), 5});
    c.gather({numbers.data() + 100, c.rank() == 2 ? 7U : 5U}, c.rank() == 0 ? std::span<const Buffer>(outputs) : std::span<const Buffer>(),
             0, DataType::kFloat, call(3));
  };
  expect_mismatch({gather, gather, gather}, {"rank 0 expects 5 elements of rank 2"});
}
TEST(Mismatch, OfScatteredSizes) {
  const auto scatter = [](Communicator& c) {
    const std::vector<ConstBuffer> inputs(2, ConstBuffer{numbers.data(), 5});
    c.scatter(c.rank() == 0 ? std::span<const ConstBuffer>(inputs) : std::span<const ConstBuffer>(),
              {numbers.data() + 100, c.rank() == 1 ? 6U : 5U}, 0, DataType::kFloat, call(3));
  };
  expect_mismatch({scatter, scatter}, {"rank 0 sends 5 elements to rank 1"});
}
TEST(Mismatch, OfExchangedSizes) {
  // Rank 2 has no part in it and hears of it all the same.
  const auto exchange = [](Communicator& c) {
    std::vector<ConstBuffer> inputs(3, ConstBuffer{numbers.data(), 5});
    std::vector<Buffer> outputs(3, Buffer{numbers.data() + 100, 5});
    if (c.rank() == 1) outputs[0].count = 4;
    c.all_to_all(inputs, outputs, DataType::kFloat, call(3));
  };
  expect_mismatch({exchange, exchange, exchange}, {"rank 0 sends 5 elements to rank 1, which expects 4"});
}

TEST(Timeout, NamesWhoHasNotArrivedAndWhereTheyAre) {
  run_processes(3, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 3);
    communicator->barrier(call(1));
    if (rank == 2) {
      store.get("given up", kPatience);
      const Thrown late = error_of([&] { communicator->barrier(call(2)); });
      require(late.code == ErrorCode::kTimeout, late.text);
      return;
    }
    const auto begin = Clock::now();
    const Thrown thrown =
        error_of([&] { communicator->all_reduce({numbers.data(), 8}, numbers.data(), DataType::kFloat, {}, call(2, milliseconds(300))); });
    require(thrown.code == ErrorCode::kTimeout, thrown.text);
    require(contains(thrown.text, "all_reduce #2 (sum, float32, 8 elements)") &&
                contains(thrown.text, "not arrived: rank 2 (last call barrier #1)"),
            thrown.text);
    require(since(begin) >= milliseconds(250) && since(begin) < milliseconds(5000), "waited as long as asked");
    store.set("given up", "1");
  });
}

TEST(Timeout, OfZeroFailsAtOnce) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    if (rank == 0) {
      require(error_of([&] { communicator->barrier(call(1, milliseconds(0))); }).code == ErrorCode::kTimeout, "timeout 0");
      store.set("done", "1");
    }
    store.get("done", kPatience);
  });
}

TEST(Timeout, OfARankThatStopsInTheMiddle) {
  run_processes(2,
                [](int rank, KeyValueStore& store) {
                  const auto communicator = join(store, rank, 2);
                  if (rank == 1) {
                    // Stopped by a signal while data moves, then killed.
                    store.set("pid", std::to_string(getpid()));
                    while (true) communicator->all_reduce({numbers.data(), numbers.size()}, numbers.data(), DataType::kFloat, {}, call(1));
                  }
                  const pid_t other = static_cast<pid_t>(std::stol(store.get("pid", kPatience)));
                  std::thread stopper([&] {
                    std::this_thread::sleep_for(milliseconds(100));
                    kill(other, SIGSTOP);
                  });
                  const Thrown thrown = error_of([&] {
                    while (true)
                      communicator->all_reduce({numbers.data(), numbers.size()}, numbers.data(), DataType::kFloat, {},
                                               call(1, milliseconds(500)));
                  });
                  stopper.join();
                  kill(other, SIGKILL);
                  require(thrown.code == ErrorCode::kTimeout && contains(thrown.text, "rank 1"), thrown.text);
                },
                {1});
}

TEST(Death, IsNoticedBySecondsAndNamed) {
  run_processes(4,
                [](int rank, KeyValueStore& store) {
                  const auto communicator = join(store, rank, 4);
                  communicator->barrier(call(1));
                  if (rank == 2) {
                    std::vector<float> mine(1'000'000);
                    std::thread([] {
                      std::this_thread::sleep_for(milliseconds(150));
                      kill(getpid(), SIGKILL);
                    }).detach();
                    while (true) communicator->all_reduce({mine.data(), mine.size()}, mine.data(), DataType::kFloat, {}, call(2));
                  }
                  const auto begin = Clock::now();
                  const Thrown thrown = error_of([&] {
                    while (true) communicator->all_reduce({numbers.data(), numbers.size()}, numbers.data(), DataType::kFloat, {}, call(2));
                  });
                  require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "rank 2 has died"), thrown.text);
                  require(since(begin) < milliseconds(5000), "noticed in time");
                  require(error_of([&] { communicator->barrier(call(3)); }).text == thrown.text, "the first error again");
                },
                {2});
}

TEST(Death, WithAChildLeftBehindIsNoticed) {
  run_processes(2,
                [](int rank, KeyValueStore& store) {
                  const auto communicator = join(store, rank, 2);
                  if (rank == 1) {
                    if (fork() == 0) {
                      // Like a data loader's worker: it inherits descriptors and memory, and outlives its parent.
                      store.set("child", std::to_string(getpid()));
                      while (true) pause();
                    }
                    store.get("child", kPatience);
                    kill(getpid(), SIGKILL);
                  }
                  const pid_t child = static_cast<pid_t>(std::stol(store.get("child", kPatience)));
                  const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
                  kill(child, SIGKILL);
                  require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "rank 1 has died (no call yet)"), thrown.text);
                },
                {1});
}

TEST(Death, AfterHavingDoneItsPartDoesNotDisturb) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    auto communicator = join(store, rank, 2);
    std::vector<float> data(20'000, rank == 0 ? 7.0F : 0.0F);
    if (rank == 0) {
      communicator->broadcast({data.data(), data.size()}, 0, DataType::kFloat, call(1));
      std::_Exit(0);
    }
    communicator->broadcast({data.data(), data.size()}, 0, DataType::kFloat, call(1));
    require(data[19'999] == 7.0F, "the data of a rank that has gone");
    const Thrown thrown = error_of([&] { communicator->barrier(call(2)); });
    require(thrown.code == ErrorCode::kPeerDied, thrown.text);
  });
}

TEST(Death, OfACommunicatorIsLeaving) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    auto communicator = join(store, rank, 2);
    if (rank == 1) {
      communicator.reset();
      store.get("noticed", kPatience);
      return;
    }
    const auto begin = Clock::now();
    const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
    require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "rank 1 has left the group"), thrown.text);
    require(since(begin) < milliseconds(5000), "noticed in time");
    store.set("noticed", "1");
  });
}

TEST(Abort, ReachesThisRankAndTheOthers) {
  run_processes(3, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 3);
    if (rank == 2) {
      communicator->abort("enough");
      const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
      require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "enough"), thrown.text);
      return;
    }
    const auto begin = Clock::now();
    const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
    require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "rank 2 aborted group g: enough"), thrown.text);
    require(since(begin) < milliseconds(5000), "heard of it in time");
  });
}

TEST(Abort, FromAnotherThreadEndsAWaitingCall) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    if (rank == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(milliseconds(100));
        communicator->abort("from another thread");
      });
      const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
      other.join();
      require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "from another thread"), thrown.text);
      store.set("aborted", "1");
    } else {
      store.get("aborted", kPatience);
      require(error_of([&] { communicator->barrier(call(1)); }).code == ErrorCode::kAborted, "also where nobody waited");
    }
  });
}

TEST(Interrupt, EndsTheCallWithItsException) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    struct Interrupted : std::runtime_error {
      using std::runtime_error::runtime_error;
    };
    int checks = 0;
    SharedMemoryOptions options;
    options.check_interrupt = [&] {
      if (rank == 0 && ++checks == 3) throw Interrupted("Ctrl-C");
    };
    const auto communicator = join(store, rank, 2, "g", options);
    if (rank == 0) {
      const auto begin = Clock::now();
      bool interrupted = false;
      try {
        communicator->barrier(call(1));
      } catch (const Interrupted&) {
        interrupted = true;
      }
      require(interrupted && since(begin) < milliseconds(3000), "the hook's own exception, soon");
      const Thrown thrown = error_of([&] { communicator->barrier(call(2)); });
      require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "Ctrl-C"), thrown.text);
      store.set("interrupted", "1");
    } else {
      store.get("interrupted", kPatience);
      const Thrown thrown = error_of([&] { communicator->barrier(call(1)); });
      require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "rank 0 of group g was interrupted: Ctrl-C"), thrown.text);
    }
  });
}

TEST(Fork, ChildCannotUseOrDisturbTheGroup) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    auto communicator = join(store, rank, 2);
    communicator->barrier(call(1));
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = error_of([&] { communicator->barrier(call(2)); }).code == ErrorCode::kInvalidArgument;
      communicator.reset();
      std::_Exit(refused ? 0 : 1);
    }
    int status = 0;
    require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "refused in the child");
    for (std::uint64_t i = 2; i < 12; ++i) {
      std::this_thread::sleep_for(milliseconds(rank == 0 ? 40 : 0));  // long enough for rank 1 to ask whether rank 0 lives
      communicator->barrier(call(i));
    }
  });
}

TEST(FullSharedMemory, IsAnErrorOnAllRanks) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    if (rank == 0) {
      // Stands for a full /dev/shm: the file may not grow beyond 1 MiB.
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1 << 20, 1 << 20};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    }
    const Thrown thrown = error_of([&] { join(store, rank, 2); });
    require(thrown.code == ErrorCode::kSystem && contains(thrown.text, "/dev/shm") && contains(thrown.text, "--shm-size"), thrown.text);
  });
}

TEST(Setup, TimesOutWhenARankDoesNotCome) {
  SharedStore store;
  const Thrown thrown = error_of([&] { make_shared_memory_communicator(store, "g", 0, 2, milliseconds(200)); });
  EXPECT_EQ(thrown.code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace neuron::collectives::testing
