// The threads that a kernel may use, as its caller lends them: kernels start none and know neither OpenMP nor PyTorch.
#pragma once

#include <cstdint>

#include "kernels/function_ref.h"

namespace neuron::kernels {

class Threads {
 public:
  // Called once by each member, with its number in [0, count) and the size of the team.
  using Body = FunctionRef<void(int member, int count)>;

  virtual ~Threads() = default;

  // The size of the largest team that run() may gather now, at least 1. A hint for choosing a partition: run() may gather fewer, so a
  // body divides its work by the `count` that it is given.
  [[nodiscard]] virtual int count() const noexcept = 0;

  // Runs `body` once on each member of a team and returns when all have finished; what they wrote is then visible to the caller, which
  // is member 0 of the team. The same member is the same thread in each call, as far as the caller's pool allows. Members run at the
  // same time only if there are threads for all: a body must not wait for another member. An exception of a member is rethrown here.
  virtual void run(Body body) = 0;
};

// A team of the calling thread alone. Stateless: any number of threads may use it at once.
Threads& single_thread() noexcept;

// The part of [0, total) that belongs to one member: contiguous, in order of members, cut at multiples of `unit`.
struct Share {
  std::int64_t begin;
  std::int64_t end;
};
inline Share share_of(std::int64_t total, std::int64_t unit, int member, int count) noexcept {
  const auto units = (total + unit - 1) / unit;
  const auto begin = units * member / count * unit;
  const auto end = units * (member + 1) / count * unit;
  return {begin < total ? begin : total, end < total ? end : total};
}

}  // namespace neuron::kernels
