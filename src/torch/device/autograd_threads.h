// The autograd engine's worker threads at the end of the process.
#pragma once

namespace neuron::device {

// Waits until the engine's worker threads have let go of every backward pass that ended before this call. Each pass holds Python objects,
// which a worker drops a moment after backward() has returned; one that does so while the interpreter shuts down ends the process with an
// abort. Returns at once if no backward pass ever ran on the device. Waits a few seconds at most, never throws. Call it without the GIL,
// from an exit handler.
void drain_autograd_threads() noexcept;

// Called by the device guard when some thread enters a stream, as the engine does for every node that it runs on the device.
void note_stream_entered() noexcept;

}  // namespace neuron::device
