// constants.h: the constants (weights) that a program passes to a package.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <map>
#include <string>
#include <vector>

namespace torch_backend {
namespace package {

// What the generated code expects of a constant. It reads constants without a check.
struct Constant {
  std::string name;  // of the program's module
  at::ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  bool has_layout = false;  // the sizes and strides are known
};
using Constants = std::map<std::string, Constant>;  // by the names of the generated code

// Sets the sizes and strides from a line of the package's file: "NAME SIZES STRIDES", numbers separated by commas.
void read_layout(const std::string &line, Constants &constants);

// Tensors with the layouts of a package's constants. torch's runtime copies whole storages to where a constant is: the
// copies here have the constant's elements only.
class Given {
 public:
  // Throws if a tensor has another dtype or shape than its constant, or if the package is to use the tensor itself and
  // the tensor has other strides.
  Given(const Constants &constants, const torch::inductor::TensorConstantMap &map, bool uses_tensors);

  AOTInductorConstantMapHandle handle() { return reinterpret_cast<AOTInductorConstantMapHandle>(&map_); }

 private:
  std::vector<at::Tensor> copies_;
  torch::inductor::TensorConstantMap map_;
};

}  // namespace package
}  // namespace torch_backend
