// What the random operators share: taking numbers from a generator, and writing a tensor in the order of its elements on several threads.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>

#include "kernels/random/random_fill.h"
#include "kernels/random/random_stream.h"

namespace neuron::ops {

// Takes `count` elements of the generator's stream, or of the default generator of `device` when none is given. Locks the generator.
// Throws when the generator belongs to another device, or `device` is not a core: a neuron generator given with a host tensor brings calls
// here.
kernels::RandomStream take_stream(const std::optional<at::Generator>& generator, c10::Device device, std::int64_t count);

// Throws unless all tensors are on one core. Their kernels read memory directly, so a host tensor would pass unnoticed.
void check_same_device(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors);

// Work is cut into tiles of this many elements: whole vectors for every instruction set, and buffers that stay in the L1 cache.
inline constexpr std::int64_t kRandomTile = 1024;

// Calls body(begin, end) for tiles that together cover [0, count), on several threads. `tiles_per_thread` is how much is worth a thread of
// its own.
template <class Body>
void for_each_tile(std::int64_t count, const Body& body, std::int64_t tiles_per_thread = 16) {
  const std::int64_t tiles = (count + kRandomTile - 1) / kRandomTile;
  at::parallel_for(0, tiles, tiles_per_thread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t tile = first; tile < last; ++tile) body(tile * kRandomTile, std::min(count, (tile + 1) * kRandomTile));
  });
}

// Calls fill(begin, end, out) to write elements [begin, end) of `self`, numbered in row-major order whatever its strides are.
template <class T, class Fill>
void fill_elements(const at::Tensor& self, const Fill& fill, std::int64_t tiles_per_thread = 16) {
  if (!self.is_contiguous()) {
    at::assert_no_internal_overlap(self);
    const at::Tensor staging = at::empty(self.sizes(), self.options().memory_format(at::MemoryFormat::Contiguous));
    fill_elements<T>(staging, fill, tiles_per_thread);
    self.copy_(staging);
    return;
  }
  T* out = static_cast<T*>(self.mutable_data_ptr());
  for_each_tile(self.numel(), [&](std::int64_t begin, std::int64_t end) { fill(begin, end, out + begin); }, tiles_per_thread);
}

// As fill_elements, through numbers of type Source: draw(begin, end, Source*) makes them and convert(Source) gives the element.
template <class T, class Source, class Draw, class Convert>
void fill_converted(const at::Tensor& self, const Draw& draw, const Convert& convert) {
  fill_elements<T>(self, [&](std::int64_t begin, std::int64_t end, T* out) {
    Source buffer[kRandomTile];
    draw(begin, end, buffer);
    for (std::int64_t i = 0; i < end - begin; ++i) out[i] = convert(buffer[i]);
  });
}

}  // namespace neuron::ops
