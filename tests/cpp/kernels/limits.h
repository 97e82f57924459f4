// The limits of this machine as kernels meet them: reading memory, multiply-adds in registers.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>

#include "kernels/isa/rates.h"
#include "kernels/threads.h"

namespace neuron::kernels::testing {

// Seconds: of the clock on the wall, or of the processor's time that this process used, which other load on the machine does not change
// (much: it still shares caches and memory).
class Clock {
 public:
  explicit Clock(bool processor_time, int threads) : threads_(processor_time ? threads : 0) {}

  double now() const {
    timespec time{};
    clock_gettime(threads_ != 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)) / (threads_ != 0 ? threads_ : 1);
  }

 private:
  int threads_;
};

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#endif
inline std::uint64_t sum_of_memory(const char* memory, std::size_t bytes) {
  using Vector = std::uint64_t __attribute__((vector_size(64)));
  Vector sum0{}, sum1{}, sum2{}, sum3{};
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    for (int line = 0; line < 4; ++line) {
      __builtin_prefetch(memory + i + 2048 + 64 * line, 0, 2);  // the fastest distance and cache of those tried on Zen 4
    }
    const auto* at = reinterpret_cast<const Vector*>(memory + i);
    sum0 += at[0];
    sum1 += at[1];
    sum2 += at[2];
    sum3 += at[3];
  }
  const Vector sum = sum0 + sum1 + sum2 + sum3;
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// Bytes per second that the team reads from `memory` (aligned to 64 bytes), which should be larger than the caches.
inline double read_bandwidth(const Clock& clock, Threads& threads, const char* memory, std::size_t bytes) {
  const auto start = clock.now();
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(static_cast<std::int64_t>(bytes), 4096, member, count);
    volatile std::uint64_t sink = sum_of_memory(memory + begin, end - begin);
    (void)sink;
  });
  return static_cast<double>(bytes) / (clock.now() - start);
}

// Multiply-adds per second of the team.
inline double multiply_add_rate(const Clock& clock, Threads& threads, const Rate& rate, double seconds) {
  std::int64_t rounds = 1000;
  while (true) {
    const auto start = clock.now();
    threads.run([&](int, int) { rate.run(rounds); });
    const auto took = clock.now() - start;
    if (took >= seconds / 2) {
      return static_cast<double>(rounds) * rate.multiply_adds * threads.count() / took;
    }
    rounds *= 2;
  }
}

}  // namespace neuron::kernels::testing
