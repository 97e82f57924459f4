// See ring_movements.h.
#include "collectives/ring_movements.h"

#include <algorithm>
#include <cstdint>

#include "collectives/copy.h"

namespace neuron::collectives {
namespace {

std::size_t total_bytes(std::span<const Buffer> buffers, std::size_t width) noexcept {
  std::size_t total = 0;
  for (const Buffer& buffer : buffers) total += buffer.count * width;
  return total;
}

}  // namespace

const std::byte* RingMovements::inline_part(int writer, std::size_t width) const noexcept {
  std::size_t before = 0;
  for (int r = 0; r < transfer_.rank(); ++r) before += r == writer ? 0 : transfer_.arrival().sends(writer)[r];
  return transfer_.arrival().inline_data(writer) + before * width;
}

void RingMovements::broadcast(Buffer data, int root, std::size_t width) {
  const std::size_t bytes = data.count * width;
  const bool streaming = bytes >= kStreamingBytes;
  RingTransfer::pipeline(
      transfer_.arrival().of(transfer_.rank()).slots, std::max<std::uint64_t>(transfer_.most_slots(), 1),
      [&](std::uint64_t k) { transfer_.write_whole(data.data, bytes, k); },
      [&](std::uint64_t k) {
        if (transfer_.rank() != root) transfer_.read_whole(root, data.data, bytes, k, streaming);
      });
}

void RingMovements::all_gather(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width) {
  const Announcement& mine = transfer_.arrival().of(transfer_.rank());
  const std::size_t bytes = input.count * width;
  const bool streaming = total_bytes(outputs, width) >= kStreamingBytes;
  void* const own = outputs[static_cast<std::size_t>(transfer_.rank())].data;
  RingTransfer::pipeline(
      mine.slots, std::max<std::uint64_t>(transfer_.most_slots(), 1),
      [&](std::uint64_t k) {
        const std::size_t begin = k * mine.piece;
        transfer_.write_whole(input.data, bytes, k);
        if (own != input.data) {
          // From the slot: it is in the cache.
          copy(moved(own, begin), transfer_.own_slot(k), std::min<std::size_t>(mine.piece, bytes - begin), streaming);
        }
      },
      [&](std::uint64_t k) {
        for (int i = 1; i < transfer_.size(); ++i) {
          const int writer = transfer_.peer(i);
          const Buffer& output = outputs[static_cast<std::size_t>(writer)];
          transfer_.read_whole(writer, output.data, output.count * width, k, streaming);
        }
      });
}

void RingMovements::gather(ConstBuffer input, std::span<const Buffer> outputs, int root, std::size_t width) {
  const std::uint64_t slots = transfer_.arrival().of(transfer_.rank()).slots;
  const std::size_t bytes = input.count * width;
  if (transfer_.rank() != root) {
    transfer_.release_everything();
    for (std::uint64_t k = 0; k < slots; ++k) transfer_.write_whole(input.data, bytes, k);
    return;
  }
  const bool streaming = total_bytes(outputs, width) >= kStreamingBytes;
  void* const own = outputs[static_cast<std::size_t>(root)].data;
  if (own != input.data) copy(own, input.data, bytes, streaming);
  for (std::uint64_t k = 0; k < std::max<std::uint64_t>(transfer_.most_slots(), 1); ++k) {
    for (int i = 1; i < transfer_.size(); ++i) {
      const int writer = transfer_.peer(i);
      const Buffer& output = outputs[static_cast<std::size_t>(writer)];
      transfer_.read_whole(writer, output.data, output.count * width, k, streaming);
    }
  }
}

void RingMovements::all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, std::size_t width) {
  const bool streaming = total_bytes(outputs, width) >= kStreamingBytes;
  const auto me = static_cast<std::size_t>(transfer_.rank());
  if (outputs[me].data != inputs[me].data) copy(outputs[me].data, inputs[me].data, inputs[me].count * width, streaming);
  for (int i = 1; i < transfer_.size(); ++i) {
    const int writer = transfer_.peer(i);
    const Buffer& output = outputs[static_cast<std::size_t>(writer)];
    if (transfer_.arrival().of(writer).is_inline != 0) {
      copy(output.data, inline_part(writer, width), output.count * width, false);
    } else if (output.count == 0) {
      transfer_.ring().release_all(writer);
    }
  }
  RingTransfer::pipeline(
      transfer_.arrival().of(transfer_.rank()).slots, transfer_.most_slots(),
      [&](std::uint64_t k) { transfer_.write_parts(inputs, width, k); },
      [&](std::uint64_t k) {
        for (int i = 1; i < transfer_.size(); ++i) {
          const int writer = transfer_.peer(i);
          const Buffer& output = outputs[static_cast<std::size_t>(writer)];
          if (transfer_.arrival().of(writer).slots > 0) transfer_.read_part(writer, output.data, output.count * width, k, streaming);
        }
      });
}

void RingMovements::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, std::size_t width) {
  const std::size_t bytes = output.count * width;
  const bool streaming = bytes >= kStreamingBytes;
  const Announcement& roots = transfer_.arrival().of(root);
  if (transfer_.rank() == root) {
    const void* const own = inputs[static_cast<std::size_t>(root)].data;
    if (own != output.data) copy(output.data, own, bytes, streaming);
    for (std::uint64_t k = 0; k < roots.slots; ++k) transfer_.write_parts(inputs, width, k);
    return;
  }
  if (roots.is_inline != 0) {
    copy(output.data, inline_part(root, width), bytes, false);
  } else if (bytes == 0) {
    transfer_.ring().release_all(root);
  }
  for (std::uint64_t k = 0; k < roots.slots; ++k) transfer_.read_part(root, output.data, bytes, k, streaming);
}

}  // namespace neuron::collectives
