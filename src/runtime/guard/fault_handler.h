// The SIGSEGV handler of the guard, and its reports.
#pragma once

#include "runtime/guard/guarded_ranges.h"

namespace neuron::runtime::guard {

// Puts the guard's handler in front of whatever handles SIGSEGV now. Cheap when it is there already; called for every outermost scope,
// because others (faulthandler) install handlers at any time.
void claim_fault_handler() noexcept;

// Where reports go besides standard error.
void open_report_file(const char* path) noexcept;

// Reports that the bytes around a block were overwritten, and ends the process.
[[noreturn]] void report_damage(const Range& range, const std::byte* where) noexcept;

}  // namespace neuron::runtime::guard
