// The current device: per thread. A thread that never chose one sees the device that the main thread selected last, because libraries load
// weights from worker threads and expect the caller's device there. None of these functions initialises the runtime.
#pragma once

namespace neuron::runtime {

int current_device() noexcept;

// Throws Error(kInvalidDevice) when the index is out of range.
void set_device(int device);

// Sets and returns the device that was current before. Throws as set_device.
int exchange_device(int device);

// The same without the range check: for guards that restore a device which was valid before. A negative index changes nothing.
int unchecked_exchange_device(int device) noexcept;

// Throws Error(kInvalidDevice) with a message that says which devices exist (or why none do).
void check_device(int device);

// Called in a forked child: the thread that called fork() is its main thread.
void forked_thread_is_main() noexcept;

}  // namespace neuron::runtime
