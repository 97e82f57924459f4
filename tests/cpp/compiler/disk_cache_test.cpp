// The cache folder gives back what was stored or nothing, whatever stands in its files and whoever is killed; old entries go.
#include "compiler/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace neuron::compiler {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "disk-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  DiskCache cache(std::uint64_t limit = 1 << 30, const std::string& build = "b 1") {
    return DiskCache({.folder = root_ / "cache", .lock_folder = {}, .limit_bytes = limit, .only_own = false, .build = build},
                     [this](const std::string& message) { reports_.push_back(message); });
  }

  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(root_ / "cache"), fs::directory_iterator()));
  }

  fs::path root_;
  std::vector<std::string> reports_;
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  auto one = cache();
  EXPECT_EQ(one.load("k"), std::nullopt);
  const std::string text("program\n\0 with a zero", 21);
  EXPECT_TRUE(one.store("k", text));
  EXPECT_TRUE(one.store("empty", ""));
  auto other = cache();
  EXPECT_EQ(other.load("k"), text);
  EXPECT_EQ(other.load("empty"), "");
  EXPECT_EQ(other.hits(), 2U);
  EXPECT_EQ(one.misses(), 1U);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(DiskCacheTest, NoticesEveryCutAndEveryChangedByte) {
  cache().store("k", "program \"a\" { }");
  const fs::path path = cache().file_of("k");
  const std::string whole = bytes_of(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path, whole.substr(0, length));
    EXPECT_EQ(cache().load("k"), std::nullopt) << length;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    write(path, changed);
    EXPECT_EQ(cache().load("k"), std::nullopt) << at;
  }
  write(path, whole + "x");
  EXPECT_EQ(cache().load("k"), std::nullopt);
  write(path, whole);
  EXPECT_TRUE(cache().load("k").has_value());
}

TEST_F(DiskCacheTest, ReportsAFileOnceAndReplacesIt) {
  auto one = cache();
  one.store("k", "text");
  write(one.file_of("k"), "something else");
  EXPECT_EQ(one.load("k"), std::nullopt);
  EXPECT_EQ(one.load("k"), std::nullopt);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_NE(reports_[0].find(one.file_of("k").string()), std::string::npos);
  EXPECT_TRUE(one.store("k", "text"));
  EXPECT_EQ(one.load("k"), "text");
}

TEST_F(DiskCacheTest, RejectedEntriesGo) {
  auto one = cache();
  one.store("k", "text");
  EXPECT_TRUE(one.load("k").has_value());
  one.reject("k", "it does not parse");
  EXPECT_EQ(one.load("k"), std::nullopt);
  EXPECT_EQ(one.hits(), 0U);
  EXPECT_EQ(one.misses(), 2U);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_NE(reports_[0].find("it does not parse"), std::string::npos);
}

TEST_F(DiskCacheTest, EntriesOfOtherKeysAndBuildsAreNotRead) {
  cache().store("a", "text of a");
  fs::copy_file(cache().file_of("a"), cache().file_of("b"));
  EXPECT_EQ(cache().load("b"), std::nullopt);
  EXPECT_EQ(reports_.size(), 1U);
  EXPECT_EQ(cache(1 << 30, "b 2").load("a"), std::nullopt);
  EXPECT_EQ(reports_.size(), 1U) << "another build's entry is no fault";
}

TEST_F(DiskCacheTest, OddThingsInPlaceOfEntries) {
  auto one = cache();
  one.store("k", "text");
  fs::create_directory(one.file_of("folder"));
  ASSERT_EQ(::mkfifo(one.file_of("pipe").c_str(), 0600), 0);
  fs::create_symlink(root_ / "nowhere", one.file_of("link"));
  for (const char* name : {"folder", "pipe", "link"}) {
    EXPECT_EQ(one.load(name), std::nullopt) << name;
  }
  EXPECT_TRUE(one.store("pipe", "text"));
  EXPECT_EQ(one.load("pipe"), "text");
  EXPECT_FALSE(one.store("folder", "text"));
  EXPECT_EQ(one.load("k"), "text");
}

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeIsReportedOnce) {
  write(root_ / "cache", "a file where the folder should be");
  auto one = cache();
  EXPECT_EQ(one.load("k"), std::nullopt);
  EXPECT_FALSE(one.store("k", "text"));
  EXPECT_FALSE(one.store("l", "text"));
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_NE(reports_[0].find("TORCH_NEURONX_NEFF_CACHE_DIR"), std::string::npos);
}

TEST_F(DiskCacheTest, AFolderOfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give a folder away";
  }
  fs::create_directories(root_ / "cache");
  ASSERT_EQ(::chown((root_ / "cache").c_str(), 12345, 12345), 0);
  DiskCache careful({.folder = root_ / "cache", .lock_folder = {}, .limit_bytes = 1 << 30, .only_own = true, .build = "b"},
                    [this](const std::string& message) { reports_.push_back(message); });
  EXPECT_FALSE(careful.store("k", "text"));
  EXPECT_EQ(careful.load("k"), std::nullopt);
  EXPECT_EQ(files(), 0U);
}

TEST_F(DiskCacheTest, TheLeastRecentlyUsedGoFirst) {
  const std::string text(1000, 'x');
  auto one = cache(10'000);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(one.store("k" + std::to_string(i), text));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // kernels stamp files every few milliseconds
  }
  EXPECT_TRUE(one.load("k0").has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(15));
  for (int i = 8; i < 12; ++i) {
    ASSERT_TRUE(one.store("k" + std::to_string(i), text));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  EXPECT_TRUE(one.load("k0").has_value()) << "used recently";
  EXPECT_FALSE(one.load("k1").has_value());
  EXPECT_TRUE(one.load("k11").has_value());
  std::uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "cache")) {
    total += entry.file_size();
  }
  EXPECT_LE(total, 10'000U);
}

TEST_F(DiskCacheTest, AbandonedTemporaryFilesGo) {
  auto one = cache();
  fs::create_directories(root_ / "cache");
  write(root_ / "cache" / "k.1.1.1.tmp", "half");
  write(root_ / "cache" / "k.1.2.1.tmp", "being written");
  fs::last_write_time(root_ / "cache" / "k.1.1.1.tmp", fs::file_time_type::clock::now() - std::chrono::hours(2));
  one.store("k", "text");
  EXPECT_FALSE(fs::exists(root_ / "cache" / "k.1.1.1.tmp"));
  EXPECT_TRUE(fs::exists(root_ / "cache" / "k.1.2.1.tmp"));
}

TEST_F(DiskCacheTest, ThreadsMayStoreAndLoadTheSameKeys) {
  auto one = cache(20'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&one] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = "k" + std::to_string(i % 7);
        one.store(key, std::string(2000, key[1]));
        if (const auto text = one.load(key)) {
          EXPECT_EQ(*text, std::string(2000, key[1]));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(reports_.empty());
}

// Writers are killed at any moment; readers never see anything but whole texts.
TEST_F(DiskCacheTest, KilledWritersLeaveWholeEntries) {
  const auto text_of = [](int i) { return std::string(200'000 + static_cast<std::size_t>(i), static_cast<char>('a' + i)); };
  int found = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto mine = cache(2'000'000);
      for (int i = 0;; i = (i + 1) % 5) {
        mine.store("k" + std::to_string(i), text_of(i));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    auto reader = cache();
    for (int i = 0; i < 5; ++i) {
      if (const auto text = reader.load("k" + std::to_string(i))) {
        EXPECT_EQ(*text, text_of(i));
        ++found;
      }
    }
  }
  EXPECT_TRUE(reports_.empty());
  EXPECT_GT(found, 20);
  EXPECT_TRUE(cache(2'000'000).store("k0", text_of(0))) << "no lock is left behind";
}

}  // namespace
}  // namespace neuron::compiler
