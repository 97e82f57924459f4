// The switch of the memory guard (docs/guard.md) and the scopes in which device memory may be touched.
#pragma once

namespace neuron::runtime::guard {
namespace detail {

// Set once, while the process loads, before any device memory exists.
extern constinit bool active_flag;

void enter() noexcept;
void leave() noexcept;

}  // namespace detail

// Whether SOFTNEURON_GUARD=1.
inline bool active() noexcept { return detail::active_flag; }

// Device memory may be touched by the thread that holds one, and by threads that work for it. Scopes nest. A scope must end on the thread
// that opened it. Costs a predictable branch when the guard is off.
class AccessScope {
 public:
  AccessScope() noexcept {
    if (active()) [[unlikely]] {
      detail::enter();
    }
  }
  ~AccessScope() {
    if (active()) [[unlikely]] {
      detail::leave();
    }
  }
  AccessScope(const AccessScope&) = delete;
  AccessScope& operator=(const AccessScope&) = delete;
};

// Turns the guard on for the life of the process; installs the fault handler. To be called before device memory is allocated. Reports go to
// standard error and, unless `report_path` is null, to the end of that file.
void activate(const char* report_path = nullptr) noexcept;

}  // namespace neuron::runtime::guard
