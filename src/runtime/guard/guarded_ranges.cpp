// See guarded_ranges.h.
#include "runtime/guard/guarded_ranges.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/guard/access_scope.h"
#include "runtime/guard/fault_handler.h"
#include "runtime/memory/size_class.h"

namespace neuron::runtime::guard {
namespace {

constexpr std::size_t kAlignment = 64;  // of PyTorch's CPU memory, on which kernels may rely
constexpr std::byte kPattern{0xA5};
constexpr int kMapping = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
// How much is remembered of the freed blocks: a dangling pointer is found within that many later frees. Addresses only, no memory.
constexpr std::size_t kQuarantineRanges = 16384;
constexpr std::size_t kQuarantineBytes = std::size_t{64} << 30;

struct ThreadAccess {
  Range* opened = nullptr;  // blocks that this thread's scope has opened
  std::uint32_t depth = 0;
  bool has_entered = false;  // a thread that opens scopes of its own is nobody's worker
};

// Read by the signal handler, hence never initialised on first use.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadAccess access_of_thread;

// Scopes of all threads, outermost ones only.
constinit std::atomic<int> threads_inside{0};

struct Ranges {
  SpinLock lock;
  std::map<std::uintptr_t, std::unique_ptr<Range>> by_address;  // by the start of the reserved addresses
  Range* opened_by_workers = nullptr;
  Range* oldest_freed = nullptr;
  Range* newest_freed = nullptr;
  std::size_t freed_count = 0;
  std::size_t freed_bytes = 0;
};

Ranges& ranges() {
  static auto& instance = *new Ranges;  // leaked: nothing runs at exit
  return instance;
}

std::uintptr_t number(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

bool protect(const Range& range, int protection) noexcept { return mprotect(range.pages, range.size, protection) == 0; }

void link(Range*& head, Range& range) noexcept {
  range.next = head;
  if (head != nullptr) {
    head->link = &range.next;
  }
  range.link = &head;
  head = &range;
}

void unlink(Range& range) noexcept {
  *range.link = range.next;
  if (range.next != nullptr) {
    range.next->link = range.link;
  }
  range.next = nullptr;
  range.link = nullptr;
}

// The first byte around the data that does not hold the pattern, or null.
const std::byte* damage(const Range& range) noexcept {
  const auto changed = [](std::byte value) { return value != kPattern; };
  const std::byte* const data_end = range.data + range.bytes;
  const std::byte* const pages_end = range.pages + range.size;
  if (const auto* found = std::find_if(data_end, pages_end, changed); found != pages_end) {
    return found;
  }
  // From the data backwards: the nearest damage tells most.
  for (const std::byte* byte = range.data; byte != range.pages; --byte) {
    if (changed(byte[-1])) {
      return byte - 1;
    }
  }
  return nullptr;
}

void check_damage(const Range& range) noexcept {
  if (const std::byte* const where = damage(range)) {
    report_damage(range, where);
  }
}

void close(Range& range) noexcept {
  check_damage(range);
  unlink(range);
  range.open = false;
  protect(range, PROT_NONE);
}

void close_all(Range*& head) noexcept {
  while (head != nullptr) {
    close(*head);
  }
}

void forget_oldest(Ranges& all) noexcept {
  Range* const range = all.oldest_freed;
  all.oldest_freed = range->next;
  if (all.oldest_freed == nullptr) {
    all.newest_freed = nullptr;
  }
  --all.freed_count;
  all.freed_bytes -= range->size;
  munmap(range->reserved, static_cast<std::size_t>(range->reserved_end() - range->reserved));
  all.by_address.erase(number(range->reserved));
}

void quarantine(Ranges& all, Range& range) noexcept {
  range.next = nullptr;
  (all.newest_freed == nullptr ? all.oldest_freed : all.newest_freed->next) = &range;
  all.newest_freed = &range;
  ++all.freed_count;
  all.freed_bytes += range.size;
  while (all.freed_count > kQuarantineRanges || all.freed_bytes > kQuarantineBytes) {
    forget_oldest(all);
  }
}

Range* find(Ranges& all, const void* address) noexcept {
  const auto after = all.by_address.upper_bound(number(address));
  if (after == all.by_address.begin()) {
    return nullptr;
  }
  Range* const range = std::prev(after)->second.get();
  return number(address) < number(range->reserved_end()) ? range : nullptr;
}

// The list that this thread's openings belong to, or null if it has no business here.
Range** list_of_thread(Ranges& all) noexcept {
  if (access_of_thread.depth != 0) {
    return &access_of_thread.opened;
  }
  const bool works_for_a_kernel = !access_of_thread.has_entered && threads_inside.load(std::memory_order_acquire) != 0;
  return works_for_a_kernel ? &all.opened_by_workers : nullptr;
}

Fault judge(Ranges& all, Range& range, const void* address) noexcept {
  if (range.freed) {
    return Fault::kFreed;
  }
  if (address < range.pages || address >= range.pages + range.size) {
    return Fault::kOverrun;
  }
  Range** const list = list_of_thread(all);
  if (list == nullptr) {
    return Fault::kStray;
  }
  if (!range.open) {  // else another thread was faster
    if (!protect(range, PROT_READ | PROT_WRITE)) {
      return Fault::kNoPages;
    }
    range.open = true;
    link(*list, range);
  }
  return Fault::kOpened;
}

}  // namespace

constinit bool detail::active_flag = false;

void detail::enter() noexcept {
  if (access_of_thread.depth++ == 0) {
    access_of_thread.has_entered = true;
    threads_inside.fetch_add(1, std::memory_order_acq_rel);
    claim_fault_handler();
  }
}

void detail::leave() noexcept {
  if (--access_of_thread.depth == 0) {
    threads_inside.fetch_sub(1, std::memory_order_acq_rel);
    Ranges& all = ranges();
    const std::lock_guard guard(all.lock);
    // Another kernel's workers open theirs again.
    close_all(access_of_thread.opened);
    close_all(all.opened_by_workers);
  }
}

std::byte* Range::reserved_end() const noexcept { return pages + size + kPage; }

Range* map_range(std::size_t bytes, std::size_t size, int device) {
  auto range = std::make_unique<Range>();
  const std::size_t taken = round_up(bytes, kAlignment);
  range->size = size;
  range->bytes = bytes;
  range->device = device;
  range->allocated_by = running_operator();
  void* const reserved = mmap(nullptr, range->size + 2 * kPage, PROT_NONE, kMapping, -1, 0);
  if (reserved == MAP_FAILED) {
    return nullptr;
  }
  range->reserved = static_cast<std::byte*>(reserved);
  range->pages = range->reserved + kPage;
  range->data = range->pages + (range->size - taken);
  if (!protect(*range, PROT_READ | PROT_WRITE)) {
    munmap(reserved, range->size + 2 * kPage);
    return nullptr;
  }
  std::fill(range->pages, range->data, kPattern);
  std::fill(range->data + bytes, range->pages + range->size, kPattern);
  Ranges& all = ranges();
  const std::lock_guard guard(all.lock);
  Range* const result = range.get();
  try {
    all.by_address.emplace(number(reserved), std::move(range));
  } catch (...) {
    munmap(reserved, result->size + 2 * kPage);
    throw;
  }
  if (access_of_thread.depth != 0) {
    result->open = true;
    link(access_of_thread.opened, *result);
  } else {
    protect(*result, PROT_NONE);
  }
  return result;
}

void release_range(Range* range) noexcept {
  Ranges& all = ranges();
  const std::lock_guard guard(all.lock);
  if (range->open) {
    check_damage(*range);
    unlink(*range);
    range->open = false;
  }
  range->freed = true;
  range->freed_by = running_operator();
  // A fresh mapping in the same place: gives the memory back, and lets the kernel join it with its neighbours.
  if (mmap(range->pages, range->size, PROT_NONE, kMapping | MAP_FIXED, -1, 0) == MAP_FAILED) {
    protect(*range, PROT_NONE);
    madvise(range->pages, range->size, MADV_DONTNEED);
  }
  quarantine(all, *range);
}

FaultInfo resolve_fault(const void* address) noexcept {
  Ranges& all = ranges();
  // The bookkeeping never touches device memory with the lock held, so this thread does not hold it unless it crashed there.
  constexpr int kPatience = 1 << 16;
  int attempts = 0;
  while (!all.lock.try_lock()) {
    if (++attempts == kPatience) {
      return {.kind = Fault::kUnclear};
    }
    std::this_thread::yield();
  }
  FaultInfo info;
  if (Range* const range = find(all, address)) {
    info = {judge(all, *range, address), range->data, range->bytes, range->device, range->allocated_by, range->freed_by};
  }
  all.lock.unlock();
  return info;
}

SpinLock& ranges_lock() noexcept { return ranges().lock; }

void forget_other_threads() noexcept {
  Ranges& all = ranges();
  threads_inside.store(access_of_thread.depth == 0 ? 0 : 1, std::memory_order_release);
  for (const auto& [address, range] : all.by_address) {
    if (range->open) {
      protect(*range, PROT_NONE);
      range->open = false;
      range->next = nullptr;
      range->link = nullptr;
    }
  }
  access_of_thread.opened = nullptr;
  all.opened_by_workers = nullptr;
}

}  // namespace neuron::runtime::guard
