// The collectives over rings in shared memory. Each operation begins with an arrival, which carries small data; larger data then moves in
// pieces, so that a piece is in the second-level cache while one rank writes and the others read it. What all ranks can read where it is
// does not go through rings (direct_exchange.h).
#include "collectives/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collectives/copy.h"
#include "collectives/direct_exchange.h"
#include "collectives/operation.h"
#include "collectives/reduce/combiner.h"
#include "collectives/reduce/reduce.h"
#include "collectives/shm/arrival.h"
#include "collectives/shm/group_setup.h"
#include "collectives/shm/mailbox.h"
#include "collectives/shm/member.h"
#include "collectives/shm/ring.h"
#include "runtime/telemetry.h"

namespace neuron::collectives {
namespace {

void require(bool condition, const char* what) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument, what);
  }
}

std::byte* moved(void* data, std::size_t bytes) noexcept { return static_cast<std::byte*>(data) + bytes; }
const std::byte* moved(const void* data, std::size_t bytes) noexcept { return static_cast<const std::byte*>(data) + bytes; }

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<Member> member, const SharedMemoryOptions& options)
      : member_(std::move(member)),
        rank_(member_->rank()),
        size_(member_->size()),
        arrival_(*member_),
        ring_(*member_, arrival_),
        direct_(*member_, arrival_, options.memory, options.smallest_direct),
        mailbox_(*member_),
        combiner_(size_) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  Mailbox& mailbox() override { return mailbox_; }
  void barrier(const Call& call) override {
    arrival_.prepare({}, call);
    arrival_.announce();
    arrival_.await_all();
  }
  void abort(const std::string& why) noexcept override;

  void all_reduce(ConstBuffer input, void* output, DataType type, Reduction reduction, const Call& call) override;
  void reduce(ConstBuffer input, void* output, int root, DataType type, Reduction reduction, const Call& call) override;
  void broadcast(Buffer data, int root, DataType type, const Call& call) override;
  void all_gather(ConstBuffer input, std::span<const Buffer> outputs, DataType type, const Call& call) override;
  void reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, Reduction reduction, const Call& call) override;
  void all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, DataType type, const Call& call) override;
  void gather(ConstBuffer input, std::span<const Buffer> outputs, int root, DataType type, const Call& call) override;
  void scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, DataType type, const Call& call) override;

 private:
  [[nodiscard]] std::size_t inline_bytes() const noexcept { return member_->layout().inline_bytes(); }
  [[nodiscard]] bool fits(std::size_t bytes) const noexcept { return bytes <= inline_bytes(); }
  // The other ranks, beginning after this one, so that not all ranks read from the same one at a time.
  [[nodiscard]] int peer(int i) const noexcept { return (rank_ + i) % size_; }
  // Which part of `writer`'s slots is for `reader`.
  [[nodiscard]] std::size_t region(int writer, int reader) const noexcept {
    return static_cast<std::size_t>((reader - writer + size_ - 1) % size_);
  }
  void check_root(int root) const { require(root >= 0 && root < size_, "the root is not a rank of the group"); }
  void check_list(std::size_t length) const {
    require(length == static_cast<std::size_t>(size_), "a list of buffers needs one entry per rank");
  }
  static ReduceKernel kernel_for(DataType type, Reduction reduction) {
    const ReduceKernel kernel = reduce_kernel(type, reduction.op);
    if (kernel == nullptr) [[unlikely]] {
      throw Error(ErrorCode::kInvalidArgument, "no " + std::string(name(reduction.op)) + " of " + std::string(name(type)));
    }
    return kernel;
  }

  void read_factors() {
    for (int r = 0; r < size_; ++r) {
      combiner_.factor(r) = arrival_.of(r).factor;
    }
  }
  [[nodiscard]] const void*& source(int r) noexcept { return combiner_.source(r); }

  // Whether a rank that writes its outputs would change what others may not have read of its inputs yet. Its own part nobody else reads.
  [[nodiscard]] bool overwrites(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, std::size_t width) const noexcept {
    const auto own = static_cast<std::size_t>(rank_);
    for (std::size_t q = 0; q < inputs.size(); ++q) {
      for (const Buffer& output : outputs) {
        if (q == own && output.data == inputs[q].data) continue;
        if (overlap(inputs[q], {output.data, output.count}, width)) return true;
      }
    }
    return false;
  }
  // The same where the others read one input as a whole; it may be this rank's output.
  [[nodiscard]] bool overwrites(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width) const noexcept {
    for (std::size_t q = 0; q < outputs.size(); ++q) {
      if (q == static_cast<std::size_t>(rank_) && outputs[q].data == input.data) continue;
      if (overlap(input, {outputs[q].data, outputs[q].count}, width)) return true;
    }
    return false;
  }
  // Whether the ranks do the announced operation without rings. What they claimed of their rings is given back then.
  bool goes_direct() {
    if (!direct_.agreed()) return false;
    runtime::add(runtime::Counter::kDirectCollectives);
    for (int i = 1; i < size_; ++i) ring_.release_all(peer(i));
    return true;
  }

  // Runs write(k) for this rank's slots and, one step behind, read(k), `steps` times: what is read was written one step earlier, so it is
  // there.
  template <typename Write, typename Read>
  void pipeline(std::uint64_t slots, std::uint64_t steps, Write&& write, Read&& read) {
    for (std::uint64_t step = 0; step <= steps; ++step) {
      if (step < slots) write(step);
      if (step > 0) read(step - 1);
    }
  }
  // The largest number of slots that a rank uses in this operation.
  [[nodiscard]] std::uint64_t most_slots() const noexcept {
    std::uint64_t most = 0;
    for (int r = 0; r < size_; ++r) most = std::max<std::uint64_t>(most, arrival_.of(r).slots);
    return most;
  }

  // Data of which each rank gets a part of its own: inputs[q] goes to rank q. Used by the rank(s) that send.
  void announce_parts(Announcement& mine, std::span<const ConstBuffer> inputs, std::size_t width);
  void write_parts(std::span<const ConstBuffer> inputs, std::size_t width, std::uint64_t k);
  // Reads what `writer` sends to this rank: `bytes` in all, whose part k is in slot k; releases the slot.
  void read_part(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming);
  // The same for data that is for all (or one) of the others as a whole.
  void announce_whole(Announcement& mine, const void* input, std::size_t bytes, bool wanted);
  void write_whole(const void* input, std::size_t bytes, std::uint64_t k);
  void read_whole(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming);

  std::unique_ptr<Member> member_;
  int rank_;
  int size_;
  Arrival arrival_;
  Ring ring_;
  DirectExchange direct_;
  SharedMemoryMailbox mailbox_;
  Combiner combiner_;
  std::vector<std::uint64_t> counts_;
};

void SharedMemoryCommunicator::abort(const std::string& why) noexcept {
  try {
    member_->break_group(ErrorCode::kAborted, "group " + member_->group() + " was aborted: " + why,
                         "rank " + std::to_string(rank_) + " aborted group " + member_->group() + ": " + why);
  } catch (...) {
    // No memory for the text.
    member_->break_group(ErrorCode::kAborted, {}, {});
  }
}

// --- whole data
// ------------------------------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::announce_whole(Announcement& mine, const void* input, std::size_t bytes, bool wanted) {
  if (!wanted || bytes == 0) {
    return;
  }
  if (fits(bytes)) {
    std::memcpy(arrival_.inline_data(rank_), input, bytes);
    mine.is_inline = 1;
  } else {
    ring_.use(mine, ring_.cut(bytes, 1));
  }
}

void SharedMemoryCommunicator::write_whole(const void* input, std::size_t bytes, std::uint64_t k) {
  const std::size_t piece = arrival_.of(rank_).piece;
  std::memcpy(ring_.writable(k), moved(input, k * piece), std::min(piece, bytes - k * piece));
  ring_.publish_filled(k);
}

void SharedMemoryCommunicator::read_whole(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming) {
  const Announcement& theirs = arrival_.of(writer);
  if (theirs.is_inline != 0) {
    if (k == 0) copy(output, arrival_.inline_data(writer), bytes, false);
  } else if (k < theirs.slots) {
    const std::size_t begin = k * theirs.piece;
    copy(moved(output, begin), ring_.filled(writer, k), std::min<std::size_t>(theirs.piece, bytes - begin), streaming);
    ring_.release(writer, k + 1);
  }
}

void SharedMemoryCommunicator::broadcast(Buffer data, int root, DataType type, const Call& call) {
  check_root(root);
  const std::size_t width = element_size(type);
  const std::size_t bytes = data.count * width;
  Announcement& mine = arrival_.prepare({.collective = Collective::kBroadcast, .type = type, .root = root, .count = data.count}, call);
  announce_whole(mine, data.data, bytes, rank_ == root && size_ > 1);
  const ConstBuffer sent{data.data, rank_ == root ? data.count : 0};
  const auto exposure = direct_.offer(mine, {{sent}}, {data.data, rank_ == root ? 0 : data.count}, width, bytes);
  arrival_.announce();
  arrival_.await_all();
  if (goes_direct()) {
    return direct_.broadcast(data, root, width);
  }
  const bool streaming = bytes >= kStreamingBytes;
  pipeline(
      mine.slots, std::max<std::uint64_t>(most_slots(), 1), [&](std::uint64_t k) { write_whole(data.data, bytes, k); },
      [&](std::uint64_t k) {
        if (rank_ != root) read_whole(root, data.data, bytes, k, streaming);
      });
}

void SharedMemoryCommunicator::all_gather(ConstBuffer input, std::span<const Buffer> outputs, DataType type, const Call& call) {
  check_list(outputs.size());
  require(outputs[static_cast<std::size_t>(rank_)].count == input.count, "all_gather: the input has not the size of this rank's output");
  const std::size_t width = element_size(type);
  const std::size_t bytes = input.count * width;
  counts_.clear();
  std::size_t total = 0;
  for (const Buffer& output : outputs) {
    counts_.push_back(output.count);
    total += output.count * width;
  }
  Announcement& mine =
      arrival_.prepare({.collective = Collective::kAllGather, .type = type, .count = input.count, .counts = counts_}, call);
  announce_whole(mine, input.data, bytes, size_ > 1);
  if (!overwrites(input, outputs, width)) direct_.offer(mine, {{input}}, width, total);
  arrival_.announce();
  void* const own = outputs[static_cast<std::size_t>(rank_)].data;
  if (own != input.data && mine.slots == 0) {
    copy(own, input.data, bytes, false);
  }
  arrival_.await_all();
  if (goes_direct()) {
    return direct_.all_gather(input, outputs, width);
  }
  const bool streaming = total >= kStreamingBytes;
  pipeline(
      mine.slots, std::max<std::uint64_t>(most_slots(), 1),
      [&](std::uint64_t k) {
        const std::size_t begin = k * mine.piece;
        write_whole(input.data, bytes, k);
        if (own != input.data) {
          // From the slot: it is in the cache. Nobody else writes to it.
          copy(moved(own, begin), member_->slot(rank_, mine.first_slot + k), std::min<std::size_t>(mine.piece, bytes - begin), streaming);
        }
      },
      [&](std::uint64_t k) {
        for (int i = 1; i < size_; ++i) {
          const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
          read_whole(peer(i), output.data, output.count * width, k, streaming);
        }
      });
}

void SharedMemoryCommunicator::gather(ConstBuffer input, std::span<const Buffer> outputs, int root, DataType type, const Call& call) {
  check_root(root);
  if (rank_ == root) check_list(outputs.size());
  const std::size_t width = element_size(type);
  Announcement& mine = arrival_.prepare({.collective = Collective::kGather, .type = type, .root = root, .count = input.count}, call);
  std::size_t total = 0;
  if (rank_ == root) {
    for (int r = 0; r < size_; ++r) {
      arrival_.receives(rank_)[r] = outputs[static_cast<std::size_t>(r)].count;
      total += outputs[static_cast<std::size_t>(r)].count * width;
    }
  }
  announce_whole(mine, input.data, input.count * width, rank_ != root);
  arrival_.announce();
  arrival_.await_all();
  for (int r = 0; r < size_; ++r) {
    if (arrival_.of(r).count != arrival_.receives(root)[r]) {
      arrival_.mismatch("gather in group " + member_->group() + ": rank " + std::to_string(root) + " expects " +
                        std::to_string(arrival_.receives(root)[r]) + " elements of rank " + std::to_string(r));
    }
  }
  if (rank_ != root) {
    for (int i = 1; i < size_; ++i) ring_.release_all(peer(i));
  } else if (outputs[static_cast<std::size_t>(rank_)].data != input.data) {
    copy(outputs[static_cast<std::size_t>(rank_)].data, input.data, input.count * width, total >= kStreamingBytes);
  }
  const bool streaming = total >= kStreamingBytes;
  pipeline(
      mine.slots, rank_ == root ? std::max<std::uint64_t>(most_slots(), 1) : mine.slots,
      [&](std::uint64_t k) { write_whole(input.data, input.count * width, k); },
      [&](std::uint64_t k) {
        if (rank_ != root) return;
        for (int i = 1; i < size_; ++i) {
          const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
          read_whole(peer(i), output.data, output.count * width, k, streaming);
        }
      });
}

void SharedMemoryCommunicator::reduce(ConstBuffer input, void* output, int root, DataType type, Reduction reduction, const Call& call) {
  check_root(root);
  const ReduceKernel kernel = kernel_for(type, reduction);
  const std::size_t width = element_size(type);
  const std::size_t bytes = input.count * width;
  Announcement& mine =
      arrival_.prepare({.collective = Collective::kReduce, .type = type, .reduction = reduction, .root = root, .count = input.count}, call);
  announce_whole(mine, input.data, bytes, rank_ != root);
  arrival_.announce();
  arrival_.await_all();
  if (rank_ != root) {
    for (int i = 1; i < size_; ++i) ring_.release_all(peer(i));
    pipeline(mine.slots, mine.slots, [&](std::uint64_t k) { write_whole(input.data, bytes, k); }, [](std::uint64_t) {});
    return;
  }
  read_factors();
  source(rank_) = input.data;
  const std::uint64_t steps = most_slots();
  if (steps == 0) {
    for (int i = 1; i < size_; ++i) source(peer(i)) = arrival_.inline_data(peer(i));
    combiner_.combine(kernel, type, output, input.count, false);
    return;
  }
  const std::size_t piece = arrival_.of(peer(1)).piece;
  for (std::uint64_t k = 0; k < steps; ++k) {
    const std::size_t begin = k * piece;
    for (int i = 1; i < size_; ++i) source(peer(i)) = ring_.filled(peer(i), k);
    source(rank_) = moved(input.data, begin);
    combiner_.combine(kernel, type, moved(output, begin), std::min(piece, bytes - begin) / width, bytes >= kStreamingBytes);
    for (int i = 1; i < size_; ++i) ring_.release(peer(i), k + 1);
  }
}

// --- a part for each rank
// --------------------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::announce_parts(Announcement& mine, std::span<const ConstBuffer> inputs, std::size_t width) {
  // The own part counts although it stays: with equal lists, all ranks then decide alike.
  std::size_t total = 0;
  std::size_t largest = 0;
  for (const ConstBuffer& input : inputs) {
    total += input.count * width;
    largest = std::max(largest, input.count * width);
  }
  if (size_ == 1 || total == 0) {
    return;
  }
  if (!fits(total)) {
    ring_.use(mine, ring_.cut(largest, size_ - 1));
    return;
  }
  // One after the other by rank.
  mine.is_inline = 1;
  std::byte* to = arrival_.inline_data(rank_);
  for (int r = 0; r < size_; ++r) {
    const ConstBuffer& input = inputs[static_cast<std::size_t>(r)];
    if (r == rank_ || input.count == 0) continue;
    std::memcpy(to, input.data, input.count * width);
    to += input.count * width;
  }
}

void SharedMemoryCommunicator::write_parts(std::span<const ConstBuffer> inputs, std::size_t width, std::uint64_t k) {
  const std::size_t piece = arrival_.of(rank_).piece;
  const std::size_t begin = k * piece;
  std::byte* const slot = ring_.writable(k);
  for (int i = 1; i < size_; ++i) {
    const ConstBuffer& input = inputs[static_cast<std::size_t>(peer(i))];
    const std::size_t bytes = input.count * width;
    if (begin < bytes) {
      std::memcpy(slot + region(rank_, peer(i)) * piece, moved(input.data, begin), std::min(piece, bytes - begin));
    }
  }
  ring_.publish_filled(k);
}

void SharedMemoryCommunicator::read_part(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming) {
  const std::size_t piece = arrival_.of(writer).piece;
  const std::size_t begin = k * piece;
  if (begin >= bytes) {
    return;
  }
  const std::byte* const slot = ring_.filled(writer, k) + region(writer, rank_) * piece;
  copy(moved(output, begin), slot, std::min(piece, bytes - begin), streaming);
  if (begin + piece < bytes) {
    ring_.release(writer, k + 1);
  } else {
    ring_.release_all(writer);
  }
}

void SharedMemoryCommunicator::all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, DataType type,
                                          const Call& call) {
  check_list(inputs.size());
  check_list(outputs.size());
  const std::size_t width = element_size(type);
  std::uint64_t total = 0;
  for (const ConstBuffer& input : inputs) total += input.count;
  Announcement& mine = arrival_.prepare({.collective = Collective::kAllToAll, .type = type, .count = total}, call);
  std::size_t received = 0;
  for (int r = 0; r < size_; ++r) {
    arrival_.sends(rank_)[r] = inputs[static_cast<std::size_t>(r)].count;
    arrival_.receives(rank_)[r] = outputs[static_cast<std::size_t>(r)].count;
    received += outputs[static_cast<std::size_t>(r)].count * width;
  }
  announce_parts(mine, inputs, width);
  if (!overwrites(inputs, outputs, width)) direct_.offer(mine, inputs, width, received);
  arrival_.announce();
  arrival_.await_all();
  // All pairs, not only those with this rank: then all ranks notice, and say the same.
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      if (arrival_.sends(from)[to] != arrival_.receives(to)[from]) [[unlikely]] {
        arrival_.mismatch("all_to_all in group " + member_->group() + ": rank " + std::to_string(from) + " sends " +
                          std::to_string(arrival_.sends(from)[to]) + " elements to rank " + std::to_string(to) + ", which expects " +
                          std::to_string(arrival_.receives(to)[from]));
      }
    }
  }
  const ConstBuffer& own = inputs[static_cast<std::size_t>(rank_)];
  if (goes_direct()) {
    return direct_.all_to_all(own, outputs, width);
  }
  const bool streaming = received >= kStreamingBytes;
  if (void* const to = outputs[static_cast<std::size_t>(rank_)].data; to != own.data) {
    copy(to, own.data, own.count * width, streaming);
  }
  for (int i = 1; i < size_; ++i) {
    const int writer = peer(i);
    const Buffer& output = outputs[static_cast<std::size_t>(writer)];
    if (arrival_.of(writer).is_inline != 0) {
      std::size_t before = 0;
      for (int r = 0; r < rank_; ++r) before += r == writer ? 0 : arrival_.sends(writer)[r];
      copy(output.data, arrival_.inline_data(writer) + before * width, output.count * width, false);
    } else if (output.count == 0) {
      ring_.release_all(writer);
    }
  }
  pipeline(
      mine.slots, most_slots(), [&](std::uint64_t k) { write_parts(inputs, width, k); },
      [&](std::uint64_t k) {
        for (int i = 1; i < size_; ++i) {
          const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
          if (arrival_.of(peer(i)).slots > 0) read_part(peer(i), output.data, output.count * width, k, streaming);
        }
      });
}

void SharedMemoryCommunicator::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, DataType type, const Call& call) {
  check_root(root);
  if (rank_ == root) check_list(inputs.size());
  const std::size_t width = element_size(type);
  Announcement& mine = arrival_.prepare({.collective = Collective::kScatter, .type = type, .root = root, .count = output.count}, call);
  if (rank_ == root) {
    for (int r = 0; r < size_; ++r) arrival_.sends(rank_)[r] = inputs[static_cast<std::size_t>(r)].count;
    announce_parts(mine, inputs, width);
  }
  arrival_.announce();
  arrival_.await_all();
  for (int r = 0; r < size_; ++r) {
    if (arrival_.of(r).count != arrival_.sends(root)[r]) {
      arrival_.mismatch("scatter in group " + member_->group() + ": rank " + std::to_string(root) + " sends " +
                        std::to_string(arrival_.sends(root)[r]) + " elements to rank " + std::to_string(r));
    }
  }
  const std::size_t bytes = output.count * width;
  const bool streaming = bytes >= kStreamingBytes;
  if (rank_ == root) {
    const void* const own = inputs[static_cast<std::size_t>(rank_)].data;
    if (own != output.data) copy(output.data, own, bytes, streaming);
    for (std::uint64_t k = 0; k < mine.slots; ++k) write_parts(inputs, width, k);
    return;
  }
  const Announcement& theirs = arrival_.of(root);
  if (theirs.is_inline != 0) {
    std::size_t before = 0;
    for (int r = 0; r < rank_; ++r) before += r == root ? 0 : arrival_.sends(root)[r];
    copy(output.data, arrival_.inline_data(root) + before * width, bytes, false);
  } else if (bytes == 0) {
    ring_.release_all(root);
  }
  for (std::uint64_t k = 0; k < theirs.slots; ++k) read_part(root, output.data, bytes, k, streaming);
}

void SharedMemoryCommunicator::reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, Reduction reduction,
                                              const Call& call) {
  check_list(inputs.size());
  const ConstBuffer& own = inputs[static_cast<std::size_t>(rank_)];
  require(own.count == output.count, "reduce_scatter: the output has not the size of this rank's input");
  const ReduceKernel kernel = kernel_for(type, reduction);
  const std::size_t width = element_size(type);
  counts_.clear();
  std::uint64_t total = 0;
  for (const ConstBuffer& input : inputs) {
    counts_.push_back(input.count);
    total += input.count;
  }
  Announcement& mine = arrival_.prepare(
      {.collective = Collective::kReduceScatter, .type = type, .reduction = reduction, .count = total, .counts = counts_}, call);
  announce_parts(mine, inputs, width);
  if (!overwrites(inputs, {{output}}, width)) direct_.offer(mine, inputs, width, total * width);
  arrival_.announce();
  arrival_.await_all();
  read_factors();
  if (goes_direct()) {
    return direct_.reduce_scatter(own, output, type, kernel, combiner_);
  }
  const std::size_t bytes = output.count * width;
  if (mine.is_inline != 0) {
    const std::size_t before = width * std::accumulate(counts_.begin(), counts_.begin() + rank_, std::uint64_t{0});
    for (int i = 1; i < size_; ++i) {
      const int writer = peer(i);
      // A writer leaves its own part out.
      const std::size_t skipped = writer < rank_ ? counts_[static_cast<std::size_t>(writer)] * width : 0;
      source(writer) = arrival_.inline_data(writer) + before - skipped;
    }
    source(rank_) = own.data;
    if (bytes > 0) combiner_.combine(kernel, type, output.data, output.count, false);
    return;
  }
  if (mine.slots == 0) {  // one rank, or nothing at all
    source(rank_) = own.data;
    if (bytes > 0) combiner_.combine(kernel, type, output.data, output.count, bytes >= kStreamingBytes);
    return;
  }
  if (bytes == 0) {
    for (int i = 1; i < size_; ++i) ring_.release_all(peer(i));
  }
  const std::size_t piece = mine.piece;  // the same on all ranks
  pipeline(
      mine.slots, mine.slots, [&](std::uint64_t k) { write_parts(inputs, width, k); },
      [&](std::uint64_t k) {
        const std::size_t begin = k * piece;
        if (begin >= bytes) return;
        for (int i = 1; i < size_; ++i) source(peer(i)) = ring_.filled(peer(i), k) + region(peer(i), rank_) * piece;
        source(rank_) = moved(own.data, begin);
        combiner_.combine(kernel, type, moved(output.data, begin), std::min(piece, bytes - begin) / width, bytes >= kStreamingBytes);
        for (int i = 1; i < size_; ++i) {
          if (begin + piece < bytes) {
            ring_.release(peer(i), k + 1);
          } else {
            ring_.release_all(peer(i));
          }
        }
      });
}

void SharedMemoryCommunicator::all_reduce(ConstBuffer input, void* output, DataType type, Reduction reduction, const Call& call) {
  const ReduceKernel kernel = kernel_for(type, reduction);
  const std::size_t width = element_size(type);
  const std::size_t bytes = input.count * width;
  Announcement& mine =
      arrival_.prepare({.collective = Collective::kAllReduce, .type = type, .reduction = reduction, .count = input.count}, call);
  // Every rank reads all of an inline input and reduces it itself: one hand-off instead of two.
  if (size_ == 1 || fits(bytes)) {
    if (size_ > 1 && bytes > 0) std::memcpy(arrival_.inline_data(rank_), input.data, bytes);
    arrival_.announce();
    arrival_.await_all();
    read_factors();
    for (int r = 0; r < size_; ++r) source(r) = r == rank_ ? input.data : arrival_.inline_data(r);
    if (bytes > 0) combiner_.combine(kernel, type, output, input.count, bytes >= kStreamingBytes);
    return;
  }
  // Step k is a chunk of the array, cut into one piece per rank: each rank gives the others its numbers (contribute), reduces its own piece
  // of what they gave (reduce), and takes the reduced pieces of the others (collect). A slot holds the pieces for all ranks; its owner's
  // own piece is the result.
  const Ring::Cut cut = ring_.cut((bytes + static_cast<std::size_t>(size_) - 1) / static_cast<std::size_t>(size_), size_);
  const std::size_t piece = cut.piece;
  const std::size_t chunk = piece * static_cast<std::size_t>(size_);
  ring_.use(mine, {cut.piece, static_cast<std::uint32_t>((bytes + chunk - 1) / chunk)});
  // Others write the output while some still read the input: both are the same memory, or share nothing.
  const Buffer results{output, input.count};
  const bool fits_together = output == input.data || !overlap(input, {output, input.count}, width);
  const auto exposure = direct_.offer(mine, {{input}}, results, width, fits_together ? bytes : 0);
  arrival_.announce();
  arrival_.await_all();
  read_factors();
  if (goes_direct()) {
    return direct_.all_reduce(input, results, type, kernel, combiner_);
  }
  const bool streaming = bytes >= kStreamingBytes;
  // Bytes [begin, end) of the array that rank q reduces in step k.
  const auto begin_of = [&](std::uint64_t k, int q) { return std::min(bytes, k * chunk + static_cast<std::size_t>(q) * piece); };
  const auto contribute = [&](std::uint64_t k) {
    std::byte* const slot = ring_.writable(k);
    for (int i = 1; i < size_; ++i) {
      const int q = peer(i);
      const std::size_t begin = begin_of(k, q);
      std::memcpy(slot + static_cast<std::size_t>(q) * piece, moved(input.data, begin), std::min(bytes, begin + piece) - begin);
    }
    ring_.publish_filled(k);
  };
  const auto reduce_own = [&](std::uint64_t k) {
    const std::size_t begin = begin_of(k, rank_);
    const std::size_t length = std::min(bytes, begin + piece) - begin;
    const std::size_t offset = static_cast<std::size_t>(rank_) * piece;
    for (int i = 1; i < size_; ++i) source(peer(i)) = ring_.filled(peer(i), k) + offset;
    source(rank_) = moved(input.data, begin);
    std::byte* const result = member_->slot(rank_, mine.first_slot + k) + offset;
    // Not straight into the slot: a kernel's stores to lines that other ranks have read wait for each line in turn, at a third of the speed
    // of memcpy, which copies blocks of this size with string instructions.
    combiner_.combine_through_scratch(kernel, type, length / width, [&](std::size_t done, const void* block, std::size_t now) {
      std::memcpy(result + done, block, now);
      copy(moved(output, begin + done), block, now, streaming);
    });
    ring_.publish_reduced(k);
  };
  const auto collect = [&](std::uint64_t k) {
    for (int i = 1; i < size_; ++i) {
      const int q = peer(i);
      const std::size_t begin = begin_of(k, q);
      copy(moved(output, begin), ring_.reduced(q, k) + static_cast<std::size_t>(q) * piece, std::min(bytes, begin + piece) - begin,
           streaming);
      ring_.release(q, k + 1);
    }
  };
  const std::uint64_t steps = mine.slots;
  for (std::uint64_t step = 0; step < steps + 2; ++step) {
    if (step < steps) contribute(step);
    if (step >= 1 && step - 1 < steps) reduce_own(step - 1);
    if (step >= 2) collect(step - 2);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(KeyValueStore& store, const std::string& group_name, int rank, int size,
                                                              std::chrono::milliseconds timeout, SharedMemoryOptions options) {
  require(size >= 1 && size <= Layout::kMaxRanks, "a group has 1 to 256 ranks on one host");
  require(rank >= 0 && rank < size, "the rank is not in the group");
  auto member = meet(store, group_name, rank, size, timeout, std::move(options.check_interrupt), options.memory);
  return std::make_unique<SharedMemoryCommunicator>(std::move(member), options);
}

}  // namespace neuron::collectives
