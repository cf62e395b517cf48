/* nvml.h: NVML's functions, as nvml.c finds them. */
#ifndef CUDA_NVML_H_
#define CUDA_NVML_H_

#include "cuda_plugin.h"
#include "nvml_api.h"

#define NVML_DECLARE_CALL(name, parameters) nvmlReturn_t(*name) parameters;
typedef struct nvml_table_s {
  NVML_CALLS(NVML_DECLARE_CALL)
  NVML_LATER_CALLS(NVML_DECLARE_CALL)
} nvml_table_t;
extern nvml_table_t nvml; /* filled by the first successful cuda_nvml_device */

/* Finds NVML's handle of a device; opens and starts the library at first.
 * Errors: those of cuda_check_device; HAL_UNAVAILABLE = there is no NVML, with what to install; those of cuda_nvml_refused. */
hal_status_t cuda_nvml_device(int32_t ordinal, nvmlDevice_t *out_device);

/* What a status of NVML is to the host. That a device does not measure something (HAL_UNIMPLEMENTED) has no message. */
hal_status_t cuda_nvml_refused(int32_t device, nvmlReturn_t code, const char *what);

#endif /* CUDA_NVML_H_ */
