/* module.c: modules: OpenCL C, SPIR-V if the device supports it, and binaries of module_export. */
#include <hal/plugin_binary.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum { LOG_BYTES = 3000, LOG_MOST = 1 << 24, BINARY_MOST = 1 << 30 }; /* of a message; of a whole log; of a binary */

/* ---- building --------------------------------------------------------------------------------------------------- */

/* Returns the log from its first error on, up to the maximum length. */
static hal_status_t say_log(const ocl_device_t *device, cl_program program, cl_int code, const char *dialect) {
  size_t bytes = 0;
  const cl_int told = icd.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
  char *log = !told && bytes && bytes <= LOG_MOST ? hal_host->mem_alloc(bytes + 1, 1) : NULL;
  if (log) memset(log, 0, bytes + 1); /* it may be written only partly */
  if (log && icd.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL)) log[0] = '\0';
  const char *text = log && *log ? log : "the compiler left no log";
  const char *first = strstr(text, "error");
  while (first && first > text && first[-1] != '\n') first--;
  const hal_status_t status =
      ocl_error(HAL_INVALID_ARGUMENT, code, "opencl: '%s' cannot build a module in '%s' (%s): %.*s", device->name,
                dialect, ocl_error_name(code), LOG_BYTES, first ? first : text);
  hal_host->mem_free(log);
  return status;
}

static hal_status_t build(const ocl_device_t *device, cl_program program, const char *options, const char *dialect) {
  cl_int code = icd.clBuildProgram(program, 1, &device->id, options, NULL, NULL);
  if (!code) return HAL_OK;
  if (code == CL_OUT_OF_HOST_MEMORY) return ocl_driver_error(code, "opencl: cannot build a module");
  return say_log(device, program, code, dialect);
}

/* Joins the caller's options and those of the plugin: information about arguments, by which launches are checked, and
 * offsets (argument.c). */
static char *join_options(const char *options) {
  const char *own =
      ocl.memory == OCL_MEMORY_BUFFER ? "-cl-kernel-arg-info -DPK_POINTER_OFFSETS=1" : "-cl-kernel-arg-info";
  const size_t bytes = strlen(options) + strlen(own) + 2;
  char *text = hal_host->mem_alloc(bytes, 1);
  if (text) snprintf(text, bytes, "%s%s%s", options, *options ? " " : "", own);
  return text;
}

/* ---- binaries --------------------------------------------------------------------------------------------------- */

/* Writes the devices that a binary is for, in readable form. If memory consists of buffer objects, kernels differ
 * (argument.c). */
static void say_maker(const ocl_device_t *device, char maker[HAL_BINARY_MAKER]) {
  snprintf(maker, HAL_BINARY_MAKER, "'%s' (%s, driver %s%s)", device->name, device->version, device->driver,
           ocl.memory == OCL_MEMORY_BUFFER ? ", HAL_OPENCL_MEMORY=buffer" : "");
}

static hal_status_t load_binary(const ocl_device_t *device, const hal_module_desc_t *desc, cl_program *out_program) {
  char maker[HAL_BINARY_MAKER];
  const void *code_bytes = NULL;
  size_t size = 0;
  say_maker(device, maker);
  const hal_status_t status = hal_binary_open("opencl", desc, maker, &code_bytes, &size);
  if (status) return status;
  cl_int code = CL_SUCCESS, binary_code = CL_SUCCESS;
  const unsigned char *data = code_bytes;
  *out_program = icd.clCreateProgramWithBinary(ocl.context, 1, &device->id, &size, &data, &binary_code, &code);
  if (!code && binary_code) {
    if (*out_program) icd.clReleaseProgram(*out_program);
    code = binary_code;
  }
  if (!code && !*out_program) code = CL_INVALID_PROGRAM;
  if (code) return ocl_driver_error(code, "opencl: a module in 'binary' was refused");
  return HAL_OK;
}

static hal_status_t binary_of(const hal_plugin_module_t *module, unsigned char *data, size_t *size) {
  const cl_int code = data ? icd.clGetProgramInfo(module->program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL)
                           : icd.clGetProgramInfo(module->program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL);
  if (code) return ocl_driver_error(code, "opencl: the driver does not return a module's binary");
  if (!data && *size > BINARY_MOST)
    return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: the driver reports an invalid size of a module's binary: %zu bytes",
                     *size);
  if (!data && !*size) return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: the driver does not export its binaries");
  return HAL_OK;
}

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  hal_status_t status = ocl_check_device(module->device);
  size_t size = 0;
  if (!status) status = binary_of(module, NULL, &size);
  if (status) return status;
  if (room >= size + HAL_BINARY_SEAL) {
    char maker[HAL_BINARY_MAKER];
    status = binary_of(module, (unsigned char *)data + HAL_BINARY_SEAL, &size);
    if (status) return status;
    say_maker(&ocl.devices[module->device], maker);
    hal_binary_seal(data, size, maker);
  }
  *out_size = size + HAL_BINARY_SEAL;
  return HAL_OK;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

static hal_status_t create_program(const ocl_device_t *device, const hal_module_desc_t *desc, cl_program *out_program) {
  cl_int code = CL_SUCCESS;
  const char *dialect = desc->dialect ? desc->dialect : "", *text = desc->data;
  if (strcmp(dialect, "binary") == 0) return load_binary(device, desc, out_program);
  const int il = strcmp(dialect, "spirv") == 0 && device->has_il;
  if (!il && strcmp(dialect, "opencl-c") != 0)
    return ocl_error(HAL_UNIMPLEMENTED, 0,
                     "opencl: unsupported dialect '%s' of a module; '%s' takes 'opencl-c'%s and 'binary'", dialect,
                     device->name, device->has_il ? ", 'spirv'" : "");
  if (!text || !desc->size)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: a module in '%s' has %zu bytes at %p; pass its source", dialect,
                     desc->size, desc->data);
  *out_program = il ? icd.clCreateProgramWithIL(ocl.context, desc->data, desc->size, &code)
                    : icd.clCreateProgramWithSource(ocl.context, 1, &text, &desc->size, &code);
  if (!code && !*out_program) code = CL_INVALID_PROGRAM;
  if (code) return ocl_driver_error(code, "opencl: a module of %zu bytes in '%s' was refused", desc->size, dialect);
  return HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t ordinal, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  const ocl_device_t *device = &ocl.devices[ordinal];
  char *options = join_options(desc->options ? desc->options : "");
  hal_plugin_module_t *module = hal_host->mem_alloc(sizeof *module, alignof(hal_plugin_module_t));
  if (!module || !options) {
    status = ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a module; free some memory");
    goto cleanup;
  }
  *module = (hal_plugin_module_t){.device = ordinal};
  status = create_program(device, desc, &module->program);
  if (status) goto cleanup;
  status = build(device, module->program, options, desc->dialect);
  if (status) {
    icd.clReleaseProgram(module->program);
    goto cleanup;
  }
  pthread_mutex_init(&module->lock, NULL);
  *out_module = module;
cleanup:
  hal_host->mem_free(options);
  if (status) hal_host->mem_free(module);
  return status;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  if (!module) return HAL_OK;
  const hal_status_t status = ocl_check_device(module->device);
  if (status) return status;
  ocl_work_reap_all(module->device);
  for (hal_plugin_kernel_t *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    ocl_kernel_destroy(kernel);
  }
  icd.clReleaseProgram(module->program);
  pthread_mutex_destroy(&module->lock);
  hal_host->mem_free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_status_t status = ocl_check_device(module->device);
  if (status) return status;
  pthread_mutex_lock(&module->lock);
  hal_plugin_kernel_t *kernel = module->kernels;
  while (kernel && strcmp(kernel->name, name) != 0) kernel = kernel->next;
  if (!kernel) {
    status = ocl_kernel_create(module, name, &kernel);
    if (!status) {
      kernel->next = module->kernels;
      module->kernels = kernel;
    }
  }
  pthread_mutex_unlock(&module->lock);
  if (!status) *out_kernel = kernel;
  return status;
}
