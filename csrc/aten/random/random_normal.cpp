// random_normal.cpp: normal numbers whose mean or standard deviation differs per element: scaled numbers of the
// standard distribution. ATen's functions check the calls.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/ExpandUtils.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/normal_native.h>

#include "aten/random/random_vendor.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

void check_deviation(double std) { CHECK_NORMAL_STD(std); }
void check_deviation(const at::Tensor &std) { CHECK_NORMAL_TENSOR_STD(std); }

// Returns the tensor that determines the result; mean and std are numbers or tensors, at least one of them a tensor.
const at::Tensor &model_of(const at::Tensor &mean, double) { return mean; }
template <class Mean>
const at::Tensor &model_of(const Mean &, const at::Tensor &std) {
  return std;
}
c10::IntArrayRef sizes_of(double) { return {}; }
c10::IntArrayRef sizes_of(const at::Tensor &numbers) { return numbers.sizes(); }

// Returns whether the plugin's own operator has filled `out`, which is resized.
template <uint32_t kOp, class Mean, class Std>
bool is_filled_by_vendor(const Mean &mean, const Std &std, OptionalGenerator &generator, const at::Tensor &out) {
  const c10::DeviceIndex device = out.device().index();
  if (!has_vendor_op(device, kOp) || !out.is_floating_point()) return false;
  check_deviation(std);
  at::native::resize_output(out, at::infer_size_dimvector(sizes_of(mean), sizes_of(std)));
  return call_random_vendor_op(kOp, device, generator, out.numel(), out.scalar_type(), {argument(mean), argument(std)},
                               out);
}

template <uint32_t kOp, class Mean, class Std>
at::Tensor normal_of(const Mean &mean, const Std &std, OptionalGenerator generator) {
  const at::Tensor &model = model_of(mean, std);
  if (has_vendor_op(model.device().index(), kOp)) {
    const at::Tensor out = make_empty(0, model.scalar_type(), model.device().index());
    if (is_filled_by_vendor<kOp>(mean, std, generator, out)) return out;
  }
  return at::native::normal(mean, std, std::move(generator));
}

template <uint32_t kOp, class Mean, class Std>
bool normal_into(const Mean &mean, const Std &std, OptionalGenerator generator, at::Tensor &out) {
  return is_filled_by_vendor<kOp>(mean, std, generator, out) ||
         at::native::normal_out(mean, std, std::move(generator), out).defined();
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/random_normal.inc"  // registrations: codegen/operators
