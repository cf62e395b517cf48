// shutdown.h: work that must be finished before the interpreter ends.
#pragma once

namespace torch_backend {

// Makes the autograd engine's device threads idle permanently: returns when each of them has finished all its tasks and
// waits for work, without Python objects. Does nothing if no backward pass has run on a device thread. The caller does
// not hold the GIL. Returns false if a thread was still busy after `seconds`.
bool quiesce_autograd(double seconds);

// Waits for the work of every device that was used in this process. Failures are logged, because no caller is left to
// receive an exception.
void drain_devices();

}  // namespace torch_backend
