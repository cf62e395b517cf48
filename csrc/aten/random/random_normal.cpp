// random_normal.cpp: normal numbers whose mean or deviation differs from element to element: scaled numbers of the standard
// distribution. ATen's templates check the calls.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/native/DistributionTemplates.h>

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

// Numbers or tensors, of which one is a tensor at least.
template <class Mean, class Std>
at::Tensor normal_of(const Mean &mean, const Std &std, OptionalGenerator generator) {
  return at::native::templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}

template <class Mean, class Std>
bool normal_into(const Mean &mean, const Std &std, OptionalGenerator generator, at::Tensor &out) {
  return at::native::templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator)).defined();
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/random_normal.inc"  // registrations: `bodies` of codegen/ops.yaml
