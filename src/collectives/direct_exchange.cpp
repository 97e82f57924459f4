// See direct_exchange.h.
#include "collectives/direct_exchange.h"

#include <algorithm>

#include "collectives/copy.h"

namespace neuron::collectives {

bool overlap(ConstBuffer a, ConstBuffer b, std::size_t width) noexcept {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return begin_a < begin_b + b.count * width && begin_b < begin_a + a.count * width;
}

void DirectExchange::offer(Announcement& mine, std::span<const ConstBuffer> inputs, Buffer results, std::size_t width, std::size_t bytes) {
  if (bytes < smallest_ || !peers_.attached()) {
    return;
  }
  for (std::size_t q = 0; q < inputs.size(); ++q) {
    const auto place = peers_.place_of(inputs[q].data, inputs[q].count * width);
    if (!place) return;
    arrival_.inputs(member_.rank())[q] = *place;
  }
  const auto place = peers_.place_of(results.data, results.count * width);
  if (!place) return;
  arrival_.output(member_.rank()) = *place;
  mine.is_direct = 1;
}

void DirectExchange::offer_nothing(Announcement& mine, std::size_t bytes) {
  mine.is_direct = bytes >= smallest_ && peers_.attached() ? 1 : 0;
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

void DirectExchange::all_reduce(ConstBuffer input, void* output, DataType type, ReduceKernel kernel, Combiner& combiner) {
  // Each rank combines a share of its own, then takes those of the others from their outputs. In place, nobody reads of an input what its
  // rank has overwritten: that is its own share.
  constexpr std::size_t kMultiple = 64;  // elements: every share but the last begins at a cache line if the data does
  const auto ranks = static_cast<std::size_t>(member_.size());
  const std::size_t width = element_size(type);
  const std::size_t share = ((input.count + ranks - 1) / ranks + kMultiple - 1) / kMultiple * kMultiple;
  const auto begin_of = [&](int q) { return std::min(input.count, static_cast<std::size_t>(q) * share); };
  const auto count_of = [&](int q) { return std::min(input.count, begin_of(q) + share) - begin_of(q); };
  const bool streaming = input.count * width >= kStreamingBytes;
  auto* const result = static_cast<std::byte*>(output);
  const int me = member_.rank();
  const std::size_t mine = begin_of(me) * width;
  for (int i = 1; i < member_.size(); ++i) combiner.source(peer(i)) = input_of(peer(i), 0) + mine;
  combiner.source(me) = static_cast<const std::byte*>(input.data) + mine;
  if (count_of(me) > 0) combiner.combine(kernel, type, result + mine, count_of(me), streaming);
  end_stage();
  for (int i = 1; i < member_.size(); ++i) {
    const int q = peer(i);
    const std::size_t begin = begin_of(q) * width;
    if (count_of(q) > 0) copy(result + begin, peers_.at(q, arrival_.output(q)) + begin, count_of(q) * width, streaming);
  }
  end_stage();
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
  const std::size_t bytes = data.count * width;
  if (member_.rank() != root) copy(data.data, input_of(root, 0), bytes, bytes >= kStreamingBytes);
  end_stage();
}

}  // namespace neuron::collectives
