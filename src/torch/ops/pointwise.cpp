// Addition and multiplication of plain operands (float or bfloat16, same shape and layout, or a Python number), which most small calls are:
// setting up PyTorch's TensorIterator costs more than the arithmetic. Everything else takes the alias path.
#include "kernels/pointwise/pointwise.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/zero_cpu_dispatch.h>

#include <cstring>
#include <type_traits>

#include "torch/ops/alias_kernel.h"
#include "torch/ops/native.h"

namespace neuron::ops {
namespace {

constexpr int64_t kGrain = 32768;  // elements; PyTorch's own grain for element-wise work

struct Add {
  // As on the CPU: a sum rounds a Python number to the tensor's dtype first, a product takes it in float32.
  static constexpr bool kRoundsNumber = true;
  template <typename T, typename Other>
  static void run(T* out, const T* a, Other b, int64_t n) {
    kernels::add(out, a, b, n);
  }
};
struct Multiply {
  static constexpr bool kRoundsNumber = false;
  template <typename T, typename Other>
  static void run(T* out, const T* a, Other b, int64_t n) {
    kernels::multiply(out, a, b, n);
  }
};

// Whether a result with the tensor's own strides has contiguous ones: is_contiguous() overlooks the strides of dimensions of size 1.
bool has_contiguous_strides(const at::Tensor& tensor) {
  int64_t expected = 1;
  for (auto dim = tensor.dim() - 1; dim >= 0; --dim) {
    if (tensor.strides()[dim] != expected) {
      return false;
    }
    expected *= tensor.sizes()[dim];
  }
  return expected != 0;
}

// Second operand: another array, or one number for all elements.
struct Operand {
  const void* array = nullptr;
  float number = 0;
};

// The operand that `other` is for the fast path, if it can take it.
std::optional<Operand> plain_operand(const at::Tensor& self, const at::Tensor& other) {
  const auto dtype = self.scalar_type();
  if ((dtype != at::kFloat && dtype != at::kBFloat16) || !self.is_privateuseone() || !self.is_contiguous() || self.is_conj() ||
      self.is_neg()) {
    return std::nullopt;
  }
  if (other.is_privateuseone()) {
    if (self.device() == other.device() && same_layout(self, other)) {
      return Operand{.array = other.const_data_ptr()};
    }
    return std::nullopt;
  }
  // A Python number arrives as a wrapped CPU scalar: double, int64 or bool.
  const auto* impl = other.unsafeGetTensorImpl();
  if (!impl->is_wrapped_number() || self.unsafeGetTensorImpl()->is_wrapped_number()) {
    return std::nullopt;
  }
  switch (other.scalar_type()) {
    case at::kDouble:
      return Operand{.number = static_cast<float>(*other.const_data_ptr<double>())};
    case at::kLong:
      return Operand{.number = static_cast<float>(*other.const_data_ptr<int64_t>())};
    default:
      return std::nullopt;
  }
}

template <typename Operation, typename T>
void run(void* out, const void* a, const Operand& b, int64_t n) {
  const auto range = [&](int64_t begin, int64_t end) {
    auto* to = static_cast<T*>(out) + begin;
    const auto* from = static_cast<const T*>(a) + begin;
    if (b.array != nullptr) {
      Operation::run(to, from, static_cast<const T*>(b.array) + begin, end - begin);
    } else {
      Operation::run(to, from, b.number, end - begin);
    }
  };
  if (n <= kGrain) {
    range(0, n);
  } else {
    at::parallel_for(0, n, kGrain, range);
  }
}

template <typename Operation>
void run(const at::Tensor& out, const at::Tensor& a, const Operand& b) {
  if (a.scalar_type() == at::kFloat) {
    run<Operation, float>(out.mutable_data_ptr(), a.const_data_ptr(), b, a.numel());
  } else {
    Operand operand = b;
    if constexpr (Operation::kRoundsNumber) {
      operand.number = c10::BFloat16(operand.number);
    }
    run<Operation, kernels::BFloat16>(out.mutable_data_ptr(), a.const_data_ptr(), operand, a.numel());
  }
}

template <typename Operation>
std::optional<at::Tensor> try_binary(const at::Tensor& self, const at::Tensor& other) {
  const auto operand = plain_operand(self, other);
  // With a number the CPU keeps the order of all strides, also of those that do not matter.
  if (!operand || (operand->array == nullptr && !has_contiguous_strides(self))) {
    return std::nullopt;
  }
  auto out = empty_on(self.sizes(), self.scalar_type(), self.device().index());
  run<Operation>(out, self, *operand);
  return out;
}

template <typename Operation>
bool try_binary_in_place(at::Tensor& self, const at::Tensor& other) {
  const auto operand = plain_operand(self, other);
  // Arrays of one storage may overlap in part, which the CPU path reports.
  if (!operand || (operand->array != nullptr && self.is_alias_of(other) && !self.is_same(other))) {
    return false;
  }
  run<Operation>(self, self, *operand);
  return true;
}

bool is_one(const at::Scalar& alpha) { return !alpha.isComplex() && alpha.equal(1); }

}  // namespace

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (is_one(alpha)) {
    if (auto sum = try_binary<Add>(self, other)) {
      return *std::move(sum);
    }
  }
  return AliasCall<static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&)>(&at::cpu::add)>::call(self, other,
                                                                                                                              alpha);
}

at::Tensor& add_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (is_one(alpha) && try_binary_in_place<Add>(self, other)) {
    return self;
  }
  return AliasCall<static_cast<at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Scalar&)>(&at::cpu::add_)>::call(self, other,
                                                                                                                          alpha);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  if (auto product = try_binary<Multiply>(self, other)) {
    return *std::move(product);
  }
  return AliasCall<&at::cpu::mul>::call(self, other);
}

at::Tensor& mul_(at::Tensor& self, const at::Tensor& other) {
  if (try_binary_in_place<Multiply>(self, other)) {
    return self;
  }
  return AliasCall<&at::cpu::mul_>::call(self, other);
}

at::Tensor& zero_(at::Tensor& self) {
  if (!self.is_non_overlapping_and_dense()) {
    return AliasCall<&at::cpu::zero_>::call(self);
  }
  auto* bytes = static_cast<char*>(self.mutable_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(self.nbytes()), int64_t{1} << 20,
                   [&](int64_t begin, int64_t end) { std::memset(bytes + begin, 0, end - begin); });
  return self;
}

}  // namespace neuron::ops
