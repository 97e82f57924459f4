// See shared_segments.h. Sources: memfd_create(2), madvise(2) (MADV_COLLAPSE, MADV_POPULATE_WRITE), fallocate(2) and
// Documentation/admin-guide/mm/transhuge.rst in the Linux sources.
#include "runtime/memory/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <mutex>

#include "runtime/memory/size_class.h"

namespace neuron::runtime {
namespace {

// Older headers lack these.
constexpr int kMadvPopulateWrite = 23;  // Linux 5.14
constexpr int kMadvCollapse = 25;       // Linux 6.1

constexpr std::size_t kSmallestShared = 8 * kMiB;
// Shared segments are committed when they are mapped: more than this may be asked for without ever being touched.
constexpr std::size_t kLargestShared = 512 * kMiB;

// Room for every byte of the machine, and then some for holes between segments; but a peer maps the files of a hundred ranks.
std::uint64_t file_bytes() noexcept {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  return std::min(kMost, std::bit_ceil(pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))) * 2);
}

// A file beyond this limit would end the process with SIGXFSZ.
bool files_are_limited() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Commits [base, base + bytes), which is aligned and empty, as huge pages.
bool commit_huge_pages(std::byte* base, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kHugePage) {
    // Rather than touching it: tells when there is no memory.
    if (madvise(base + at, kPage, kMadvPopulateWrite) != 0) {
      return false;
    }
  }
  if (bytes == 0) {
    return true;
  }
  // EAGAIN: pages were in use elsewhere for a moment.
  int result = -1;
  for (int attempt = 0; attempt < 3 && result != 0; ++attempt) {
    result = madvise(base, bytes, kMadvCollapse);
    if (result != 0 && errno != EAGAIN) {
      break;
    }
  }
  return result == 0;
}

}  // namespace

SharedSegments& SharedSegments::of_device() noexcept {
  static auto& segments = *new SharedSegments;  // leaked: nothing runs at exit
  return segments;
}

SharedSegments::~SharedSegments() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

bool SharedSegments::enable() noexcept {
  const std::lock_guard guard(lock_);
  if (descriptor_ >= 0) {
    return enabled_.load(std::memory_order_relaxed);
  }
  if (files_are_limited()) {
    return false;
  }
  const int descriptor = memfd_create("softneuron-device-memory", MFD_CLOEXEC);
  if (descriptor < 0) {
    return false;
  }
  const std::uint64_t bytes = file_bytes();
  bool usable = ftruncate(descriptor, static_cast<off_t>(bytes)) == 0;
  try {
    free_.emplace(0, bytes);
  } catch (...) {
    usable = false;
  }
  if (!usable) {
    close(descriptor);
    return false;
  }
  descriptor_ = descriptor;
  bytes_ = bytes;
  enabled_.store(true, std::memory_order_release);
  return true;
}

std::optional<SharedSegments::File> SharedSegments::file() const noexcept {
  if (!enabled_.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  return File{descriptor_, bytes_};
}

std::optional<std::uint64_t> SharedSegments::offset_of(const void* data, std::size_t bytes) const noexcept {
  if (!enabled_.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard guard(lock_);
  const auto range = find(address);
  if (range == ranges_.end() || range->second.withdrawn) {
    return std::nullopt;
  }
  const std::size_t inside = address - range->first;
  if (bytes > range->second.size - inside) {
    return std::nullopt;
  }
  return range->second.offset + inside;
}

SharedSegments::Ranges::const_iterator SharedSegments::find(std::uintptr_t address) const noexcept {
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) {
    return ranges_.end();
  }
  const auto range = std::prev(next);
  return address - range->first < range->second.size ? range : ranges_.end();
}

void SharedSegments::withdraw(const void* data) noexcept {
  std::byte* base = nullptr;
  std::size_t size = 0;
  {
    const std::lock_guard guard(lock_);
    const auto found = find(reinterpret_cast<std::uintptr_t>(data));
    if (found == ranges_.end() || found->second.withdrawn) {
      return;
    }
    base = const_cast<std::byte*>(static_cast<const std::byte*>(data)) - (reinterpret_cast<std::uintptr_t>(data) - found->first);
    size = found->second.size;
    ranges_[found->first].withdrawn = true;  // first: who looks afterwards knows that what a peer has written may be lost
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_,
             static_cast<off_t>(found->second.offset)) == MAP_FAILED) {
      return;  // the old mapping stays
    }
  }
  // A private mapping shows the file's pages until they are written to here: write to each what it has. Atomically, for other threads may
  // use other blocks of the segment.
  for (std::size_t at = 0; at < size; at += kPage) {
    std::atomic_ref(*reinterpret_cast<unsigned char*>(base + at)).fetch_or(0, std::memory_order_relaxed);
  }
}

std::optional<std::uint64_t> SharedSegments::take_space(std::size_t size) {
  const std::lock_guard guard(lock_);
  for (auto entry = free_.begin(); entry != free_.end(); ++entry) {
    const auto [offset, available] = *entry;
    if (available < size) {
      continue;
    }
    if (available > size) {
      free_.emplace(offset + size, available - size);
    }
    free_.erase(offset);
    return offset;
  }
  return std::nullopt;
}

void SharedSegments::give_space_back(std::uint64_t offset, std::size_t size) noexcept {
  const std::lock_guard guard(lock_);
  try {
    const auto entry = free_.emplace(offset, size).first;
    if (const auto next = std::next(entry); next != free_.end() && offset + size == next->first) {
      entry->second += next->second;
      free_.erase(next);
    }
    if (entry != free_.begin()) {
      if (const auto previous = std::prev(entry); previous->first + previous->second == offset) {
        previous->second += entry->second;
        free_.erase(entry);
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the entry: this part of the file is not used again
  }
}

void* SharedSegments::map_shared(std::size_t size, std::size_t huge_prefix) noexcept {
  std::optional<std::uint64_t> offset;
  const std::size_t space = round_up(size, kHugePage);  // so that every segment begins with a huge page
  try {
    offset = take_space(space);
  } catch (...) {
    return nullptr;
  }
  if (!offset) {
    return nullptr;
  }
  void* const base = anonymous_memory().map(size, huge_prefix);  // for its address
  if (base != nullptr) {
    const std::size_t committed = huge_prefix / kHugePage * kHugePage;
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor_, static_cast<off_t>(*offset)) ==
            base &&
        commit_huge_pages(static_cast<std::byte*>(base), committed)) {
      try {
        const std::lock_guard guard(lock_);
        ranges_.emplace(reinterpret_cast<std::uintptr_t>(base), Range{size, *offset});
        return base;
      } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the entry; undone below
      }
    }
    munmap(base, size);
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(*offset), static_cast<off_t>(space));
  }
  give_space_back(*offset, space);
  return nullptr;
}

void* SharedSegments::map(std::size_t size, std::size_t huge_prefix) noexcept {
  if (enabled_.load(std::memory_order_acquire) && huge_prefix >= kSmallestShared && size <= kLargestShared) {
    if (void* const base = map_shared(size, huge_prefix)) {
      return base;
    }
  }
  return anonymous_memory().map(size, huge_prefix);
}

void SharedSegments::unmap(void* base, std::size_t size) noexcept {
  std::optional<Range> range;
  {
    const std::lock_guard guard(lock_);
    if (const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(base)); found != ranges_.end()) {
      range = found->second;
      ranges_.erase(found);
    }
  }
  munmap(base, size);
  if (range) {
    // Peers' mappings of the file would keep the memory otherwise.
    const std::size_t space = round_up(size, kHugePage);
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range->offset), static_cast<off_t>(space));
    if (!range->withdrawn) {
      give_space_back(range->offset, space);
    }
  }
}

void SharedSegments::after_fork_in_child() noexcept {
  enabled_.store(false, std::memory_order_relaxed);
  for (const auto& [base, range] : ranges_) {
    if (range.withdrawn) {
      continue;  // private already
    }
    auto* const place = reinterpret_cast<void*>(base);  // NOLINT(performance-no-int-to-ptr): an address as it was recorded
    if (mmap(place, range.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_,
             static_cast<off_t>(range.offset)) == MAP_FAILED) {
      munmap(place, range.size);  // to crash in the child is better than to write into the parent's memory
    }
  }
  ranges_.clear();  // the space is the parent's
  lock_.unlock();
}

}  // namespace neuron::runtime
