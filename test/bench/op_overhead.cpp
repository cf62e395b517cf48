// op_overhead.cpp: calls at::add on 16 floats a given number of times, so that callgrind can count the instructions of
// one call. The forms fallback and fallback_out call an operator that no device has; in the form recorded the calls are
// deferred (hal/lazy.h) and never run.
//
// Usage: op_overhead cpu|PLUGIN functional|out|broadcast|scalar|recorded|fallback|fallback_out COUNT [PLUGIN_DIRECTORY]
#include <ATen/ATen.h>
#include <hal/hal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Defers the calls, none of which runs: the process exits before.
static int record(const at::Tensor &x, const at::Tensor &y, long count) {
  hal_lazy_t *lazy = nullptr;
  hal_lazy_desc_t desc{};
  desc.struct_size = sizeof desc;
  desc.limit = desc.piece = UINT32_MAX;
  at::Tensor out;
  if (x.is_privateuseone() && hal_lazy_begin(nullptr, &desc, &lazy)) return 1;
  for (long i = 0; i < count; i++) out = at::add(x, y);
  std::_Exit(0);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s cpu|PLUGIN FORM COUNT [PLUGIN_DIRECTORY]; the forms stand in the source\n",
                 argv[0]);
    return 2;
  }
  const char *form = argv[2];
  const long count = std::strtol(argv[3], nullptr, 10);
  auto options = at::TensorOptions().dtype(at::kFloat);
  if (std::strcmp(argv[1], "cpu") != 0) {
    if ((argc > 4 && hal_registry_add_path(argv[4])) || hal_registry_open(argv[1])) {
      std::fprintf(stderr, "%s\n", hal_error_message());
      return 1;
    }
    options = options.device(c10::DeviceType::PrivateUse1, 0);
  }
  const at::Tensor x = at::ones({16}, options), y = at::ones({16}, options), row = at::ones({1}, options);
  at::Tensor out = at::empty({16}, options);
  if (std::strcmp(form, "out") == 0)
    for (long i = 0; i < count; i++) at::add_out(out, x, y);
  else if (std::strcmp(form, "broadcast") == 0)
    for (long i = 0; i < count; i++) out = at::add(x, row);
  else if (std::strcmp(form, "scalar") == 0)
    for (long i = 0; i < count; i++) out = at::add(x, 2);
  else if (std::strcmp(form, "recorded") == 0)
    return record(x, y, count);
  else if (std::strcmp(form, "fallback") == 0)  // 2 x
    for (long i = 0; i < count; i++) out = at::special_hermite_polynomial_h(x, y);
  else if (std::strcmp(form, "fallback_out") == 0)
    for (long i = 0; i < count; i++) at::special_hermite_polynomial_h_out(out, x, y);
  else
    for (long i = 0; i < count; i++) out = at::add(x, y);
  const float sum = out.sum().item<float>();
  if (count > 0 && sum != 32.0f && sum != 48.0f) {
    std::fprintf(stderr, "wrong result %g\n", sum);
    return 1;
  }
  std::fflush(nullptr);
  std::_Exit(0);  // the static destructors of torch are not measured
}
