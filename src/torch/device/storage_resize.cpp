// See storage_resize.h.
#include "torch/device/storage_resize.h"

#include <algorithm>
#include <cstring>

#include "runtime/guard/access_scope.h"
#include "torch/device/device_allocator.h"

namespace neuron::device {

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const auto kept = std::min(bytes, storage.nbytes());
  auto memory = device_allocator().allocate_on(storage.device().index(), bytes);
  if (kept > 0 && storage.data() != nullptr) {
    const runtime::guard::AccessScope access;
    std::memcpy(memory.mutable_get(), storage.data(), kept);
  }
  // Not set_data_ptr, which would first copy a lazily cloned storage whose bytes are about to be dropped.
  storage.set_data_ptr_noswap(std::move(memory));
  storage.clear_materializer();
  storage.set_nbytes(bytes);
}

}  // namespace neuron::device
