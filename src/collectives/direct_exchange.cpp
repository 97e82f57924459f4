// See direct_exchange.h.
#include "collectives/direct_exchange.h"

#include <algorithm>
#include <string>

#include "collectives/copy.h"

namespace neuron::collectives {

bool overlap(ConstBuffer a, ConstBuffer b, std::size_t width) noexcept {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return begin_a < begin_b + b.count * width && begin_b < begin_a + a.count * width;
}

bool DirectExchange::offer_places(Announcement& mine, std::span<const ConstBuffer> inputs, Buffer results, std::size_t width,
                                  std::size_t bytes) {
  if (bytes < smallest_ || !peers_.attached()) {
    return false;
  }
  for (std::size_t q = 0; q < inputs.size(); ++q) {
    const auto place = peers_.place_of(inputs[q].data, inputs[q].count * width);
    if (!place) return false;
    arrival_.inputs(member_.rank())[q] = *place;
  }
  const auto place = peers_.place_of(results.data, results.count * width);
  if (!place) return false;
  arrival_.output(member_.rank()) = *place;
  mine.is_direct = 1;
  return true;
}

bool DirectExchange::agreed() const noexcept {
  for (int r = 0; r < member_.size(); ++r) {
    if (arrival_.of(r).is_direct == 0) return false;
  }
  return true;
}

void DirectExchange::end_stage() {
  member_.state(member_.rank()).stages.store(++stages_, std::memory_order_release);
  member_.notify_all(&RankState::collectives);
  for (int i = 1; i < member_.size(); ++i) {
    const auto& theirs = member_.state(peer(i)).stages;
    arrival_.await(peer(i), [&] { return theirs.load(std::memory_order_acquire) >= stages_; });
  }
}

void DirectExchange::end_stage(Buffer results, std::size_t width) {
  end_stage();
  // Another group's operation, on a neighbour of these results, may have failed meanwhile.
  if (!peers_.place_of(results.data, results.count * width)) [[unlikely]] {
    member_.fail(ErrorCode::kAborted, "rank " + std::to_string(member_.rank()) + " of group " + member_.group() +
                                          " took its memory back from the other ranks because an operation of another group failed");
  }
}

void DirectExchange::all_reduce(ConstBuffer input, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner) {
  // Each rank combines a share, for all. In place, nobody reads of an input what another rank overwrites: that is the other's share.
  constexpr std::size_t kMultiple = 64;  // elements: every share but the last begins at a cache line if the data does
  const auto ranks = static_cast<std::size_t>(member_.size());
  const int me = member_.rank();
  const std::size_t width = element_size(type);
  const std::size_t share = ((input.count + ranks - 1) / ranks + kMultiple - 1) / kMultiple * kMultiple;
  const std::size_t first = std::min(input.count, static_cast<std::size_t>(me) * share);
  const std::size_t begin = first * width;
  combiner.source(me) = static_cast<const std::byte*>(input.data) + begin;
  combiner.target(me) = static_cast<std::byte*>(output.data) + begin;
  for (int i = 1; i < member_.size(); ++i) {
    combiner.source(peer(i)) = input_of(peer(i), 0) + begin;
    combiner.target(peer(i)) = output_of(peer(i)) + begin;
  }
  combiner.combine_for_all(kernel, type, std::min(input.count, first + share) - first, input.count * width >= kStreamingBytes);
  end_stage(output, width);
}

void DirectExchange::reduce_scatter(ConstBuffer own, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner) {
  const int me = member_.rank();
  for (int i = 1; i < member_.size(); ++i) combiner.source(peer(i)) = input_of(peer(i), me);
  combiner.source(me) = own.data;
  if (output.count > 0) {
    combiner.combine(kernel, type, output.data, output.count, output.count * element_size(type) >= kStreamingBytes);
  }
  end_stage();
}

void DirectExchange::all_gather(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width) {
  std::size_t total = 0;
  for (const Buffer& output : outputs) total += output.count * width;
  const bool streaming = total >= kStreamingBytes;
  void* const own = outputs[static_cast<std::size_t>(member_.rank())].data;
  if (own != input.data) copy(own, input.data, input.count * width, streaming);
  for (int i = 1; i < member_.size(); ++i) {
    const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
    copy(output.data, input_of(peer(i), 0), output.count * width, streaming);
  }
  end_stage();
}

void DirectExchange::all_to_all(ConstBuffer own, std::span<const Buffer> outputs, std::size_t width) {
  std::size_t total = 0;
  for (const Buffer& output : outputs) total += output.count * width;
  const bool streaming = total >= kStreamingBytes;
  const int me = member_.rank();
  if (void* const to = outputs[static_cast<std::size_t>(me)].data; to != own.data) copy(to, own.data, own.count * width, streaming);
  for (int i = 1; i < member_.size(); ++i) {
    const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
    copy(output.data, input_of(peer(i), me), output.count * width, streaming);
  }
  end_stage();
}

void DirectExchange::broadcast(Buffer data, int root, std::size_t width) {
  // The root copies a share of what each of the others gets, which makes it one of as many that copy as there are ranks.
  const std::size_t bytes = data.count * width;
  const bool streaming = bytes >= kStreamingBytes;
  const std::size_t share = bytes / static_cast<std::size_t>(member_.size()) / kCacheLine * kCacheLine;
  if (member_.rank() == root) {
    for (int i = 1; i < member_.size(); ++i) copy(output_of(peer(i)), data.data, share, streaming);
    return end_stage();
  }
  copy(static_cast<std::byte*>(data.data) + share, input_of(root, 0) + share, bytes - share, streaming);
  end_stage(data, width);
}

}  // namespace neuron::collectives
