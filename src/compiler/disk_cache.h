// Compiled programs in a folder, shared by processes that know nothing of each other. One file per program:
//
//   softneuron-program 1          what it is, and the version of this layout
//   build <text>                  who compiled it; another build's entry is not read
//   key <32 hexadecimal digits>
//   bytes <length of the text>
//   digest <32 hexadecimal digits of the text>
//                                 an empty line, then the text
//
// A file is written under another name and renamed, so that a reader finds a whole entry or none, whoever is killed when. What is on the
// disk is never trusted: an entry of wrong length, digest, key or build is reported once and replaced by the next `store`.
// The least recently used files go when the folder grows beyond its limit; one process at a time removes them, under a lock that the
// kernel drops with the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace neuron::compiler {

struct DiskCacheOptions {
  std::filesystem::path folder;
  std::filesystem::path lock_folder;       // empty: the folder itself
  std::uint64_t limit_bytes = 1ULL << 30;  // of all entries together
  bool only_own = false;                   // refuse a folder of another user (one at a well-known place in /tmp)
  std::string build;                       // one line
};

class DiskCache {
 public:
  // Gets each problem once, as a sentence that names the file.
  using Report = std::function<void(const std::string&)>;

  DiskCache(DiskCacheOptions options, Report report);

  // The text stored under `key` (letters and digits), or nothing. Never throws for what it finds on the disk.
  std::optional<std::string> load(const std::string& key);
  // True if the entry is in place now. A full or read-only disk is reported once; the cache then goes on without it.
  bool store(const std::string& key, std::string_view text);
  // Says that a loaded text turned out to be useless; the file is removed.
  void reject(const std::string& key, const std::string& why);

  std::filesystem::path file_of(const std::string& key) const;

  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }

 private:
  bool usable();
  bool write(const std::filesystem::path& temporary, std::string_view header, std::string_view text, std::string& problem);
  void evict();
  void report_once(const std::string& subject, const std::string& message);

  DiskCacheOptions options_;
  Report report_;
  std::mutex mutex_;
  std::unordered_set<std::string> reported_;
  std::optional<bool> usable_;
  std::atomic<std::uint64_t> hits_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
  std::atomic<std::uint64_t> names_ = 0;
  std::uint64_t bytes_ = UINT64_MAX;  // in the folder, as far as known; UINT64_MAX: not counted yet
};

}  // namespace neuron::compiler
