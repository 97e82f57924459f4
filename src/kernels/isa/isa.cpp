// See isa.h.
#include "kernels/isa/isa.h"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace neuron::kernels {
namespace {

constexpr std::array<std::string_view, 5> kNames{"generic", "avx2", "avx512", "avx512_bf16", "amx"};

// Linux gives the 8 KiB of tile registers to a process that asks for them; threads and forked children have them too.
bool tiles_permitted() {
#if defined(__linux__) && defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16Tiles = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16Tiles) == 0 || (d & kTiles) == 0) {
    return false;
  }
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

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
    case Isa::kAmx: {
      static const bool permitted = tiles_permitted();
      return machine_runs(Isa::kAvx512Bf16) && permitted;
    }
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
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
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
