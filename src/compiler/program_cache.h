// The in-memory cache of compiled programs: least recently used goes first, limits by number and by size, one compilation per key even if
// several threads ask at once (the others wait for it), counters that users can read.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace neuron::compiler {

struct CacheCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t compilations = 0;
};

struct CacheLimits {
  std::uint64_t entries = UINT64_MAX;
  std::uint64_t bytes = UINT64_MAX;
};

template <typename Compiled>
class ProgramCache {
 public:
  using Pointer = std::shared_ptr<const Compiled>;

  explicit ProgramCache(CacheLimits limits = {}) : limits_(limits) {}

  // `compile()` gives a Pointer, `size_of(const Compiled&)` its bytes. If compile throws, nothing is kept and a waiting thread compiles
  // itself.
  template <typename Compile, typename SizeOf>
  Pointer get_or_compile(const std::string& key, Compile&& compile, SizeOf&& size_of) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return !in_progress_.contains(key); });
    if (const auto found = index_.find(key); found != index_.end()) {
      ++counters_.hits;
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->compiled;
    }
    ++counters_.misses;
    in_progress_.insert(key);
    lock.unlock();
    Pointer compiled;
    try {
      compiled = compile();
    } catch (...) {
      lock.lock();
      in_progress_.erase(key);
      finished_.notify_all();
      throw;
    }
    const std::uint64_t bytes = size_of(*compiled);
    lock.lock();
    in_progress_.erase(key);
    ++counters_.compilations;
    entries_.push_front(Entry{key, compiled, bytes});
    index_[key] = entries_.begin();
    bytes_ += bytes;
    const std::list<Entry> evicted = evict();
    lock.unlock();  // before the evicted programs end: dropping one may need a lock of the caller's (Python's interpreter lock)
    finished_.notify_all();
    return compiled;
  }

  // For programs that have no key: counted, not kept.
  void count_uncached() {
    const std::lock_guard lock(mutex_);
    ++counters_.misses;
    ++counters_.compilations;
  }

  CacheCounters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

  std::size_t entry_count() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

  void set_limits(CacheLimits limits) {
    std::list<Entry> evicted;
    const std::lock_guard lock(mutex_);
    limits_ = limits;
    evicted = evict();
  }

  // Forgets the programs, not the counters. Programs that are in use live on.
  void clear() {
    std::list<Entry> forgotten;
    const std::lock_guard lock(mutex_);
    forgotten.swap(entries_);
    index_.clear();
    bytes_ = 0;
  }

 private:
  struct Entry {
    std::string key;
    Pointer compiled;
    std::uint64_t bytes;
  };

  // The entries that the limits push out, for the caller to destroy once the lock is free.
  [[nodiscard]] std::list<Entry> evict() {
    std::list<Entry> evicted;
    while (!entries_.empty() && (entries_.size() > limits_.entries || bytes_ > limits_.bytes)) {
      bytes_ -= entries_.back().bytes;
      index_.erase(entries_.back().key);
      evicted.splice(evicted.end(), entries_, std::prev(entries_.end()));
      ++counters_.evictions;
    }
    return evicted;
  }

  mutable std::mutex mutex_;
  std::condition_variable finished_;
  CacheLimits limits_;
  CacheCounters counters_;
  std::uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, typename std::list<Entry>::iterator> index_;
  std::unordered_set<std::string> in_progress_;
};

}  // namespace neuron::compiler
