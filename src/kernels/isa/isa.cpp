// See isa.h.
#include "kernels/isa/isa.h"

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace neuron::kernels {
namespace {

constexpr std::array<std::string_view, 4> kNames{"generic", "avx2", "avx512", "avx512_bf16"};

bool machine_runs(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kGeneric:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return machine_runs(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Bf16:
      return machine_runs(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return isa == Isa::kGeneric;
}

Isa choose() {
  const auto available = available_isas();
  const char* forced = std::getenv("TORCH_NEURONX_ISA");
  if (forced == nullptr) {
    return available.back();
  }
  std::string known;
  for (const Isa isa : available) {
    if (isa_name(isa) == forced) {
      return isa;
    }
    known += std::string(known.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  throw std::invalid_argument("TORCH_NEURONX_ISA='" + std::string(forced) +
                              "': expected an instruction set that this machine has: " + known);
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept { return kNames[static_cast<std::size_t>(isa)]; }

std::vector<Isa> available_isas() {
  std::vector<Isa> available;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (machine_runs(isa)) {
      available.push_back(isa);
    }
  }
  return available;
}

Isa current_isa() {
  static const Isa chosen = choose();
  return chosen;
}

}  // namespace neuron::kernels
