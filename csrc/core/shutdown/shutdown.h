// shutdown.h: what must be quiet before the interpreter ends.
#pragma once

namespace torch_backend {

// Makes the autograd engine's device threads idle for good: returns when each of them has finished all it was given and
// waits for work, holding nothing of Python's. Does nothing when no backward pass has run on a device thread. The
// caller does not hold the GIL. False = a thread was still busy after `seconds`.
bool quiesce_autograd(double seconds);

// Waits for the work of every device that was used in this process; failures are logged, since nobody is left to raise
// to.
void drain_devices();

}  // namespace torch_backend
