// See ring_reductions.h.
#include "collectives/ring_reductions.h"

#include <algorithm>
#include <cstring>

#include "collectives/copy.h"

namespace neuron::collectives {

void RingReductions::announce_all_reduce(Announcement& mine, const void* input, std::size_t bytes) {
  // Every rank reads all of an inline input and combines it itself: one hand-off instead of two.
  if (transfer_.size() == 1 || transfer_.fits_inline(bytes)) {
    mine.is_inline = 1;
    if (transfer_.size() > 1 && bytes > 0) std::memcpy(transfer_.arrival().inline_data(transfer_.rank()), input, bytes);
    return;
  }
  const auto ranks = static_cast<std::size_t>(transfer_.size());
  const Ring::Cut cut = transfer_.ring().cut((bytes + ranks - 1) / ranks, transfer_.size());
  const std::size_t chunk = cut.piece * ranks;
  transfer_.ring().use(mine, {cut.piece, static_cast<std::uint32_t>((bytes + chunk - 1) / chunk)});
}

class RingReductions::AllReduce {
 public:
  AllReduce(RingTransfer& transfer, Combiner& combiner, ConstBuffer input, void* output, DataType type, ReduceKernel kernel)
      : transfer_(transfer),
        combiner_(combiner),
        input_(input.data),
        output_(output),
        type_(type),
        kernel_(kernel),
        width_(element_size(type)),
        bytes_(input.count * width_),
        piece_(transfer.arrival().of(transfer.rank()).piece) {}

  void contribute(std::uint64_t k) {
    std::byte* const slot = transfer_.ring().writable(k);
    for (int i = 1; i < transfer_.size(); ++i) {
      const int q = transfer_.peer(i);
      std::memcpy(slot + offset_of(q), moved(input_, begin_of(k, q)), length_of(k, q));
    }
    transfer_.ring().publish_filled(k);
  }

  void combine_own(std::uint64_t k) {
    const int me = transfer_.rank();
    const std::size_t begin = begin_of(k, me);
    for (int i = 1; i < transfer_.size(); ++i) {
      const int q = transfer_.peer(i);
      combiner_.source(q) = transfer_.ring().filled(q, k) + offset_of(me);
    }
    combiner_.source(me) = moved(input_, begin);
    std::byte* const result = transfer_.own_slot(k) + offset_of(me);
    // Not straight into the slot: a kernel's stores to lines that other ranks have read wait for each line in turn, at a third of the speed
    // of memcpy, which copies blocks of this size with string instructions.
    combiner_.combine_through_scratch(kernel_, type_, length_of(k, me) / width_, [&](std::size_t done, const void* block, std::size_t now) {
      std::memcpy(result + done, block, now);
      copy(moved(output_, begin + done), block, now, streaming());
    });
    transfer_.ring().publish_reduced(k);
  }

  void collect(std::uint64_t k) {
    for (int i = 1; i < transfer_.size(); ++i) {
      const int q = transfer_.peer(i);
      copy(moved(output_, begin_of(k, q)), transfer_.ring().reduced(q, k) + offset_of(q), length_of(k, q), streaming());
      transfer_.ring().release(q, k + 1);
    }
  }

 private:
  [[nodiscard]] bool streaming() const noexcept { return bytes_ >= kStreamingBytes; }
  // Where in a slot the piece of rank q is, and which bytes of the array it is in step k.
  [[nodiscard]] std::size_t offset_of(int q) const noexcept { return static_cast<std::size_t>(q) * piece_; }
  [[nodiscard]] std::size_t begin_of(std::uint64_t k, int q) const noexcept {
    return std::min(bytes_, k * piece_ * static_cast<std::size_t>(transfer_.size()) + offset_of(q));
  }
  [[nodiscard]] std::size_t length_of(std::uint64_t k, int q) const noexcept {
    const std::size_t begin = begin_of(k, q);
    return std::min(bytes_, begin + piece_) - begin;
  }

  RingTransfer& transfer_;
  Combiner& combiner_;
  const void* input_;
  void* output_;
  DataType type_;
  ReduceKernel kernel_;
  std::size_t width_;
  std::size_t bytes_;
  std::size_t piece_;
};

void RingReductions::all_reduce(ConstBuffer input, void* output, DataType type, ReduceKernel kernel) {
  const Announcement& mine = transfer_.arrival().of(transfer_.rank());
  if (mine.is_inline != 0) {
    const int me = transfer_.rank();
    for (int r = 0; r < transfer_.size(); ++r) source(r) = r == me ? input.data : transfer_.arrival().inline_data(r);
    const bool streaming = input.count * element_size(type) >= kStreamingBytes;
    if (input.count > 0) combiner_.combine(kernel, type, output, input.count, streaming);
    return;
  }
  AllReduce steps(transfer_, combiner_, input, output, type, kernel);
  const std::uint64_t count = mine.slots;
  for (std::uint64_t step = 0; step < count + 2; ++step) {
    if (step < count) steps.contribute(step);
    if (step >= 1 && step - 1 < count) steps.combine_own(step - 1);
    if (step >= 2) steps.collect(step - 2);
  }
}

void RingReductions::reduce(ConstBuffer input, void* output, int root, DataType type, ReduceKernel kernel) {
  const std::size_t width = element_size(type);
  const std::size_t bytes = input.count * width;
  const Arrival& arrival = transfer_.arrival();
  if (transfer_.rank() != root) {
    transfer_.release_everything();
    for (std::uint64_t k = 0; k < arrival.of(transfer_.rank()).slots; ++k) transfer_.write_whole(input.data, bytes, k);
    return;
  }
  source(root) = input.data;
  const std::uint64_t steps = transfer_.most_slots();
  if (steps == 0) {
    for (int i = 1; i < transfer_.size(); ++i) source(transfer_.peer(i)) = arrival.inline_data(transfer_.peer(i));
    combiner_.combine(kernel, type, output, input.count, false);
    return;
  }
  const std::size_t piece = arrival.of(transfer_.peer(1)).piece;
  for (std::uint64_t k = 0; k < steps; ++k) {
    const std::size_t begin = k * piece;
    for (int i = 1; i < transfer_.size(); ++i) source(transfer_.peer(i)) = transfer_.ring().filled(transfer_.peer(i), k);
    source(root) = moved(input.data, begin);
    combiner_.combine(kernel, type, moved(output, begin), std::min(piece, bytes - begin) / width, bytes >= kStreamingBytes);
    for (int i = 1; i < transfer_.size(); ++i) transfer_.ring().release(transfer_.peer(i), k + 1);
  }
}

void RingReductions::reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, ReduceKernel kernel) {
  const Announcement& mine = transfer_.arrival().of(transfer_.rank());
  const int me = transfer_.rank();
  const ConstBuffer& own = inputs[static_cast<std::size_t>(me)];
  const std::size_t width = element_size(type);
  const std::size_t bytes = output.count * width;
  source(me) = own.data;
  if (mine.is_inline != 0) {
    std::size_t before = 0;
    for (int r = 0; r < me; ++r) before += inputs[static_cast<std::size_t>(r)].count * width;
    for (int i = 1; i < transfer_.size(); ++i) {
      const int writer = transfer_.peer(i);
      // A writer leaves its own part out.
      const std::size_t skipped = writer < me ? inputs[static_cast<std::size_t>(writer)].count * width : 0;
      source(writer) = transfer_.arrival().inline_data(writer) + before - skipped;
    }
  }
  if (mine.slots == 0) {  // inline, one rank, or nothing at all
    if (bytes > 0) combiner_.combine(kernel, type, output.data, output.count, mine.is_inline == 0 && bytes >= kStreamingBytes);
    return;
  }
  if (bytes == 0) {
    transfer_.release_everything();
  }
  const std::size_t piece = mine.piece;  // the same on all ranks
  RingTransfer::pipeline(
      mine.slots, mine.slots, [&](std::uint64_t k) { transfer_.write_parts(inputs, width, k); },
      [&](std::uint64_t k) {
        const std::size_t begin = k * piece;
        if (begin >= bytes) return;
        for (int i = 1; i < transfer_.size(); ++i) {
          const int writer = transfer_.peer(i);
          source(writer) = transfer_.ring().filled(writer, k) + transfer_.region(writer, me) * piece;
        }
        source(me) = moved(own.data, begin);
        combiner_.combine(kernel, type, moved(output.data, begin), std::min(piece, bytes - begin) / width, bytes >= kStreamingBytes);
        for (int i = 1; i < transfer_.size(); ++i) {
          const int writer = transfer_.peer(i);
          if (begin + piece < bytes) {
            transfer_.ring().release(writer, k + 1);
          } else {
            transfer_.ring().release_all(writer);
          }
        }
      });
}

}  // namespace neuron::collectives
