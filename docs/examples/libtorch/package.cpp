// A model that torch compiled ahead of time, without Python (docs/torch-compile.md):
//
//   package model.pt2 [<plugin> [<batch>]]
//
// Prints the model's output for inputs of ones, a line for each row.
#include <ATen/ATen.h>
#include <torch_backend/torch_backend.h>

#include <cstdio>
#include <string>

namespace {

void print_rows(const at::Tensor &output) {
  const at::Tensor rows = output.cpu();
  for (int64_t row = 0; row < rows.size(0); ++row)
    for (int64_t column = 0; column < rows.size(1); ++column)
      std::printf(column + 1 == rows.size(1) ? "%.7g\n" : "%.7g ", rows[row][column].item<float>());
}

}  // namespace

int main(int argc, char **argv) {
  torch_backend::open(argc > 2 ? argv[2] : "fake");
  const int64_t batch = argc > 3 ? std::stoi(argv[3]) : 1;
  try {
    const auto model = torch_backend::load_package(argc > 1 ? argv[1] : "model.pt2");
    const at::Tensor x = at::ones({batch, 16}, at::TensorOptions().device(torch_backend::kDeviceType));
    print_rows(model->run({x})[0]);
  } catch (const c10::Error &error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}
