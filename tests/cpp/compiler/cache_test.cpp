// Fingerprints tell programs apart by what they compute; the cache compiles once per key, keeps its limits and never loses a waiting
// thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "compiler/fingerprint.h"
#include "compiler/parser.h"
#include "compiler/program_cache.h"

namespace neuron::compiler {
namespace {

std::string digest(const std::string& text) {
  Digest digest;
  update(digest, parse_program(text));
  return digest.hex();
}

TEST(Fingerprint, IgnoresNameAndNumberingOnly) {
  const std::string one = digest("program \"a\" { input %0: f32[2]@cpu %1 = aten::neg(%0): f32[2]@cpu return [%1] }");
  EXPECT_EQ(one.size(), 32U);
  EXPECT_EQ(one, digest("program \"b\" { input %5: f32[2]@cpu %9 = aten::neg(%5): f32[2]@cpu return [%9] }"));
  std::set<std::string> all{one};
  for (const char* other : {"program \"a\" { input %0: f32[3]@cpu %1 = aten::neg(%0): f32[3]@cpu return [%1] }",
                            "program \"a\" { input %0: bf16[2]@cpu %1 = aten::neg(%0): bf16[2]@cpu return [%1] }",
                            "program \"a\" { input %0: f32[2]@neuron:0 %1 = aten::neg(%0): f32[2]@neuron:0 return [%1] }",
                            "program \"a\" { input %0: f32[2]@cpu %1 = aten::abs(%0): f32[2]@cpu return [%1] }",
                            "program \"a\" { input %0: f32[2]@cpu %1 = aten::neg(%0): f32[2]@cpu return [%1, %1] }",
                            "program \"a\" { input %0: f32[2]@cpu %1 = aten::neg(%0): f32[2]@cpu return [%0] }"}) {
    EXPECT_TRUE(all.insert(digest(other)).second) << other;
  }
}

TEST(Fingerprint, DependsOnBytesAndTheirGrouping) {
  std::set<std::string> all;
  const auto add = [&all](std::initializer_list<std::string_view> chunks) {
    Digest digest;
    for (const auto chunk : chunks) {
      digest.update(chunk);
    }
    return all.insert(digest.hex()).second;
  };
  EXPECT_TRUE(add({}));
  EXPECT_TRUE(add({"abcdefgh"}));
  EXPECT_TRUE(add({"abcd", "efgh"}));
  EXPECT_TRUE(add({"abcdefg", "h"}));
  EXPECT_TRUE(add({std::string_view("abcdefgh\0", 9)}));
  for (int i = 0; i < 2000; ++i) {
    EXPECT_TRUE(add({std::to_string(i)}));
  }
}

using Cache = ProgramCache<int>;
constexpr auto kSizeOf = [](const int& value) { return static_cast<std::uint64_t>(value); };

Cache::Pointer put(Cache& cache, const std::string& key, int value) {
  return cache.get_or_compile(key, [value] { return std::make_shared<const int>(value); }, kSizeOf);
}

TEST(Cache, CompilesOncePerKey) {
  Cache cache;
  EXPECT_EQ(*put(cache, "a", 1), 1);
  EXPECT_EQ(*put(cache, "a", 2), 1);
  const CacheCounters counters = cache.counters();
  EXPECT_EQ(counters.hits, 1U);
  EXPECT_EQ(counters.misses, 1U);
  EXPECT_EQ(counters.compilations, 1U);
}

TEST(Cache, EvictsTheLeastRecentlyUsed) {
  Cache cache({.entries = 2});
  put(cache, "a", 1);
  put(cache, "b", 2);
  put(cache, "a", 1);
  const auto held = put(cache, "b", 2);
  put(cache, "a", 1);
  put(cache, "c", 3);  // pushes b out
  EXPECT_EQ(cache.counters().evictions, 1U);
  EXPECT_EQ(*held, 2) << "a program in use lives on";
  EXPECT_EQ(*put(cache, "b", 20), 20);
}

TEST(Cache, LimitsBytes) {
  Cache cache({.bytes = 10});
  put(cache, "a", 6);
  put(cache, "b", 6);
  EXPECT_EQ(cache.entry_count(), 1U);
  put(cache, "c", 100);  // larger than the limit: used, not kept
  EXPECT_EQ(cache.entry_count(), 0U);
  cache.set_limits({.entries = 1});
  put(cache, "d", 1);
  put(cache, "e", 1);
  EXPECT_EQ(cache.entry_count(), 1U);
  cache.clear();
  EXPECT_EQ(cache.entry_count(), 0U);
}

TEST(Cache, AFailedCompilationIsTriedAgain) {
  Cache cache;
  EXPECT_THROW(cache.get_or_compile("a", []() -> Cache::Pointer { throw std::runtime_error("no"); }, kSizeOf), std::runtime_error);
  EXPECT_EQ(*put(cache, "a", 4), 4);
  EXPECT_EQ(cache.counters().compilations, 1U);
}

TEST(Cache, ConcurrentRequestsWaitForOneCompilation) {
  Cache cache;
  std::atomic<int> compilations{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto compiled = cache.get_or_compile(
          "key",
          [&] {
            ++compilations;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            return std::make_shared<const int>(7);
          },
          kSizeOf);
      EXPECT_EQ(*compiled, 7);
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(compilations, 1);
  EXPECT_EQ(cache.counters().hits, 7U);
}

}  // namespace
}  // namespace neuron::compiler
