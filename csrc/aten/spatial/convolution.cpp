// convolution.cpp: convolutions and their gradients on the device, else on the CPU. ATen's entry points for devices of other houses
// only throw.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "aten/fallback/fallback_route.h"
#include "aten/prepare/op_call.h"
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

// ---- the device's operators ----

hal_value_t optional_value(const hal_tensor_t &tensor, bool present) { return present ? value(tensor) : none_value(); }

// The lists of a call behind its tensors.
struct ConvolutionLists {
  c10::IntArrayRef step, pad, dilation;
  bool transposed;
  c10::IntArrayRef output_pad;
  int64_t groups;
};

bool run(const at::Tensor &x, const at::Tensor &w, const at::Tensor &b, const ConvolutionLists &lists,
         const at::Tensor &result) {
  const hal_tensor_t input = describe(x), weight = describe(w), target = describe(result);
  const hal_tensor_t bias = b.defined() ? describe(b) : hal_tensor_t{};
  const hal_value_t args[] = {
      value(input),       value(weight),         optional_value(bias, b.defined()), value(lists.step),
      value(lists.pad),   value(lists.dilation), value(lists.transposed),           value(lists.output_pad),
      value(lists.groups)};
  const hal_tensor_t *const results[] = {&target};
  return run_op(x.device().index(), HAL_OP_ID_CONVOLUTION_OVERRIDEABLE, args, results);
}

// An undefined result is not wanted.
bool run_backward(const at::Tensor &g, const at::Tensor &x, const at::Tensor &w, const ConvolutionLists &lists,
                  const at::Tensor &grad_input, const at::Tensor &grad_weight) {
  const hal_tensor_t grad = describe(g), input = describe(x), weight = describe(w);
  const hal_tensor_t first = grad_input.defined() ? describe(grad_input) : hal_tensor_t{};
  const hal_tensor_t second = grad_weight.defined() ? describe(grad_weight) : hal_tensor_t{};
  const hal_value_t args[] = {
      value(grad),        value(input),          value(weight),           value(lists.step),
      value(lists.pad),   value(lists.dilation), value(lists.transposed), value(lists.output_pad),
      value(lists.groups)};
  const hal_tensor_t *const results[] = {grad_input.defined() ? &first : nullptr,
                                         grad_weight.defined() ? &second : nullptr};
  return run_op(x.device().index(), HAL_OP_ID_CONVOLUTION_BACKWARD_OVERRIDEABLE, args, results);
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
  const c10::IntArrayRef space = c10::IntArrayRef(sizes).slice(2);
  for (const int64_t size : space) {
    TORCH_CHECK(size > 0, "Given an input of size ", input.sizes(), " and a weight of size ", weight.sizes(),
                ": the calculated output size per channel is ", space, ". Output size is too small");
  }
  return sizes;
}

// The dtype that `op` computes in; nothing when there is no kernel for the operands.
std::optional<c10::ScalarType> computing_dtype(uint32_t op, std::initializer_list<at::Tensor> operands) {
  const at::Tensor &first = *operands.begin();
  const c10::ScalarType dtype = first.scalar_type();
  for (const at::Tensor &tensor : operands) {
    if (!is_device_tensor(tensor) || tensor.scalar_type() != dtype || tensor._is_zerotensor()) return std::nullopt;
    if (tensor.dim() < 3 || tensor.dim() > 5 || tensor.numel() == 0) return std::nullopt;
    if (tensor.device() != first.device()) throw_two_devices(first.device(), tensor.device());
  }
  const c10::ScalarType computing = c10::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  return has_kernel(first.device().index(), op, computing) ? std::optional(computing) : std::nullopt;
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
  const auto computing = computing_dtype(HAL_OP_ID_CONVOLUTION_OVERRIDEABLE, {input, weight});
  const bool biased = bias && bias->defined();
  if (biased && is_device_tensor(*bias) && is_device_tensor(input) && bias->device() != input.device())
    throw_two_devices(input.device(), bias->device());
  if (computing && (!biased || (is_device_tensor(*bias) && bias->scalar_type() == input.scalar_type()))) {
    const at::Tensor x = prepared(input, *computing), w = prepared(weight, *computing),
                     b = biased ? prepared(*bias, *computing) : at::Tensor();
    const at::DimVector sizes = result_sizes(input, weight, step, pad, dilation, transposed, output_pad, groups);
    const at::Tensor result = make_empty(sizes, *computing, input.device().index());
    if (run(x, w, b, {step, pad, dilation, transposed, output_pad, groups}, result))
      return finished(result, input.scalar_type(), format_of(input, weight));
  }
  return convolution_on_cpu(input, weight, bias, step, pad, dilation, transposed, output_pad, groups);
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
  const auto computing = computing_dtype(HAL_OP_ID_CONVOLUTION_BACKWARD_OVERRIDEABLE, {grad, input, weight});
  if (computing) {
    const at::Tensor g = prepared(grad, *computing), x = prepared(input, *computing), w = prepared(weight, *computing);
    const auto room = [&](bool wanted, const at::Tensor &like) {
      return wanted ? make_empty(like.sizes(), *computing, like.device().index()) : at::Tensor();
    };
    at::Tensor grad_input = room(mask[0], input), grad_weight = room(mask[1], weight), grad_bias;
    if (run_backward(g, x, w, {step, pad, dilation, transposed, output_pad, groups}, grad_input, grad_weight)) {
      const c10::ScalarType dtype = input.scalar_type();
      const auto format = format_of(input, weight);
      if (mask[0]) grad_input = finished(grad_input, dtype, format);
      if (mask[1]) grad_weight = finished(grad_weight, dtype, format);
      if (mask[2]) grad_bias = bias_gradient(g).to(dtype);
      return {grad_input, grad_weight, grad_bias};
    }
  }
  return backward_on_cpu(grad, input, weight, step, pad, dilation, transposed, output_pad, groups, mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace torch_backend
