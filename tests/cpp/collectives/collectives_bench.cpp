// Latency and bandwidth of the collectives between processes of this machine, 1 KB to 256 MB, beside the bandwidth of memcpy measured in
// the same run.
//
//   collectives_bench [--ranks 2,4] [--ops all_reduce,...] [--min BYTES] [--max BYTES] [--seconds S] [--direct 0|1|BYTES]
//
// --direct 0: everything goes through rings, as between processes that cannot read each other's memory. BYTES: the smallest operation that
// does not.
//
// Size is that of the whole tensor: the input of all_reduce, reduce, reduce_scatter, all_to_all, scatter and broadcast, the output of
// all_gather and gather. "moved" is
// what any transport must move: memcpy of x bytes reads x and writes x, so moved bytes are half the sum of what all ranks must read of
// their inputs and write of their outputs. The limit is that divided by what memcpy copies per second on arrays of 64 MB with as many
// processes at once as there are ranks, at most one per core. The ratio is that limit's time by the measured one. Ratios above 1 are
// possible: glibc's memcpy is not always the fastest copy, and small tensors stay in caches.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/support.h"

namespace neuron::collectives::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// As ranks of a job are: each on one core, in turn.
void bind_to_core(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(rank % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

struct Settings {
  std::vector<int> ranks{2, 4};
  std::vector<std::string> ops{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
  std::size_t min = 1 << 10;
  std::size_t max = 256 << 20;
  double seconds = 0.3;  // per measurement
  bool direct = true;
  bool in_place = false;
  std::size_t smallest = SharedMemoryOptions{}.smallest_direct;
};

// Memory as the device's allocator gives it: huge pages, touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    data_ = runtime::SharedSegments::of_device().map(bytes, bytes);
    if (data_ == nullptr) std::abort();
    std::memset(data_, 0, bytes);
  }
  ~Memory() { runtime::SharedSegments::of_device().unmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Bytes per second that `processes` processes copy together.
double memcpy_bandwidth(int processes, double seconds) {
  constexpr std::size_t kBytes = 64 << 20;
  struct Shared {
    std::atomic<int> ready;
    std::atomic<double> sum;
  };
  auto* const shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  run_processes(processes, [&](int rank, KeyValueStore&) {
    bind_to_core(rank);
    const Memory from(kBytes);
    const Memory to(kBytes);
    std::memcpy(to.at(0), from.at(0), kBytes);
    ++shared->ready;
    while (shared->ready < processes) sched_yield();
    const auto begin = Clock::now();
    int rounds = 0;
    do {
      std::memcpy(to.at(0), from.at(0), kBytes);
      ++rounds;
    } while (seconds_since(begin) < seconds);
    const double rate = static_cast<double>(kBytes) * rounds / seconds_since(begin);
    double sum = shared->sum.load();
    while (!shared->sum.compare_exchange_weak(sum, sum + rate)) {
    }
  });
  const double sum = shared->sum;
  munmap(shared, sizeof(Shared));
  return sum;
}

// Blocks of rounds that are timed: many, since others use the machine too.
constexpr int kBlocks = 41;

struct Bench {
  // Bytes moved over all ranks for a tensor of `bytes`.
  std::function<double(double bytes, double n)> moved;
  std::function<void(Communicator&, std::byte* input, std::byte* output, std::size_t bytes, const Call&)> run;
};

Bench bench_of(const std::string& op) {
  const auto parts = [](std::byte* base, std::size_t bytes, int n) {
    std::vector<ConstBuffer> list;
    for (int r = 0; r < n; ++r) list.push_back({base + bytes / n * r, bytes / n / 4});
    return list;
  };
  const auto places = [](std::byte* base, std::size_t bytes, int n) {
    std::vector<Buffer> list;
    for (int r = 0; r < n; ++r) list.push_back({base + bytes / n * r, bytes / n / 4});
    return list;
  };
  if (op == "all_reduce") {
    return {[](double bytes, double n) { return n * bytes; },
            [](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.all_reduce({in, bytes / 4}, out, DataType::kFloat, {}, how);
            }};
  }
  if (op == "all_gather") {
    return {[](double bytes, double n) { return (bytes + n * bytes) / 2; },
            [places](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.all_gather({in, bytes / static_cast<std::size_t>(c.size()) / 4}, places(out, bytes, c.size()), DataType::kFloat, how);
            }};
  }
  if (op == "reduce_scatter") {
    return {[](double bytes, double n) { return (n * bytes + bytes) / 2; },
            [parts](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.reduce_scatter(parts(in, bytes, c.size()), {out, bytes / static_cast<std::size_t>(c.size()) / 4}, DataType::kFloat, {},
                               how);
            }};
  }
  if (op == "all_to_all") {
    return {[](double bytes, double n) { return n * bytes; },
            [parts, places](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.all_to_all(parts(in, bytes, c.size()), places(out, bytes, c.size()), DataType::kFloat, how);
            }};
  }
  if (op == "broadcast") {
    return {[](double bytes, double n) { return n * bytes / 2; },
            [](Communicator& c, std::byte* in, std::byte*, std::size_t bytes, const Call& how) {
              c.broadcast({in, bytes / 4}, 0, DataType::kFloat, how);
            }};
  }
  if (op == "reduce") {
    return {[](double bytes, double n) { return (n * bytes + bytes) / 2; },
            [](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.reduce({in, bytes / 4}, out, 0, DataType::kFloat, {}, how);
            }};
  }
  // What the root has for itself stays where it is: it is not counted, and not copied.
  if (op == "gather") {
    return {[](double bytes, double n) { return bytes - bytes / n; },
            [places](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              const auto mine = static_cast<std::size_t>(c.rank()) * (bytes / static_cast<std::size_t>(c.size()));
              c.gather({(c.rank() == 0 ? out : in) + mine, bytes / static_cast<std::size_t>(c.size()) / 4},
                       c.rank() == 0 ? places(out, bytes, c.size()) : std::vector<Buffer>(), 0, DataType::kFloat, how);
            }};
  }
  if (op == "scatter") {
    return {[](double bytes, double n) { return bytes - bytes / n; },
            [parts](Communicator& c, std::byte* in, std::byte* out, std::size_t bytes, const Call& how) {
              c.scatter(c.rank() == 0 ? parts(in, bytes, c.size()) : std::vector<ConstBuffer>(),
                        {c.rank() == 0 ? in : out, bytes / static_cast<std::size_t>(c.size()) / 4}, 0, DataType::kFloat, how);
            }};
  }
  std::fprintf(stderr, "no operation %s\n", op.c_str());
  std::exit(2);
}

void measure(const Settings& settings, const std::string& op, int ranks, double memcpy_rate) {
  const Bench bench = bench_of(op);
  run_processes(ranks, [&](int rank, KeyValueStore& store) {
    alarm(0);
    bind_to_core(rank);
    auto& memory = runtime::SharedSegments::of_device();
    if (settings.direct) memory.enable();
    const auto communicator =
        join(store, rank, ranks, "g", {.check_interrupt = {}, .memory = &memory, .smallest_direct = settings.smallest});
    const Memory input(settings.max);
    const Memory output(settings.max);
    std::uint64_t sequence = 0;
    for (std::size_t bytes = settings.min; bytes <= settings.max; bytes *= 4) {
      const auto once = [&] {
        bench.run(*communicator, input.at(0), (settings.in_place && op == "all_reduce" ? input : output).at(0), bytes, call(++sequence));
      };
      // Rank 0 decides how many rounds; blocks of rounds are timed and the median is reported, since others use the machine too.
      once();
      auto begin = Clock::now();
      once();
      once();
      std::int64_t rounds =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(settings.seconds / kBlocks / (seconds_since(begin) / 2 + 1e-9)), 1, 20'000);
      communicator->broadcast({&rounds, 1}, 0, DataType::kInt64, call(++sequence));
      std::vector<double> times;
      for (int block = 0; block < kBlocks; ++block) {
        communicator->barrier(call(++sequence));
        begin = Clock::now();
        for (std::int64_t i = 0; i < rounds; ++i) once();
        times.push_back(seconds_since(begin) / static_cast<double>(rounds));
      }
      std::sort(times.begin(), times.end());
      const double time = times[times.size() / 2];
      if (rank == 0) {
        const double moved = bench.moved(static_cast<double>(bytes), ranks);
        std::printf("%-14s %5d %12zu %12.2f %12.2f %12.2f %8.2f %8.2f\n", op.c_str(), ranks, bytes, time * 1e6, times.front() * 1e6,
                    moved / time / 1e9, moved / time / memcpy_rate, moved / times.front() / memcpy_rate);
        std::fflush(stdout);
      }
    }
  });
}

constexpr const char* kHelp = R"(usage: collectives_bench [option value...]
  --ranks 2,4              sizes of the group
  --ops all_reduce,...     all_reduce, all_gather, reduce_scatter, all_to_all, broadcast; reduce, gather, scatter only if asked for
  --min 1024               bytes of a rank, each size four times the one before
  --max 268435456
  --in-place 0|1           whether all_reduce's result takes the place of its input
  --direct 0|1|BYTES       whether ranks touch each other's memory; from so many bytes on
  --seconds 0.3            of each measurement
)";

Settings parse(int count, char** arguments) {
  Settings settings;
  if (count % 2 == 0) {
    const bool asked = std::string(arguments[1]) == "--help";
    std::fputs(kHelp, asked ? stdout : stderr);
    std::exit(asked ? 0 : 2);
  }
  const auto list = [](const std::string& text) {
    std::vector<std::string> items;
    std::stringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
    return items;
  };
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string option = arguments[i];
    const std::string value = arguments[i + 1];
    if (option == "--ranks") {
      settings.ranks.clear();
      for (const std::string& item : list(value)) settings.ranks.push_back(std::stoi(item));
    } else if (option == "--ops") {
      settings.ops = list(value);
    } else if (option == "--min") {
      settings.min = std::stoull(value);
    } else if (option == "--max") {
      settings.max = std::stoull(value);
    } else if (option == "--in-place") {
      settings.in_place = value != "0";
    } else if (option == "--direct") {
      settings.direct = value != "0";
      settings.smallest = settings.direct && value != "1" ? std::stoull(value) : settings.smallest;
    } else if (option == "--seconds") {
      settings.seconds = std::stod(value);
    } else {
      std::fprintf(stderr, "no option %s\n", option.c_str());
      std::exit(2);
    }
  }
  return settings;
}

int run(int count, char** arguments) {
  const Settings settings = parse(count, arguments);
  for (const int ranks : settings.ranks) {
    const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    const double rate = memcpy_bandwidth(std::min(ranks, cores), 1.0);
    std::printf("memcpy, %d processes together: %.2f GB/s\n", std::min(ranks, cores), rate / 1e9);
    std::printf("%-14s %5s %12s %12s %12s %12s %8s %8s\n", "operation", "ranks", "bytes", "median us", "best us", "moved GB/s", "ratio",
                "best");
    for (const std::string& op : settings.ops) measure(settings, op, ranks, rate);
  }
  return 0;
}

}  // namespace
}  // namespace neuron::collectives::testing

int main(int count, char** arguments) { return neuron::collectives::testing::run(count, arguments); }
