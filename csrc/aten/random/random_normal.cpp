// random_normal.cpp: normal numbers whose mean or deviation differs from element to element: scaled numbers of the standard
// distribution. ATen's templates check the calls.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include "aten/random/random_draw.h"

namespace torch_backend {
namespace {

// ATen's templates ask it for numbers of one mean and deviation.
template <class>
struct Normal {
  void operator()(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
    self.normal_(mean, std, std::move(generator));
  }
};

template <class Mean, class Std>
at::Tensor normal(const Mean &mean, const Std &std, OptionalGenerator generator) {
  return at::native::templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}

template <class Mean, class Std>
at::Tensor &normal_out(const Mean &mean, const Std &std, OptionalGenerator generator, at::Tensor &out) {
  return at::native::templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator));
}

at::Tensor tensor_float(const at::Tensor &mean, double std, OptionalGenerator generator) {
  return normal(mean, std, std::move(generator));
}
at::Tensor float_tensor(double mean, const at::Tensor &std, OptionalGenerator generator) {
  return normal(mean, std, std::move(generator));
}
at::Tensor tensor_tensor(const at::Tensor &mean, const at::Tensor &std, OptionalGenerator generator) {
  return normal(mean, std, std::move(generator));
}
at::Tensor &tensor_float_out(const at::Tensor &mean, double std, OptionalGenerator generator, at::Tensor &out) {
  return normal_out(mean, std, std::move(generator), out);
}
at::Tensor &float_tensor_out(double mean, const at::Tensor &std, OptionalGenerator generator, at::Tensor &out) {
  return normal_out(mean, std, std::move(generator), out);
}
at::Tensor &tensor_tensor_out(const at::Tensor &mean, const at::Tensor &std, OptionalGenerator generator,
                              at::Tensor &out) {
  return normal_out(mean, std, std::move(generator), out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("normal.Tensor_float", TORCH_FN(tensor_float));
  m.impl("normal.float_Tensor", TORCH_FN(float_tensor));
  m.impl("normal.Tensor_Tensor", TORCH_FN(tensor_tensor));
  m.impl("normal.Tensor_float_out", TORCH_FN(tensor_float_out));
  m.impl("normal.float_Tensor_out", TORCH_FN(float_tensor_out));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN(tensor_tensor_out));
}

}  // namespace torch_backend
