// Prints the speed of attention in the shapes of Qwen3-0.6B against the limits of this machine, measured in the same run: prefill against
// the rate of multiply-adds in registers, decode against reading memory. Usage: attention_bench [threads [prefill|decode]]
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/isa/bf16_products.h"
#include "kernels/isa/rates.h"
#include "kernels/limits.h"
#include "kernels/thread_team.h"

namespace neuron::kernels {
namespace {

double best(int runs, const std::function<void()>& work) {
  const testing::Clock clock(false, 1);
  double least = 1e9;
  for (int run = 0; run < runs; ++run) {
    const double start = clock.now();
    work();
    least = std::min(least, clock.now() - start);
  }
  return least;
}

// Memory in huge pages, as the device's is.
template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  explicit HugePages(const HugePages<U>&) {}
  T* allocate(std::size_t count) {
    constexpr std::size_t kPage = 2 << 20;
    const auto bytes = (count * sizeof(T) + kPage - 1) / kPage * kPage;
    auto* memory = static_cast<T*>(std::aligned_alloc(kPage, bytes));
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const HugePages&) const = default;
};
using Numbers = std::vector<std::uint16_t, HugePages<std::uint16_t>>;

Numbers random_bf16(std::size_t size) {
  Numbers values(size);
  std::mt19937 random(1);
  for (auto& value : values) value = static_cast<std::uint16_t>((random() & 0x80FF) | 0x3F00);
  return values;
}

struct Limits {
  double flops;  // multiplications and additions a second
  double bytes;  // read a second
};

Limits measure(Threads& threads) {
  const auto rate = products_rate(bf16_products());
  const testing::Clock clock(false, threads.count());
  double rates = 0, reads = 0;
  const std::vector<char, HugePages<char>> memory(std::size_t{256} << 20, 1);
  for (int run = 0; run < 5; ++run) {
    rates = std::max(rates, testing::multiply_add_rate(clock, threads, rate, 0.05));
    reads = std::max(reads, testing::read_bandwidth(clock, threads, memory.data(), memory.size()));
  }
  return {2 * rates, reads};
}

struct Model {
  std::int64_t heads = 16, key_heads = 8, size = 128;
};

Attention call_of(const Model& model, std::int64_t queries, std::int64_t keys, std::int64_t room, const void* q, const void* k,
                  const void* v, void* o) {
  Attention call;
  call.batches = 1;
  call.query_heads = model.heads;
  call.key_heads = model.key_heads;
  call.queries = queries;
  call.keys = keys;
  call.head_size = call.value_size = model.size;
  call.type = DataType::kBFloat16;
  call.query = {q, 0, model.size, model.heads * model.size};
  call.key = {k, 0, room * model.size, model.size};
  call.value = {v, 0, room * model.size, model.size};
  call.scale = 0.0883883F;
  call.output = o;
  call.output_head = model.size;
  call.output_row = model.heads * model.size;
  return call;
}

void prefill(const Model& model, const Limits& limits, Threads& threads, std::int64_t tokens, bool causal) {
  const auto q = random_bf16(tokens * model.heads * model.size), k = random_bf16(tokens * model.key_heads * model.size);
  const auto v = k;
  auto o = q;
  auto call = call_of(model, tokens, tokens, tokens, q.data(), k.data(), v.data(), o.data());
  call.causal = causal;
  const double time = best(7, [&] { attention(call, threads); });
  const double pairs = causal ? 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1) : static_cast<double>(tokens * tokens);
  const double flops = 4.0 * pairs * static_cast<double>(model.size * model.heads);
  std::printf("prefill %5ld tokens, %-6s %8.2f ms  %6.1f GFLOP/s  %.2f of the multiply-add limit\n", long(tokens),
              causal ? "causal" : "full", time * 1e3, flops / time / 1e9, flops / time / limits.flops);
}

// Layers one after the other, so that keys and values come from memory as in a model.
void decode(const Model& model, const Limits& limits, Threads& threads, std::int64_t keys, std::int64_t room, bool masked) {
  const auto layer = room * model.key_heads * model.size;
  const auto layers = std::max<std::int64_t>(1, (std::int64_t{400} << 20) / (layer * 4));
  const auto cache = random_bf16(layers * 2 * layer);
  const auto q = random_bf16(model.heads * model.size);
  auto o = q;
  std::vector<std::uint8_t> mask(room, 0);
  std::fill(mask.begin(), mask.begin() + keys, 1);
  const double time = best(4, [&] {
    for (std::int64_t i = 0; i < layers; ++i) {
      auto call = call_of(model, 1, masked ? room : keys, room, q.data(), cache.data() + i * 2 * layer, cache.data() + (i * 2 + 1) * layer,
                          o.data());
      if (masked) call.mask = {AttentionMask::Kind::kBoolean, mask.data(), 0, 0, 0, 1};
      attention(call, threads);
    }
  });
  const double bytes = static_cast<double>(layers * keys * model.key_heads * model.size) * 4;
  std::printf("decode %5ld keys%-22s %8.1f us  %6.1f GB/s  %.2f of the read limit\n", long(keys), masked ? " (mask, cache of 4096)" : "",
              time / layers * 1e6, bytes / time / 1e9, bytes / time / limits.bytes);
}

}  // namespace
}  // namespace neuron::kernels

int main(int argc, char** argv) {
  using namespace neuron::kernels;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string only = argc > 2 ? argv[2] : "";
  if (argc > 3 || threads < 1 || threads > 1024 || (!only.empty() && only != "prefill" && only != "decode")) {
    const bool asked = argc == 2 && std::string(argv[1]) == "--help";
    std::fputs("usage: attention_bench [threads (2)] [prefill|decode (both)]\n", asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  testing::ThreadTeam team(threads);
  const auto limits = measure(team);
  std::printf("%s, %d threads: %.1f GFLOP/s, %.1f GB/s\n", std::string(isa_name(current_isa())).c_str(), team.count(), limits.flops / 1e9,
              limits.bytes / 1e9);
  const Model qwen;
  if (only != "decode") {
    for (const std::int64_t tokens : {128, 512, 2048}) {
      prefill(qwen, limits, team, tokens, false);
      prefill(qwen, limits, team, tokens, true);
    }
  }
  if (only != "prefill") {
    for (const std::int64_t keys : {512, 4096}) decode(qwen, limits, team, keys, keys, false);
    decode(qwen, limits, team, 512, 4096, true);
  }
}
