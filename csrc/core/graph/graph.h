// graph.h: torch.accelerator.Graph over recorded programs (hal/program.h).
#pragma once

namespace torch_backend {

// Makes torch.accelerator.Graph work for the device type; once it has its name.
void register_graphs();

}  // namespace torch_backend
