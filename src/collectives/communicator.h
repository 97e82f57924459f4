// A communicator: the blocking collective operations of one group of ranks on plain memory. Implementations: shared_memory_communicator.h
// (ranks on one host) and torch/distributed/hierarchical_communicator.h (several hosts: shared memory within, Gloo between).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/types.h"

namespace neuron::collectives {

// What a rank is about to do. Every rank of the group publishes its call before data moves; ranks whose calls do not fit together all throw
// Error(kMismatch) with a text that names ranks, collective, sequence number, shapes and dtypes.
struct Call {
  std::uint64_t sequence = 0;            // number of this collective in its group, counted by the caller
  std::chrono::milliseconds timeout{0};  // 0: do not wait (fails at once unless everybody is there)
  std::span<const std::int64_t> shape;   // of the input tensor, for messages
};

// Thread-safety: calls of one communicator are serialised by the caller (collectives in their order); `abort` may come from any thread.
// All functions return when this rank's output is complete and its input may be overwritten. Input and output may be the same memory where
// the ranges are equal (in place); partial overlap is undefined. Reductions add in rank order 0, 1, ..., n-1, the same on every rank, for
// every chunk and from run to run, so that results have the same bits everywhere; float16, bfloat16 and float8 accumulate in float32 and
// are rounded once. Errors: Error(kMismatch) as above; Error(kTimeout) naming ranks that have not arrived; Error(kPeerDied) naming ranks
// that are gone; Error(kAborted) after abort(). After any of them the communicator is broken: each later call throws the first error again.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  virtual void all_reduce(ConstBuffer input, void* output, DataType type, Reduction reduction, const Call& call) = 0;
  virtual void reduce(ConstBuffer input, void* output, int root, DataType type, Reduction reduction,
                      const Call& call) = 0;  // output: root only
  virtual void broadcast(Buffer data, int root, DataType type, const Call& call) = 0;
  // outputs[r] receives rank r's input; counts may differ from rank to rank (each rank passes the same list of counts).
  virtual void all_gather(ConstBuffer input, std::span<const Buffer> outputs, DataType type, const Call& call) = 0;
  // inputs[r] is this rank's contribution to rank r's output; counts may differ from rank to rank.
  virtual void reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, Reduction reduction, const Call& call) = 0;
  // inputs[r] goes to rank r; outputs[r] comes from rank r.
  virtual void all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, DataType type, const Call& call) = 0;
  virtual void gather(ConstBuffer input, std::span<const Buffer> outputs, int root, DataType type,
                      const Call& call) = 0;  // outputs: root only
  virtual void scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, DataType type,
                       const Call& call) = 0;  // inputs: root only
  virtual void barrier(const Call& call) = 0;

  // Makes every current and later call on this rank, and waiting ones on the others, end with Error(kAborted). Any thread.
  virtual void abort(const std::string& why) noexcept = 0;

  // Point-to-point messages, matched by (source, tag) in order; independent of the collectives and of their serialisation: one thread at a
  // time.
  virtual class Mailbox& mailbox() = 0;
};

// Non-blocking point-to-point traffic of one rank.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  using Ticket = std::uint64_t;
  static constexpr int kAnySource = -1;

  // The memory must stay valid until the ticket is done. Bytes, since sender and receiver may view them differently (as NCCL and Gloo
  // allow); a message of another size than the receive expects is Error(kMismatch) on both sides.
  virtual Ticket post_send(int destination, int tag, const void* data, std::size_t bytes) = 0;
  virtual Ticket post_receive(int source, int tag, void* data, std::size_t bytes) = 0;  // source may be kAnySource
  // Moves whatever can be moved without waiting; returns whether anything moved.
  virtual bool progress() = 0;
  // Done tickets report their source once and are forgotten; throws the ticket's error.
  virtual std::optional<int> finished(Ticket ticket) = 0;
  // Sleeps until progress() may succeed, or the time has passed.
  virtual void wait(std::chrono::milliseconds at_most) = 0;
};

}  // namespace neuron::collectives
