// See coalesced_work.h.
#include "torch/distributed/coalesced_work.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace neuron::distributed {

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) {
      return error;
    }
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr first;
  for (const auto& work : works_) {
    try {
      work->wait(timeout);
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
  return true;
}

void CoalescedWork::abort() {
  for (const auto& work : works_) {
    work->abort();
  }
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> tensors;
  for (const auto& work : works_) {
    const auto part = work->result();
    tensors.insert(tensors.end(), part.begin(), part.end());
  }
  return tensors;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  std::vector<c10::Device> devices;
  for (const auto& tensor : result()) {
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  if (works_.empty()) {
    future->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
    return future;
  }
  const auto left = std::make_shared<std::atomic<std::size_t>>(works_.size());
  const auto self = c10::intrusive_ptr<CoalescedWork>::unsafe_reclaim_from_nonowning(this);
  for (const auto& work : works_) {
    work->getFuture()->addCallback([future, left, self](c10::ivalue::Future&) {
      if (left->fetch_sub(1) != 1) {
        return;
      }
      if (auto error = self->exception()) {
        future->setError(error);
      } else {
        future->markCompleted(c10::IValue(self->result()));
      }
    });
  }
  return future;
}

}  // namespace neuron::distributed
