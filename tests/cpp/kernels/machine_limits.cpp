// Prints the limits of this machine as one line of JSON, for the benchmarks in Python. Not a test.
//
// machine_limits [threads]: the best of five rounds. read_bandwidth: bytes a second from memory; float32, bfloat16: operations a second (a
// multiply-add is two) of the machine's fastest loop for that type.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/limits.h"
#include "kernels/thread_team.h"

int main(int argc, char** argv) {
  using namespace neuron::kernels;
  using namespace neuron::kernels::testing;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 || threads < 1 || threads > 1024) {
    const bool asked = argc == 2 && std::strcmp(argv[1], "--help") == 0;
    std::fputs("usage: machine_limits [threads (1)]: the machine's limits as one line of JSON\n", asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  ThreadTeam team(threads);
  const std::size_t bytes = std::size_t{512} << 20;
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::aligned_alloc(std::size_t{2} << 20, bytes)), std::free);
  madvise(memory.get(), bytes, MADV_HUGEPAGE);  // as the device's memory is; pages of 4 KiB read at half the speed on Zen 4
  std::memset(memory.get(), 1, bytes);
  const Clock clock(false, threads);
  std::array<double, 5> reads{}, floats{}, halves{};
  for (std::size_t round = 0; round < reads.size(); ++round) {
    reads[round] = read_bandwidth(clock, team, memory.get(), bytes);
    floats[round] = 2 * multiply_add_rate(clock, team, float_rate(available_isas().back()), 0.02);
    halves[round] = 2 * multiply_add_rate(clock, team, products_rate(bf16_products()), 0.02);
  }
  std::printf("{\"threads\": %d, \"read_bandwidth\": %.6g, \"float32\": %.6g, \"bfloat16\": %.6g}\n", threads, std::ranges::max(reads),
              std::ranges::max(floats), std::ranges::max(halves));
  return 0;
}
