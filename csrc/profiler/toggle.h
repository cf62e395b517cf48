// toggle.h: pausing the device's rows of a profile, for the bindings, which know nothing of Kineto.
#pragma once

namespace torch_backend {

// Pauses or resumes the device's rows of the running torch.profiler; does nothing if there is none that collects them.
void toggle_profile(bool enable);

}  // namespace torch_backend
