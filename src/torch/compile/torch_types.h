// Between the compiler's torch-free types and PyTorch's: element types, devices, and the literals of arguments.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "compiler/argument.h"
#include "compiler/type.h"

namespace neuron::compile {

compiler::ScalarKind to_scalar_kind(at::ScalarType type);
// Throws c10::ValueError for kOther.
at::ScalarType to_scalar_type(compiler::ScalarKind kind);

compiler::Place to_place(const c10::Device& device);
c10::Device to_device(const compiler::Place& place);

// Literals that stand for an enumeration of PyTorch's: dtype:bf16, layout:strided, memory_format:preserve, device:neuron:0.
compiler::Symbol dtype_symbol(at::ScalarType type);
compiler::Symbol layout_symbol(at::Layout layout);
compiler::Symbol memory_format_symbol(at::MemoryFormat format);
compiler::Symbol device_symbol(const c10::Device& device);

// An argument without values as what the dispatcher expects for a parameter of this type.
// Throws c10::ValueError if the literal does not fit the type.
c10::IValue to_ivalue(const compiler::Argument& argument, const c10::Argument& parameter);

}  // namespace neuron::compile
