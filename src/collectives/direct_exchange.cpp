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

bool overwrites(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, int rank, std::size_t width) noexcept {
  for (std::size_t q = 0; q < inputs.size(); ++q) {
    for (const Buffer& output : outputs) {
      if (q == static_cast<std::size_t>(rank) && output.data == inputs[q].data) continue;
      if (overlap(inputs[q], {output.data, output.count}, width)) return true;
    }
  }
  return false;
}

bool overwrites(ConstBuffer input, std::span<const Buffer> outputs, int rank, std::size_t width) noexcept {
  for (std::size_t q = 0; q < outputs.size(); ++q) {
    if (q == static_cast<std::size_t>(rank) && outputs[q].data == input.data) continue;
    if (overlap(input, {outputs[q].data, outputs[q].count}, width)) return true;
  }
  return false;
}

bool DirectExchange::offer_places(Announcement& mine, std::span<const ConstBuffer> inputs, std::span<const Buffer> results,
                                  std::size_t width, std::size_t bytes) {
  if (bytes < smallest_ || !peers_.attached()) {
    return false;
  }
  for (std::size_t q = 0; q < inputs.size(); ++q) {
    const auto place = peers_.place_of(inputs[q].data, inputs[q].count * width);
    if (!place) return false;
    arrival_.inputs(member_.rank())[q] = *place;
  }
  for (std::size_t q = 0; q < results.size(); ++q) {
    const auto place = peers_.place_of(results[q].data, results[q].count * width);
    if (!place) return false;
    arrival_.outputs(member_.rank())[q] = *place;
  }
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

void DirectExchange::end_stage(std::span<const Buffer> results, std::size_t width) {
  end_stage();
  // Another group's operation, on a neighbour of these results, may have failed meanwhile.
  for (const Buffer& result : results) {
    if (!peers_.place_of(result.data, result.count * width)) [[unlikely]] {
      member_.fail(ErrorCode::kAborted, "rank " + std::to_string(member_.rank()) + " of group " + member_.group() +
                                            " took its memory back from the other ranks because an operation of another group failed");
    }
  }
}

DirectExchange::Share DirectExchange::share_of(std::size_t count) const noexcept {
  constexpr std::size_t kMultiple = 64;  // elements: every share but the last begins at a cache line if the data does
  const auto ranks = static_cast<std::size_t>(member_.size());
  const std::size_t share = ((count + ranks - 1) / ranks + kMultiple - 1) / kMultiple * kMultiple;
  const std::size_t first = std::min(count, static_cast<std::size_t>(member_.rank()) * share);
  return {first, std::min(count, first + share) - first};
}

void DirectExchange::read_from(ConstBuffer own, std::size_t begin, Combiner& combiner) noexcept {
  combiner.source(member_.rank()) = static_cast<const std::byte*>(own.data) + begin;
  for (int i = 1; i < member_.size(); ++i) combiner.source(peer(i)) = input_of(peer(i), 0) + begin;
}

void DirectExchange::all_reduce(ConstBuffer input, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner) {
  // Each rank combines a share, for all. In place, nobody reads of an input what another rank overwrites: that is the other's share.
  const std::size_t width = element_size(type);
  const Share mine = share_of(input.count);
  const std::size_t begin = mine.first * width;
  read_from(input, begin, combiner);
  combiner.target(member_.rank()) = static_cast<std::byte*>(output.data) + begin;
  for (int i = 1; i < member_.size(); ++i) combiner.target(peer(i)) = output_of(peer(i), 0) + begin;
  combiner.combine_for_all(kernel, type, mine.count, input.count * width >= kStreamingBytes);
  end_stage({{output}}, width);
}

void DirectExchange::reduce(ConstBuffer input, void* output, int root, DataType type, ReduceKernel kernel, Combiner& combiner) {
  // As all_reduce, for the root alone.
  const std::size_t width = element_size(type);
  const Share mine = share_of(input.count);
  const std::size_t begin = mine.first * width;
  read_from(input, begin, combiner);
  for (int r = 0; r < member_.size(); ++r) combiner.target(r) = nullptr;
  combiner.target(root) = (member_.rank() == root ? static_cast<std::byte*>(output) : output_of(root, 0)) + begin;
  combiner.combine_for_all(kernel, type, mine.count, input.count * width >= kStreamingBytes);
  if (member_.rank() == root) return end_stage({{Buffer{output, input.count}}}, width);
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
  // Each rank hands a share out to all; where it does to several, block by block, so that the root's memory is read once.
  const std::size_t bytes = data.count * width;
  const std::size_t block = member_.size() > 2 ? std::size_t{64} << 10 : std::max(bytes, kCacheLine);
  const bool streaming = bytes >= kStreamingBytes;
  const int me = member_.rank();
  const auto ranks = static_cast<std::size_t>(member_.size());
  const std::size_t share = (bytes / ranks + kCacheLine) / kCacheLine * kCacheLine;
  const std::size_t end = std::min(bytes, (static_cast<std::size_t>(me) + 1) * share);
  const std::byte* const source = me == root ? static_cast<const std::byte*>(data.data) : input_of(root, 0);
  for (std::size_t begin = static_cast<std::size_t>(me) * share; begin < end; begin += block) {
    const std::size_t now = std::min(block, end - begin);
    for (int i = 0; i < member_.size(); ++i) {
      if (peer(i) == root) continue;
      std::byte* const target = peer(i) == me ? static_cast<std::byte*>(data.data) : output_of(peer(i), 0);
      copy(target + begin, source + begin, now, streaming);
    }
  }
  if (me == root) return end_stage();
  end_stage({{data}}, width);
}

void DirectExchange::gather(ConstBuffer input, std::span<const Buffer> outputs, int root, std::size_t width) {
  const int me = member_.rank();
  if (me != root) {
    const std::size_t bytes = input.count * width;
    const std::size_t share = share_of_root(bytes);
    copy(output_of(root, me) + share, static_cast<const std::byte*>(input.data) + share, bytes - share, bytes >= kStreamingBytes);
    return end_stage();
  }
  if (void* const own = outputs[static_cast<std::size_t>(me)].data; own != input.data) {
    copy(own, input.data, input.count * width, input.count * width >= kStreamingBytes);
  }
  for (int i = 1; i < member_.size(); ++i) {
    const Buffer& output = outputs[static_cast<std::size_t>(peer(i))];
    const std::size_t bytes = output.count * width;
    copy(output.data, input_of(peer(i), 0), share_of_root(bytes), bytes >= kStreamingBytes);
  }
  end_stage(outputs, width);
}

void DirectExchange::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, std::size_t width) {
  const int me = member_.rank();
  const std::size_t own = output.count * width;
  if (me != root) {
    const std::size_t share = share_of_root(own);
    copy(static_cast<std::byte*>(output.data) + share, input_of(root, me) + share, own - share, own >= kStreamingBytes);
    return end_stage({{output}}, width);
  }
  if (const void* const from = inputs[static_cast<std::size_t>(me)].data; from != output.data) {
    copy(output.data, from, own, own >= kStreamingBytes);
  }
  for (int i = 1; i < member_.size(); ++i) {
    const ConstBuffer& input = inputs[static_cast<std::size_t>(peer(i))];
    const std::size_t bytes = input.count * width;
    copy(output_of(peer(i), 0), input.data, share_of_root(bytes), bytes >= kStreamingBytes);
  }
  end_stage();
}

}  // namespace neuron::collectives
