// mm, addmm, bmm, baddbmm (functional, out=, in place) by our own matrix kernels, where the CPU's kernel would give the same but for
// rounding and takes longer. Everything else, every error included, is the CPU's kernel on aliases.
#include "kernels/matmul/matmul.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/kernel_choice.h"
#include "torch/ops/native.h"
#include "torch/threads/torch_threads.h"

namespace neuron::ops {
namespace {

// Whether a tensor's bytes are its elements, and it is on the device and of the type of `first`.
bool joins(const at::Tensor& tensor, const at::Tensor& first) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return tensor.defined() && impl->is_privateuseone() && impl->layout() == at::kStrided && impl->dtype() == first.dtype() &&
         !impl->is_neg() && !impl->is_conj() && impl->device() == first.device() && !impl->_is_zerotensor();
}

// The last two dimensions, and the one before as the batch.
kernels::MatrixView view_of(const at::Tensor& tensor) {
  const auto strides = tensor.strides();
  const auto dims = strides.size();
  return {tensor.const_data_ptr(), strides[dims - 2], strides[dims - 1], dims == 3 ? strides[0] : 0};
}

// alpha * (a @ b) + beta * addend as a problem of the kernels; `dims` is 2 or 3 (batches). Nothing if it is for the CPU's kernel.
std::optional<kernels::Matmul> problem_of(const at::Tensor& a, const at::Tensor& b, int64_t dims) {
  const auto type = kernel_type(a.scalar_type());
  if (!type || a.dim() != dims || b.dim() != dims || !joins(a, a) || !joins(b, a)) {
    return std::nullopt;
  }
  const auto a_sizes = a.sizes();
  const auto b_sizes = b.sizes();
  if (a_sizes[dims - 1] != b_sizes[dims - 2] || (dims == 3 && a_sizes[0] != b_sizes[0])) {
    return std::nullopt;
  }
  kernels::Matmul problem;
  problem.batch = dims == 3 ? a_sizes[0] : 1;
  problem.m = a_sizes[dims - 2];
  problem.n = b_sizes[dims - 1];
  problem.k = a_sizes[dims - 1];
  problem.type = problem.c_type = *type;
  problem.a = view_of(a);
  problem.b = view_of(b);
  if (!choice::kMatmul.wins(problem.type, problem.m * problem.n * problem.k)) {
    return std::nullopt;
  }
  return problem;
}

// Adds beta * addend, expanded to [batch, m, n]. False if it does not fit or has another type.
bool set_addend(kernels::Matmul& problem, const at::Tensor& addend, const at::Tensor& a, const at::Scalar& beta, const at::Scalar& alpha) {
  if (!joins(addend, a) || beta.isComplex() || alpha.isComplex() || addend.dim() > a.dim()) {
    return false;
  }
  const int64_t sizes[] = {problem.batch, problem.m, problem.n};
  int64_t strides[] = {0, 0, 0};
  for (int64_t dim = 0; dim < addend.dim(); ++dim) {
    const auto to = 3 - addend.dim() + dim;
    if (addend.sizes()[dim] == sizes[to]) {
      strides[to] = addend.strides()[dim];
    } else if (addend.sizes()[dim] != 1) {
      return false;
    }
  }
  problem.epilogue.scale = alpha.to<float>();
  // Without it, NaN of the addend do not matter.
  if (beta.to<float>() != 0) {
    problem.epilogue.addend = {{addend.const_data_ptr(), strides[1], strides[2], strides[0]}, problem.type, beta.to<float>()};
  }
  return true;
}

// Whether `out` is a place for the result as it is: no resizing, no overlap of elements or with what is read.
bool can_write(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const kernels::Matmul& problem) {
  if (!joins(out, a) || out.dim() != a.dim() || !out.is_non_overlapping_and_dense() || out.is_alias_of(a) || out.is_alias_of(b)) {
    return false;
  }
  const auto sizes = out.sizes();
  return sizes[sizes.size() - 2] == problem.m && sizes[sizes.size() - 1] == problem.n && (sizes.size() == 2 || sizes[0] == problem.batch);
}

// `out` may be the addend itself.
void run(kernels::Matmul& problem, const at::Tensor& out) {
  problem.c = out.mutable_data_ptr();
  const auto view = view_of(out);
  problem.c_row_stride = view.row_stride;
  problem.c_column_stride = view.column_stride;
  problem.c_batch_stride = view.batch_stride;
  kernels::matmul(problem, device::torch_threads());
}

at::Tensor run(kernels::Matmul& problem, const at::Tensor& a, int64_t dims) {
  const int64_t sizes[] = {problem.batch, problem.m, problem.n};
  auto out = empty_on(at::IntArrayRef(sizes + 3 - dims, dims), a.scalar_type(), a.device().index());
  run(problem, out);
  return out;
}

std::optional<at::Tensor> try_product(const at::Tensor& a, const at::Tensor& b, int64_t dims) {
  auto problem = problem_of(a, b, dims);
  return problem ? std::optional(run(*problem, a, dims)) : std::nullopt;
}

bool try_product_out(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, int64_t dims) {
  auto problem = problem_of(a, b, dims);
  if (!problem || !can_write(out, a, b, *problem)) {
    return false;
  }
  run(*problem, out);
  return true;
}

std::optional<at::Tensor> try_sum(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                                  const at::Scalar& alpha, int64_t dims) {
  auto problem = problem_of(a, b, dims);
  return problem && set_addend(*problem, self, a, beta, alpha) ? std::optional(run(*problem, a, dims)) : std::nullopt;
}

bool try_sum_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
                 const at::Tensor& out, int64_t dims) {
  auto problem = problem_of(a, b, dims);
  if (!problem || !can_write(out, a, b, *problem) || (out.is_alias_of(self) && !out.is_same(self)) ||
      !set_addend(*problem, self, a, beta, alpha)) {
    return false;
  }
  run(*problem, out);
  return true;
}

using SumFunction = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&);
using SumInPlace = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&);

}  // namespace

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  if (auto product = try_product(self, mat2, 2)) {
    return *std::move(product);
  }
  return AliasCall<&at::cpu::mm>::call(self, mat2);
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  if (try_product_out(self, mat2, out, 2)) {
    return out;
  }
  return AliasCall<&at::cpu::mm_outf>::call(self, mat2, out);
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  if (auto product = try_product(self, mat2, 3)) {
    return *std::move(product);
  }
  return AliasCall<&at::cpu::bmm>::call(self, mat2);
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  if (try_product_out(self, mat2, out, 3)) {
    return out;
  }
  return AliasCall<&at::cpu::bmm_outf>::call(self, mat2, out);
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  if (auto sum = try_sum(self, mat1, mat2, beta, alpha, 2)) {
    return *std::move(sum);
  }
  return AliasCall<static_cast<SumFunction>(&at::cpu::addmm)>::call(self, mat1, mat2, beta, alpha);
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  if (try_sum_out(self, mat1, mat2, beta, alpha, self, 2)) {
    return self;
  }
  return AliasCall<static_cast<SumInPlace>(&at::cpu::addmm_)>::call(self, mat1, mat2, beta, alpha);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  if (try_sum_out(self, mat1, mat2, beta, alpha, out, 2)) {
    return out;
  }
  return AliasCall<&at::cpu::addmm_outf>::call(self, mat1, mat2, beta, alpha, out);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  if (auto sum = try_sum(self, batch1, batch2, beta, alpha, 3)) {
    return *std::move(sum);
  }
  return AliasCall<static_cast<SumFunction>(&at::cpu::baddbmm)>::call(self, batch1, batch2, beta, alpha);
}

at::Tensor& baddbmm_(at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                     const at::Scalar& alpha) {
  if (try_sum_out(self, batch1, batch2, beta, alpha, self, 3)) {
    return self;
  }
  return AliasCall<static_cast<SumInPlace>(&at::cpu::baddbmm_)>::call(self, batch1, batch2, beta, alpha);
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                        const at::Scalar& alpha, at::Tensor& out) {
  if (try_sum_out(self, batch1, batch2, beta, alpha, out, 3)) {
    return out;
  }
  return AliasCall<&at::cpu::baddbmm_outf>::call(self, batch1, batch2, beta, alpha, out);
}

}  // namespace neuron::ops
