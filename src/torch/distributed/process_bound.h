// Objects that work in one process only, because threads of theirs do. A forked child has the objects but not the threads: it may not use
// them, and destroying them would wait for ever (a condition variable for its waiters). So there they are left as they are.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/shm/process_identity.h"

namespace neuron::distributed {

class ProcessBound {
 public:
  // Whether this process is a forked child of the one that made the object.
  [[nodiscard]] bool inherited() const noexcept { return generation_ != collectives::fork_generation(); }
  // Raises RuntimeError if it is.
  void check_not_inherited() const {
    TORCH_CHECK(!inherited(),
                "this process group belongs to the parent process: a forked child cannot use it. Use the 'spawn' start method, and make a "
                "group in the child");
  }

 private:
  std::uint64_t generation_ = collectives::fork_generation();
};

// A shared object that is destroyed by the process that made it only.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_process_bound(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* object) {
    if (!object->inherited()) {
      delete object;
    }
  });
}

}  // namespace neuron::distributed
