// package.h: models that torch compiled ahead of time for the device: packages of AOTInductor (docs/torch-compile.md).
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstddef>
#include <memory>
#include <string>

namespace torch_backend {

// How a package is loaded.
struct PackageOptions {
  std::string model = "model";   // of a package with several models
  c10::DeviceIndex device = -1;  // -1: the calling thread's current device
  size_t runners = 1;            // threads that may run the model at the same time
  bool single_threaded = false;  // one thread runs the model: runs take no locks; needs runners = 1
};

// Loads a package of torch._inductor.aoti_compile_and_package, after `open`. Its `run` takes tensors of the device and
// queues the model on the current stream. Any thread. Throws c10::Error if the package was compiled for another device
// type, for the CPU, or with another version of torch, torch_backend or the plugin. The error names both. Since 0.1.
std::unique_ptr<torch::inductor::AOTIModelPackageLoader> load_package(const std::string &path,
                                                                      const PackageOptions &options = {});

}  // namespace torch_backend
