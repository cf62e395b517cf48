/* module.c: modules: CUDA C if there is a compiler (compile.c), PTX, cubins of other compilers, and binaries of
 * module_export. */
#include "module.h"

#include <elf.h>
#include <hal/plugin_binary.h>
#include <stdio.h>
#include <string.h>

enum { LOG_BYTES = 3000 };

/* ---- building --------------------------------------------------------------------------------------------------- */

/* Passes the module's image to the driver. The context is current. */
static hal_status_t build(hal_plugin_module_t *module, const char *dialect) {
  const cuda_device_t *const device = &cuda.devices[module->device];
  char log[LOG_BYTES] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  CUresult code = drv.cuModuleLoadDataEx(&module->handle, module->image, 2, options, values);
  if (!code && !module->handle) code = CUDA_ERROR_INVALID_IMAGE;
  log[sizeof log - 1] = '\0';
  cuda_device_noticed(module->device, code);
  if (!code) return HAL_OK;
  if (cuda_error_status(code) != HAL_INVALID_ARGUMENT)
    return cuda_driver_error(code, "cuda: a module in '%s' cannot be loaded on '%s'", dialect, device->name);
  return cuda_error(HAL_INVALID_ARGUMENT, (int64_t)code,
                    "cuda: '%s' cannot load a module in '%s' (%s, driver of CUDA %d.%d): %s", device->name, dialect,
                    cuda_error_name(code), cuda_loader_cuda_version() / 1000, cuda_loader_cuda_version() % 1000 / 10,
                    log[0] ? cuda_log_error(log) : "the driver left no log");
}

/* Copies bytes as the module's image, with a NUL at the end, because the driver reads PTX to its end. */
static hal_status_t keep_image(hal_plugin_module_t *module, const void *data, size_t size) {
  module->image = hal_host->mem_alloc(size + 1, 16);
  if (!module->image)
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a module of %zu bytes; free some memory",
                      size);
  memcpy(module->image, data, size);
  module->image[size] = '\0';
  module->image_size = size;
  return HAL_OK;
}

/* ---- binaries --------------------------------------------------------------------------------------------------- */

static void say_maker(const cuda_device_t *device, char maker[HAL_BINARY_MAKER]) {
  snprintf(maker, HAL_BINARY_MAKER, "'%s' (compute capability %d.%d, driver of CUDA %d)", device->name,
           device->capability / 10, device->capability % 10, cuda_loader_cuda_version());
}

static hal_status_t load_binary(const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  char maker[HAL_BINARY_MAKER];
  const void *data = NULL;
  size_t size = 0;
  say_maker(&cuda.devices[module->device], maker);
  hal_status_t status = hal_binary_open("cuda", desc, maker, &data, &size);
  if (!status) status = keep_image(module, data, size);
  return status ? status : build(module, desc->dialect);
}

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  const hal_status_t status = cuda_check_device(module->device);
  if (status) return status;
  const size_t size = HAL_BINARY_SEAL + module->image_size;
  if (room >= size) {
    char maker[HAL_BINARY_MAKER];
    memcpy((char *)data + HAL_BINARY_SEAL, module->image, module->image_size);
    say_maker(&cuda.devices[module->device], maker);
    hal_binary_seal(data, module->image_size, maker);
  }
  *out_size = size;
  return HAL_OK;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* The driver receives no size: it reads up to the ends of the tables that the header names. */
static hal_status_t check_cubin(const hal_module_desc_t *desc) {
  Elf64_Ehdr head;
  const size_t size = desc->size;
  if (size >= sizeof head) {
    memcpy(&head, desc->data, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_shoff <= size &&
        head.e_phoff <= size && (size_t)head.e_shnum * head.e_shentsize <= size - head.e_shoff &&
        (size_t)head.e_phnum * head.e_phentsize <= size - head.e_phoff)
      return HAL_OK;
  }
  return cuda_error(HAL_INVALID_ARGUMENT, 0,
                    "cuda: a module in 'cubin' of %zu bytes is not a complete ELF file of 64 bits; pass the bytes that "
                    "ptxas or Triton wrote",
                    size);
}

static hal_status_t create(const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  const cuda_device_t *const device = &cuda.devices[module->device];
  const char *const dialect = desc->dialect ? desc->dialect : "";
  if (strcmp(dialect, "binary") == 0) return load_binary(desc, module);
  const int is_cubin = strcmp(dialect, "cubin") == 0, is_image = is_cubin || strcmp(dialect, "ptx") == 0;
  if (!is_image && strcmp(dialect, "cuda-c") != 0)
    return cuda_error(HAL_UNIMPLEMENTED, 0,
                      "cuda: unsupported dialect '%s' of a module; '%s' takes 'cuda-c', 'ptx', 'cubin' and 'binary'",
                      dialect, device->name);
  if (!desc->data || !desc->size)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: a module in '%s' has %zu bytes at %p; pass its text", dialect,
                      desc->size, desc->data);
  hal_status_t status = is_cubin ? check_cubin(desc) : HAL_OK;
  if (!status)
    status = is_image ? keep_image(module, desc->data, desc->size)
                      : cuda_compile(device, desc, &module->image, &module->image_size);
  return status ? status : build(module, dialect);
}

hal_status_t hal_plugin_module_load(int32_t ordinal, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  hal_plugin_module_t *const module = hal_host->mem_alloc(sizeof *module, alignof(hal_plugin_module_t));
  if (module) {
    *module = (hal_plugin_module_t){.device = ordinal};
    status = create(desc, module);
  } else {
    status = cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a module; free some memory");
  }
  cuda_leave(&scope);
  if (status) {
    if (module) hal_host->mem_free(module->image);
    hal_host->mem_free(module);
    return status;
  }
  pthread_mutex_init(&module->lock, NULL);
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  cuda_scope_t scope;
  if (!module) return HAL_OK;
  const hal_status_t status = cuda_enter(module->device, &scope);
  if (status) return status;
  for (hal_plugin_kernel_t *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    cuda_kernel_destroy(kernel);
  }
  drv.cuModuleUnload(module->handle); /* fails only if the context has ended, and the module with it */
  cuda_leave(&scope);
  hal_host->mem_free(module->image);
  pthread_mutex_destroy(&module->lock);
  hal_host->mem_free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(module->device);
  if (!status) status = cuda_enter(module->device, &scope);
  if (status) return status;
  pthread_mutex_lock(&module->lock);
  hal_plugin_kernel_t *kernel = module->kernels;
  while (kernel && strcmp(kernel->name->text, name) != 0) kernel = kernel->next;
  if (!kernel) {
    status = cuda_kernel_create(module, name, &kernel);
    if (!status) {
      kernel->next = module->kernels;
      module->kernels = kernel;
    }
  }
  pthread_mutex_unlock(&module->lock);
  cuda_leave(&scope);
  if (!status) *out_kernel = kernel;
  return status;
}
