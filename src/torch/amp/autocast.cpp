// Autocast for the device: the operators and policies of CUDA's autocast, for torch.autocast("neuron").
//
// The lists come from ATen/autocast_mode.h, so they follow the torch that we are built for. CUDA's list also has cuDNN's own operators,
// which only exist for CUDA. This is the one file that must include all of ATen (the header does).
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace neuron::amp {
namespace {

// Names that the header's lists use unqualified.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

Tensor banned_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the layer before them runs in a lower "
              "precision and may "
              "round a probability to exactly 0 or 1.\n"
              "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead (they include the sigmoid "
              "and are safe to "
              "autocast), or disable autocast around the loss and give it float32 inputs.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define NEURON_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NEURON_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NEURON_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER_PRECISION)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"), &banned_binary_cross_entropy);
}

}  // namespace
}  // namespace neuron::amp
