// See cpu_allocator_hook.h.
#include "torch/device/cpu_allocator_hook.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "torch/device/device_allocator.h"

namespace neuron::device {
namespace {

// The allocator that was in force before the hook.
c10::Allocator* previous_allocator = nullptr;

// Frees what raw_allocate() gave, which may be device memory (taken inside a scope) or the previous allocator's. oneDNN keeps such memory
// across calls, so a scope being open now says nothing about where a pointer came from.
void delete_raw(void* data) {
  if (block_at(data) != nullptr) {
    delete_block(data);
  } else {
    previous_allocator->raw_deleter()(data);
  }
}

// Memory carries its own deleter, so blocks that were made before the hook was installed, or by the previous allocator since, are freed as
// ever.
class CpuAllocatorHook final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto target = device_allocation_target();
    if (target >= 0) [[unlikely]] {
      return allocate_as_cpu(target, bytes);
    }
    return previous_allocator->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return previous_allocator->raw_deleter() == nullptr ? nullptr : &delete_raw; }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override {
    return pointer.get_deleter() == &delete_block ? pointer.get() == pointer.get_context()
                                                  : previous_allocator->is_simple_data_ptr(pointer);
  }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    previous_allocator->copy_data(destination, source, bytes);
  }
};

}  // namespace

void install_cpu_allocator_hook() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    constexpr std::uint8_t kHighestPriority = 255;
    previous_allocator = c10::GetCPUAllocator();
    // Never freed: CPU storages hold pointers to it until the process ends.
    c10::SetCPUAllocator(new CpuAllocatorHook(), kHighestPriority);
  });
}

}  // namespace neuron::device
