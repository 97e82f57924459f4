// Python bindings of the allocators' figures. Reading them does not start the runtime: a core that was never used has zeros.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <utility>

#include "runtime/current_device.h"
#include "runtime/memory/caching_allocator.h"
#include "runtime/memory/snapshot.h"
#include "runtime/memory/stats.h"
#include "runtime/runtime.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/python_call.h"

namespace neuron::bindings {
namespace {

using pybind11::dict;
using runtime::AllocatorStats;
using runtime::CachingAllocator;
using runtime::Runtime;

// Calls `function` with the allocator of a core, or returns `otherwise` when nothing was allocated in this process yet.
template <typename Result, typename Function>
Result with_allocator(int device, Result otherwise, Function function) {
  return without_gil([&]() -> Result {
    runtime::check_device(device);
    Runtime& runtime = Runtime::instance();
    return runtime.initialized() ? function(runtime.allocator(device)) : std::move(otherwise);
  });
}

dict to_dict(const runtime::Stat& stat) {
  dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

dict to_dict(const runtime::StatGroup& group) {
  dict result;
  result["all"] = to_dict(group.all);
  result["small_pool"] = to_dict(group.small);
  result["large_pool"] = to_dict(group.large);
  return result;
}

// Names as in PyTorch's other allocators.
constexpr std::array<std::pair<const char*, runtime::StatGroup AllocatorStats::*>, 9> kGroups{{
    {"allocated_bytes", &AllocatorStats::allocated_bytes},
    {"reserved_bytes", &AllocatorStats::reserved_bytes},
    {"active_bytes", &AllocatorStats::active_bytes},
    {"requested_bytes", &AllocatorStats::requested_bytes},
    {"inactive_split_bytes", &AllocatorStats::inactive_split_bytes},
    {"allocation", &AllocatorStats::allocations},
    {"segment", &AllocatorStats::segments},
    {"active", &AllocatorStats::active_blocks},
    {"inactive_split", &AllocatorStats::inactive_split_blocks},
}};

dict memory_stats(int device) {
  const auto stats = with_allocator(device, AllocatorStats{}, [](CachingAllocator& allocator) { return allocator.stats(); });
  dict result;
  for (const auto& [name, group] : kGroups) {
    result[name] = to_dict(stats.*group);
  }
  result["num_alloc_retries"] = stats.num_alloc_retries;
  result["num_ooms"] = stats.num_ooms;
  result["num_tensor_frees"] = stats.num_tensor_frees;
  result["allocation_requests"] = stats.allocation_requests;
  return result;
}

const char* state_name(runtime::BlockState state) {
  switch (state) {
    case runtime::BlockState::kAllocated:
      return "active_allocated";
    case runtime::BlockState::kPendingFree:
      return "active_awaiting_free";
    default:
      return "inactive";
  }
}

dict to_dict(const runtime::BlockInfo& block) {
  dict result;
  result["address"] = block.address;
  result["size"] = block.size;
  result["requested_size"] = block.requested;
  result["state"] = state_name(block.state);
  result["frames"] = pybind11::list();
  return result;
}

// The form that PyTorch's memory visualizer reads.
dict to_dict(const runtime::SegmentInfo& segment, int device) {
  pybind11::list blocks;
  for (const runtime::BlockInfo& block : segment.blocks) {
    blocks.append(to_dict(block));
  }
  dict result;
  result["device"] = device;
  result["address"] = segment.address;
  result["total_size"] = segment.size;
  result["allocated_size"] = segment.allocated;
  result["active_size"] = segment.active;
  result["requested_size"] = segment.requested;
  result["stream"] = segment.blocks.empty() ? 0 : segment.blocks.front().stream;
  result["segment_type"] = segment.pool == runtime::PoolKind::kSmall ? "small" : "large";
  result["segment_pool_id"] = pybind11::make_tuple(0, 0);
  result["is_expandable"] = false;
  result["frames"] = pybind11::list();
  result["blocks"] = blocks;
  return result;
}

pybind11::list memory_snapshot(int device) {
  const auto snapshot = with_allocator(device, runtime::Snapshot{}, [](CachingAllocator& allocator) { return allocator.snapshot(); });
  pybind11::list segments;
  for (const runtime::SegmentInfo& segment : snapshot.segments) {
    segments.append(to_dict(segment, device));
  }
  return segments;
}

std::pair<std::size_t, std::size_t> memory_info(int device) {
  const std::size_t total = without_gil([&] {
    runtime::check_device(device);
    return Runtime::instance().topology().cores()[static_cast<std::size_t>(device)].memory_bytes;
  });
  return with_allocator(device, std::pair{total, total},
                        [](CachingAllocator& allocator) { return std::pair{allocator.free_bytes(), allocator.total_bytes()}; });
}

dict fragmentation(int device) {
  const auto figures =
      with_allocator(device, runtime::Fragmentation{}, [](CachingAllocator& allocator) { return allocator.fragmentation(); });
  dict result;
  result["free_bytes"] = figures.free_bytes;
  result["largest_free_block"] = figures.largest_free_block;
  result["ratio"] = figures.ratio();
  return result;
}

}  // namespace

void register_memory_bindings(pybind11::module_& m) {
  m.def("memory_stats", &memory_stats);
  m.def("memory_snapshot", &memory_snapshot);
  m.def("memory_info", &memory_info);
  m.def("memory_fragmentation", &fragmentation);
  m.def("reset_peak_memory_stats",
        [](int device) { with_allocator(device, 0, [](CachingAllocator& allocator) { return allocator.reset_peak_stats(), 0; }); });
  m.def("reset_accumulated_memory_stats",
        [](int device) { with_allocator(device, 0, [](CachingAllocator& allocator) { return allocator.reset_accumulated_stats(), 0; }); });
  m.def("empty_cache", [](int device) {
    return with_allocator(device, std::size_t{0}, [](CachingAllocator& allocator) { return allocator.empty_cache(); });
  });
}

}  // namespace neuron::bindings
