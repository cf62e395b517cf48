// autocast.h: torch.autocast("lazy"): the operators that run in a lower precision, or in float32, by torch's lists for CUDA.
#pragma once

namespace torch_backend {

// Registers the casts, once. They act where autocast of the type xla is enabled, as which Python asks for it (torch_backend.lazy.device).
void enable_lazy_autocast();

}  // namespace torch_backend
