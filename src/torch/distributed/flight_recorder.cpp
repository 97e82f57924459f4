// See flight_recorder.h.
#include "torch/distributed/flight_recorder.h"

#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "runtime/environment.h"

namespace neuron::distributed {
namespace {

constexpr std::int64_t kDefaultSize = 512;
constexpr std::int64_t kLargestSize = 1 << 20;
constexpr std::size_t kMostShapes = 16;  // of one operation; lists can be as long as a group

const char* name(FlightRecorder::State state) {
  switch (state) {
    case FlightRecorder::State::kScheduled:
      return "scheduled";
    case FlightRecorder::State::kStarted:
      return "started";
    case FlightRecorder::State::kCompleted:
      return "completed";
    default:
      return "failed";
  }
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

}  // namespace

FlightRecorder& FlightRecorder::instance() {
  // Leaked: threads record until the process ends.
  static auto& recorder = *new FlightRecorder(static_cast<std::size_t>(
      runtime::Environment::process().integer("TORCH_NEURONX_FLIGHT_RECORDER_SIZE", 0, kLargestSize).value_or(kDefaultSize)));
  return recorder;
}

void FlightRecorder::copy_shapes(const at::TensorList& tensors, std::vector<Shape>& shapes) {
  shapes.clear();
  for (std::size_t i = 0; i < std::min(tensors.size(), kMostShapes); ++i) {
    Shape shape;
    shape.type = tensors[i].scalar_type();
    const auto sizes = tensors[i].sizes();
    shape.dimensions = static_cast<std::int8_t>(std::min(sizes.size(), kSizes));
    std::copy_n(sizes.begin(), shape.dimensions, shape.sizes.begin());
    shapes.push_back(shape);
  }
}

std::uint64_t FlightRecorder::record(const std::string& group, const char* operation, std::uint64_t sequence, const at::TensorList& inputs,
                                     const at::TensorList& outputs) {
  if (entries_.empty()) {
    return 0;
  }
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[count_ % entries_.size()];
  entry.number = ++count_;
  entry.group = group;
  entry.operation = operation;
  entry.sequence = sequence;
  copy_shapes(inputs, entry.inputs);
  copy_shapes(outputs, entry.outputs);
  entry.state = State::kScheduled;
  entry.scheduled = Clock::now();
  entry.started = entry.finished = {};
  return entry.number;
}

void FlightRecorder::change(std::uint64_t number, State state, std::uint64_t sequence) {
  if (number == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[(number - 1) % entries_.size()];
  if (entry.number != number) {
    return;
  }
  entry.state = state;
  entry.sequence = sequence;
  (state == State::kStarted ? entry.started : entry.finished) = Clock::now();
}

std::string FlightRecorder::to_json(const Entry& entry) {
  const auto seconds = [](Clock::time_point time) {
    return time == Clock::time_point{} ? std::string("null")
                                       : std::to_string(std::chrono::duration<double>(time.time_since_epoch()).count());
  };
  const auto shapes = [](const std::vector<Shape>& list) {
    std::string text;
    for (const auto& shape : list) {
      text += c10::str(text.empty() ? "" : ", ", "{\"dtype\": \"", shape.type, "\", \"sizes\": [");
      for (int i = 0; i < shape.dimensions; ++i) {
        text += c10::str(i == 0 ? "" : ", ", shape.sizes[static_cast<std::size_t>(i)]);
      }
      text += "]}";
    }
    return "[" + text + "]";
  };
  return c10::str("{\"entry\": ", entry.number, ", \"group\": ", quoted(entry.group), ", \"operation\": ", quoted(entry.operation),
                  ", \"sequence\": ", entry.sequence, ", \"state\": \"", name(entry.state), "\", \"inputs\": ", shapes(entry.inputs),
                  ", \"outputs\": ", shapes(entry.outputs), ", \"scheduled\": ", seconds(entry.scheduled),
                  ", \"started\": ", seconds(entry.started), ", \"finished\": ", seconds(entry.finished), "}");
}

std::string FlightRecorder::to_json() const {
  const std::lock_guard lock(mutex_);
  std::string text = c10::str("{\"version\": 1, \"pid\": ", getpid(), ", \"entries\": [");
  const auto size = entries_.size();
  const auto first = count_ > size ? count_ - size : 0;
  for (auto number = first; number < count_; ++number) {
    text += (number == first ? "\n  " : ",\n  ") + to_json(entries_[number % size]);
  }
  return text + "\n]}\n";
}

std::string FlightRecorder::dump_after_failure(std::uint64_t global_rank) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (dumped_) {
        return {};
      }
      dumped_ = true;
    }
    const auto prefix = runtime::Environment::process().raw("TORCH_NEURONX_FLIGHT_RECORDER_DUMP");
    if (!prefix || prefix->empty()) {
      return {};
    }
    auto path = c10::str(*prefix, "_rank", global_rank, ".json");
    std::ofstream file(path);
    file << to_json();
    return file.good() ? path : std::string();
  } catch (...) {  // the failure that is being reported matters more
    return {};
  }
}

}  // namespace neuron::distributed
