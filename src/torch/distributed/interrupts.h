// Ctrl-C during a wait.
#pragma once

namespace neuron::distributed {

// To be called now and then by a thread that waits without the GIL: on Python's main thread it runs pending signal handlers and passes on
// what they raise (KeyboardInterrupt).
void check_interrupt();

}  // namespace neuron::distributed
