// autocast.cpp: which operators torch.autocast runs in the lower precision, in float32, or in the widest dtype of their
// operands. The lists are torch's own for CUDA; as there, a recurrent network is cast as a whole. Other operators run
// unchanged (the fall-through in fallback.cpp).
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <optional>

#include "core/compat.h"
#include "core/refused.h"

namespace torch_backend {
namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor &, const at::Tensor &, const std::optional<at::Tensor> &,
                                       int64_t) {
  TORCH_CHECK(false, kRefusedBinaryCrossEntropy);
}

}  // namespace
}  // namespace torch_backend

namespace at::autocast {
namespace {

#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLOAT32_BY_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// Recurrent networks as a whole: a vendor's operator may run one, and one node of autograd a direction of an LSTM.
#define RECURRENT(name)                                 \
  KERNEL_PRIVATEUSEONE(name, input, lower_precision_fp) \
  KERNEL_PRIVATEUSEONE(name, data, lower_precision_fp)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FLOAT32)
  TORCH_BACKEND_FORALL_FURTHER_FP32(FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_BY_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(WIDEST)
  RECURRENT(lstm)
  RECURRENT(gru)
  RECURRENT(rnn_tanh)
  RECURRENT(rnn_relu)
  m.impl("binary_cross_entropy", TORCH_FN(torch_backend::refuse_binary_cross_entropy));
}

#undef RECURRENT
#undef LOWER_PRECISION
#undef FLOAT32
#undef FLOAT32_BY_DTYPE
#undef WIDEST

}  // namespace
}  // namespace at::autocast
