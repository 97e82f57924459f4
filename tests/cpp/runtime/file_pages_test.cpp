// Pages of a mapped file are given back after a copy; what the process wrote is never lost.
#include "runtime/memory/file_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace neuron::runtime {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
constexpr std::size_t kPages = 1500;  // more than one batch of states

class MappedFile {
 public:
  explicit MappedFile(int flags) : file_(std::tmpfile()) {
    const std::string content(kPages * kPage, 'f');
    EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), file_), content.size());
    std::fflush(file_);
    data_ = static_cast<char*>(::mmap(nullptr, content.size(), PROT_READ | PROT_WRITE, flags, ::fileno(file_), 0));
  }
  ~MappedFile() {
    ::munmap(data_, kPages * kPage);
    std::fclose(file_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() { return data_; }
  void touch_all() {
    volatile char sum = 0;
    for (std::size_t page = 0; page < kPages; ++page) {
      sum = static_cast<char>(sum + data_[page * kPage]);
    }
  }

 private:
  std::FILE* file_;
  char* data_;
};

// Pages that this process has in its page table, of its whole memory, in kilobytes of file-backed memory.
std::size_t resident_file_kilobytes() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  std::vector<char> line(256);
  std::size_t kilobytes = 0;
  while (std::fgets(line.data(), static_cast<int>(line.size()), status) != nullptr) {
    if (std::sscanf(line.data(), "RssFile: %zu kB", &kilobytes) == 1) {
      break;
    }
  }
  std::fclose(status);
  return kilobytes;
}

TEST(FilePages, AreGivenBack) {
  MappedFile file(MAP_PRIVATE);
  file.touch_all();
  const auto before = resident_file_kilobytes();
  release_file_pages(file.data(), kPages * kPage);
  EXPECT_LE(resident_file_kilobytes() + (kPages - 64) * kPage / 1024, before);
  EXPECT_EQ(file.data()[7 * kPage], 'f');
}

TEST(FilePages, WrittenOnesStay) {
  MappedFile file(MAP_PRIVATE);
  file.touch_all();
  for (const std::size_t page : {1UL, 2UL, 700UL, kPages - 1}) {
    file.data()[page * kPage + 5] = 'w';
  }
  release_file_pages(file.data(), kPages * kPage);
  for (const std::size_t page : {1UL, 2UL, 700UL, kPages - 1}) {
    EXPECT_EQ(file.data()[page * kPage + 5], 'w') << page;
  }
  EXPECT_EQ(file.data()[3 * kPage + 5], 'f');
}

TEST(FilePages, PagesOnlyPartlyInTheRangeStay) {
  MappedFile file(MAP_PRIVATE);
  file.data()[10] = 'w';
  release_file_pages(file.data() + 20, kPage / 2);
  release_file_pages(file.data() + 20, 0);
  EXPECT_EQ(file.data()[10], 'w');
}

TEST(FilePages, SharedMappingsKeepTheirContent) {
  MappedFile file(MAP_SHARED);
  std::memset(file.data(), 's', kPages * kPage);
  release_file_pages(file.data(), kPages * kPage);
  for (std::size_t page = 0; page < kPages; ++page) {
    ASSERT_EQ(file.data()[page * kPage], 's');
  }
}

TEST(FilePages, OrdinaryMemoryIsLeftAlone) {
  std::vector<char> memory(64 * kPage, 'm');
  release_file_pages(memory.data(), memory.size());
  EXPECT_EQ(memory, std::vector<char>(64 * kPage, 'm'));
}

}  // namespace
}  // namespace neuron::runtime
