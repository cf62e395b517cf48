// backward_thread.h: which thread runs a backward pass. PyTorch hands the part on a device to a thread of autograd's own,
// so that devices work side by side. In a process with one device that thread only costs: it is woken for every pass, on a
// core that may sleep. There the calling thread runs its passes itself, as it does on the CPU.
#pragma once

#include <c10/macros/Macros.h>

namespace torch_backend {

// Whether this thread has settled it. (`initial-exec`: an allocation reads it, and must not pay for a call.)
extern __thread bool backward_thread_chosen __attribute__((tls_model("initial-exec")));
void choose_backward_thread();

// To be called when a thread uses the device: the first use settles it. What the thread asks of
// torch.autograd.set_multithreading_enabled from then on holds; TORCH_BACKEND_AUTOGRAD_THREADS=1 leaves all to torch.
inline void use_backward_thread() {
  if (C10_UNLIKELY(!backward_thread_chosen)) choose_backward_thread();
}

}  // namespace torch_backend
