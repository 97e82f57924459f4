// What kernels ask of this machine's caches.
#pragma once

namespace neuron::kernels {

// Ways of the first level data cache; 8 if the system does not tell.
int first_level_ways() noexcept;

}  // namespace neuron::kernels
