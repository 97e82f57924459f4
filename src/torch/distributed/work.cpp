// See work.h.
#include "torch/distributed/work.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

namespace neuron::distributed {
namespace {

// The cores that tensors are on, as the future wants to know them.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) {
    if (tensor.is_privateuseone() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  return devices;
}

}  // namespace

WorkNeuron::WorkNeuron(std::shared_ptr<WorkDriver> driver, int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs,
                       std::vector<at::Tensor> held)
    : Work(rank, type, title, held),
      driver_(std::move(driver)),
      outputs_(std::move(outputs)),
      held_(std::move(held)),
      started_(std::chrono::steady_clock::now()) {}

bool WorkNeuron::isSuccess() const { return completed() && exception() == nullptr; }

bool WorkNeuron::wait(std::chrono::milliseconds timeout) {
  if (!completed()) {
    driver_->check_not_inherited();
    const auto deadline = timeout.count() <= 0 ? WorkDriver::Deadline::max() : std::chrono::steady_clock::now() + timeout;
    if (!driver_->wait_for(*this, deadline)) {
      C10_THROW_ERROR(DistBackendError, c10::str("wait(): ", c10d::opTypeToString(opType_), ", sequence number ", sequence_,
                                                 ", is not complete after ", timeout.count(), " ms"));
    }
  }
  if (const auto error = exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

void WorkNeuron::abort() {
  if (!driver_->inherited()) {
    driver_->abort("abort() was called on a work of this rank");
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFuture() {
  std::unique_lock lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices_of(outputs_));
    if (completed_) {
      const auto future = future_;
      lock.unlock();
      complete_future(*future);
      return future;
    }
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  getFuture()->addCallback([result](c10::ivalue::Future& future) {
    result->markCompleted(static_cast<int64_t>(future.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS));
  });
  return result;
}

float WorkNeuron::getDuration() const {
  TORCH_CHECK(completed(), "the duration of an operation is known when it is complete");
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

void WorkNeuron::complete(std::exception_ptr error) {
  finished_ = std::chrono::steady_clock::now();
  held_.clear();
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    exception_ = std::move(error);
    completed_ = true;
    future = future_;
    if (recordFunctionEndCallback_) {
      recordFunctionEndCallback_();
      recordFunctionEndCallback_ = nullptr;
    }
  }
  done_.store(true, std::memory_order_release);
  cv_.notify_all();
  if (future) {
    complete_future(*future);
  }
}

void WorkNeuron::complete_future(c10::ivalue::Future& future) const {
  if (const auto error = exception()) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

}  // namespace neuron::distributed
