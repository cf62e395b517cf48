// status.h: converts the HAL's status codes to PyTorch's exceptions.
#pragma once

#include <c10/macros/Macros.h>

#include "hal/hal.h"

namespace torch_backend {

// Throws the exception that PyTorch uses for this kind of failure, with the HAL's message: RESOURCE_EXHAUSTED ->
// c10::OutOfMemoryError, UNIMPLEMENTED -> c10::NotImplementedError, the others -> c10::Error (RuntimeError).
[[noreturn]] void throw_status(hal_status_t status);

// The same for calls that run work or wait for it, where OUT_OF_RANGE refers to an index in a tensor ->
// c10::IndexError.
[[noreturn]] void throw_work_status(hal_status_t status);

// Throws if `status` is not HAL_OK.
inline void check(hal_status_t status) {
  if (C10_UNLIKELY(status != HAL_OK)) throw_status(status);
}

// The same for calls that run work or wait for it.
inline void check_work(hal_status_t status) {
  if (C10_UNLIKELY(status != HAL_OK)) throw_work_status(status);
}

// The same for queries: false = not yet.
inline bool is_done(hal_status_t status) {
  if (status == HAL_NOT_READY) return false;
  check_work(status);
  return true;
}

// Logs a failed status as a warning, for noexcept functions.
void warn_status(hal_status_t status, const char *what) noexcept;

}  // namespace torch_backend
