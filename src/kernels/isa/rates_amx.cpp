// The rate of AMX tiles.
#include "kernels/isa/rates_tables.h"
#include "kernels/isa/tiles.h"

namespace neuron::kernels {
namespace {

// Four sums hide the latency of a product.
void run_tile_rounds(std::int64_t rounds) {
  const TileRegisters registers;
  clear_tile_sums<2, 2>();
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

}  // namespace

Rate bf16_tile_rate_amx() { return {&run_tile_rounds, 4 * kTileHeight * kTileWords * 2 * kTileWords}; }

}  // namespace neuron::kernels
