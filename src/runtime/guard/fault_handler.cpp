// See fault_handler.h. Runs inside a signal handler: fixed buffers, no allocation.
#include "runtime/guard/fault_handler.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/guard/access_scope.h"

namespace neuron::runtime::guard {
namespace {

constinit std::atomic<int> report_file{-1};
constinit struct sigaction previous_action{};
// While an earlier handler runs on this thread: it may raise the signal again.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool chaining = false;

void write_all(const char* text, std::size_t size) noexcept {
  for (const int file : {STDERR_FILENO, report_file.load(std::memory_order_relaxed)}) {
    for (std::size_t done = 0; file >= 0 && done < size;) {
      const auto count = ::write(file, text + done, size - done);
      if (count <= 0) {
        break;
      }
      done += static_cast<std::size_t>(count);
    }
  }
}

[[gnu::format(printf, 1, 2)]] void print(const char* format, ...) noexcept {
  char text[1024];
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (length > 0) {
    write_all(text, std::min(static_cast<std::size_t>(length), sizeof(text) - 1));
  }
}

const char* or_none(const char* name) noexcept { return *name == '\0' ? "none" : name; }

void print_operators() noexcept {
  char running[512];
  describe_running_operators(running, sizeof(running));
  print("  operator: %s\n", or_none(running));
  if (*running == '\0') {
    print("  last operator of this thread: %s\n", or_none(last_operator().data()));
  }
}

void print_stack() noexcept {
  constexpr int kFrames = 32;
  void* frames[kFrames];
  const int count = ::backtrace(frames, kFrames);
  print("  stack:\n");
  ::backtrace_symbols_fd(frames, count, STDERR_FILENO);
  if (const int file = report_file.load(std::memory_order_relaxed); file >= 0) {
    ::backtrace_symbols_fd(frames, count, file);
  }
}

void print_block(const std::byte* data, std::size_t bytes, int device, const OperatorName& allocated_by) noexcept {
  print("  block: %zu bytes at %p of neuron:%d, allocated by %s\n", bytes, static_cast<const void*>(data), device,
        or_none(allocated_by.data()));
}

// Where `address` lies, seen from a block.
void print_place(const void* address, const std::byte* data, std::size_t bytes) noexcept {
  const auto at = static_cast<const std::byte*>(address);
  if (at < data) {
    print("  place: %td bytes before its begin\n", data - at);
  } else if (at >= data + bytes) {
    print("  place: %td bytes after its last byte\n", at - (data + bytes) + 1);
  } else {
    print("  place: byte %td of it\n", at - data);
  }
}

const char* direction(const void* context) noexcept {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;  // bit of the page-fault error code
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kWrite) != 0 ? "write" : "read";
#else
  return "access";
#endif
}

const char* verdict(Fault kind) noexcept {
  switch (kind) {
    case Fault::kStray:
      return "host access to device memory outside kernels and copies";
    case Fault::kOverrun:
      return "access beyond a block of device memory";
    case Fault::kFreed:
      return "access to device memory that was freed";
    case Fault::kNoPages:
      return "the host refuses to open device memory (too many mappings, see vm.max_map_count)";
    default:
      return "memory fault while the guard was busy";
  }
}

void report(const FaultInfo& fault, const void* address, const void* context) noexcept {
  print("\nsoftneuron guard: %s\n  %s at %p, thread %ld\n", verdict(fault.kind), direction(context), address, ::syscall(SYS_gettid));
  print_operators();
  if (fault.data != nullptr) {
    print_block(fault.data, fault.bytes, fault.device, fault.allocated_by);
    print_place(address, fault.data, fault.bytes);
  }
  if (fault.kind == Fault::kFreed) {
    print("  freed by: %s\n", or_none(fault.freed_by.data()));
  }
  print_stack();
}

void die_by_default(int signal) noexcept {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  // Pending until the handler returns, unless the signal is not blocked.
  ::raise(signal);
}

// Hands the signal to the handler that was there before; that of Python's faulthandler prints the Python stack and raises the signal again.
void chain(int signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction earlier = previous_action;
  if (chaining || (earlier.sa_flags & SA_SIGINFO) == 0) {
    if (chaining || earlier.sa_handler == SIG_DFL || earlier.sa_handler == SIG_IGN) {
      die_by_default(signal);
      return;
    }
  }
  chaining = true;
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    earlier.sa_sigaction(signal, info, context);
  } else {
    earlier.sa_handler(signal);
  }
  chaining = false;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // A code of 0 or less means that somebody sent the signal: there is no address.
  const FaultInfo fault = info->si_code > 0 && !chaining ? resolve_fault(info->si_addr) : FaultInfo{};
  if (fault.kind != Fault::kOpened) {
    if (fault.kind != Fault::kForeign) {
      report(fault, info->si_addr, context);
      chain(signal, info, context);
      die_by_default(signal);
    } else {
      chain(signal, info, context);
    }
  }
  errno = saved_errno;
}

}  // namespace

void claim_fault_handler() noexcept {
  struct sigaction current{};
  ::sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == &on_fault) {
    return;
  }
  const std::lock_guard guard(ranges_lock());
  ::sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == &on_fault) {
    return;
  }
  previous_action = current;
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, nullptr);
}

void open_report_file(const char* path) noexcept {
  report_file.store(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), std::memory_order_relaxed);
}

void report_damage(const Range& range, const std::byte* where) noexcept {
  print("\nsoftneuron guard: bytes next to a block of device memory were overwritten\n  found at the end of a kernel, thread %ld\n",
        ::syscall(SYS_gettid));
  print_operators();
  print_block(range.data, range.bytes, range.device, range.allocated_by);
  print_place(where, range.data, range.bytes);
  print_stack();
  std::abort();
}

void activate(const char* report_path) noexcept {
  if (active()) {
    return;
  }
  if (report_path != nullptr) {
    open_report_file(report_path);
  }
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads the unwinder now rather than in the signal handler
  claim_fault_handler();
  detail::active_flag = true;
}

}  // namespace neuron::runtime::guard
