// shutdown.cpp: handles a process that exits right after a backward pass.
//
// loss.backward() returns when the graph's future is completed, but the engine's device thread (pt_autograd_N) then
// still releases its reference to the graph task. The task holds the caller's thread-local state with Python objects,
// so the thread acquires the GIL. If the interpreter is being finalized at that time, CPython ends the thread inside a
// destructor, and C++ calls std::terminate. A thread of an unused device may also still wait for the GIL, which it
// acquires once when it starts. So before finalization every device thread receives one more task without Python
// objects. Threads run one task at a time. When that task runs, all earlier tasks are finished, and afterwards the
// thread waits in its queue and never needs the GIL again.
//
// On a very busy machine, a thread may not be scheduled for a long time and still be late. Therefore a thread that
// CPython ends inside a destructor is parked instead of ending the process, as CPython itself does from 3.14 on.
#include "core/shutdown/shutdown.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "core/status.h"

namespace torch_backend {
namespace {

using torch::autograd::Engine;
using torch::autograd::variable_list;

// Takes a gradient on one device and returns nothing.
struct LastTask final : torch::autograd::Node {
  variable_list apply(variable_list &&) override { return {}; }
};

// The engine starts one thread per device index at the first backward pass, not earlier.
struct EngineAccess final : Engine {
  static size_t thread_count(Engine &engine) { return (engine.*(&EngineAccess::device_ready_queues_)).size(); }
};

void run_last_task(Engine &engine, c10::DeviceIndex device) {
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  const at::Tensor gradient = at::detail::empty_generic(
      {0}, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), at::kFloat, std::nullopt);
  auto task = c10::make_intrusive<LastTask>();
  task->add_input_metadata(gradient);
  // As backward(): without outputs, the engine accepts only tasks that accumulate gradients, of which this has none.
  engine.execute({torch::autograd::Edge(std::move(task), 0)}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
                 /*accumulate_grad=*/true);
}

std::terminate_handler previous_terminate = nullptr;
std::thread::id ending_thread;

// Called for std::terminate without an exception in another thread, while the interpreter ends: pthread_exit ran into a
// destructor.
[[noreturn]] void park_or_terminate() {
  if (std::this_thread::get_id() != ending_thread && !std::current_exception())
    for (;;) pause();
  if (previous_terminate) previous_terminate();
  std::abort();
}

void park_late_threads() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  ending_thread = std::this_thread::get_id();
  previous_terminate = std::set_terminate(&park_or_terminate);
}

}  // namespace

bool quiesce_autograd(double seconds) {
  park_late_threads();
  Engine &engine = Engine::get_default_engine();
  const size_t threads = EngineAccess::thread_count(engine);
  if (threads == 0) return true;
  // Runs in a separate thread. It has no Python state, so neither have the graph tasks that it creates, which store
  // their creator's thread-local state. A device that hangs cannot block the exit.
  auto finished = std::make_shared<std::promise<void>>();
  std::future<void> future = finished->get_future();
  std::thread([&engine, threads, finished] {
    try {
      for (size_t device = 0; device < threads && device < static_cast<size_t>(hal_device_count()); ++device)
        run_last_task(engine, static_cast<c10::DeviceIndex>(device));
    } catch (const std::exception &error) {  // a forked child of a process with these threads has none
      hal_log(HAL_LOG_INFO, "waiting for autograd's threads: %s", error.what());
    }
    finished->set_value();
  }).detach();
  return future.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

void drain_devices() {
  for_each_used_device([](int32_t device) {
    const hal_status_t status = hal_device_synchronize(device);
    if (status != HAL_OK) warn_status(status, "work that was still queued at the end of the process failed");
  });
}

}  // namespace torch_backend
