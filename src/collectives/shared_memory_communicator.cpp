// What the ranks of one host agree on before data moves: each operation is announced with its arguments, compared when all have arrived,
// and then done in one of two ways, the same on all ranks: each reads the others' memory where it is (direct_exchange.h), or data passes
// through the group's segment (ring_movements.h, ring_reductions.h).
#include "collectives/shared_memory_communicator.h"

#include <string>
#include <utility>
#include <vector>

#include "collectives/copy.h"
#include "collectives/direct_exchange.h"
#include "collectives/operation.h"
#include "collectives/reduce/combiner.h"
#include "collectives/reduce/reduce.h"
#include "collectives/ring_movements.h"
#include "collectives/ring_reductions.h"
#include "collectives/ring_transfer.h"
#include "collectives/shm/arrival.h"
#include "collectives/shm/group_setup.h"
#include "collectives/shm/mailbox.h"
#include "collectives/shm/member.h"
#include "runtime/telemetry.h"

namespace neuron::collectives {
namespace {

void require(bool condition, const char* what) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument, what);
  }
}

ReduceKernel kernel_for(DataType type, Reduction reduction) {
  const ReduceKernel kernel = reduce_kernel(type, reduction.op);
  if (kernel == nullptr) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument, "no " + std::string(name(reduction.op)) + " of " + std::string(name(type)));
  }
  return kernel;
}

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<Member> member, const SharedMemoryOptions& options)
      : member_(std::move(member)),
        rank_(member_->rank()),
        size_(member_->size()),
        arrival_(*member_),
        transfer_(*member_, arrival_),
        combiner_(size_),
        movements_(transfer_),
        reductions_(transfer_, combiner_),
        direct_(*member_, arrival_, options.memory, options.smallest_direct),
        mailbox_(*member_) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  Mailbox& mailbox() override { return mailbox_; }
  void barrier(const Call& call) override {
    arrival_.prepare({}, call);
    meet();
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
  void check_root(int root) const { require(root >= 0 && root < size_, "the root is not a rank of the group"); }
  void check_list(std::size_t length) const {
    require(length == static_cast<std::size_t>(size_), "a list of buffers needs one entry per rank");
  }
  // Shows the announcement and waits for those of the others.
  void meet() {
    arrival_.announce();
    arrival_.await_all();
  }
  void read_factors() {
    for (int r = 0; r < size_; ++r) combiner_.factor(r) = arrival_.of(r).factor;
  }
  // Breaks the group: the counts of the ranks' lists do not fit together.
  [[noreturn]] void counts_differ(const char* collective, const std::string& how) {
    arrival_.mismatch(std::string(collective) + " in group " + member_->group() + ": " + how);
  }
  // Whether the ranks do the announced operation without rings. What they claimed of their rings is given back then.
  bool goes_direct() {
    if (!direct_.agreed()) return false;
    runtime::add(runtime::Counter::kDirectCollectives);
    transfer_.release_everything();
    return true;
  }

  std::unique_ptr<Member> member_;
  int rank_;
  int size_;
  Arrival arrival_;
  RingTransfer transfer_;
  Combiner combiner_;
  RingMovements movements_;
  RingReductions reductions_;
  DirectExchange direct_;
  SharedMemoryMailbox mailbox_;
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

void SharedMemoryCommunicator::broadcast(Buffer data, int root, DataType type, const Call& call) {
  check_root(root);
  const std::size_t width = element_size(type);
  const std::size_t bytes = data.count * width;
  Announcement& mine = arrival_.prepare({.collective = Collective::kBroadcast, .type = type, .root = root, .count = data.count}, call);
  transfer_.announce_whole(mine, data.data, bytes, rank_ == root && size_ > 1);
  const ConstBuffer sent{data.data, rank_ == root ? data.count : 0};
  const Buffer received{data.data, rank_ == root ? 0 : data.count};
  const auto exposure = direct_.offer(mine, {{sent}}, {&received, 1}, width, bytes);
  meet();
  goes_direct() ? direct_.broadcast(data, root, width) : movements_.broadcast(data, root, width);
}

void SharedMemoryCommunicator::all_gather(ConstBuffer input, std::span<const Buffer> outputs, DataType type, const Call& call) {
  check_list(outputs.size());
  const Buffer& own = outputs[static_cast<std::size_t>(rank_)];
  require(own.count == input.count, "all_gather: the input has not the size of this rank's output");
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
  transfer_.announce_whole(mine, input.data, bytes, size_ > 1);
  if (!overwrites(input, outputs, rank_, width)) direct_.offer(mine, {{input}}, width, total);
  arrival_.announce();
  if (own.data != input.data && mine.slots == 0) copy(own.data, input.data, bytes, false);
  arrival_.await_all();
  goes_direct() ? direct_.all_gather(input, outputs, width) : movements_.all_gather(input, outputs, width);
}

void SharedMemoryCommunicator::gather(ConstBuffer input, std::span<const Buffer> outputs, int root, DataType type, const Call& call) {
  check_root(root);
  if (rank_ == root) check_list(outputs.size());
  const std::size_t width = element_size(type);
  Announcement& mine = arrival_.prepare({.collective = Collective::kGather, .type = type, .root = root, .count = input.count}, call);
  if (rank_ == root) {
    for (int r = 0; r < size_; ++r) arrival_.receives(rank_)[r] = outputs[static_cast<std::size_t>(r)].count;
  }
  transfer_.announce_whole(mine, input.data, input.count * width, rank_ != root);
  const bool can_be_written = rank_ != root || !overwrites(input, outputs, rank_, width);
  const auto exposure =
      direct_.offer(mine, {{input}}, outputs.first(rank_ == root ? outputs.size() : 0), width, can_be_written ? input.count * width : 0);
  meet();
  for (int r = 0; r < size_; ++r) {
    if (const auto expected = arrival_.receives(root)[r]; arrival_.of(r).count != expected) [[unlikely]] {
      counts_differ("gather",
                    "rank " + std::to_string(root) + " expects " + std::to_string(expected) + " elements of rank " + std::to_string(r));
    }
  }
  goes_direct() ? direct_.gather(input, outputs, root, width) : movements_.gather(input, outputs, root, width);
}

void SharedMemoryCommunicator::reduce(ConstBuffer input, void* output, int root, DataType type, Reduction reduction, const Call& call) {
  check_root(root);
  const ReduceKernel kernel = kernel_for(type, reduction);
  const std::size_t bytes = input.count * element_size(type);
  const Buffer results{output, rank_ == root ? input.count : 0};
  Announcement& mine =
      arrival_.prepare({.collective = Collective::kReduce, .type = type, .reduction = reduction, .root = root, .count = input.count}, call);
  transfer_.announce_whole(mine, input.data, bytes, rank_ != root);
  const bool can_be_written = rank_ != root || output == input.data || !overlap(input, {output, input.count}, element_size(type));
  const auto exposure = direct_.offer(mine, {{input}}, {&results, 1}, element_size(type), can_be_written ? bytes : 0);
  meet();
  read_factors();
  if (goes_direct()) {
    direct_.reduce(input, output, root, type, kernel, combiner_);
  } else {
    reductions_.reduce(input, output, root, type, kernel);
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
  transfer_.announce_parts(mine, inputs, width);
  if (!overwrites(inputs, outputs, rank_, width)) direct_.offer(mine, inputs, width, received);
  meet();
  // All pairs, not only those with this rank: then all ranks notice, and say the same.
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      const auto sent = arrival_.sends(from)[to];
      const auto expected = arrival_.receives(to)[from];
      if (sent != expected) [[unlikely]] {
        counts_differ("all_to_all", "rank " + std::to_string(from) + " sends " + std::to_string(sent) + " elements to rank " +
                                        std::to_string(to) + ", which expects " + std::to_string(expected));
      }
    }
  }
  if (goes_direct()) {
    direct_.all_to_all(inputs[static_cast<std::size_t>(rank_)], outputs, width);
  } else {
    movements_.all_to_all(inputs, outputs, width);
  }
}

void SharedMemoryCommunicator::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, DataType type, const Call& call) {
  check_root(root);
  if (rank_ == root) check_list(inputs.size());
  const std::size_t width = element_size(type);
  Announcement& mine = arrival_.prepare({.collective = Collective::kScatter, .type = type, .root = root, .count = output.count}, call);
  if (rank_ == root) {
    for (int r = 0; r < size_; ++r) arrival_.sends(rank_)[r] = inputs[static_cast<std::size_t>(r)].count;
    transfer_.announce_parts(mine, inputs, width);
  }
  // The root writes its own part alone.
  const Buffer received{output.data, rank_ == root ? 0 : output.count};
  const bool can_be_read = rank_ != root || !overwrites(inputs, {{output}}, rank_, width);
  const auto exposure =
      direct_.offer(mine, inputs.first(rank_ == root ? inputs.size() : 0), {&received, 1}, width, can_be_read ? output.count * width : 0);
  meet();
  for (int r = 0; r < size_; ++r) {
    if (const auto sent = arrival_.sends(root)[r]; arrival_.of(r).count != sent) [[unlikely]] {
      counts_differ("scatter",
                    "rank " + std::to_string(root) + " sends " + std::to_string(sent) + " elements to rank " + std::to_string(r));
    }
  }
  goes_direct() ? direct_.scatter(inputs, output, root, width) : movements_.scatter(inputs, output, root, width);
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
  transfer_.announce_parts(mine, inputs, width);
  if (!overwrites(inputs, {{output}}, rank_, width)) direct_.offer(mine, inputs, width, total * width);
  meet();
  read_factors();
  if (goes_direct()) {
    direct_.reduce_scatter(own, output, type, kernel, combiner_);
  } else {
    reductions_.reduce_scatter(inputs, output, type, kernel);
  }
}

void SharedMemoryCommunicator::all_reduce(ConstBuffer input, void* output, DataType type, Reduction reduction, const Call& call) {
  const ReduceKernel kernel = kernel_for(type, reduction);
  const std::size_t width = element_size(type);
  const std::size_t bytes = input.count * width;
  const Buffer results{output, input.count};
  Announcement& mine =
      arrival_.prepare({.collective = Collective::kAllReduce, .type = type, .reduction = reduction, .count = input.count}, call);
  reductions_.announce_all_reduce(mine, input.data, bytes);
  // Others write the output while some still read the input: both are the same memory, or share nothing.
  const bool can_be_written = output == input.data || !overlap(input, {output, input.count}, width);
  const auto exposure = direct_.offer(mine, {{input}}, {&results, 1}, width, can_be_written && mine.is_inline == 0 ? bytes : 0);
  meet();
  read_factors();
  if (goes_direct()) {
    direct_.all_reduce(input, results, type, kernel, combiner_);
  } else {
    reductions_.all_reduce(input, output, type, kernel);
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
