// Random programs of collectives, and what each must give: inputs are functions of (seed, operation, rank), so that every rank can compute
// all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/operation.h"
#include "collectives/reduce/reduce_tables.h"
#include "collectives/support.h"

namespace neuron::collectives::testing {

// Memory for tensors that other ranks can read, as the device's is; also for ranks that are threads. It begins anew whenever everything was
// given back.
class Arena {
 public:
  // Before any use.
  static void open(std::size_t bytes = std::size_t{32} << 20) {
    Arena& arena = instance();
    arena.base_ = static_cast<std::byte*>(runtime::SharedSegments::of_device().enable() ? memory().map(bytes, bytes) : nullptr);
    arena.bytes_ = bytes;
    require(arena.base_ != nullptr && memory().offset_of(arena.base_, bytes), "memory to share");
  }
  static runtime::SharedSegments& memory() { return runtime::SharedSegments::of_device(); }

  // Null when the arena is closed or full: what does not fit is private memory.
  static void* take(std::size_t bytes) {
    Arena& arena = instance();
    const std::lock_guard guard(arena.mutex_);
    if (arena.base_ == nullptr || bytes > arena.bytes_ - arena.used_) return nullptr;
    void* const place = arena.base_ + arena.used_;
    arena.used_ += (bytes + 63) / 64 * 64;
    arena.used_ = std::min(arena.used_, arena.bytes_);
    ++arena.live_;
    return place;
  }
  // Whether the place was the arena's.
  static bool give_back(void* place) {
    Arena& arena = instance();
    const std::lock_guard guard(arena.mutex_);
    auto* const at = static_cast<std::byte*>(place);
    if (arena.base_ == nullptr || at < arena.base_ || at >= arena.base_ + arena.bytes_) return false;
    if (--arena.live_ == 0) arena.used_ = 0;
    return true;
  }

 private:
  static Arena& instance() {
    static Arena arena;
    return arena;
  }
  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
  std::size_t live_ = 0;
};

template <typename T>
struct ArenaAllocator {
  using value_type = T;
  T* allocate(std::size_t count) {
    void* const place = Arena::take(count * sizeof(T));
    return static_cast<T*>(place != nullptr ? place : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* place, std::size_t) noexcept {
    if (!Arena::give_back(place)) ::operator delete(place);
  }
  bool operator==(const ArenaAllocator&) const noexcept { return true; }
};

using Bytes = std::vector<std::uint8_t, ArenaAllocator<std::uint8_t>>;

inline const std::vector<DataType>& all_types() {
  static const std::vector<DataType> types = [] {
    std::vector<DataType> list;
    for (int i = 0; i <= static_cast<int>(DataType::kComplexDouble); ++i) list.push_back(static_cast<DataType>(i));
    return list;
  }();
  return types;
}
inline const std::vector<ReduceOp>& all_ops() {
  static const std::vector<ReduceOp> ops = [] {
    std::vector<ReduceOp> list;
    for (int i = 0; i <= static_cast<int>(ReduceOp::kPreMultipliedSum); ++i) list.push_back(static_cast<ReduceOp>(i));
    return list;
  }();
  return ops;
}

inline bool is_wide_float(DataType type) {
  return type == DataType::kFloat || type == DataType::kDouble || type == DataType::kComplexFloat || type == DataType::kComplexDouble;
}

// Any bits, but for types that compute as they are: there the bits of a NaN depend on the order of operands in an instruction.
inline Bytes random_bytes(DataType type, std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; i += 8) {
    // SplitMix64: these numbers are most of the tests' time.
    seed += 0x9E3779B97F4A7C15U;
    std::uint64_t word = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9U;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
    word ^= word >> 31;
    if (is_wide_float(type)) {
      const bool narrow = type == DataType::kFloat || type == DataType::kComplexFloat;
      const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(word)), -62);
      const float pair[2] = {static_cast<float>(value), static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-30F};
      std::memcpy(&word, narrow ? static_cast<const void*>(pair) : &value, 8);
    }
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

struct Step {
  Collective collective;
  DataType type;
  ReduceOp op;
  int root;
  bool in_place;
  std::vector<std::size_t> counts;               // per rank; [0] where all have the same
  std::vector<std::vector<std::size_t>> matrix;  // all_to_all: from, to
};

inline double factor_of(int rank) { return 0.5 + 0.25 * rank; }

// The input of `rank`; `part` tells the destinations of all_to_all, scatter and reduce_scatter apart.
inline Bytes input_of(DataType type, std::uint64_t seed, int rank, int part, std::size_t bytes) {
  return random_bytes(type, bytes, (seed * 1'000'003 + static_cast<std::uint64_t>(rank) * 1009 + static_cast<std::uint64_t>(part)) << 32);
}

inline Bytes reduced(const std::vector<Bytes>& inputs, DataType type, ReduceOp op, std::size_t count) {
  std::vector<const void*> sources;
  std::vector<double> factors;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    sources.push_back(inputs[r].data());
    factors.push_back(factor_of(static_cast<int>(r)));
  }
  Bytes output(count * element_size(type));
  reduce_generic(type, op)(sources.data(), static_cast<int>(inputs.size()), factors.data(), output.data(), count);
  return output;
}

inline std::string describe(const Step& step) {
  std::string text = std::string(name(step.collective)) + " " + std::string(name(step.type)) + " " + std::string(name(step.op)) + " root " +
                     std::to_string(step.root) + (step.in_place ? " in place" : "") + " counts";
  for (const std::size_t count : step.counts) text += " " + std::to_string(count);
  return text;
}

// Runs one step on this rank and compares its result.
inline void run_step(Communicator& communicator, const Step& step, std::uint64_t seed, std::uint64_t sequence) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  const std::size_t width = element_size(step.type);
  const Reduction reduction{step.op, factor_of(rank)};
  const auto at = [](int r) { return static_cast<std::size_t>(r); };
  const Call how = call(sequence);
  const auto check = [&](const Bytes& got, const Bytes& want, int of) {
    if (got != want) {
      const auto where = std::mismatch(got.begin(), got.end(), want.begin(), want.end()).first - got.begin();
      require(false, describe(step) + ": rank " + std::to_string(rank) + ", part " + std::to_string(of) + " differs at byte " +
                         std::to_string(where));
    }
  };
  const std::size_t count = step.counts.empty() ? 0 : step.counts[0];
  switch (step.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce: {
      std::vector<Bytes> inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(input_of(step.type, seed, r, 0, count * width));
      Bytes separate(count * width, 0xEE);
      Bytes mine = inputs[at(rank)];
      Bytes& output = step.in_place ? mine : separate;
      if (step.collective == Collective::kAllReduce) {
        communicator.all_reduce({mine.data(), count}, output.data(), step.type, reduction, how);
        check(output, reduced(inputs, step.type, step.op, count), 0);
      } else {
        communicator.reduce({mine.data(), count}, rank == step.root ? output.data() : nullptr, step.root, step.type, reduction, how);
        if (rank == step.root) check(output, reduced(inputs, step.type, step.op, count), 0);
      }
      break;
    }
    case Collective::kBroadcast: {
      const Bytes want = input_of(step.type, seed, step.root, 0, count * width);
      Bytes data = rank == step.root ? want : Bytes(count * width, 0xEE);
      communicator.broadcast({data.data(), count}, step.root, step.type, how);
      check(data, want, 0);
      break;
    }
    case Collective::kAllGather:
    case Collective::kGather: {
      const std::size_t own = step.counts[at(rank)];
      std::vector<Bytes> outputs;
      std::vector<Buffer> buffers;
      for (int r = 0; r < size; ++r) outputs.emplace_back(step.counts[at(r)] * width, 0xEE);
      for (Bytes& output : outputs) buffers.push_back({output.data(), output.size() / width});
      Bytes input = input_of(step.type, seed, rank, 0, own * width);
      const void* from = input.data();
      if (step.in_place) {
        outputs[at(rank)] = input;
        buffers[at(rank)].data = outputs[at(rank)].data();
        from = outputs[at(rank)].data();
      }
      if (step.collective == Collective::kAllGather) {
        communicator.all_gather({from, own}, buffers, step.type, how);
      } else {
        const bool root = rank == step.root;
        communicator.gather({from, own}, root ? std::span<const Buffer>(buffers) : std::span<const Buffer>(), step.root, step.type, how);
        if (!root) break;
      }
      for (int r = 0; r < size; ++r) check(outputs[at(r)], input_of(step.type, seed, r, 0, step.counts[at(r)] * width), r);
      break;
    }
    case Collective::kReduceScatter: {
      std::vector<Bytes> inputs;
      std::vector<ConstBuffer> buffers;
      for (int r = 0; r < size; ++r) inputs.push_back(input_of(step.type, seed, rank, r, step.counts[at(r)] * width));
      for (const Bytes& input : inputs) buffers.push_back({input.data(), input.size() / width});
      const std::size_t own = step.counts[at(rank)];
      std::vector<Bytes> given;
      for (int r = 0; r < size; ++r) given.push_back(input_of(step.type, seed, r, rank, own * width));
      Bytes separate(own * width, 0xEE);
      Bytes& output = step.in_place ? inputs[at(rank)] : separate;
      communicator.reduce_scatter(buffers, {output.data(), own}, step.type, reduction, how);
      check(output, reduced(given, step.type, step.op, own), rank);
      break;
    }
    case Collective::kAllToAll: {
      std::vector<Bytes> inputs;
      std::vector<Bytes> outputs;
      std::vector<ConstBuffer> sent;
      std::vector<Buffer> received;
      for (int r = 0; r < size; ++r) {
        inputs.push_back(input_of(step.type, seed, rank, r, step.matrix[at(rank)][at(r)] * width));
        outputs.emplace_back(step.matrix[at(r)][at(rank)] * width, 0xEE);
      }
      for (int r = 0; r < size; ++r) {
        sent.push_back({inputs[at(r)].data(), inputs[at(r)].size() / width});
        received.push_back({outputs[at(r)].data(), outputs[at(r)].size() / width});
        if (step.in_place) received.back().data = inputs[at(r)].data();
      }
      communicator.all_to_all(sent, received, step.type, how);
      for (int r = 0; r < size; ++r) {
        check(step.in_place ? inputs[at(r)] : outputs[at(r)], input_of(step.type, seed, r, rank, step.matrix[at(r)][at(rank)] * width), r);
      }
      break;
    }
    case Collective::kScatter: {
      std::vector<Bytes> inputs;
      std::vector<ConstBuffer> buffers;
      for (int r = 0; r < size; ++r) inputs.push_back(input_of(step.type, seed, step.root, r, step.counts[at(r)] * width));
      for (const Bytes& input : inputs) buffers.push_back({input.data(), input.size() / width});
      const std::size_t own = step.counts[at(rank)];
      Bytes separate(own * width, 0xEE);
      Bytes& output = step.in_place && rank == step.root ? inputs[at(rank)] : separate;
      communicator.scatter(rank == step.root ? std::span<const ConstBuffer>(buffers) : std::span<const ConstBuffer>(), {output.data(), own},
                           step.root, step.type, how);
      check(output, input_of(step.type, seed, step.root, rank, own * width), rank);
      break;
    }
    case Collective::kBarrier:
      communicator.barrier(how);
      break;
  }
}

// Sizes that meet the limits between inline, one piece, and many pieces, and the empty and odd ones.
inline std::size_t random_count(std::mt19937_64& engine, std::size_t width) {
  const auto below = [&](std::uint64_t limit) { return static_cast<std::size_t>(engine() % limit); };
  switch (below(8)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
    case 3:
      return below(300);
    case 4:
      return (16384 / width) + below(3) - 1;
    case 5:
    case 6:
      return below(200'000 / width + 1);
    default:
      return below(2'000'000 / width + 1);
  }
}

inline Step random_step(std::mt19937_64& engine, int size) {
  const auto below = [&](std::uint64_t limit) { return static_cast<std::size_t>(engine() % limit); };
  Step step{};
  step.collective = static_cast<Collective>(below(9));
  do {
    step.type = all_types()[below(all_types().size())];
    step.op = all_ops()[below(all_ops().size())];
  } while (!reducible(step.type, step.op));
  step.root = static_cast<int>(below(static_cast<std::uint64_t>(size)));
  step.in_place = below(2) == 0;
  const std::size_t width = element_size(step.type);
  const bool even = below(2) == 0;
  const auto share = [&](std::size_t count) { return count / static_cast<std::size_t>(size); };
  const std::size_t common = random_count(engine, width);
  const bool lists = step.collective == Collective::kAllGather || step.collective == Collective::kGather ||
                     step.collective == Collective::kScatter || step.collective == Collective::kReduceScatter;
  for (int r = 0; r < size; ++r) {
    step.counts.push_back(even || !lists ? (lists ? share(common) : common) : share(random_count(engine, width)));
  }
  if (step.collective == Collective::kAllToAll) {
    step.in_place = step.in_place && even;
    for (int from = 0; from < size; ++from) {
      step.matrix.emplace_back();
      for (int to = 0; to < size; ++to) step.matrix.back().push_back(share(even ? common : random_count(engine, width)));
    }
  }
  return step;
}

}  // namespace neuron::collectives::testing
