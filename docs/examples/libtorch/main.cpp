// A program without Python: libtorch on a device of torch_backend.
#include <ATen/ATen.h>
#include <torch_backend/torch_backend.h>

#include <iostream>

int main(int argc, char **argv) {
  torch_backend::open(argc > 1 ? argv[1] : "fake");
  std::cout << "torch_backend " << TORCH_BACKEND_VERSION << ", " << static_cast<int>(torch_backend::device_count())
            << " device(s), the first is " << torch_backend::device_properties(0).name << "\n";

  torch_backend::Event start(/*timing=*/true), end(/*timing=*/true);
  const torch_backend::Stream stream = torch_backend::get_stream_from_pool();
  at::Tensor product;
  {
    const torch_backend::StreamGuard guard(stream);
    const at::Tensor a = at::full({256, 256}, 0.5, at::TensorOptions().device(torch_backend::kDeviceType));
    start.record();
    product = at::mm(a, a);
    end.record();
  }
  end.synchronize();
  const float first = product.cpu()[0][0].item<float>();
  std::cout << "0.5 * 0.5 * 256 = " << first << ", in " << start.elapsed_time(end) << " ms\n";
  return first == 64.0f ? 0 : 1;
}
