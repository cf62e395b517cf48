// status.h: the HAL's status codes as PyTorch's exceptions.
#pragma once

#include <c10/macros/Macros.h>

#include "hal/hal.h"

namespace torch_backend {

// Throws what PyTorch users expect for a failed status, with the HAL's message: RESOURCE_EXHAUSTED ->
// c10::OutOfMemoryError, UNIMPLEMENTED -> c10::NotImplementedError, OUT_OF_RANGE -> c10::IndexError, NOT_FOUND and the others -> c10::Error
// (RuntimeError).
[[noreturn]] void throw_status(hal_status_t status);

// Throws when `status` is not HAL_OK.
inline void check(hal_status_t status) {
  if (C10_UNLIKELY(status != HAL_OK)) throw_status(status);
}

// Logs a failed status as a warning, for noexcept places.
void warn_status(hal_status_t status, const char *what) noexcept;

}  // namespace torch_backend
