// Bulk random numbers: fills of index ranges of a stream, vectorised for the instruction set of this machine with the same bits on every
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/random/random_stream.h"

namespace neuron::kernels {

// Every function writes elements [begin, end) of `stream` to out[0, end - begin). Callers split a stream over threads at any index they
// like; a split at a multiple of 64 keeps all the work in full vectors.
struct RandomFill {
  const char* isa;

  // 32 and 64 uniform random bits per element.
  void (*bits32)(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint32_t* out);
  void (*bits64)(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint64_t* out);

  // x * scale + shift, x a multiple of 2^-24 (2^-53) in [0, 1); results above `upper` become `upper`.
  // `digits` (1 to 24) reduces x to a multiple of 2^-digits: what a narrower type can hold without rounding up to 1.
  void (*uniform32)(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float scale, float shift, float upper,
                    int digits);
  void (*uniform64)(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double scale, double shift, double upper);

  // mean + std * z, z standard normal (Box-Muller over the pairs of a block); tails reach 6.6 (float) and 8.5 (double) standard deviations.
  void (*normal32)(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float mean, float std);
  void (*normal64)(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double mean, double std);

  // -log(u) * scale, u in (0, 1]; positive for every positive scale that does not underflow: the smallest -log(u) is 2^-33 (2^-54).
  // Resolved with 32 (53) bits near 0.
  void (*exponential32)(RandomStream stream, std::uint64_t begin, std::uint64_t end, float* out, float scale);
  void (*exponential64)(RandomStream stream, std::uint64_t begin, std::uint64_t end, double* out, double scale);

  // 1 with probability p in [0, 1], else 0. Probabilities within 2^-8 of 0 or 1 are resolved with 64 bits, others with 32.
  void (*bernoulli)(RandomStream stream, std::uint64_t begin, std::uint64_t end, std::uint8_t* out, double p);
};

// The fastest implementation that this machine runs.
const RandomFill& random_fill() noexcept;

// All implementations that this machine runs, the portable one first: tests compare them bit by bit.
std::vector<const RandomFill*> random_fill_implementations();

}  // namespace neuron::kernels
