// Composition of the out-of-memory messages.
#include "runtime/memory/out_of_memory.h"

#include <array>
#include <cstdio>

namespace neuron::runtime {

std::string format_bytes(std::size_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024.0;
  if (bytes < kKiB) {
    return std::to_string(bytes) + " bytes";
  }
  double value = static_cast<double>(bytes) / kStep;
  std::size_t unit = 0;
  while (value >= kStep && unit + 1 < kUnits.size()) {
    value /= kStep;
    ++unit;
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

std::string out_of_device_memory_text(int device, std::size_t requested, std::size_t total, const AllocatorStats& stats) {
  const auto allocated = static_cast<std::size_t>(stats.allocated_bytes.all.current);
  const auto reserved = static_cast<std::size_t>(stats.reserved_bytes.all.current);
  std::string text = "Neuron out of memory. Tried to allocate " + format_bytes(requested) + " on neuron:" + std::to_string(device);
  text += ", which has " + format_bytes(total) + " of HBM, of which " + format_bytes(total - reserved) + " is free. ";
  text += "Tensors use " + format_bytes(allocated) + " (allocated); the allocator holds " + format_bytes(reserved) + " (reserved), so " +
          format_bytes(reserved - allocated) + " is cached but too small or too scattered for this request. ";
  text += "Neuron OOM: requested_size=" + std::to_string(requested) + " total_hbm=" + std::to_string(total) + " (NRT_RESOURCE). ";
  text +=
      "Use a smaller batch or shorter sequences, free tensors and call torch.neuron.empty_cache(), spread the model over more cores, "
      "or choose an instance type with more memory per core (SOFTNEURON_INSTANCE_TYPE).";
  return text;
}

std::string out_of_host_memory_text(int device, std::size_t requested, const AllocatorStats& stats) {
  const auto reserved = static_cast<std::size_t>(stats.reserved_bytes.all.current);
  return "The host ran out of memory: it refused to map " + format_bytes(requested) + " for neuron:" + std::to_string(device) +
         ". The device's HBM is not exhausted (" + format_bytes(reserved) +
         " reserved), but it is simulated with host memory. Free host memory, raise the process's limit (ulimit -v, container limit), or "
         "use a smaller model.";
}

}  // namespace neuron::runtime
