// The handle of one operation of a process group.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "torch/distributed/process_bound.h"

namespace neuron::distributed {

class WorkNeuron;

// Whoever carries works out. A thread that waits for a work lends itself to the driver.
class WorkDriver : public ProcessBound {
 public:
  virtual ~WorkDriver() = default;
  using Deadline = std::chrono::steady_clock::time_point;
  // Returns when the work is complete (true) or the deadline has passed (false). May run works of the driver on the calling thread.
  virtual bool wait_for(const WorkNeuron& work, Deadline deadline) = 0;
  // Ends all works of the group, here and on the other ranks.
  virtual void abort(const std::string& why) noexcept = 0;
};

class WorkNeuron : public c10d::Work {
 public:
  // `outputs` are what result() and the future hold; `held` stay alive until the operation is over.
  WorkNeuron(std::shared_ptr<WorkDriver> driver, int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs,
             std::vector<at::Tensor> held);

  bool isCompleted() override { return done_.load(std::memory_order_acquire); }
  bool isSuccess() const override;
  // Raises the operation's error. With a timeout, raises when the operation takes longer than that; it goes on regardless.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }
  void abort() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  int sourceRank() const override { return source_rank_; }
  float getDuration() const override;

  bool completed() const noexcept { return done_.load(std::memory_order_acquire); }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  void set_source_rank(int rank) { source_rank_ = rank; }
  void mark_started() { started_ = std::chrono::steady_clock::now(); }
  // Ends the work, once, and runs what hangs on its future. No lock of the driver may be held: callbacks may run Python.
  void complete(std::exception_ptr error = nullptr);

 private:
  void complete_future(c10::ivalue::Future& future) const;

  std::shared_ptr<WorkDriver> driver_;
  std::uint64_t sequence_ = 0;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> held_;
  std::atomic<bool> done_{false};
  int source_rank_ = -1;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point finished_;
  // Made when somebody asks; guarded by the base's mutex.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace neuron::distributed
