// toggle.h: pauses the device's activities of a profile, for the bindings, which do not depend on Kineto.
#pragma once

namespace torch_backend {

// Pauses or resumes the device's activities of the running torch.profiler; does nothing if there is none that collects
// them.
void toggle_profile(bool enable);

}  // namespace torch_backend
