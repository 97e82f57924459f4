// Prints the speed of matrix products as a ratio to the limit of this machine, which is measured between the runs. Not a test.
//
// The limit of C[M, N] = A[M, K] * B[K, N] is the longer of two times: reading B once from memory, and M * N * K multiply-adds at the rate
// of the faster of the machine's loops (float32; for bfloat16 also its dot product). B rotates through more memory than any cache holds.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/limits.h"
#include "kernels/matmul/matmul.h"
#include "kernels/thread_team.h"

namespace neuron::kernels::testing {
namespace {

struct Shape {
  const char* name;
  std::int64_t n;
  std::int64_t k;
};

// The weights of Qwen3-0.6B.
constexpr Shape kShapes[] = {{"q", 2048, 1024},  {"kv", 1024, 1024},   {"o", 1024, 2048},
                             {"up", 3072, 1024}, {"down", 1024, 3072}, {"head", 151936, 1024}};

struct Options {
  std::vector<std::string> shapes{"q", "kv", "o", "up", "down", "head"};
  std::vector<std::string> types{"bf16", "f32"};
  std::vector<std::string> rows{"1", "8", "32", "128", "512"};
  std::vector<std::string> threads{"1", "2"};
  std::vector<std::string> layouts{"nk"};
  std::string isa;
  std::string products;
  int rounds = 5;
  double seconds = 0.02;
  int mebibytes = 640;
  std::string clock = "wall";
};

constexpr const char* kHelp = R"(usage: kernel_bench [option...]
  --shapes q,kv,o,up,down,head   weights of Qwen3-0.6B: q 2048x1024, kv 1024x1024, o 1024x2048, up 3072x1024, down 1024x3072,
                                 head 151936x1024; or NxK
  --types bf16,f32,f16           operands (C has the same type)
  --rows 1,8,32,128,512          M
  --threads 1,2                  sizes of the team
  --layouts nk,kn                how the weight lies in memory: [N, K] or [K, N]
  --isa NAME                     generic, avx2, avx512, avx512_bf16, amx (default: the machine's highest)
  --products NAME                widen, dot, tiles: how bfloat16 is multiplied (default: as measured)
  --rounds 5                     measurements; the median ratio is printed
  --seconds 0.02                 least time of a measurement
  --memory 640                   MiB of weights to rotate through
  --clock wall|cpu               on a busy machine: processor time (of all threads, divided by their number)
)";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::stringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || i + 1 == argc) {
      std::fputs(kHelp, name == "--help" ? stdout : stderr);
      std::exit(name == "--help" ? 0 : 2);
    }
    const std::string value = argv[++i];
    std::map<std::string, std::vector<std::string>*> lists{{"--shapes", &options.shapes},
                                                           {"--types", &options.types},
                                                           {"--rows", &options.rows},
                                                           {"--threads", &options.threads},
                                                           {"--layouts", &options.layouts}};
    if (const auto list = lists.find(name); list != lists.end()) {
      *list->second = split(value);
    } else if (name == "--isa") {
      options.isa = value;
    } else if (name == "--products") {
      options.products = value;
    } else if (name == "--rounds") {
      options.rounds = std::stoi(value);
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--clock") {
      options.clock = value;
    } else if (name == "--memory") {
      options.mebibytes = std::stoi(value);
    } else {
      std::fprintf(stderr, "kernel_bench: unknown option %s\n%s", name.c_str(), kHelp);
      std::exit(2);
    }
  }
  return options;
}

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

// Numbers of about 1, as bits that are fine in each format.
Memory numbers(std::size_t bytes, DataType type) {
  Memory memory(static_cast<char*>(std::aligned_alloc(2 << 20, (bytes + (4 << 20)) / (2 << 20) * (2 << 20))));
  // As the device's memory does.
  madvise(memory.get(), bytes, MADV_HUGEPAGE);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    state = state * 1664525U + 1013904223U;
    const std::uint32_t noise = state >> 8;
    std::uint32_t word = 0;
    if (type == DataType::kFloat32) {
      word = 0x3c000000U | (noise & 0x807fffffU) | (state & 0x80000000U);
    } else {
      const std::uint32_t base = type == DataType::kBFloat16 ? 0x3c003c00U : 0x24002400U;
      word = base | (noise & 0x007f007fU) | (state & 0x80008000U);
    }
    std::memcpy(memory.get() + i, &word, 4);
  }
  return memory;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    const auto available = available_isas();
    isa_ = available.back();
    for (const Isa isa : available) {
      if (isa_name(isa) == options_.isa) {
        isa_ = isa;
      }
    }
    const auto ways = products_of(isa_);
    products_ = isa_ == current_isa() ? bf16_products() : ways.back();
    for (const auto products : ways) {
      if (products_name(products) == options_.products) {
        products_ = products;
      }
    }
  }

  void run() {
    std::printf("level %s, bfloat16 by %s\n", std::string(isa_name(isa_)).c_str(), std::string(products_name(products_)).c_str());
    std::printf("%-5s %-12s %-3s %5s %7s | %8s %9s %9s | %9s %9s | %6s %s\n", "type", "weight", "lay", "M", "threads", "read", "f32 fma",
                "bf16", "kernel", "limit", "ratio", "bound by");
    std::printf("%35s | %8s %9s %9s | %9s %9s |\n", "", "GB/s", "GFLOP/s", "GFLOP/s", "us", "us");
    for (const auto& type_name : options_.types) {
      const auto type = type_name == "f32" ? DataType::kFloat32 : type_name == "f16" ? DataType::kFloat16 : DataType::kBFloat16;
      const auto bytes = static_cast<std::size_t>(options_.mebibytes) << 20;
      weights_ = numbers(bytes, type);
      for (const auto& count : options_.threads) {
        ThreadTeam team(std::stoi(count));
        for (const auto& shape : options_.shapes) {
          for (const auto& layout : options_.layouts) {
            for (const auto& m : options_.rows) {
              measure(type_name, type, shape, layout, std::stoll(m), team, bytes);
            }
          }
        }
      }
    }
  }

 private:
  static Shape shape_of(const std::string& name) {
    for (const auto& shape : kShapes) {
      if (name == shape.name) {
        return shape;
      }
    }
    Shape shape{name.c_str(), 0, 0};
    if (std::sscanf(name.c_str(), "%ldx%ld", &shape.n, &shape.k) != 2) {
      std::fprintf(stderr, "kernel_bench: no shape %s\n", name.c_str());
      std::exit(2);
    }
    return shape;
  }

  void measure(const std::string& type_name, DataType type, const std::string& shape_name, const std::string& layout, std::int64_t m,
               Threads& threads, std::size_t bytes) {
    const auto shape = shape_of(shape_name);
    const std::int64_t size = type == DataType::kFloat32 ? 4 : 2;
    const auto weight_bytes = shape.n * shape.k * size;
    const auto copies = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / weight_bytes);
    const auto a = numbers(m * shape.k * size, type);
    const Memory c(static_cast<char*>(std::aligned_alloc(4096, (m * shape.n * size + 8191) / 4096 * 4096)));
    Matmul problem;
    problem.m = m;
    problem.n = shape.n;
    problem.k = shape.k;
    problem.type = problem.c_type = type;
    problem.a = {a.get(), shape.k, 1};
    problem.b = layout == "nk" ? MatrixView{nullptr, 1, shape.k} : MatrixView{nullptr, shape.n, 1};
    problem.c = c.get();
    problem.c_row_stride = shape.n;
    std::int64_t next = 0;
    const auto call = [&] {
      problem.b.data = weights_.get() + next * weight_bytes;
      next = (next + 1) % copies;
      matmul(problem, threads, isa_, products_);
    };
    call();
    const Clock clock(options_.clock == "cpu", threads.count());
    std::vector<double> reads, floats, dots, times, limits, ratios;
    const auto macs = static_cast<double>(m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    for (int round = 0; round < options_.rounds; ++round) {
      reads.push_back(read_bandwidth(clock, threads, weights_.get(), std::min<std::size_t>(bytes, std::size_t{192} << 20)));
      floats.push_back(multiply_add_rate(clock, threads, float_rate(isa_), 0.004));
      dots.push_back(multiply_add_rate(clock, threads, products_rate(products_), 0.004));
      const auto rate = type == DataType::kBFloat16 ? std::max(floats.back(), dots.back()) : floats.back();
      int calls = 0;
      const auto start = clock.now();
      do {
        call();
        ++calls;
      } while (clock.now() - start < options_.seconds);
      times.push_back((clock.now() - start) / calls);
      limits.push_back(std::max(static_cast<double>(weight_bytes) / reads.back(), macs / rate));
      ratios.push_back(limits.back() / times.back());
    }
    const bool memory_bound = static_cast<double>(weight_bytes) / median(reads) > 0.999 * median(limits);
    std::printf("%-5s %-12s %-3s %5ld %7d | %8.1f %9.0f %9.0f | %9.1f %9.1f | %6.3f %s\n", type_name.c_str(), shape_name.c_str(),
                layout.c_str(), m, threads.count(), median(reads) * 1e-9, 2e-9 * median(floats), 2e-9 * median(dots), median(times) * 1e6,
                median(limits) * 1e6, median(ratios), memory_bound ? "memory" : "multiply-adds");
    std::fflush(stdout);
  }

  Options options_;
  Isa isa_;
  Bf16Products products_;
  Memory weights_;
};

}  // namespace
}  // namespace neuron::kernels::testing

int main(int argc, char** argv) {
  neuron::kernels::testing::Bench(neuron::kernels::testing::parse(argc, argv)).run();
  return 0;
}
