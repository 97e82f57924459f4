// The last operations of this process on all its groups, for a look after something went wrong.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace neuron::distributed {

class FlightRecorder {
 public:
  enum class State : std::uint8_t { kScheduled, kStarted, kCompleted, kFailed };

  // Its size is TORCH_NEURONX_FLIGHT_RECORDER_SIZE operations (default 512, 0 turns it off).
  static FlightRecorder& instance();

  // Returns the entry's number for the calls below, which are ignored when the entry has been overwritten by then.
  std::uint64_t record(const std::string& group, const char* operation, std::uint64_t sequence, const at::TensorList& inputs,
                       const at::TensorList& outputs);
  void change(std::uint64_t entry, State state, std::uint64_t sequence);

  // A JSON object: version, pid, entries from the oldest to the newest.
  [[nodiscard]] std::string to_json() const;
  // Writes to the file <TORCH_NEURONX_FLIGHT_RECORDER_DUMP>_rank<global rank>.json, if the variable is set; returns the path, or nothing.
  // The first failure of a process is the one to look at: later calls write nothing.
  std::string dump_after_failure(std::uint64_t global_rank) noexcept;

 private:
  using Clock = std::chrono::system_clock;
  static constexpr std::size_t kSizes = 6;

  struct Shape {
    c10::ScalarType type = c10::ScalarType::Undefined;
    std::int8_t dimensions = 0;
    std::array<std::int64_t, kSizes> sizes{};
  };
  struct Entry {
    std::uint64_t number = 0;  // 0: never used
    std::string group;
    const char* operation = "";
    std::uint64_t sequence = 0;
    std::vector<Shape> inputs;
    std::vector<Shape> outputs;
    State state = State::kScheduled;
    Clock::time_point scheduled;
    Clock::time_point started;
    Clock::time_point finished;
  };

  explicit FlightRecorder(std::size_t size) : entries_(size) {}
  static void copy_shapes(const at::TensorList& tensors, std::vector<Shape>& shapes);
  static std::string to_json(const Entry& entry);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t count_ = 0;
  bool dumped_ = false;
};

}  // namespace neuron::distributed
