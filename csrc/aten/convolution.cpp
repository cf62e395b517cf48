// convolution.cpp: convolutions: the device's own operator, which the portable kernels have for few channels per group, else
// matrix products over the columns of unfolded images. ATen's entry points for devices of other houses only throw.
//
// A convolution connects a large image, on which windows slide, with a small one, which has a place per window. There are
// three products of the two images and the weight (small channels, large channels / groups, window...):
//   to_small   small = weight x unfolded large              convolution; gradient of a transposed one's input
//   to_large   large = fold(weight^T x small)               gradient of a convolution's input; transposed convolution
//   to_weight  weight = small x (unfolded large)^T          gradient of the weight of both
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/columns.h"
#include "aten/copy.h"
#include "aten/fallback_route.h"
#include "aten/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// ---- what has no kernel runs on the CPU ----

const c10::OperatorHandle &find(const char *name) {
  // Handles of ATen's own operators live for ever.
  return *new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

at::Tensor convolution_on_cpu(const at::Tensor &input, const at::Tensor &weight, const OptionalTensor &bias,
                              c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                              c10::IntArrayRef output_pad, int64_t groups) {
  static const c10::OperatorHandle &op = find("aten::convolution_overrideable"), &target = find("aten::convolution");
  torch::jit::Stack stack;
  torch::jit::push(stack, input, weight, bias, step, pad, dilation, transposed, output_pad, groups);
  run_on_cpu(op, target, c10::DispatchKey::CPU, &stack);
  return torch::jit::pop(stack).toTensor();
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// aten::convolution_backward takes one argument more: the sizes of the bias, behind the weight.
Gradients backward_on_cpu(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight,
                          c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                          c10::IntArrayRef output_pad, int64_t groups, std::array<bool, 3> mask) {
  static const c10::OperatorHandle &op = find("aten::convolution_backward_overrideable"),
                                   &target = find("aten::convolution_backward");
  const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
  torch::jit::Stack stack;
  torch::jit::push(stack, grad, input, weight, c10::List<int64_t>({outputs}), step, pad, dilation, transposed,
                   output_pad, groups, mask);
  run_on_cpu(op, target, c10::DispatchKey::CPU, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

// ---- the products ----

// Bytes of columns at a time: a part of the batch that stays in a CPU's second- or third-level cache.
constexpr int64_t kColumnBytes = 4 << 20;

int64_t product(c10::IntArrayRef list) { return c10::multiply_integers(list); }

// A convolution's shape, told by its large and its small image.
struct Shape {
  at::DimVector large, small, window;  // sizes of the images, all of them; of the window
  c10::IntArrayRef step, pad, dilation;
  int64_t groups;

  int64_t batch() const { return small[0]; }
  int64_t places() const { return product(c10::IntArrayRef(small).slice(2)); }
  int64_t rows() const { return large[1] * product(window); }
  // The columns are the large image as it lies.
  bool is_pointwise() const {
    for (size_t d = 0; d < window.size(); d++) {
      if (window[d] != 1 || step[d] != 1 || pad[d] != 0 || large[d + 2] != small[d + 2]) return false;
    }
    return true;
  }
  Windows windows() const { return {c10::IntArrayRef(small).slice(2), window, dilation, pad, step}; }
};

// result = beta * result_or_bias + a x b for all images and groups: tensors of (image, group, rows, columns). Loops over
// the shorter of the two.
void multiply(const at::Tensor &result, const at::Tensor &a, const at::Tensor &b, const at::Tensor &added) {
  const int64_t axis = result.size(0) < result.size(1) ? 0 : 1;
  const c10::DeviceIndex device = result.device().index();
  for (int64_t i = 0; i < result.size(axis); i++) {
    const at::Tensor part = result.select(axis, i), left = a.select(axis, i), right = b.select(axis, i);
    const hal_tensor_t target = describe(part), first = describe(left), second = describe(right);
    const hal_tensor_t *const results[] = {&target};
    bool done;
    if (added.defined()) {
      const at::Tensor sum = added.select(axis, i);
      const hal_tensor_t third = describe(sum);
      const hal_value_t args[] = {value(third), value(first), value(second), value(1.0), value(1.0)};
      done = run_op(device, HAL_OP_ID_BADDBMM, args, results);
    } else {
      const hal_value_t args[] = {value(first), value(second)};
      done = run_op(device, HAL_OP_ID_BMM, args, results);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(done, "convolution: the device has lost its matrix product for ", result.scalar_type());
  }
}

// Columns of a part of the batch: (channel x place) rows of `images` x windows.
class Columns {
 public:
  Columns(const Shape &shape, const at::Tensor &like) : shape_(shape) {
    const int64_t image = shape.rows() * shape.places() * static_cast<int64_t>(like.itemsize());
    images_ = std::clamp<int64_t>(kColumnBytes / std::max<int64_t>(image, 1), 1, shape.batch());
    if (shape.is_pointwise()) images_ = shape.batch();
    dtype_ = like.scalar_type();
    device_ = like.device().index();
  }

  int64_t images() const { return images_; }

  // The columns of images [begin, begin + count) of `large`: (image, row, window).
  at::Tensor unfold(const at::Tensor &large, int64_t begin, int64_t count) {
    const at::Tensor part = large.narrow(0, begin, count);
    if (shape_.is_pointwise()) return part.flatten(2);
    const at::Tensor matrix = empty(count);
    TORCH_CHECK_NOT_IMPLEMENTED(unfold_windows(part, shape_.windows(), matrix),
                                "convolution: the device has lost im2col");
    return matrix;
  }
  // Room for the columns of `count` images, to be folded.
  at::Tensor empty(int64_t count) {
    if (!memory_.defined()) memory_ = make_empty({shape_.rows() * images_ * shape_.places()}, dtype_, device_);
    const int64_t places = shape_.places();
    return memory_.as_strided({count, shape_.rows(), places}, {places, count * places, 1});
  }

 private:
  const Shape &shape_;
  int64_t images_;
  c10::ScalarType dtype_;
  c10::DeviceIndex device_;
  at::Tensor memory_;
};

// (image, group, rows, columns) of a matrix per image.
at::Tensor grouped(const at::Tensor &matrices, int64_t groups) { return matrices.unflatten(1, {groups, -1}); }

// (image, group, small channels, large channels x window) of the weight, the same for all images.
at::Tensor grouped_weight(const at::Tensor &weight, const Shape &shape, int64_t images) {
  return weight.view({1, shape.groups, shape.small[1] / shape.groups, -1}).expand({images, -1, -1, -1});
}

// Images so small that a matrix product per image does not pay: those of a part lie side by side in one, which costs a copy of
// the small image.
constexpr int64_t kFewPlaces = 400;

bool joins_images(const Shape &shape, int64_t count) { return count > 1 && shape.places() < kFewPlaces; }

// (image, row, window) as (1, row, image x window); no copy for columns, whose images lie side by side.
at::Tensor joined(const at::Tensor &matrices) { return matrices.transpose(0, 1).reshape({1, matrices.size(1), -1}); }

at::Tensor spread_bias(const at::Tensor &bias, const Shape &shape, const at::Tensor &result) {
  return bias.defined() ? bias.view({1, shape.groups, -1, 1}).expand_as(result) : at::Tensor();
}

at::Tensor to_small(const Shape &shape, const at::Tensor &large, const at::Tensor &weight, const at::Tensor &bias) {
  const at::Tensor small = make_empty(shape.small, large.scalar_type(), large.device().index());
  Columns columns(shape, large);
  for (int64_t begin = 0; begin < shape.batch(); begin += columns.images()) {
    const int64_t count = std::min(columns.images(), shape.batch() - begin);
    const at::Tensor part = small.narrow(0, begin, count).flatten(2), matrices = columns.unfold(large, begin, count);
    const bool joins = joins_images(shape, count);
    const at::Tensor target =
        joins ? make_empty({1, shape.small[1], count * shape.places()}, large.scalar_type(), large.device().index())
              : part;
    const at::Tensor result = grouped(target, shape.groups);
    multiply(result, grouped_weight(weight, shape, target.size(0)),
             grouped(joins ? joined(matrices) : matrices, shape.groups), spread_bias(bias, shape, result));
    if (joins) copy_raw(target.view({shape.small[1], count, -1}).transpose(0, 1), part);
  }
  return small;
}

at::Tensor to_large(const Shape &shape, const at::Tensor &small, const at::Tensor &weight) {
  const at::Tensor large = make_empty(shape.large, small.scalar_type(), small.device().index());
  Columns columns(shape, small);
  for (int64_t begin = 0; begin < shape.batch(); begin += columns.images()) {
    const int64_t count = std::min(columns.images(), shape.batch() - begin);
    const at::Tensor part = large.narrow(0, begin, count), source = small.narrow(0, begin, count).flatten(2);
    const at::Tensor matrices = shape.is_pointwise() ? part.flatten(2) : columns.empty(count);
    const bool joins = joins_images(shape, count) && !shape.is_pointwise();
    const at::Tensor target = joins ? joined(matrices) : matrices;  // the same memory
    multiply(grouped(target, shape.groups), grouped_weight(weight, shape, target.size(0)).transpose(2, 3),
             grouped(joins ? joined(source) : source, shape.groups), at::Tensor());
    if (!shape.is_pointwise()) {
      TORCH_CHECK_NOT_IMPLEMENTED(fold_windows(matrices, shape.windows(), part),
                                  "convolution: the device has lost col2im");
    }
  }
  return large;
}

at::Tensor to_weight(const Shape &shape, const at::Tensor &large, const at::Tensor &small, const at::Tensor &weight) {
  const at::Tensor gradient = make_empty(weight.sizes(), small.scalar_type(), small.device().index());
  const at::Tensor sum = gradient.view({1, shape.groups, shape.small[1] / shape.groups, -1});
  Columns columns(shape, small);
  for (int64_t begin = 0; begin < shape.batch(); begin += columns.images()) {
    const int64_t count = std::min(columns.images(), shape.batch() - begin);
    const at::Tensor left = grouped(joined(small.narrow(0, begin, count).flatten(2)), shape.groups);
    const at::Tensor right = grouped(joined(columns.unfold(large, begin, count)), shape.groups);
    multiply(sum, left, right.transpose(2, 3), begin == 0 ? at::Tensor() : sum);
  }
  return gradient;
}

// ---- the device's own operators ----

hal_value_t optional_value(const hal_tensor_t &tensor, bool present) { return present ? value(tensor) : none_value(); }

// The lists of a call behind its tensors.
struct Lists {
  c10::IntArrayRef step, pad, dilation;
  bool transposed;
  c10::IntArrayRef output_pad;
  int64_t groups;
};

bool run_own(const at::Tensor &x, const at::Tensor &w, const at::Tensor &b, const Lists &lists,
             const at::Tensor &result) {
  const c10::DeviceIndex device = x.device().index();
  if (!has_kernel(device, HAL_OP_ID_CONVOLUTION_OVERRIDEABLE, x.scalar_type())) return false;
  const hal_tensor_t input = describe(x), weight = describe(w), target = describe(result);
  const hal_tensor_t bias = b.defined() ? describe(b) : hal_tensor_t{};
  const hal_value_t args[] = {
      value(input),       value(weight),         optional_value(bias, b.defined()), value(lists.step),
      value(lists.pad),   value(lists.dilation), value(lists.transposed),           value(lists.output_pad),
      value(lists.groups)};
  const hal_tensor_t *const results[] = {&target};
  return run_op(device, HAL_OP_ID_CONVOLUTION_OVERRIDEABLE, args, results);
}

// An undefined result is not wanted.
bool run_own_backward(const at::Tensor &g, const at::Tensor &x, const at::Tensor &w, const Lists &lists,
                      const at::Tensor &grad_input, const at::Tensor &grad_weight) {
  const c10::DeviceIndex device = x.device().index();
  if (!has_kernel(device, HAL_OP_ID_CONVOLUTION_BACKWARD_OVERRIDEABLE, x.scalar_type())) return false;
  const hal_tensor_t grad = describe(g), input = describe(x), weight = describe(w);
  const hal_tensor_t first = grad_input.defined() ? describe(grad_input) : hal_tensor_t{};
  const hal_tensor_t second = grad_weight.defined() ? describe(grad_weight) : hal_tensor_t{};
  const hal_value_t args[] = {
      value(grad),        value(input),          value(weight),           value(lists.step),
      value(lists.pad),   value(lists.dilation), value(lists.transposed), value(lists.output_pad),
      value(lists.groups)};
  const hal_tensor_t *const results[] = {grad_input.defined() ? &first : nullptr,
                                         grad_weight.defined() ? &second : nullptr};
  return run_op(device, HAL_OP_ID_CONVOLUTION_BACKWARD_OVERRIDEABLE, args, results);
}

// ---- the operators ----

int64_t windows_over(int64_t in, int64_t size, int64_t step, int64_t pad, int64_t dilation) {
  return (in + 2 * pad - dilation * (size - 1) - 1) / step + 1;
}

// The large image of a transposed convolution over images of size `small`.
int64_t covered_by(int64_t small, int64_t size, int64_t step, int64_t pad, int64_t dilation, int64_t more) {
  return (small - 1) * step - 2 * pad + dilation * (size - 1) + 1 + more;
}

at::DimVector result_sizes(const at::Tensor &input, const at::Tensor &weight, c10::IntArrayRef step,
                           c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                           c10::IntArrayRef output_pad, int64_t groups) {
  at::DimVector sizes(input.sizes());
  sizes[1] = transposed ? weight.size(1) * groups : weight.size(0);
  for (size_t d = 0; d + 2 < sizes.size(); d++) {
    const int64_t in = sizes[d + 2], size = weight.size(static_cast<int64_t>(d) + 2);
    sizes[d + 2] = transposed ? covered_by(in, size, step[d], pad[d], dilation[d], output_pad[d])
                              : windows_over(in, size, step[d], pad[d], dilation[d]);
  }
  return sizes;
}

Shape shape_of(c10::IntArrayRef large, c10::IntArrayRef small, const at::Tensor &weight, c10::IntArrayRef step,
               c10::IntArrayRef pad, c10::IntArrayRef dilation, int64_t groups) {
  return {
      at::DimVector(large), at::DimVector(small), at::DimVector(weight.sizes().slice(2)), step, pad, dilation, groups};
}

// The dtype to compute in; nothing when there is no kernel for the operands.
std::optional<c10::ScalarType> computing_dtype(std::initializer_list<at::Tensor> operands) {
  const at::Tensor &first = *operands.begin();
  const c10::ScalarType dtype = first.scalar_type();
  for (const at::Tensor &tensor : operands) {
    if (!is_device_tensor(tensor) || tensor.scalar_type() != dtype || tensor._is_zerotensor()) return std::nullopt;
    if (tensor.dim() < 3 || tensor.dim() > 5 || tensor.numel() == 0) return std::nullopt;
    if (tensor.device() != first.device()) throw_two_devices(first.device(), tensor.device());
  }
  const c10::DeviceIndex device = first.device().index();
  const auto has = [&](c10::ScalarType computing) {
    return has_kernel(device, HAL_OP_ID_BMM, computing) && has_kernel(device, HAL_OP_ID_BADDBMM, computing) &&
           has_kernel(device, HAL_OP_ID_IM2COL, computing) && has_kernel(device, HAL_OP_ID_COL2IM, computing);
  };
  if (c10::isReducedFloatingType(dtype)) return has(at::kFloat) ? std::optional(at::kFloat) : std::nullopt;
  return has(dtype) ? std::optional(dtype) : std::nullopt;
}

// As kernels read it: contiguous, of the computing dtype.
at::Tensor prepared(const at::Tensor &tensor, c10::ScalarType dtype) { return tensor.to(dtype).contiguous(); }

// torch's convolutions keep images in channels-last order when they or the weight are.
c10::MemoryFormat format_of(const at::Tensor &image, const at::Tensor &weight) {
  for (const at::Tensor *tensor : {&image, &weight}) {
    const auto format = tensor->suggest_memory_format();
    if (format != c10::MemoryFormat::Contiguous) return format;
  }
  return c10::MemoryFormat::Contiguous;
}

at::Tensor finished(const at::Tensor &result, c10::ScalarType dtype, c10::MemoryFormat format) {
  return result.to(dtype).contiguous(format);
}

at::Tensor convolution(const at::Tensor &input, const at::Tensor &weight, const OptionalTensor &bias,
                       c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_pad, int64_t groups) {
  const auto computing = computing_dtype({input, weight});
  const bool biased = bias && bias->defined();
  if (!computing || (biased && (!is_device_tensor(*bias) || bias->scalar_type() != input.scalar_type()))) {
    return convolution_on_cpu(input, weight, bias, step, pad, dilation, transposed, output_pad, groups);
  }
  const at::DimVector sizes = result_sizes(input, weight, step, pad, dilation, transposed, output_pad, groups);
  const at::Tensor x = prepared(input, *computing), w = prepared(weight, *computing),
                   b = biased ? prepared(*bias, *computing) : at::Tensor();
  at::Tensor result = make_empty(sizes, *computing, input.device().index());
  if (run_own(x, w, b, {step, pad, dilation, transposed, output_pad, groups}, result)) {
    return finished(result, input.scalar_type(), format_of(input, weight));
  }
  if (transposed) {
    result = to_large(shape_of(sizes, input.sizes(), weight, step, pad, dilation, groups), x, w);
    at::DimVector spread(sizes.size(), 1);
    spread[1] = sizes[1];
    if (biased) result.add_(b.view(spread));
  } else {
    result = to_small(shape_of(input.sizes(), sizes, weight, step, pad, dilation, groups), x, w, b);
  }
  return finished(result, input.scalar_type(), format_of(input, weight));
}

at::Tensor bias_gradient(const at::Tensor &grad) {
  at::DimVector dims;
  for (int64_t d = 0; d < grad.dim(); d++) {
    if (d != 1) dims.push_back(d);
  }
  return grad.sum(dims);
}

Gradients convolution_backward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight,
                               c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                               c10::IntArrayRef output_pad, int64_t groups, std::array<bool, 3> mask) {
  const auto computing = computing_dtype({grad, input, weight});
  if (!computing)
    return backward_on_cpu(grad, input, weight, step, pad, dilation, transposed, output_pad, groups, mask);
  const Shape shape = transposed ? shape_of(grad.sizes(), input.sizes(), weight, step, pad, dilation, groups)
                                 : shape_of(input.sizes(), grad.sizes(), weight, step, pad, dilation, groups);
  const at::Tensor g = prepared(grad, *computing), x = prepared(input, *computing), w = prepared(weight, *computing);
  const auto room = [&](bool wanted, const at::Tensor &like) {
    return wanted ? make_empty(like.sizes(), *computing, like.device().index()) : at::Tensor();
  };
  at::Tensor grad_input = room(mask[0], input), grad_weight = room(mask[1], weight), grad_bias;
  if (!run_own_backward(g, x, w, {step, pad, dilation, transposed, output_pad, groups}, grad_input, grad_weight)) {
    if (mask[0]) grad_input = transposed ? to_small(shape, g, w, at::Tensor()) : to_large(shape, g, w);
    if (mask[1]) grad_weight = transposed ? to_weight(shape, g, x, w) : to_weight(shape, x, g, w);
  }
  const c10::ScalarType dtype = input.scalar_type();
  const auto format = format_of(input, weight);
  if (mask[0]) grad_input = finished(grad_input, dtype, format);
  if (mask[1]) grad_weight = finished(grad_weight, dtype, format);
  if (mask[2]) grad_bias = bias_gradient(g).to(dtype);
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace torch_backend
