// Messages of the process group: send and receive.
#include <c10/util/Exception.h>

#include <utility>

#include "torch/distributed/arguments.h"
#include "torch/distributed/flight_recorder.h"
#include "torch/distributed/process_group_neuron.h"

namespace neuron::distributed {

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::post(const char* name, Tensors& tensors, int peer, int tag, bool receive) {
  group_->check_not_inherited();
  TORCH_CHECK_VALUE(tensors.size() == 1, name, " takes one tensor");
  TORCH_CHECK_VALUE(tag >= 0, name, ": the tag must not be negative, but is ", tag);
  auto& tensor = tensors.front();
  c10::Device device(c10::kCPU);
  check_tensor(tensor, name, device);
  Message message;
  Staging staging;
  message.data = receive ? staging.staged_output(tensor, false) : staging.staged_input(tensor);
  staging.fill();
  if (receive && !message.data.is_same(tensor)) {
    message.target = tensor;
  }
  message.peer = peer;
  message.tag = tag;
  message.receive = receive;
  message.timeout = options_->timeout;
  const auto type = !receive                                   ? c10d::OpType::SEND
                    : peer == collectives::Mailbox::kAnySource ? c10d::OpType::RECVANYSOURCE
                                                               : c10d::OpType::RECV;
  auto work = c10::make_intrusive<WorkNeuron>(messages_, getRank(), type, name, tensors, tensors);
  work->set_sequence(++message_count_);
  message.work = work;
  FlightRecorder::instance().record(uid_, name, work->getSequencenumber(), receive ? Tensors{} : tensors, receive ? tensors : Tensors{});
  messages_->post(std::move(message));
  return remember(std::move(work));
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::send(Tensors& tensors, int destination, int tag) {
  check_root(destination);
  return post("send", tensors, destination, tag, false);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recv(Tensors& tensors, int source, int tag) {
  check_root(source);
  return post("recv", tensors, source, tag, true);
}

ProcessGroupNeuron::WorkPointer ProcessGroupNeuron::recvAnysource(Tensors& tensors, int tag) {
  return post("recv_anysource", tensors, collectives::Mailbox::kAnySource, tag, true);
}

}  // namespace neuron::distributed
