// convolution.cpp: convolutions and their gradients on the device, else on the CPU. ATen's entry points for out-of-tree
// backends only throw.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>

#include "aten/fallback/fallback_route.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::vector<int64_t> result_sizes(const at::Tensor &input, const at::Tensor &weight, c10::IntArrayRef step,
                                  c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                                  c10::IntArrayRef output_pad, int64_t groups) {
  const auto sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), pad, output_pad, step, dilation, groups)
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), pad, step, dilation);
  const auto space = c10::IntArrayRef(sizes).slice(2);
  for (const int64_t size : space) {
    TORCH_CHECK(size > 0, "Argument an input of size ", input.sizes(), " and a weight of size ", weight.sizes(),
                ": the calculated output size per channel is ", space, ". Output size is too small");
  }
  return sizes;
}

// Returns whether the operands are images of one dtype that the kernels support; the CPU's function reports errors of
// others.
bool are_images(std::initializer_list<at::Tensor> operands) {
  for (const at::Tensor &tensor : operands) {
    if (!is_device_tensor(tensor) || tensor.scalar_type() != operands.begin()->scalar_type() || tensor._is_zerotensor())
      return false;
    if (tensor.dim() < 3 || tensor.dim() > 5 || tensor.numel() == 0) return false;
  }
  return true;
}

// torch's convolutions return images in channels-last order if the input or the weight has it.
c10::MemoryFormat format_of(const at::Tensor &image, const at::Tensor &weight) {
  for (const at::Tensor *tensor : {&image, &weight}) {
    const auto format = tensor->suggest_memory_format();
    if (format != c10::MemoryFormat::Contiguous) return format;
  }
  return c10::MemoryFormat::Contiguous;
}

// Returns results for vendors' operators (`meta` of their entries), because ATen has no meta function for these.
at::Tensor make_convolution(const at::Tensor &input, const at::Tensor &weight, const OptionalTensor &,
                            c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                            c10::IntArrayRef output_pad, int64_t groups) {
  return make_empty(result_sizes(input, weight, step, pad, dilation, transposed, output_pad, groups),
                    input.scalar_type(), input.device().index(), format_of(input, weight));
}

Gradients make_gradients(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight, c10::IntArrayRef,
                         c10::IntArrayRef, c10::IntArrayRef, bool, c10::IntArrayRef, int64_t,
                         std::array<bool, 3> mask) {
  const auto device = input.device().index();
  const auto format = format_of(input, weight);
  return {make_wanted(mask[0], input.sizes(), input.scalar_type(), device, format),
          make_wanted(mask[1], weight.sizes(), weight.scalar_type(), device, format),
          make_wanted(mask[2], grad.size(1), grad.scalar_type(), device)};
}

at::Tensor convolution(const at::Tensor &input, const at::Tensor &weight, const OptionalTensor &bias,
                       c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_pad, int64_t groups) {
  Call call(HAL_OP_ID_CONVOLUTION_OVERRIDEABLE, input);
  const bool takes_bias = !is_given(bias) || (is_device_tensor(*bias) && bias->scalar_type() == input.scalar_type());
  if (call.possible() && takes_bias && are_images({input, weight})) {
    call.in(input).in(weight).in(bias).put(step).put(pad).put(dilation).put(transposed).put(output_pad).put(groups);
    const at::Tensor result =
        make_convolution(input, weight, bias, step, pad, dilation, transposed, output_pad, groups);
    if (call.out(result).run()) return result;
  }
  return results_on_cpu("aten::convolution_overrideable", "aten::convolution", input, weight, bias, step, pad, dilation,
                        transposed, output_pad, groups)[0]
      .toTensor();
}

Gradients convolution_backward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight,
                               c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool transposed,
                               c10::IntArrayRef output_pad, int64_t groups, std::array<bool, 3> mask) {
  Call call(HAL_OP_ID_CONVOLUTION_BACKWARD_OVERRIDEABLE, input);
  if (call.possible() && are_images({grad, input, weight})) {
    call.in(grad).in(input).in(weight).put(step).put(pad).put(dilation).put(transposed).put(output_pad).put(groups);
    auto [grad_input, grad_weight, grad_bias] = make_gradients(grad, input, weight, step, pad, dilation, transposed,
                                                               output_pad, groups, {mask[0], mask[1], false});
    if (call.out(grad_input).out(grad_weight).run())
      return {grad_input, grad_weight, mask[2] ? grad.sum(dims_but(grad.dim(), 1)) : at::Tensor()};
  }
  // The CPU's function takes one more argument: the sizes of the bias.
  const auto results =
      results_on_cpu("aten::convolution_backward_overrideable", "aten::convolution_backward", grad, input, weight,
                     c10::List<int64_t>({grad.size(1)}), step, pad, dilation, transposed, output_pad, groups, mask);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/convolution.inc"  // registrations: codegen/operators
