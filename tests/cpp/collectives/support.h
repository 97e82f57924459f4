// Helpers of the collectives tests: a key-value store between processes, and groups of ranks as processes or threads.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/error.h"
#include "collectives/shared_memory_communicator.h"

namespace neuron::collectives::testing {

using std::chrono::milliseconds;

// Generous: for what must come to pass on a busy machine.
inline constexpr milliseconds kPatience{60'000};

// A store in memory that forked children share.
class SharedStore final : public KeyValueStore {
 public:
  SharedStore() {
    void* const memory = mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    content_ = new (memory) Content;
  }
  ~SharedStore() override { munmap(content_, sizeof(Content)); }
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;

  void set(const std::string& key, const std::string& value) override {
    const Guard guard(*content_);
    Entry& entry = find_or_add(key);
    std::snprintf(entry.value, sizeof(entry.value), "%s", value.c_str());
    entry.set = true;
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    do {
      {
        const Guard guard(*content_);
        const Entry& entry = find_or_add(key);
        if (entry.set) return entry.value;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } while (std::chrono::steady_clock::now() < deadline);
    throw Error(ErrorCode::kTimeout, "no key " + key);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const Guard guard(*content_);
    return find_or_add(key).counter += amount;
  }

 private:
  struct Entry {
    char key[64];
    char value[1024];
    std::int64_t counter;
    bool set;
  };
  struct Content {
    std::atomic<bool> locked{false};
    int used = 0;
    Entry entries[1024];
  };
  struct Guard {
    explicit Guard(Content& content) : content(content) {
      while (content.locked.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    ~Guard() { content.locked.store(false, std::memory_order_release); }
    Content& content;
  };
  Entry& find_or_add(const std::string& key) {
    for (int i = 0; i < content_->used; ++i) {
      if (key == content_->entries[i].key) return content_->entries[i];
    }
    if (content_->used == static_cast<int>(std::size(content_->entries))) std::abort();
    Entry& entry = content_->entries[content_->used++];
    std::snprintf(entry.key, sizeof(entry.key), "%s", key.c_str());
    return entry;
  }

  Content* content_;
};

// Checks inside processes where GoogleTest's own macros cannot report.
inline void require(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error("failed: " + what);
  }
}

// What a call throws: its code and text. Nothing else may be thrown.
struct Thrown {
  ErrorCode code{};
  std::string text;
};
inline Thrown error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  throw std::runtime_error("failed: expected neuron::collectives::Error, nothing was thrown");
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The body of one rank of a test.
using RankBody = std::function<void(int rank, KeyValueStore& store)>;

// One process per rank. All must end by themselves; the exit status of a rank that the test kills is given as `killed`.
inline void run_processes(int size, const RankBody& body, const std::vector<int>& killed = {}) {
  SharedStore store;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(250);  // a hang is a failure, not a hanging test
      int status = 0;
      try {
        body(rank, store);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        status = 1;
      }
      std::_Exit(status);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<std::size_t>(rank)], &status, 0), children[static_cast<std::size_t>(rank)]);
    if (std::find(killed.begin(), killed.end(), rank) != killed.end()) {
      EXPECT_TRUE(WIFSIGNALED(status)) << "rank " << rank << " was to be killed";
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " failed, status " << status;
    }
  }
}

// One thread per rank in this process: what ThreadSanitizer can see.
inline void run_threads(int size, const RankBody& body) {
  SharedStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, store);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::unique_ptr<Communicator> join(KeyValueStore& store, int rank, int size, const std::string& group = "g",
                                          SharedMemoryOptions options = {}) {
  return make_shared_memory_communicator(store, group, rank, size, kPatience, std::move(options));
}

// A group whose ranks read each other's memory for everything but the smallest operations.
inline SharedMemoryOptions direct_options(std::size_t smallest = 1000) {
  return {.check_interrupt = {}, .memory = &runtime::SharedSegments::of_device(), .smallest_direct = smallest};
}

inline Call call(std::uint64_t sequence, milliseconds timeout = kPatience, std::span<const std::int64_t> shape = {}) {
  return {.sequence = sequence, .timeout = timeout, .shape = shape};
}

}  // namespace neuron::collectives::testing
