// One work for everything that was issued between startCoalescing() and endCoalescing().
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace neuron::distributed {

class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Waits for all; then raises the first error.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }
  void abort() override;
  std::vector<at::Tensor> result() override;
  // Of the results of all, in the order of issue.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace neuron::distributed
