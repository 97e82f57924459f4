// See sparse_sum.h. As Gloo does it: all ranks gather the entries of all, then each adds them up.
#include "torch/distributed/sparse_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/error.h"
#include "torch/distributed/data_types.h"

namespace neuron::distributed {
namespace {

using collectives::Buffer;
using collectives::Communicator;

// The pieces of all ranks along dimension 0, of which rank r has rows[r].
at::Tensor gather(Communicator& communicator, const collectives::Call& call, const at::Tensor& mine, const std::vector<int64_t>& rows) {
  auto shape = mine.sizes().vec();
  shape[0] = 0;
  for (const int64_t count : rows) shape[0] += count;
  at::Tensor all = at::empty(shape, mine.options());
  auto* place = static_cast<char*>(all.mutable_data_ptr());
  const int64_t row = c10::multiply_integers(shape.begin() + 1, shape.end());
  std::vector<Buffer> outputs;
  for (const int64_t count : rows) {
    outputs.push_back({place, static_cast<std::size_t>(count * row)});
    place += static_cast<std::size_t>(count * row) * all.element_size();
  }
  communicator.all_gather({mine.const_data_ptr(), static_cast<std::size_t>(mine.numel())}, outputs, to_data_type(mine.scalar_type()), call);
  return all;
}

// How many entries each rank has; all must agree on the rest.
std::vector<int64_t> entries_of_all(Communicator& communicator, const collectives::Call& call, const at::Tensor& mine) {
  constexpr std::size_t kMostDimensions = 32;
  constexpr std::size_t kFields = 4 + kMostDimensions;
  if (static_cast<std::size_t>(mine.dim()) > kMostDimensions) {
    throw collectives::Error(collectives::ErrorCode::kInvalidArgument, "all_reduce of a sparse tensor of more than 32 dimensions");
  }
  std::vector<int64_t> own(kFields);
  own[0] = mine._nnz();
  own[1] = mine.sparse_dim();
  own[2] = mine.dense_dim();
  own[3] = static_cast<int64_t>(mine.scalar_type());
  std::copy(mine.sizes().begin(), mine.sizes().end(), own.begin() + 4);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<int64_t> all(ranks * kFields);
  std::vector<Buffer> outputs;
  for (std::size_t r = 0; r < ranks; ++r) outputs.push_back({all.data() + r * kFields, kFields});
  communicator.all_gather({own.data(), kFields}, outputs, collectives::DataType::kInt64, call);
  std::vector<int64_t> entries;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto theirs = all.begin() + static_cast<std::ptrdiff_t>(r * kFields);
    if (!std::equal(own.begin() + 1, own.end(), theirs + 1)) {
      throw collectives::Error(collectives::ErrorCode::kMismatch,
                               "sparse tensors of the same dtype, sizes and sparse dimensions are needed, but rank " + std::to_string(r) +
                                   " has others than rank " + std::to_string(communicator.rank()));
    }
    entries.push_back(*theirs);
  }
  return entries;
}

}  // namespace

void sum_sparse(Communicator& communicator, const collectives::Call& call, const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor mine = tensor.coalesce();
  const auto entries = entries_of_all(communicator, call, mine);
  // Entries are columns of the indices, but rows of the values.
  const at::Tensor indices = gather(communicator, call, mine._indices().t().contiguous(), entries);
  const at::Tensor values = gather(communicator, call, mine._values().contiguous(), entries);
  tensor.copy_(at::_sparse_coo_tensor_unsafe(indices.t(), values, tensor.sizes()).coalesce());
}

}  // namespace neuron::distributed
