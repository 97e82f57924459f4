// How ranks find each other: the little that collectives need of a key-value store (c10d::Store behind an adapter, an in-memory one in
// tests).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace neuron::collectives {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key exists; throws Error(kTimeout) naming the key otherwise.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter (0 at first) and returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

}  // namespace neuron::collectives
