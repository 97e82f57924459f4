// The operator with which compiled programs move tensors to another device without changing how they lie in memory.
//
// `Tensor.to` makes a dense tensor of its own of everything. What a graph promises of its results, and what `as_strided` reads of its
// inputs, is more: strides, offsets, elements between, and which tensors share memory.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace neuron::compile {
namespace {

at::Tensor over(const c10::Storage& storage, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView unnoticed;  // a new tensor's version is 0
  at::Tensor tensor = at::empty({0}, options);
  tensor.set_(storage, offset, sizes, strides);
  return tensor;
}

// The bytes [first, first + count) of a storage, copied to a storage of their own.
c10::Storage copy_bytes(const at::Tensor& tensor, std::int64_t first, std::int64_t count, const c10::Device& device) {
  at::Tensor copy = at::empty({count}, at::TensorOptions(at::kByte).device(device));
  copy.copy_(over(tensor.storage(), first, {count}, {1}, tensor.options().dtype(at::kByte)));
  return copy.storage();
}

// From a tensor's first to its last element, both included; 0 if it has none. Strides are never negative.
std::int64_t span(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.numel() == 0 ? 0 : last + 1;
}

at::Tensor like(const at::Tensor& tensor, const c10::Storage& storage, std::int64_t offset) {
  at::Tensor copy = over(storage, offset, tensor.sizes(), tensor.strides(), tensor.options().device(storage.device()));
  copy._set_conj(tensor.is_conj());
  copy._set_neg(tensor.is_neg());
  return copy;
}

// Copies the tensors, of any strides and devices, to `device`. With `whole`, each storage is copied once and as a whole: the results have
// the offsets of the originals, share memory as they do, and those that do count versions together. Without, each tensor gets memory of its
// own, from its first to its last element. Undefined tensors stay; those without plain strides are converted by `Tensor.to`.
std::vector<at::Tensor> copy_storages(at::TensorList tensors, c10::Device device, bool whole) {
  std::unordered_map<const c10::StorageImpl*, at::Tensor> first_of;  // by original storage, its first result
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      copies.emplace_back();
    } else if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor._is_zerotensor() || tensor.is_meta()) {
      copies.push_back(tensor.to(device));
    } else if (!whole) {
      const auto size = static_cast<std::int64_t>(tensor.itemsize());
      copies.push_back(like(tensor, copy_bytes(tensor, tensor.storage_offset() * size, span(tensor) * size, device), 0));
    } else if (const auto known = first_of.find(tensor.storage().unsafeGetStorageImpl()); known != first_of.end()) {
      copies.push_back(like(tensor, known->second.storage(), tensor.storage_offset()));
      if (!copies.back().is_inference() && !known->second.is_inference()) {
        copies.back().unsafeGetTensorImpl()->set_version_counter(known->second.unsafeGetTensorImpl()->version_counter());
      }
    } else {
      const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
      copies.push_back(like(tensor, copy_bytes(tensor, 0, bytes, device), tensor.storage_offset()));
      first_of.emplace(tensor.storage().unsafeGetStorageImpl(), copies.back());
    }
  }
  return copies;
}

// The schema says that memory is shared (among the results, in fact): AOTAutograd warns of operators whose results do without saying so.
TORCH_LIBRARY(softneuron, library) {
  library.def("copy_storages(Tensor(a)[] tensors, Device device, bool whole) -> Tensor(a)[]", &copy_storages);
}

}  // namespace
}  // namespace neuron::compile
