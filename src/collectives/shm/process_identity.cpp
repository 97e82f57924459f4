// Process identity, refreshed in the child of a fork.
#include "collectives/shm/process_identity.h"

#include <pthread.h>
#include <sys/random.h>

#include <atomic>
#include <random>

namespace neuron::collectives {
namespace {

std::atomic<std::uint64_t> generation{0};
std::atomic<std::uint64_t> token{0};

void register_once() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    generation.fetch_add(1, std::memory_order_relaxed);
    token.store(0, std::memory_order_relaxed);
  });
}

}  // namespace

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(bits))) {
    std::random_device device;
    bits = (static_cast<std::uint64_t>(device()) << 32) | device();
  }
  return bits;
}

std::uint64_t process_token() {
  register_once();
  std::uint64_t current = token.load(std::memory_order_relaxed);
  if (current == 0) {
    const std::uint64_t fresh = random_bits() | 1;
    current = token.compare_exchange_strong(current, fresh) ? fresh : current;
  }
  return current;
}

std::uint64_t fork_generation() {
  register_once();
  return generation.load(std::memory_order_relaxed);
}

}  // namespace neuron::collectives
