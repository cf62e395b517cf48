// backward_thread.h: selects the thread that runs a backward pass. PyTorch runs the part on a device in one of
// autograd's threads, so that devices work in parallel. In a process with one device that thread is only overhead: it
// is woken for every pass, on a core that may sleep. There the calling thread runs its passes itself, as on the CPU.
#pragma once

#include <c10/macros/Macros.h>

namespace torch_backend {

// Whether this thread has selected it. (`initial-exec`: every allocation reads it, and must avoid a call.)
extern __thread bool backward_thread_chosen __attribute__((tls_model("initial-exec")));
void choose_backward_thread();

// To be called when a thread uses the device: the first use selects the thread. Later calls of
// torch.autograd.set_multithreading_enabled take precedence. TORCH_BACKEND_AUTOGRAD_THREADS=1 leaves torch's default.
inline void use_backward_thread() {
  if (C10_UNLIKELY(!backward_thread_chosen)) choose_backward_thread();
}

}  // namespace torch_backend
