// custom_abi.h: what libraries of custom operators that serve every torch need of libtorch_backend.so: C functions over LibTorch's
// stable handles (stable_op.h makes C++ of them). They have the version torch_backend_custom_1, which is the same in the builds for
// all torches. Where a function says that it throws, it throws a C++ exception that Python sees as the named one.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstddef>
#include <cstdint>

#include "hal/hal.h"

extern "C" {

// Who asks: the operator's name, "library::operator", and whether a check answers 0 instead of throwing.
struct torch_backend_check {
  const char *op;
  int32_t quiet;
};

// Checks of arguments; 1 = as declared. Throw RuntimeError (`number`: ValueError) with operator, argument and value. The tensors are
// borrowed. Since 0.2.
//
// `other` is on the device of `first`.
HAL_API int32_t torch_backend_check_device(const torch_backend_check *check, const char *first_name,
                                           AtenTensorHandle first, const char *name, AtenTensorHandle other);
// Argument number `position`, counted from 1, has one of the dtypes.
HAL_API int32_t torch_backend_check_dtype(const torch_backend_check *check, AtenTensorHandle tensor, int32_t position,
                                          const char *name, const hal_dtype_t *allowed, size_t count);
// The tensor has the dtype of `other`.
HAL_API int32_t torch_backend_check_same_dtype(const torch_backend_check *check, AtenTensorHandle tensor,
                                               const char *name, AtenTensorHandle other, const char *other_name);
// The tensor has `count` dimensions, or at least as many. `pattern` is the declared shape.
HAL_API int32_t torch_backend_check_rank(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                         int64_t count, int32_t exact, const char *pattern);
// Dimension `dim` has the size of the symbol, which argument `source` bound (NULL: a number).
HAL_API int32_t torch_backend_check_size(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                         int64_t dim, int64_t wanted, const char *symbol, const char *source);
// All dimensions but the last `fixed` are `leading`, which argument `source` bound.
HAL_API int32_t torch_backend_check_leading(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                            int64_t fixed, const int64_t *leading, size_t count, const char *source);
// least <= value <= most
HAL_API int32_t torch_backend_check_number(const torch_backend_check *check, double value, const char *name,
                                           double least, double most);

// Throws NotImplementedError: says why there is no kernel for these tensors and what to do. Since 0.2.
[[noreturn]] HAL_API void torch_backend_refuse(const char *op, const AtenTensorHandle *tensors, size_t count);

// Throws what PyTorch's users expect for a failed status of the HAL, with the HAL's message. Since 0.2.
[[noreturn]] HAL_API void torch_backend_throw_status(hal_status_t status);

// Throws RuntimeError with this text. Since 0.2.
[[noreturn]] HAL_API void torch_backend_throw(const char *text);

}  // extern "C"
