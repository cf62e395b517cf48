// package_calls.cpp: microseconds of a run of a package and of its operators in eager mode; for package_calls.py.
//
//   package_calls model.pt2 <plugin> <batch> <width> <rounds> <calls>
#include <ATen/ATen.h>
#include <torch_backend/torch_backend.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

template <class Call>
double microseconds(int calls, const Call &call) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  torch_backend::synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace

int main(int, char **argv) {
  torch_backend::open(argv[2]);
  const int64_t batch = std::stoi(argv[3]), width = std::stoi(argv[4]);
  const int rounds = std::stoi(argv[5]), calls = std::stoi(argv[6]);
  const c10::InferenceMode no_gradients;
  const auto options = at::TensorOptions().device(torch_backend::kDeviceType);
  const at::Tensor x = at::ones({batch, width}, options), bias = at::ones({width}, options);
  const at::Tensor weight = at::ones({width, width}, options).t();
  const auto model = torch_backend::load_package(argv[1], {.single_threaded = true});
  const auto run = [&] { model->run({x}); };
  const auto eager = [&] { at::addmm(bias, at::gelu(at::addmm(bias, x, weight)), weight); };
  microseconds(calls, run), microseconds(calls, eager);
  std::vector<double> package, operators;
  for (int i = 0; i < rounds; ++i) {
    package.push_back(microseconds(calls, run));
    operators.push_back(microseconds(calls, eager));
  }
  std::printf("[%.3f, %.3f]\n", median(package), median(operators));
}
