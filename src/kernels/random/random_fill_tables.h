// The implementations of the random fills, one translation unit each. Only the dispatcher may call them, after asking the CPU.
#pragma once

#include "kernels/random/random_fill.h"

namespace neuron::kernels {

const RandomFill& random_fill_generic() noexcept;
const RandomFill& random_fill_avx2() noexcept;
const RandomFill& random_fill_avx512() noexcept;

}  // namespace neuron::kernels
