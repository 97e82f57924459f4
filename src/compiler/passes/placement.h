// Puts the work on the device when tensors of the host reach a program.
//
// move_to_device: a program whose tensors are all on the host (model and inputs were left on the CPU) runs on the device: each input that
// is read is copied there first, devices named by factories become the device, results that the trace expects on the host are copied back
// with their strides and offsets, sharing memory as they do on the device, and inputs that the program writes are copied back too. Results
// that are views of an input are made on the host, of the caller's own tensor.
//
// copy_host_operands: in a program with tensors on both sides, an instruction that mixes them gets copies of the host's operands on the
// device. 0-d host tensors may be mixed as they are. Instructions that are meant to cross (copies, indexing by host tensors) are left
// alone.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// True if an input is a host tensor with at least one dimension and no value is on another device, so that move_to_device applies.
bool is_host_program(const Program& program);

void move_to_device(Program& program, const Place& device);

// Returns how many copies were inserted.
int copy_host_operands(Program& program);

}  // namespace neuron::compiler
