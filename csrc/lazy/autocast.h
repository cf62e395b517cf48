// autocast.h: torch.autocast("lazy"): the operators that run in a lower precision, or in float32, according to torch's
// lists for CUDA.
#pragma once

namespace torch_backend {

// Registers the casts, once. They apply if autocast of the type xla is enabled, which Python does for the type lazy
// (torch_backend.lazy.device).
void enable_lazy_autocast();

}  // namespace torch_backend
