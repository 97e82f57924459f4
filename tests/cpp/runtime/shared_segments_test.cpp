// Segments in a file that other processes can map: where they are, what becomes of their memory, and fork.
#include "runtime/memory/shared_segments.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/memory/size_class.h"

namespace neuron::runtime {
namespace {

constexpr std::size_t kSize = 17 * kMiB;

class SharedSegmentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(segments_.enable());
    void* const probe = segments_.map(kSize, kSize);
    const bool shared = segments_.offset_of(probe, kSize).has_value();
    segments_.unmap(probe, kSize);
    if (!shared) GTEST_SKIP() << "this kernel has no huge pages for shared memory (MADV_COLLAPSE, Linux 6.1)";
  }

  [[nodiscard]] std::size_t committed() const {
    struct stat status{};
    EXPECT_EQ(fstat(segments_.file()->descriptor, &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }

  SharedSegments segments_;
};

TEST_F(SharedSegmentsTest, AreWhereTheySayInTheFile) {
  auto* const first = static_cast<char*>(segments_.map(kSize, kSize));
  auto* const second = static_cast<char*>(segments_.map(kSize, kSize));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % kHugePage, 0U);
  for (std::size_t i = 0; i < kSize; i += 4096) ASSERT_EQ(first[i], 0) << "at " << i;
  std::memset(first, 'a', kSize);
  std::memset(second, 'b', kSize);
  for (const auto& [data, letter] : {std::pair{first + 12'345, 'a'}, std::pair{second + kSize - 100, 'b'}}) {
    const auto place = segments_.offset_of(data, 100);
    ASSERT_TRUE(place);
    std::vector<char> read(100);
    EXPECT_EQ(pread(segments_.file()->descriptor, read.data(), 100, static_cast<off_t>(*place)), 100);
    EXPECT_EQ(read, std::vector<char>(100, letter));
  }
  EXPECT_FALSE(segments_.offset_of(first + kSize - 99, 100)) << "beyond the end";
  EXPECT_FALSE(segments_.offset_of(first - 1, 1));
  EXPECT_FALSE(segments_.offset_of(&segments_, 1)) << "not a segment";
  segments_.unmap(first, kSize);
  EXPECT_FALSE(segments_.offset_of(first, 1));
  EXPECT_EQ(second[5], 'b');
  segments_.unmap(second, kSize);
}

TEST_F(SharedSegmentsTest, GiveTheirMemoryBackAlthoughAPeerHasItMapped) {
  const auto file = *segments_.file();
  const void* const window = mmap(nullptr, file.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.descriptor, 0);
  ASSERT_NE(window, MAP_FAILED);
  const std::size_t before = committed();
  void* const base = segments_.map(kSize, kSize);
  std::memset(base, 1, kSize);
  const auto place = segments_.offset_of(base, kSize);
  ASSERT_TRUE(place);
  EXPECT_EQ(static_cast<const char*>(window)[*place + kSize - 1], 1);
  EXPECT_GE(committed(), before + kSize);
  segments_.unmap(base, kSize);
  EXPECT_EQ(committed(), before);
  // The space is used again, and clean.
  void* const again = segments_.map(kSize, kSize);
  EXPECT_EQ(segments_.offset_of(again, kSize), place);
  EXPECT_EQ(static_cast<const char*>(again)[kSize - 1], 0);
  segments_.unmap(again, kSize);
  munmap(const_cast<void*>(window), file.bytes);
}

TEST_F(SharedSegmentsTest, AreOutOfReachWhenWithdrawn) {
  const auto file = *segments_.file();
  auto* const window =
      static_cast<char*>(mmap(nullptr, file.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.descriptor, 0));
  ASSERT_NE(window, MAP_FAILED);
  auto* const base = static_cast<char*>(segments_.map(kSize, kSize));
  std::memset(base, 'a', kSize);
  const auto place = segments_.offset_of(base, kSize);
  ASSERT_TRUE(place);
  segments_.withdraw(base + kSize / 2);
  EXPECT_FALSE(segments_.offset_of(base, 1));
  std::memset(window + *place, 'b', kSize);
  for (std::size_t i = 0; i < kSize; i += 1000) ASSERT_EQ(base[i], 'a') << "at " << i;
  base[0] = 'c';
  EXPECT_EQ(window[*place], 'b');
  segments_.withdraw(base);  // again, or what is not shared: nothing happens
  segments_.withdraw(&segments_);
  EXPECT_EQ(base[0], 'c');
  segments_.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    segments_.after_fork_in_child();
    std::_Exit(base[0] == 'c' && base[1] == 'a' ? 0 : 1);
  }
  segments_.after_fork_in_parent();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a child has what its parent had";
  segments_.unmap(base, kSize);
  // Nobody else gets the place, for one that is late may still write there.
  void* const again = segments_.map(kSize, kSize);
  EXPECT_NE(segments_.offset_of(again, kSize), place);
  segments_.unmap(again, kSize);
  EXPECT_EQ(committed(), 0U);
  munmap(window, file.bytes);
}

TEST_F(SharedSegmentsTest, ReuseHolesOfAnySize) {
  std::vector<void*> bases;
  for (int i = 0; i < 6; ++i) bases.push_back(segments_.map(kSize, kSize));
  const auto first = segments_.offset_of(bases[1], 1);
  for (const int i : {2, 1, 3}) segments_.unmap(bases[static_cast<std::size_t>(i)], kSize);
  void* const large = segments_.map(3 * kSize, 3 * kSize);
  EXPECT_EQ(segments_.offset_of(large, 1), first) << "three neighbours make one hole";
  segments_.unmap(large, 3 * kSize);
  for (const std::size_t i : {0U, 4U, 5U}) segments_.unmap(bases[i], kSize);
  EXPECT_EQ(committed(), 0U);
}

TEST_F(SharedSegmentsTest, AreNotForSmallOrVeryLargeOnes) {
  for (const auto& [size, prefix] : {std::pair{8 * kMiB, std::size_t{0}}, {kMiB, kMiB}, {std::size_t{1} << 33, std::size_t{1} << 33}}) {
    void* const base = segments_.map(size, prefix);
    ASSERT_NE(base, nullptr);
    EXPECT_FALSE(segments_.offset_of(base, 1));
    segments_.unmap(base, size);
  }
}

TEST_F(SharedSegmentsTest, OfAForkedChildAreItsOwn) {
  auto* const base = static_cast<char*>(segments_.map(kSize, kSize));
  std::memset(base, 'p', kSize);
  segments_.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    segments_.after_fork_in_child();
    bool right = base[kSize - 1] == 'p' && !segments_.file() && !segments_.offset_of(base, 1) && !segments_.enable();
    std::memset(base, 'c', kSize);
    right = right && base[0] == 'c';
    void* const own = segments_.map(kSize, kSize);
    right = right && own != nullptr && !segments_.offset_of(own, 1);
    segments_.unmap(own, kSize);
    segments_.unmap(base, kSize);
    std::_Exit(right ? 0 : 1);
  }
  segments_.after_fork_in_parent();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(base[0], 'p');
  EXPECT_EQ(base[kSize - 1], 'p');
  segments_.unmap(base, kSize);
}

TEST(SharedSegments, ArePrivateBeforeTheyAreEnabled) {
  SharedSegments segments;
  EXPECT_FALSE(segments.file());
  void* const base = segments.map(kSize, kSize);
  ASSERT_NE(base, nullptr);
  EXPECT_FALSE(segments.offset_of(base, 1));
  EXPECT_TRUE(segments.enable());
  EXPECT_TRUE(segments.enable());
  EXPECT_FALSE(segments.offset_of(base, 1));
  segments.unmap(base, kSize);
}

}  // namespace
}  // namespace neuron::runtime
