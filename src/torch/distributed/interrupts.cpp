// See interrupts.h.
#include "torch/distributed/interrupts.h"

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace neuron::distributed {

void check_interrupt() {
  thread_local const bool main_thread = syscall(SYS_gettid) == getpid();
  if (!main_thread || Py_IsInitialized() == 0) {
    return;
  }
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw pybind11::error_already_set();
  }
}

void InterruptChecks::run_if_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < due_) {
    return;
  }
  due_ = now + kInterval;
  lock_.unlock();
  check_interrupt();
  lock_.lock();
}

}  // namespace neuron::distributed
