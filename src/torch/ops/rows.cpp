// Operators that move whole rows of contiguous tensors: index_select along the first dimension (hence embedding) and cat.
// Here a call is a few memory copies; everything else takes the alias path.
#include <ATen/Parallel.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/index_select_cpu_dispatch.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/native.h"

namespace neuron::ops {
namespace {

constexpr int64_t kParallelBytes = int64_t{1} << 18;

bool plain(const at::Tensor& tensor) {
  return tensor.is_privateuseone() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

int64_t product(at::IntArrayRef sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

template <typename Index>
void copy_rows(char* to, const char* from, const Index* rows, int64_t count, int64_t row_bytes, int64_t row_limit) {
  const auto grain = std::max(int64_t{1}, kParallelBytes / std::max(int64_t{1}, row_bytes));
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto row = static_cast<int64_t>(rows[i]);
      TORCH_CHECK_INDEX(row >= 0 && row < row_limit, "index out of range in self");
      std::memcpy(to + i * row_bytes, from + row * row_bytes, row_bytes);
    }
  });
}

// Copies `part`, seen as [outer, width], into its columns of `out`, seen as [outer, out_width]. Widths in bytes.
void copy_columns(char* out, int64_t out_width, const char* part, int64_t width, int64_t outer) {
  if (width == out_width) {
    std::memcpy(out, part, outer * width);
    return;
  }
  for (int64_t i = 0; i < outer; ++i) {
    std::memcpy(out + i * out_width, part + i * width, width);
  }
}

// The result of a cat of plain tensors of one shape (but for `dim`), dtype and core that is small enough for one thread; else nothing.
std::optional<at::Tensor> try_cat(const at::ITensorListRef& tensors, int64_t dim) {
  const at::Tensor* first = nullptr;
  int64_t length = 0;
  for (const at::Tensor& tensor : tensors) {
    if (first == nullptr) {
      first = &tensor;
      if (!plain(tensor) || dim < -tensor.dim() || dim >= tensor.dim()) {
        return std::nullopt;
      }
      dim = dim < 0 ? dim + tensor.dim() : dim;
    } else if (!plain(tensor) || tensor.dim() != first->dim() || tensor.scalar_type() != first->scalar_type() ||
               tensor.device() != first->device()) {
      return std::nullopt;
    }
    for (int64_t i = 0; i < first->dim(); ++i) {
      if (i != dim && tensor.sizes()[i] != first->sizes()[i]) {
        return std::nullopt;
      }
    }
    length += tensor.sizes()[dim];
  }
  if (first == nullptr) {
    return std::nullopt;
  }
  c10::SmallVector<int64_t, 5> sizes(first->sizes().begin(), first->sizes().end());
  sizes[dim] = length;
  const auto outer = product(at::IntArrayRef(sizes).slice(0, dim));
  const auto inner_bytes = product(at::IntArrayRef(sizes).slice(dim + 1)) * static_cast<int64_t>(first->element_size());
  if (outer * length * inner_bytes > kParallelBytes) {
    return std::nullopt;
  }
  auto out = empty_on(sizes, first->scalar_type(), first->device().index());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    const auto width = tensor.sizes()[dim] * inner_bytes;
    if (width != 0 && outer != 0) {
      copy_columns(to, length * inner_bytes, static_cast<const char*>(tensor.const_data_ptr()), width, outer);
      to += width;
    }
  }
  return out;
}

}  // namespace

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const bool rows = dim == 0 && self.dim() >= 1 && self.sizes()[0] != 0 && plain(self) && plain(index) && index.dim() == 1 &&
                    index.device() == self.device() && (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
  if (!rows) {
    return AliasCall<&at::cpu::index_select>::call(self, dim, index);
  }
  c10::SmallVector<int64_t, 5> sizes(self.sizes().begin(), self.sizes().end());
  sizes[0] = index.sizes()[0];
  auto out = empty_on(sizes, self.scalar_type(), self.device().index());
  const auto row_bytes = product(self.sizes().slice(1)) * static_cast<int64_t>(self.element_size());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const auto* from = static_cast<const char*>(self.const_data_ptr());
  if (index.scalar_type() == at::kLong) {
    copy_rows(to, from, index.const_data_ptr<int64_t>(), sizes[0], row_bytes, self.sizes()[0]);
  } else {
    copy_rows(to, from, index.const_data_ptr<int32_t>(), sizes[0], row_bytes, self.sizes()[0]);
  }
  return out;
}

at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  if (auto joined = try_cat(tensors, dim)) {
    return *std::move(joined);
  }
  return AliasCall<&at::cpu::cat>::call(tensors, dim);
}

}  // namespace neuron::ops
