// See file_pages.h. Source of the page states: Documentation/admin-guide/mm/pagemap.rst in the Linux sources.
#include "runtime/memory/file_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace neuron::runtime {
namespace {

constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kFileOrShared = std::uint64_t{1} << 61;  // clear once a private mapping has its own copy of the page

std::uintptr_t page_size() {
  static const auto size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

class PageMap {
 public:
  PageMap() : file_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~PageMap() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // States of up to `count` pages from page number `page` on; how many were read.
  std::size_t read(std::uintptr_t page, std::uint64_t* states, std::size_t count) const {
    const auto got = ::pread(file_, states, count * sizeof(*states), static_cast<off_t>(page * sizeof(*states)));
    return got <= 0 ? 0 : static_cast<std::size_t>(got) / sizeof(*states);
  }

 private:
  int file_;
};

bool is_clean_file_page(std::uint64_t state) { return (state & kPresent) != 0 && (state & kFileOrShared) != 0; }

}  // namespace

void release_file_pages(const void* begin, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  auto page = (address + page_size() - 1) / page_size();
  const auto end = (address + bytes) / page_size();
  if (page >= end) {
    return;
  }
  // The first whole page; the bytes themselves are not written.
  auto* const base = static_cast<std::byte*>(const_cast<void*>(begin)) + (page * page_size() - address);
  const PageMap pages;
  std::array<std::uint64_t, 512> states;
  for (const auto start = page; page < end;) {
    const auto known = pages.read(page, states.data(), std::min<std::size_t>(states.size(), end - page));
    // Ordinary memory shows at its first page: nothing more to look at. (Further on a page may be absent because its huge page was given
    // back.)
    if (known == 0 || (page == start && !is_clean_file_page(states[0]))) {
      return;
    }
    for (std::size_t first = 0; first < known;) {
      if (!is_clean_file_page(states[first])) {
        ++first;
        continue;
      }
      auto last = first + 1;
      while (last < known && is_clean_file_page(states[last])) {
        ++last;
      }
      ::madvise(base + (page - start + first) * page_size(), (last - first) * page_size(), MADV_DONTNEED);
      first = last;
    }
    page += known;
  }
}

}  // namespace neuron::runtime
