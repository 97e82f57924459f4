// Scalar samplers of distributions that need a varying number of random words: gamma, Poisson, binomial. Each element has a stream of its
// own.
#pragma once

#include <cstdint>

#include "kernels/random/random_stream.h"

namespace neuron::kernels {

// The random words of one element of a stream: as many as it asks for, independent of every other element and of the bulk fills of the same
// stream.
class SampleStream {
 public:
  SampleStream(RandomStream stream, std::uint64_t element) noexcept;

  std::uint64_t bits64() noexcept;
  // In the open interval (0, 1), a multiple of 2^-53.
  double uniform() noexcept;
  double normal() noexcept;

 private:
  PhiloxCounter counter_;
  PhiloxKey key_;
  PhiloxCounter words_{};
  int used_ = 4;
  double spare_normal_ = 0;
  bool has_spare_ = false;
};

// Gamma(shape, 1), Marsaglia and Tsang (2000). shape <= 0 gives 0, NaN gives NaN.
double sample_gamma(SampleStream& random, double shape) noexcept;
// The logarithm of a Gamma(shape, 1) variate: finite where the variate itself underflows, as it does for small shapes.
double sample_log_gamma(SampleStream& random, double shape) noexcept;

// Poisson(rate), Hoermann's PTRS (1993) for rate >= 10, else products of uniforms. rate must be >= 0; NaN gives NaN.
double sample_poisson(SampleStream& random, double rate) noexcept;

// Binomial(count, probability), Hoermann's BTRS (1993) where the mean is >= 10, else waiting times. Arguments are clamped to count >= 0 and
// probability in [0, 1]; a NaN probability gives NaN.
double sample_binomial(SampleStream& random, double count, double probability) noexcept;

}  // namespace neuron::kernels
