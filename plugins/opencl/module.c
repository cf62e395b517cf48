/* module.c: modules: OpenCL C, SPIR-V where the device takes it, and what module_export gave. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum { LOG_BYTES = 3000, LOG_MOST = 1 << 24, BINARY_MOST = 1 << 30 }; /* in a message; of a whole log; of a binary */

/* What stands before an exported binary: the driver is no judge of whose binary it is given. */
typedef struct header_s {
  char magic[8];
  uint64_t bytes;   /* behind the header */
  uint64_t sum;     /* of them */
  uint64_t offsets; /* 1: built with PK_POINTER_OFFSETS */
  char device[64], version[128], driver[64];
} header_t;

static const char magic[8] = "OCLBIN1";

/* ---- building ---------------------------------------------------------------------------------------------------------------- */

/* Gives the log from its first error on, in so far as it fits. */
static hal_status_t say_log(const ocl_device_t *device, cl_program program, cl_int code, const char *dialect) {
  size_t bytes = 0;
  const cl_int told = icd.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
  char *log = !told && bytes && bytes <= LOG_MOST ? hal_host->mem_alloc(bytes + 1, 1) : NULL;
  if (log) memset(log, 0, bytes + 1); /* not all of it may be written */
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
  if (code == CL_OUT_OF_HOST_MEMORY) return ocl_driver_error(code, "opencl: a module cannot be built");
  return say_log(device, program, code, dialect);
}

/* The caller's options and our own: facts about arguments, by which launches are checked, and offsets (argument.c). */
static char *join_options(const char *options) {
  const char *own =
      ocl.memory == OCL_MEMORY_BUFFER ? "-cl-kernel-arg-info -DPK_POINTER_OFFSETS=1" : "-cl-kernel-arg-info";
  const size_t bytes = strlen(options) + strlen(own) + 2;
  char *text = hal_host->mem_alloc(bytes, 1);
  if (text) snprintf(text, bytes, "%s%s%s", options, *options ? " " : "", own);
  return text;
}

/* ---- binaries ---------------------------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const unsigned char *data, size_t size) { /* FNV-1a */
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; i++) sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
  return sum;
}

static void fill_header(header_t *header, const ocl_device_t *device) {
  memset(header, 0, sizeof *header);
  memcpy(header->magic, magic, sizeof magic);
  header->offsets = ocl.memory == OCL_MEMORY_BUFFER;
  memcpy(header->device, device->name, sizeof header->device);
  memcpy(header->version, device->version, sizeof header->version);
  memcpy(header->driver, device->driver, sizeof header->driver);
}

static hal_status_t check_binary(const ocl_device_t *device, const hal_module_desc_t *desc) {
  header_t header, own;
  if (desc->size <= sizeof header || !desc->data || memcmp(desc->data, magic, sizeof magic) != 0)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: a module of %zu bytes in 'binary' is not what module_export gave; compile it from source",
                     desc->size);
  memcpy(&header, desc->data, sizeof header);
  fill_header(&own, device);
  header.device[sizeof header.device - 1] = header.version[sizeof header.version - 1] =
      header.driver[sizeof header.driver - 1] = '\0';
  if (strcmp(header.device, own.device) || strcmp(header.version, own.version) || strcmp(header.driver, own.driver))
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: a module in 'binary' was made for '%s' (%s, driver %s), and this is '%s' (%s, driver %s); compile "
        "it from source",
        header.device, header.version, header.driver, own.device, own.version, own.driver);
  if (header.offsets != own.offsets)
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: a module in 'binary' was made for another kind of HAL_OPENCL_MEMORY; compile it from source");
  const unsigned char *code = (const unsigned char *)desc->data + sizeof header;
  if (header.bytes != desc->size - sizeof header || header.sum != sum_of(code, desc->size - sizeof header))
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: a module of %zu bytes in 'binary' is damaged; compile it from source", desc->size);
  return HAL_OK;
}

static hal_status_t load_binary(const ocl_device_t *device, const hal_module_desc_t *desc, cl_program *out_program) {
  const hal_status_t status = check_binary(device, desc);
  if (status) return status;
  cl_int code = CL_SUCCESS, binary_code = CL_SUCCESS;
  const unsigned char *data = (const unsigned char *)desc->data + sizeof(header_t);
  const size_t size = desc->size - sizeof(header_t);
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
  if (code) return ocl_driver_error(code, "opencl: the driver does not give a module's binary");
  if (!data && *size > BINARY_MOST)
    return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: the driver gives a module's binary %zu bytes, which cannot be",
                     *size);
  if (!data && !*size) return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: the driver keeps its binaries to itself");
  return HAL_OK;
}

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  hal_status_t status = ocl_check_device(module->device);
  size_t size = 0;
  if (!status) status = binary_of(module, NULL, &size);
  if (status) return status;
  if (room >= size + sizeof(header_t)) {
    unsigned char *code = (unsigned char *)data + sizeof(header_t);
    status = binary_of(module, code, &size);
    if (status) return status;
    header_t header;
    fill_header(&header, &ocl.devices[module->device]);
    header.bytes = size;
    header.sum = sum_of(code, size);
    memcpy(data, &header, sizeof header);
  }
  *out_size = size + sizeof(header_t);
  return HAL_OK;
}

/* ---- modules ----------------------------------------------------------------------------------------------------------------- */

static hal_status_t create_program(const ocl_device_t *device, const hal_module_desc_t *desc, cl_program *out_program) {
  cl_int code = CL_SUCCESS;
  const char *dialect = desc->dialect ? desc->dialect : "", *text = desc->data;
  if (strcmp(dialect, "binary") == 0) return load_binary(device, desc, out_program);
  const int il = strcmp(dialect, "spirv") == 0 && device->has_il;
  if (!il && strcmp(dialect, "opencl-c") != 0)
    return ocl_error(HAL_UNIMPLEMENTED, 0,
                     "opencl: modules in the dialect '%s' are not accepted; '%s' takes 'opencl-c'%s and 'binary'",
                     dialect, device->name, device->has_il ? ", 'spirv'" : "");
  if (!text || !desc->size)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: a module in '%s' has %zu bytes at %p; give its source", dialect,
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
