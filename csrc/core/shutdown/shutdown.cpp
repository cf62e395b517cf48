// shutdown.cpp: a process that ends right after a backward pass.
//
// loss.backward() returns when the graph's future is completed, but the engine's device thread (pt_autograd_N) then
// still drops its reference to the graph task. That keeps the caller's thread-local state, which holds Python objects,
// so the thread takes the GIL. If the interpreter is finalising by then, CPython ends the thread inside a destructor,
// and C++ calls std::terminate. A thread of an unused device may likewise still be waiting for the GIL that it takes
// once when it starts. So before finalisation every device thread is handed one more task that holds nothing of
// Python's. Threads work one task at a time: when that task runs, everything before it is over, and after it the thread
// waits in its queue without ever needing the GIL again.
//
// On a machine so busy that a thread is not scheduled for long, one can still come late. So from then on a thread that
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

// Takes a gradient on one device and gives nothing on.
struct LastTask final : torch::autograd::Node {
  variable_list apply(variable_list &&) override { return {}; }
};

// The engine starts one thread per device index at the first backward pass, and only then.
struct EngineAccess final : Engine {
  static size_t thread_count(Engine &engine) { return (engine.*(&EngineAccess::device_ready_queues_)).size(); }
};

void run_last_task(Engine &engine, c10::DeviceIndex device) {
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  const at::Tensor gradient = at::detail::empty_generic(
      {0}, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), at::kFloat, std::nullopt);
  auto task = c10::make_intrusive<LastTask>();
  task->add_input_metadata(gradient);
  engine.execute({torch::autograd::Edge(std::move(task), 0)}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
                 /*accumulate_grad=*/false);
}

std::terminate_handler previous_terminate = nullptr;
std::thread::id ending_thread;

// Another thread's std::terminate without an exception, while the interpreter ends: pthread_exit met a destructor.
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
  // A thread of its own: it has no Python state, so neither have the graph tasks that it makes, which keep their
  // maker's thread-local state; and a device that hangs cannot hold up the exit.
  auto finished = std::make_shared<std::promise<void>>();
  std::future<void> future = finished->get_future();
  std::thread([&engine, threads, finished] {
    try {
      for (size_t device = 0; device < threads && device < static_cast<size_t>(hal_device_count()); ++device)
        run_last_task(engine, static_cast<c10::DeviceIndex>(device));
    } catch (const std::exception &error) {  // a forked child of a process whose threads had started: it has none
      hal_log(HAL_LOG_INFO, "making autograd's threads idle: %s", error.what());
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
