// custom_abi.h: the functions of libtorch_backend.so for libraries of custom operators that work with every version of
// torch. They are C functions on LibTorch's stable handles (stable_op.h wraps them in C++). Their symbol version is
// torch_backend_custom_1, the same in the builds for all versions of torch. A function that throws an exception throws
// a C++ exception that Python sees as the named one.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstddef>
#include <cstdint>

#include "hal/hal.h"

extern "C" {

// The caller: the operator's name, "library::operator", and whether a failed check returns 0 instead of throwing.
struct torch_backend_check {
  const char *op;
  int32_t quiet;
};

// Checks of arguments; 1 = as declared. Throw RuntimeError (`number`: ValueError) with operator, argument and value.
// The tensors are borrowed. Since 0.2.
//
// Checks that `other` is on the device of `first`.
HAL_API int32_t torch_backend_check_device(const torch_backend_check *check, const char *first_name,
                                           AtenTensorHandle first, const char *name, AtenTensorHandle other);
// Checks that argument number `position`, counted from 1, has one of the dtypes.
HAL_API int32_t torch_backend_check_dtype(const torch_backend_check *check, AtenTensorHandle tensor, int32_t position,
                                          const char *name, const hal_dtype_t *allowed, size_t count);
// Checks that the tensor has the dtype of `other`.
HAL_API int32_t torch_backend_check_same_dtype(const torch_backend_check *check, AtenTensorHandle tensor,
                                               const char *name, AtenTensorHandle other, const char *other_name);
// Checks that the tensor has `count` dimensions, or at least as many. `pattern` is the declared shape.
HAL_API int32_t torch_backend_check_rank(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                         int64_t count, int32_t exact, const char *pattern);
// Checks that dimension `dim` has the size of the symbol, which argument `source` bound (NULL: a number).
HAL_API int32_t torch_backend_check_size(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                         int64_t dim, int64_t wanted, const char *symbol, const char *source);
// Checks that all dimensions but the last `fixed` are `leading`, which argument `source` bound.
HAL_API int32_t torch_backend_check_leading(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                            int64_t fixed, const int64_t *leading, size_t count, const char *source);
// Checks that least <= value <= most.
HAL_API int32_t torch_backend_check_number(const torch_backend_check *check, double value, const char *name,
                                           double least, double most);

// Throws NotImplementedError with the reason why there is no kernel for these tensors, and what to do. Since 0.2.
[[noreturn]] HAL_API void torch_backend_refuse(const char *op, const AtenTensorHandle *tensors, size_t count);

// Throws the exception that PyTorch uses for this kind of error, with the HAL's message. Since 0.2.
[[noreturn]] HAL_API void torch_backend_throw_status(hal_status_t status);

// Throws RuntimeError with this text. Since 0.2.
[[noreturn]] HAL_API void torch_backend_throw(const char *text);

}  // extern "C"
