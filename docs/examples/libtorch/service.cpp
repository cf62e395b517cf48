// A service on a device, without Python: threads serve requests, each on a stream of its own.
//
//   service [<plugin> [<threads>]] < requests
//
// A request is a line with numbers; the reply is the output of a small model, in the order of the requests.
#include <ATen/ATen.h>
#include <torch_backend/torch_backend.h>

#include <atomic>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kInputs = 4;

// The model: two layers. Its parameters are on the device; all threads read them.
class Model {
 public:
  Model() {
    at::manual_seed(0);
    first_ = at::randn({kInputs, 16}).to(torch_backend::kDeviceType);
    second_ = at::randn({16, 1}).to(torch_backend::kDeviceType);
    torch_backend::synchronize();  // before other streams use them
  }

  at::Tensor forward(const at::Tensor &x) const { return at::mm(at::relu(at::mm(x, first_)), second_); }

 private:
  at::Tensor first_, second_;
};

at::Tensor parse(const std::string &line) {
  const at::Tensor x = at::zeros({1, kInputs});
  std::istringstream numbers(line);
  for (int64_t i = 0; i < kInputs; ++i) {
    float value = 0;
    if (numbers >> value) x[0][i] = value;
  }
  return x;
}

}  // namespace

int main(int argc, char **argv) {
  torch_backend::open(argc > 1 ? argv[1] : "fake");
  const int thread_count = argc > 2 ? std::stoi(argv[2]) : 2;
  std::vector<std::string> requests;
  for (std::string line; std::getline(std::cin, line);) requests.push_back(line);

  const Model model;
  std::vector<float> replies(requests.size());
  std::atomic<size_t> next{0};
  const auto serve = [&] {
    const c10::InferenceMode no_gradients;
    const torch_backend::StreamGuard guard(torch_backend::get_stream_from_pool());  // this thread's stream
    for (size_t i; (i = next++) < requests.size();)
      replies[i] = model.forward(parse(requests[i]).to(torch_backend::kDeviceType)).item<float>();
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < thread_count; ++t) threads.emplace_back(serve);
  for (std::thread &thread : threads) thread.join();

  for (const float reply : replies) std::cout << reply << "\n";
  std::cerr << requests.size() << " requests, " << thread_count << " threads, device "
            << torch_backend::device_properties().name << "\n";
  return 0;
}
