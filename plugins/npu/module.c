/* module.c: modules: SPIR-V, OpenCL C if there is a compiler, and binaries of module_export. */
#define _POSIX_C_SOURCE 200809L /* close */
#include "module.h"

#include <errno.h>
#include <hal/plugin_binary.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOG_BYTES = 3000, LOG_MOST = 1 << 24 }; /* of a message; of a whole log */

/* ---- building --------------------------------------------------------------------------------------------------- */

/* Returns the log from its first error on, up to the maximum length. */
static hal_status_t say_log(const npu_device_t *device, ze_module_build_log_handle_t handle, ze_result_t code,
                            const char *dialect) {
  size_t bytes = 0;
  const ze_result_t told = handle ? ze.zeModuleBuildLogGetString(handle, &bytes, NULL) : ZE_RESULT_ERROR_UNKNOWN;
  char *log = !told && bytes && bytes <= LOG_MOST ? hal_host->mem_alloc(bytes + 1, 1) : NULL;
  if (log) memset(log, 0, bytes + 1); /* it may be written only partly */
  if (log && ze.zeModuleBuildLogGetString(handle, &bytes, log)) log[0] = '\0';
  const char *text = log && *log ? log : "there is no log";
  const char *first = strstr(text, "error");
  while (first && first > text && first[-1] != '\n') first--;
  const hal_status_t told_status = npu_error_status(code);
  const hal_status_t status =
      npu_error(told_status, (int64_t)code, "npu: '%s' cannot build a module in '%s' (%s): %.*s", device->facts.name,
                dialect, npu_error_name(code), LOG_BYTES, first ? first : text);
  hal_host->mem_free(log);
  return status;
}

/* Copies the SPIR-V of a module, which describes its kernels. */
static hal_status_t keep_words(hal_plugin_module_t *module, const void *data, size_t size) {
  module->words = hal_host->mem_alloc(size ? size : 1, alignof(uint32_t));
  if (!module->words)
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for a module of %zu bytes; free some memory",
                     size);
  memcpy(module->words, data, size);
  module->word_count = size / sizeof *module->words;
  return HAL_OK;
}

/* Compiles a module in OpenCL C to SPIR-V, and stores that. */
static hal_status_t compile(const npu_device_t *device, const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  hal_clang_result_t result;
  hal_status_t status = hal_clang_spirv(desc->data, desc->size, desc->options ? desc->options : "",
                                        (device->modules.flags & ZE_DEVICE_MODULE_FLAG_FP64) != 0, &result);
  if (status == HAL_UNAVAILABLE) return npu_error(status, 0, "npu: %s, or pass the module in 'spirv'", result.log);
  if (status == HAL_INVALID_ARGUMENT)
    return npu_error(status, result.code, "npu: '%s' cannot build a module in 'opencl-c' (%s ended with %d): %s",
                     device->facts.name, hal_clang_path(), result.code, result.log);
  if (status) return npu_error(status, result.code, "npu: %s", result.log);
  void *const words = mmap(NULL, result.size, PROT_READ, MAP_PRIVATE, result.file, 0);
  status = words == MAP_FAILED
               ? npu_error(HAL_RESOURCE_EXHAUSTED, errno, "npu: no memory for a module; free some memory")
               : keep_words(module, words, result.size);
  if (words != MAP_FAILED) munmap(words, result.size);
  close(result.file);
  return status;
}

/* Passes a module to the driver. */
static hal_status_t build(hal_plugin_module_t *module, ze_module_format_t format, const void *data, size_t size,
                          const char *dialect) {
  const npu_device_t *const device = &npu.devices[module->device];
  const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                 .format = format,
                                 .inputSize = size,
                                 .pInputModule = data,
                                 .pBuildFlags = ""};
  ze_module_build_log_handle_t log = NULL;
  ze_result_t code = ze.zeModuleCreate(npu.context, device->handle, &desc, &module->handle, npu.logs ? &log : NULL);
  if (!code && !module->handle) code = ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  const hal_status_t status = code ? say_log(device, log, code, dialect) : HAL_OK;
  if (log) ze.zeModuleBuildLogDestroy(log);
  npu_device_noticed(module->device, code);
  return status;
}

/* ---- binaries --------------------------------------------------------------------------------------------------- */

static void say_maker(const npu_device_t *device, char maker[HAL_BINARY_MAKER]) {
  snprintf(maker, HAL_BINARY_MAKER, "'%s' (device 0x%x of vendor 0x%x, driver %u)", device->facts.name,
           (unsigned)device->facts.deviceId, (unsigned)device->facts.vendorId, (unsigned)npu.driver_version);
}

/* A binary consists of the number of the SPIR-V's words, the words, and the driver's binary. Its checksum is verified
 * first, so that no part of a damaged one is used. */
static hal_status_t load_binary(const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  char maker[HAL_BINARY_MAKER];
  const void *data = NULL;
  uint64_t count = 0;
  size_t size = 0;
  say_maker(&npu.devices[module->device], maker);
  hal_status_t status = hal_binary_open("npu", desc, maker, &data, &size);
  if (status) return status;
  if (size >= sizeof count) memcpy(&count, data, sizeof count);
  if (size < sizeof count || count > (size - sizeof count) / sizeof *module->words)
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: a module of %zu bytes in 'binary' is not a binary of this plugin",
                     desc->size);
  const size_t bytes = count * sizeof *module->words;
  const unsigned char *const words = (const unsigned char *)data + sizeof count;
  status = keep_words(module, words, bytes);
  if (status) return status;
  return build(module, ZE_MODULE_FORMAT_NATIVE, words + bytes, size - sizeof count - bytes, desc->dialect);
}

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  const hal_status_t status = npu_check_alive(module->device);
  if (status) return status;
  const uint64_t count = module->word_count;
  const size_t bytes = module->word_count * sizeof *module->words, head = HAL_BINARY_SEAL + sizeof count + bytes;
  size_t size = 0;
  ze_result_t code = ze.zeModuleGetNativeBinary(module->handle, &size, NULL);
  if (code) return npu_driver_error(code, "npu: the driver does not return a module's binary");
  if (!size || size > SIZE_MAX / 2)
    return npu_error(HAL_UNIMPLEMENTED, 0, "npu: the driver reports an invalid size of a module's binary: %zu bytes",
                     size);
  if (room >= size + head) {
    char maker[HAL_BINARY_MAKER];
    unsigned char *const to = (unsigned char *)data + HAL_BINARY_SEAL;
    code = ze.zeModuleGetNativeBinary(module->handle, &size, (uint8_t *)data + head);
    if (code) return npu_driver_error(code, "npu: the driver does not return a module's binary");
    memcpy(to, &count, sizeof count);
    memcpy(to + sizeof count, module->words, bytes);
    say_maker(&npu.devices[module->device], maker);
    hal_binary_seal(data, size + sizeof count + bytes, maker);
  }
  *out_size = size + head;
  return HAL_OK;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

static hal_status_t create(const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  const npu_device_t *const device = &npu.devices[module->device];
  const char *dialect = desc->dialect ? desc->dialect : "";
  if (strcmp(dialect, "binary") == 0) return load_binary(desc, module);
  const int spirv = strcmp(dialect, "spirv") == 0;
  if (!spirv && strcmp(dialect, "opencl-c") != 0)
    return npu_error(HAL_UNIMPLEMENTED, 0,
                     "npu: unsupported dialect '%s' of a module; '%s' takes %s'spirv' and 'binary'", dialect,
                     device->facts.name, hal_clang_path() ? "'opencl-c', " : "");
  if (!desc->data || !desc->size || (spirv && desc->size % 4))
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: a module in '%s' has %zu bytes at %p; pass its %s", dialect,
                     desc->size, desc->data, spirv ? "words of four bytes" : "source");
  const hal_status_t status = spirv ? keep_words(module, desc->data, desc->size) : compile(device, desc, module);
  if (status) return status;
  return build(module, ZE_MODULE_FORMAT_IL_SPIRV, module->words, module->word_count * sizeof *module->words, dialect);
}

hal_status_t hal_plugin_module_load(int32_t ordinal, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_status_t status = npu_check_alive(ordinal);
  if (status) return status;
  hal_plugin_module_t *module = hal_host->mem_alloc(sizeof *module, alignof(hal_plugin_module_t));
  if (!module) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for a module; free some memory");
  *module = (hal_plugin_module_t){.device = ordinal};
  status = create(desc, module);
  if (status) {
    hal_host->mem_free(module->words);
    hal_host->mem_free(module);
    return status;
  }
  pthread_mutex_init(&module->lock, NULL);
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  if (!module) return HAL_OK;
  const hal_status_t status = npu_check_device(module->device);
  if (status) return status;
  npu_work_reap_all(module->device);
  for (hal_plugin_kernel_t *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    npu_kernel_destroy(kernel);
  }
  ze.zeModuleDestroy(module->handle);
  hal_host->mem_free(module->words);
  pthread_mutex_destroy(&module->lock);
  hal_host->mem_free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_status_t status = npu_check_alive(module->device);
  if (status) return status;
  pthread_mutex_lock(&module->lock);
  hal_plugin_kernel_t *kernel = module->kernels;
  while (kernel && strcmp(kernel->name->text, name) != 0) kernel = kernel->next;
  if (!kernel) {
    status = npu_kernel_create(module, name, &kernel);
    if (!status) {
      kernel->next = module->kernels;
      module->kernels = kernel;
    }
  }
  pthread_mutex_unlock(&module->lock);
  if (!status) *out_kernel = kernel;
  return status;
}
