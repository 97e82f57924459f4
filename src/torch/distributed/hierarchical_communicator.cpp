// See hierarchical_communicator.h.
#include "torch/distributed/hierarchical_communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "collectives/error.h"
#include "collectives/reduce/reduce.h"

namespace neuron::distributed {

using collectives::Buffer;
using collectives::Call;
using collectives::ConstBuffer;
using collectives::DataType;
using collectives::Error;
using collectives::ErrorCode;
using collectives::ReduceOp;
using collectives::Reduction;

namespace {

constexpr int kTag = 0;
constexpr std::size_t kHeaderBytes = 256;

// The partial result of a host takes part in further steps with the operation that is left: factors and divisions are applied once.
ReduceOp within_host(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }
ReduceOp across_hosts(ReduceOp op) { return op == ReduceOp::kPreMultipliedSum ? ReduceOp::kSum : op; }

}  // namespace

// Stages through host memory: Gloo's threads must not touch device memory.
class HierarchicalCommunicator::Exchange {
 public:
  Exchange(c10d::Backend& backend, std::chrono::milliseconds timeout) : backend_(backend), timeout_(timeout) {}

  void send(int to, const void* data, std::size_t bytes) {
    if (bytes == 0) {
      return;
    }
    auto staged = host_bytes(bytes);
    std::memcpy(staged.mutable_data_ptr(), data, bytes);
    std::vector<at::Tensor> tensors{staged};
    parts_.push_back({backend_.send(tensors, to, kTag), staged, nullptr, to});
  }

  void receive(int from, void* data, std::size_t bytes) {
    if (bytes == 0) {
      return;
    }
    auto staged = host_bytes(bytes);
    std::vector<at::Tensor> tensors{staged};
    parts_.push_back({backend_.recv(tensors, from, kTag), staged, data, from});
  }

  void finish() {
    for (auto& part : parts_) {
      try {
        part.work->wait(timeout_);
      } catch (const std::exception& gloo) {
        throw Error(ErrorCode::kPeerDied, "the host of rank " + std::to_string(part.peer) + " does not answer: " + gloo.what());
      }
      if (part.target != nullptr) {
        std::memcpy(part.target, part.staged.const_data_ptr(), part.staged.nbytes());
      }
    }
    parts_.clear();
  }

 private:
  struct Part {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor staged;
    void* target;
    int peer;
  };

  c10d::Backend& backend_;
  std::chrono::milliseconds timeout_;
  std::vector<Part> parts_;
};

HierarchicalCommunicator::HierarchicalCommunicator(int rank, std::vector<std::vector<int>> hosts, std::unique_ptr<Communicator> local,
                                                   Backend collectives, Backend messages)
    : rank_(rank),
      size_(0),
      hosts_(std::move(hosts)),
      my_host_(0),
      local_(std::move(local)),
      collectives_(std::move(collectives)),
      mailbox_(std::move(messages)) {
  for (const auto& host : hosts_) {
    size_ += static_cast<int>(host.size());
  }
  host_of_.resize(static_cast<std::size_t>(size_));
  local_of_.resize(static_cast<std::size_t>(size_));
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    for (std::size_t place = 0; place < hosts_[host].size(); ++place) {
      host_of_[static_cast<std::size_t>(hosts_[host][place])] = host;
      local_of_[static_cast<std::size_t>(hosts_[host][place])] = static_cast<int>(place);
    }
  }
  my_host_ = host_of(rank_);
}

template <typename Function>
void HierarchicalCommunicator::between_hosts(const Call& call, Function&& function) {
  if (!broken_.empty()) {
    throw Error(ErrorCode::kAborted, broken_);
  }
  try {
    Exchange exchange(*collectives_, std::max(call.timeout, std::chrono::milliseconds(1)));
    function(exchange);
    exchange.finish();
  } catch (const std::exception& error) {
    broken_ = error.what();
    local_->abort(broken_);
    throw;
  }
}

void HierarchicalCommunicator::compare(const Step& step, const std::string& details) {
  if (!is_leader()) {
    return;
  }
  auto text = std::string(step.name) + ", sequence number " + std::to_string(step.call.sequence) + ", of " +
              std::string(collectives::name(step.type)) + details;
  text.resize(kHeaderBytes, '\0');
  std::vector<std::string> theirs(hosts_.size(), std::string(kHeaderBytes, '\0'));
  between_hosts(step.call, [&](Exchange& exchange) {
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (host != my_host_) {
        exchange.send(hosts_[host].front(), text.data(), kHeaderBytes);
        exchange.receive(hosts_[host].front(), theirs[host].data(), kHeaderBytes);
      }
    }
    exchange.finish();
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (host != my_host_ && theirs[host] != text) {
        throw Error(ErrorCode::kMismatch, "rank " + std::to_string(rank_) + " calls " + text.c_str() + ", but rank " +
                                              std::to_string(hosts_[host].front()) + " calls " + theirs[host].c_str());
      }
    }
  });
}

void HierarchicalCommunicator::combine(void* data, std::size_t count, const Step& step, Reduction reduction) {
  const std::size_t width = element_size(step.type);
  std::vector<at::Tensor> partials(hosts_.size());
  between_hosts(step.call, [&](Exchange& exchange) {
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (host != my_host_) {
        partials[host] = host_bytes(count * width);
        exchange.send(hosts_[host].front(), data, count * width);
        exchange.receive(hosts_[host].front(), partials[host].mutable_data_ptr(), count * width);
      }
    }
  });
  const auto op = across_hosts(reduction.op);
  const auto kernel = collectives::reduce_kernel(step.type, op);
  // The average divides by the number of its sources, so zeros stand for the ranks whose numbers are in the hosts' sums already.
  constexpr std::size_t kChunk = 4096;
  const std::vector<std::byte> zeros(op == ReduceOp::kAverage ? kChunk * width : 0);
  const std::size_t chunk = op == ReduceOp::kAverage ? kChunk : std::max<std::size_t>(count, 1);
  std::vector<const void*> sources(op == ReduceOp::kAverage ? static_cast<std::size_t>(size_) : hosts_.size(), zeros.data());
  for (std::size_t begin = 0; begin < count; begin += chunk) {
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const auto* const base =
          host == my_host_ ? static_cast<const std::byte*>(data) : static_cast<const std::byte*>(partials[host].const_data_ptr());
      sources[host] = base + begin * width;
    }
    kernel(sources.data(), static_cast<int>(sources.size()), nullptr, static_cast<std::byte*>(data) + begin * width,
           std::min(chunk, count - begin));
  }
}

void HierarchicalCommunicator::reduce_here(ConstBuffer input, void* output, const Step& step, Reduction reduction) {
  reduction.op = within_host(reduction.op);
  local_->reduce(input, is_leader() ? output : nullptr, 0, step.type, reduction, step.call);
}

void HierarchicalCommunicator::all_reduce(ConstBuffer input, void* output, DataType type, Reduction reduction, const Call& call) {
  const Step step{"all_reduce", type, call};
  compare(step, ", " + std::string(collectives::name(reduction.op)) + ", " + std::to_string(input.count) + " elements");
  reduce_here(input, output, step, reduction);
  if (is_leader()) {
    combine(output, input.count, step, reduction);
  }
  local_->broadcast({output, input.count}, 0, type, call);
}

void HierarchicalCommunicator::reduce(ConstBuffer input, void* output, int root, DataType type, Reduction reduction, const Call& call) {
  const auto scratch = host_bytes(rank_ == root ? 0 : input.count * element_size(type));
  all_reduce(input, rank_ == root ? output : scratch.mutable_data_ptr(), type, reduction, call);
}

void HierarchicalCommunicator::broadcast(Buffer data, int root, DataType type, const Call& call) {
  compare({"broadcast", type, call}, " from rank " + std::to_string(root) + ", " + std::to_string(data.count) + " elements");
  const std::size_t bytes = data.count * element_size(type);
  if (host_of(root) == my_host_) {
    local_->broadcast(data, local_of(root), type, call);
  }
  if (is_leader()) {
    between_hosts(call, [&](Exchange& exchange) {
      if (host_of(root) != my_host_) {
        exchange.receive(hosts_[host_of(root)].front(), data.data, bytes);
        return;
      }
      for (std::size_t host = 0; host < hosts_.size(); ++host) {
        if (host != my_host_) {
          exchange.send(hosts_[host].front(), data.data, bytes);
        }
      }
    });
  }
  if (host_of(root) != my_host_) {
    local_->broadcast(data, 0, type, call);
  }
}

void HierarchicalCommunicator::all_gather(ConstBuffer input, std::span<const Buffer> outputs, DataType type, const Call& call) {
  compare({"all_gather", type, call}, "");
  const std::size_t width = element_size(type);
  std::vector<Buffer> here;
  for (const int rank : hosts_[my_host_]) {
    here.push_back(outputs[static_cast<std::size_t>(rank)]);
  }
  local_->all_gather(input, here, type, call);
  if (is_leader()) {
    between_hosts(call, [&](Exchange& exchange) {
      for (std::size_t host = 0; host < hosts_.size(); ++host) {
        if (host == my_host_) {
          continue;
        }
        for (const auto& own : here) {
          exchange.send(hosts_[host].front(), own.data, own.count * width);
        }
        for (const int rank : hosts_[host]) {
          const auto& theirs = outputs[static_cast<std::size_t>(rank)];
          exchange.receive(hosts_[host].front(), theirs.data, theirs.count * width);
        }
      }
    });
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (host_of(rank) != my_host_) {
      local_->broadcast(outputs[static_cast<std::size_t>(rank)], 0, type, call);
    }
  }
}

void HierarchicalCommunicator::reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, Reduction reduction,
                                              const Call& call) {
  const Step step{"reduce_scatter", type, call};
  compare(step, ", " + std::string(collectives::name(reduction.op)));
  const std::size_t width = element_size(type);
  std::vector<at::Tensor> totals(inputs.size());
  for (int rank = 0; rank < size_; ++rank) {
    const auto& input = inputs[static_cast<std::size_t>(rank)];
    auto& total = totals[static_cast<std::size_t>(rank)];
    total = host_bytes(is_leader() ? input.count * width : 0);
    reduce_here(input, total.mutable_data_ptr(), step, reduction);
    if (is_leader()) {
      combine(total.mutable_data_ptr(), input.count, step, reduction);
    }
  }
  std::vector<ConstBuffer> here;
  for (const int rank : hosts_[my_host_]) {
    here.push_back({totals[static_cast<std::size_t>(rank)].const_data_ptr(), inputs[static_cast<std::size_t>(rank)].count});
  }
  local_->scatter(is_leader() ? std::span<const ConstBuffer>(here) : std::span<const ConstBuffer>(), output, 0, type, call);
}

void HierarchicalCommunicator::all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, DataType type,
                                          const Call& call) {
  compare({"all_to_all", type, call}, "");
  const std::size_t width = element_size(type);
  Exchange exchange(*collectives_, std::max(call.timeout, std::chrono::milliseconds(1)));
  std::vector<ConstBuffer> sends;
  std::vector<Buffer> receives;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& input = inputs[static_cast<std::size_t>(rank)];
    const auto& output = outputs[static_cast<std::size_t>(rank)];
    if (host_of(rank) == my_host_) {
      sends.push_back(input);
      receives.push_back(output);
    } else {
      exchange.send(rank, input.data, input.count * width);
      exchange.receive(rank, output.data, output.count * width);
    }
  }
  local_->all_to_all(sends, receives, type, call);
  exchange.finish();
}

void HierarchicalCommunicator::gather(ConstBuffer input, std::span<const Buffer> outputs, int root, DataType type, const Call& call) {
  compare({"gather", type, call}, " to rank " + std::to_string(root));
  const std::size_t width = element_size(type);
  Exchange exchange(*collectives_, std::max(call.timeout, std::chrono::milliseconds(1)));
  std::vector<Buffer> here;
  if (rank_ == root) {
    for (int rank = 0; rank < size_; ++rank) {
      const auto& output = outputs[static_cast<std::size_t>(rank)];
      if (host_of(rank) == my_host_) {
        here.push_back(output);
      } else {
        exchange.receive(rank, output.data, output.count * width);
      }
    }
  }
  if (host_of(root) == my_host_) {
    local_->gather(input, here, local_of(root), type, call);
  } else {
    exchange.send(root, input.data, input.count * width);
  }
  exchange.finish();
}

void HierarchicalCommunicator::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, DataType type, const Call& call) {
  compare({"scatter", type, call}, " from rank " + std::to_string(root));
  const std::size_t width = element_size(type);
  Exchange exchange(*collectives_, std::max(call.timeout, std::chrono::milliseconds(1)));
  std::vector<ConstBuffer> here;
  if (rank_ == root) {
    for (int rank = 0; rank < size_; ++rank) {
      const auto& input = inputs[static_cast<std::size_t>(rank)];
      if (host_of(rank) == my_host_) {
        here.push_back(input);
      } else {
        exchange.send(rank, input.data, input.count * width);
      }
    }
  }
  if (host_of(root) == my_host_) {
    local_->scatter(here, output, local_of(root), type, call);
  } else {
    exchange.receive(root, output.data, output.count * width);
  }
  exchange.finish();
}

void HierarchicalCommunicator::barrier(const Call& call) {
  local_->barrier(call);
  compare({"barrier", DataType::kUInt8, call}, "");
  local_->barrier(call);
}

void HierarchicalCommunicator::abort(const std::string& why) noexcept {
  local_->abort(why);
  try {
    collectives_->abort();
  } catch (const std::exception&) {  // nothing more can be done
  }
}

}  // namespace neuron::distributed
