// Ranks on several hosts: shared memory within a host, PyTorch's Gloo between hosts.
//
// The first rank of each host, its leader, speaks for it. Reductions add within each host first and then host by host, in the order of the
// hosts' first ranks: the same on every rank and from run to run; types of 16 and 8 bits are rounded once per host and once more. Leaders
// compare what they were asked to do before data moves; whatever goes wrong between hosts ends the operation on all ranks of the host.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "collectives/communicator.h"
#include "torch/distributed/gloo_mailbox.h"

namespace neuron::distributed {

class HierarchicalCommunicator final : public collectives::Communicator {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  // `hosts`: the ranks of each host in ascending order. `local` connects this host's; `collectives` and `messages` connect all ranks.
  HierarchicalCommunicator(int rank, std::vector<std::vector<int>> hosts, std::unique_ptr<collectives::Communicator> local,
                           Backend collectives, Backend messages);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void all_reduce(collectives::ConstBuffer input, void* output, collectives::DataType type, collectives::Reduction reduction,
                  const collectives::Call& call) override;
  void reduce(collectives::ConstBuffer input, void* output, int root, collectives::DataType type, collectives::Reduction reduction,
              const collectives::Call& call) override;
  void broadcast(collectives::Buffer data, int root, collectives::DataType type, const collectives::Call& call) override;
  void all_gather(collectives::ConstBuffer input, std::span<const collectives::Buffer> outputs, collectives::DataType type,
                  const collectives::Call& call) override;
  void reduce_scatter(std::span<const collectives::ConstBuffer> inputs, collectives::Buffer output, collectives::DataType type,
                      collectives::Reduction reduction, const collectives::Call& call) override;
  void all_to_all(std::span<const collectives::ConstBuffer> inputs, std::span<const collectives::Buffer> outputs,
                  collectives::DataType type, const collectives::Call& call) override;
  void gather(collectives::ConstBuffer input, std::span<const collectives::Buffer> outputs, int root, collectives::DataType type,
              const collectives::Call& call) override;
  void scatter(std::span<const collectives::ConstBuffer> inputs, collectives::Buffer output, int root, collectives::DataType type,
               const collectives::Call& call) override;
  void barrier(const collectives::Call& call) override;
  void abort(const std::string& why) noexcept override;
  collectives::Mailbox& mailbox() override { return mailbox_; }

 private:
  // Messages between ranks of different hosts that belong to one operation: posted, then waited for together.
  class Exchange;
  // What an operation needs in every part.
  struct Step {
    const char* name;
    collectives::DataType type;
    const collectives::Call& call;
  };

  [[nodiscard]] bool is_leader() const noexcept { return rank_ == hosts_[my_host_].front(); }
  [[nodiscard]] std::size_t host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int local_of(int rank) const noexcept { return local_of_[static_cast<std::size_t>(rank)]; }
  // Runs the leader's part between hosts and turns what it throws into the end of the operation for the host.
  template <typename Function>
  void between_hosts(const collectives::Call& call, Function&& function);
  // Leaders compare the operations.
  void compare(const Step& step, const std::string& details);
  // Leaders: combines each host's partial result, which is `data` on this one.
  void combine(void* data, std::size_t count, const Step& step, collectives::Reduction reduction);
  void reduce_here(collectives::ConstBuffer input, void* output, const Step& step, collectives::Reduction reduction);

  int rank_;
  int size_;
  std::vector<std::vector<int>> hosts_;
  std::vector<std::size_t> host_of_;
  std::vector<int> local_of_;
  std::size_t my_host_;
  std::unique_ptr<collectives::Communicator> local_;
  Backend collectives_;
  GlooMailbox mailbox_;
  std::string broken_;  // the first error; it stays
};

}  // namespace neuron::distributed
