// backward_thread.cpp: autograd's multithreading flag is thread-local, so each thread sets it separately.
#include "core/autograd/backward_thread.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstdlib>
#include <cstring>

#include "hal/hal.h"

namespace torch_backend {

__thread bool backward_thread_chosen = false;

void choose_backward_thread() {
  static const bool left_to_torch = [] {
    const char *setting = std::getenv("TORCH_BACKEND_AUTOGRAD_THREADS");
    return setting != nullptr && std::strcmp(setting, "1") == 0;
  }();
  if (!left_to_torch && hal_device_count() == 1) {
    // A backward pass is running on this thread, with the flag of the thread that started it; try again later.
    if (torch::autograd::get_current_graph_task_id() != -1) return;
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  backward_thread_chosen = true;
}

}  // namespace torch_backend
