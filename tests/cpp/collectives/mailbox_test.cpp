// Point-to-point messages: sizes, tags, order, any source, both sides sending first, faults.
#include <csignal>
#include <deque>
#include <random>

#include "collectives/schedule.h"

namespace neuron::collectives::testing {
namespace {

using Ticket = Mailbox::Ticket;
using Clock = std::chrono::steady_clock;

// Drives the mailbox until the ticket is done; the other rank's number.
int complete(Mailbox& mailbox, Ticket ticket) {
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    mailbox.progress();
    if (const auto other = mailbox.finished(ticket)) return *other;
    require(Clock::now() < deadline, "a message that does not come");
    mailbox.wait(milliseconds(1000));
  }
}

Bytes message(int from, int to, int tag, std::size_t bytes) {
  return random_bytes(DataType::kUInt8, bytes, static_cast<std::uint64_t>(from * 10'000 + to * 100 + tag));
}

TEST(Mailbox, MovesEverySize) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    Mailbox& mailbox = communicator->mailbox();
    for (const std::size_t bytes : {0UL, 1UL, 7UL, 4096UL, 16'383UL, 16'384UL, 16'385UL, 131'072UL, 1'000'003UL, 20'000'000UL}) {
      const Bytes want = message(0, 1, 5, bytes);
      if (rank == 0) {
        require(complete(mailbox, mailbox.post_send(1, 5, want.data(), bytes)) == 1, "destination");
      } else {
        Bytes got(bytes, 0xEE);
        require(complete(mailbox, mailbox.post_receive(0, 5, got.data(), bytes)) == 0, "source");
        require(got == want, "bytes of " + std::to_string(bytes));
      }
    }
    communicator->barrier(call(1));
  });
}

TEST(Mailbox, BothSidesMaySendFirst) {
  run_processes(4, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 4);
    Mailbox& mailbox = communicator->mailbox();
    for (const std::size_t bytes : {100UL, 3'000'000UL}) {
      std::vector<Bytes> sent;
      std::vector<Ticket> tickets;
      for (int other = 0; other < 4; ++other) sent.push_back(message(rank, other, 1, bytes));
      for (int other = 0; other < 4; ++other)
        tickets.push_back(mailbox.post_send(other, 1, sent[static_cast<std::size_t>(other)].data(), bytes));
      if (bytes > 1000) mailbox.progress();
      std::vector<Bytes> got(4, Bytes(bytes));
      for (int other = 0; other < 4; ++other)
        tickets.push_back(mailbox.post_receive(other, 1, got[static_cast<std::size_t>(other)].data(), bytes));
      for (const Ticket ticket : tickets) complete(mailbox, ticket);
      for (int other = 0; other < 4; ++other) require(got[static_cast<std::size_t>(other)] == message(other, rank, 1, bytes), "exchange");
    }
    communicator->barrier(call(1));
  });
}

TEST(Mailbox, TagsMatchInAnyOrderAndEqualTagsInTheirs) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    Mailbox& mailbox = communicator->mailbox();
    // Large and small messages of alternating tags, received from the last tag to the first.
    constexpr int kTags = 6;
    const auto size_of = [](int tag, int turn) { return static_cast<std::size_t>(tag % 2 == 0 ? 40'000 + turn : 40 + turn); };
    std::vector<Bytes> data;
    std::vector<Ticket> tickets;
    if (rank == 0) {
      for (int turn = 0; turn < 2; ++turn) {
        for (int tag = 0; tag < kTags; ++tag) data.push_back(message(0, turn, tag, size_of(tag, turn)));
      }
      std::size_t i = 0;
      for (int turn = 0; turn < 2; ++turn) {
        for (int tag = 0; tag < kTags; ++tag, ++i) tickets.push_back(mailbox.post_send(1, tag, data[i].data(), data[i].size()));
      }
      for (const Ticket ticket : tickets) complete(mailbox, ticket);
    } else {
      for (int tag = kTags - 1; tag >= 0; --tag) {
        for (int turn = 0; turn < 2; ++turn) {
          Bytes got(size_of(tag, turn));
          complete(mailbox, mailbox.post_receive(0, tag, got.data(), got.size()));
          require(got == message(0, turn, tag, got.size()), "tag " + std::to_string(tag));
        }
      }
    }
    communicator->barrier(call(1));
  });
}

TEST(Mailbox, ReceivesFromAnySource) {
  run_processes(5, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 5);
    Mailbox& mailbox = communicator->mailbox();
    for (const std::size_t bytes : {8UL, 100'000UL}) {
      if (rank == 0) {
        std::vector<bool> seen(5);
        for (int i = 1; i < 5; ++i) {
          Bytes got(bytes);
          const int source = complete(mailbox, mailbox.post_receive(Mailbox::kAnySource, 3, got.data(), bytes));
          require(got == message(source, 0, 3, bytes) && !seen[static_cast<std::size_t>(source)], "message of its source");
          seen[static_cast<std::size_t>(source)] = true;
        }
      } else {
        const Bytes data = message(rank, 0, 3, bytes);
        complete(mailbox, mailbox.post_send(0, 3, data.data(), bytes));
      }
      communicator->barrier(call(bytes));
    }
  });
}

TEST(Mailbox, KeepsManyMessagesInTheAir) {
  // Each rank sends to and receives from every other, in orders of its own.
  const auto body = [](int rank, KeyValueStore& store) {
    constexpr int kSize = 4;
    constexpr int kMessages = 50;
    const auto communicator = join(store, rank, kSize);
    Mailbox& mailbox = communicator->mailbox();
    const auto bytes_of = [](int from, int to, int tag) {
      return static_cast<std::size_t>((from * 7919 + to * 104'729 + tag * 1'299'709) % 60'000);
    };
    std::vector<std::array<int, 3>> jobs;  // direction, other, tag
    for (int other = 0; other < kSize; ++other) {
      for (int tag = 0; tag < kMessages; ++tag) {
        jobs.push_back({0, other, tag});
        jobs.push_back({1, other, tag});
      }
    }
    std::mt19937 engine(static_cast<unsigned>(rank));
    std::shuffle(jobs.begin(), jobs.end(), engine);
    std::deque<Bytes> memory;
    std::vector<Ticket> tickets;
    for (const auto& [direction, other, tag] : jobs) {
      if (direction == 0) {
        memory.push_back(message(rank, other, tag, bytes_of(rank, other, tag)));
        tickets.push_back(mailbox.post_send(other, tag, memory.back().data(), memory.back().size()));
      } else {
        memory.emplace_back(bytes_of(other, rank, tag));
        tickets.push_back(mailbox.post_receive(other, tag, memory.back().data(), memory.back().size()));
      }
    }
    for (const Ticket ticket : tickets) complete(mailbox, ticket);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto& [direction, other, tag] = jobs[i];
      if (direction == 1) require(memory[i] == message(other, rank, tag, memory[i].size()), "message " + std::to_string(i));
    }
    communicator->barrier(call(1));
  };
  run_processes(4, body);
  run_threads(4, body);
}

TEST(Mailbox, AndCollectivesDoNotMeet) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    std::thread other([&] {
      Mailbox& mailbox = communicator->mailbox();
      for (int tag = 0; tag < 30; ++tag) {
        Bytes sent = message(rank, 1 - rank, tag, 70'000);
        Bytes got(70'000);
        const Ticket send = mailbox.post_send(1 - rank, tag, sent.data(), sent.size());
        complete(mailbox, mailbox.post_receive(1 - rank, tag, got.data(), got.size()));
        complete(mailbox, send);
        if (got != message(1 - rank, rank, tag, 70'000)) std::abort();
      }
    });
    std::mt19937_64 engine(3);
    for (std::uint64_t i = 1; i <= 30; ++i) run_step(*communicator, random_step(engine, 2), i, i);
    other.join();
  });
}

TEST(Mailbox, MismatchOfSizesReachesBothSides) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    Mailbox& mailbox = communicator->mailbox();
    std::vector<std::byte> data(100'000);
    const Thrown thrown = error_of([&] {
      const Ticket ticket = rank == 0 ? mailbox.post_send(1, 4, data.data(), 100'000) : mailbox.post_receive(0, 4, data.data(), 99'999);
      complete(mailbox, ticket);
    });
    require(thrown.code == ErrorCode::kMismatch && contains(thrown.text, "rank 0 sent 100000 bytes with tag 4 to rank 1") &&
                contains(thrown.text, "99999"),
            thrown.text);
  });
}

TEST(Mailbox, DeathOfTheOtherSideIsNoticed) {
  run_processes(3,
                [](int rank, KeyValueStore& store) {
                  const auto communicator = join(store, rank, 3);
                  Mailbox& mailbox = communicator->mailbox();
                  communicator->barrier(call(1));
                  if (rank == 2) kill(getpid(), SIGKILL);
                  std::byte byte{};
                  const Thrown thrown =
                      error_of([&] { complete(mailbox, mailbox.post_receive(rank == 0 ? 2 : Mailbox::kAnySource, 0, &byte, 1)); });
                  require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "rank 2, which has died"), thrown.text);
                },
                {2});
}

TEST(Mailbox, MessagesOfARankThatHasLeftStillArrive) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    auto communicator = join(store, rank, 2);
    Mailbox& mailbox = communicator->mailbox();
    int value = 42;
    if (rank == 0) {
      complete(mailbox, mailbox.post_send(1, 0, &value, sizeof(value)));
      communicator.reset();
      store.set("left", "1");
      return;
    }
    store.get("left", kPatience);
    value = 0;
    complete(mailbox, mailbox.post_receive(0, 0, &value, sizeof(value)));
    require(value == 42, "the message");
    const Thrown thrown = error_of([&] { complete(mailbox, mailbox.post_receive(0, 0, &value, sizeof(value))); });
    require(thrown.code == ErrorCode::kPeerDied && contains(thrown.text, "has left the group"), thrown.text);
  });
}

TEST(Mailbox, AbortEndsAWait) {
  run_processes(2, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 2);
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      communicator->abort("stop");
      store.get("ended", kPatience);
      return;
    }
    std::byte byte{};
    const Thrown thrown = error_of([&] { complete(communicator->mailbox(), communicator->mailbox().post_receive(1, 0, &byte, 1)); });
    require(thrown.code == ErrorCode::kAborted && contains(thrown.text, "stop"), thrown.text);
    store.set("ended", "1");
  });
}

}  // namespace
}  // namespace neuron::collectives::testing
