// The operators that a thread is running, for the guard's reports. Fixed buffers throughout: a signal handler reads them.
#pragma once

#include <array>
#include <cstddef>

namespace neuron::runtime::guard {

inline constexpr std::size_t kOperatorName = 96;
using OperatorName = std::array<char, kOperatorName>;

// Called around every operator that the framework dispatches. Names are copied, and cut if they are long.
void push_operator(const char* name, const char* overload);
void pop_operator() noexcept;

// "aten::add.Tensor", or for nested operators "aten::add.Tensor < aten::addmm < test::op" (innermost first); empty when none runs.
// Cut to the size of the buffer.
void describe_running_operators(char* buffer, std::size_t size) noexcept;
// Innermost running operator of this thread, else the last one that ended; "" when there was none.
OperatorName running_operator() noexcept;
OperatorName last_operator() noexcept;

}  // namespace neuron::runtime::guard
