/* nvml.h: NVML's functions, which nvml.c looks up. */
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

/* Returns NVML's handle of a device; the first call opens and starts the library.
 * Errors: those of cuda_check_device; HAL_UNAVAILABLE = there is no NVML, with what to install; those of
 * cuda_nvml_refused. */
hal_status_t cuda_nvml_device(int32_t ordinal, nvmlDevice_t *out_device);

/* Converts a status of NVML to the host's status. HAL_UNIMPLEMENTED, if a device does not measure something, has no
 * message. */
hal_status_t cuda_nvml_refused(int32_t device, nvmlReturn_t code, const char *what);

#endif /* CUDA_NVML_H_ */
