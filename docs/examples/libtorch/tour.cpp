// The parts of the C++ API, one function each; docs/cpp-api.md explains them.
#include <ATen/ATen.h>
#include <torch_backend/torch_backend.h>

#include <iostream>

namespace {

at::TensorOptions on_device() { return at::TensorOptions().device(torch_backend::kDeviceType); }

// errors: c10's exceptions, with the message of the plugin or the HAL.
void errors() {
  try {
    torch_backend::set_device(100);
  } catch (const c10::Error &error) {
    std::cout << "errors: " << error.what_without_backtrace() << "\n";
  }
}

// streams: a guard selects the current stream of this thread.
void streams() {
  const torch_backend::Stream side = torch_backend::get_stream_from_pool();
  torch_backend::Event ready;
  const at::Tensor x = at::ones({1000}, on_device());
  ready.record();     // the work so far, on the current stream
  ready.block(side);  // `side` waits for it; the host does not
  at::Tensor y;
  {
    const torch_backend::StreamGuard guard(side);
    y = x + 1;
  }
  torch_backend::record_stream(x.storage().data_ptr(), side);  // x is used on a second stream
  side.synchronize();
  std::cout << "streams: " << y.sum().item<float>() << "\n";
}

// events: the time between two events.
void events() {
  torch_backend::Event start(/*timing=*/true), end(/*timing=*/true);
  start.record();
  const at::Tensor x = at::ones({1000}, on_device());
  end.record();
  end.synchronize();
  std::cout << "events: " << (start.elapsed_time(end) >= 0 ? "measured" : "not measured") << "\n";
}

// memory: statistics of the caching allocator, and a limit.
void memory() {
  const at::Tensor x = at::empty({1 << 20}, on_device().dtype(at::kByte));
  std::cout << "memory: " << torch_backend::memory_allocated() << " bytes are allocated\n";
  try {
    const auto total = static_cast<int64_t>(torch_backend::mem_get_info().second);
    at::empty({total * 2}, on_device().dtype(at::kByte));
  } catch (const c10::OutOfMemoryError &) {
    std::cout << "memory: an allocation of twice the memory failed\n";
  }
  torch_backend::empty_cache();
}

// random numbers: one seed, the same numbers.
void random_numbers() {
  torch_backend::manual_seed_all(42);
  const at::Tensor a = at::randn({4}, on_device());
  torch_backend::manual_seed_all(42);
  const at::Tensor b = at::randn({4}, on_device());
  std::cout << "random: " << (at::equal(a, b) ? "equal" : "different") << "\n";
}

}  // namespace

int main(int argc, char **argv) {
  torch_backend::open(argc > 1 ? argv[1] : "fake");
  errors();
  streams();
  events();
  memory();
  random_numbers();
  return 0;
}
