/* module.c: modules and kernels. A native binary is the module's SPIR-V, followed by OpenCL's binary of it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef struct binary_s {
  char magic[8];
  uint64_t word_count, code_bytes;
} binary_t;

static const char magic[8] = "ZECPU01";

static ze_result_t keep_words(module_t *module, const void *data, size_t size) {
  if (!size || size % sizeof *module->words) return ZE_RESULT_ERROR_INVALID_SIZE;
  module->words = malloc(size);
  if (!module->words) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  memcpy(module->words, data, size);
  module->word_count = size / sizeof *module->words;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t from_native(module_t *module, const ze_module_desc_t *desc, char *log) {
  binary_t head;
  if (desc->inputSize < sizeof head) return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
  memcpy(&head, desc->pInputModule, sizeof head);
  const size_t rest = desc->inputSize - sizeof head;
  if (memcmp(head.magic, magic, sizeof magic) != 0 || head.word_count > rest / sizeof *module->words ||
      head.code_bytes != rest - head.word_count * sizeof *module->words)
    return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
  const unsigned char *const words = desc->pInputModule + sizeof head;
  const ze_result_t result = keep_words(module, words, head.word_count * sizeof *module->words);
  if (result) return result;
  return program_load(module, words + head.word_count * sizeof *module->words, head.code_bytes, log);
}

static ze_result_t fill(module_t *module, const ze_module_desc_t *desc, char *log) {
  if (fault_takes(FAULT_MODULE)) {
    snprintf(log, LOG_BYTES, "error: this module was refused on demand");
    return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  }
  if (desc->format == ZE_MODULE_FORMAT_NATIVE) return from_native(module, desc, log);
  if (desc->format != ZE_MODULE_FORMAT_IL_SPIRV) return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  const ze_result_t result = keep_words(module, desc->pInputModule, desc->inputSize);
  if (result) return result;
  if (hal_spirv_kernel_name(module->words, module->word_count, 0)) return program_make(module, desc->pBuildFlags, log);
  snprintf(log, LOG_BYTES, "error: this is no SPIR-V with a kernel");
  return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

static ze_result_t destroy(ze_module_handle_t handle) {
  module_t *const module = (module_t *)handle;
  program_release(module);
  free(module->words);
  free(module);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, const ze_module_desc_t *desc,
                          ze_module_handle_t *out, ze_module_build_log_handle_t *out_log) {
  (void)context;
  if (atomic_load(&((device_t *)device)->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  module_t *const module = calloc(1, sizeof *module);
  char *const log = calloc(1, LOG_BYTES);
  const ze_result_t result = module && log ? fill(module, desc, log) : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (out_log && log)
    *out_log = (ze_module_build_log_handle_t)log;
  else
    free(log);
  if (!result)
    *out = (ze_module_handle_t)module;
  else if (module)
    destroy((ze_module_handle_t)module);
  return result;
}

static ze_result_t native_binary(ze_module_handle_t handle, size_t *size, uint8_t *data) {
  const module_t *const module = (module_t *)handle;
  const size_t bytes = module->word_count * sizeof *module->words;
  binary_t head = {.word_count = module->word_count};
  size_t code_bytes = 0;
  memcpy(head.magic, magic, sizeof magic);
  ze_result_t result = program_binary(module, &code_bytes, NULL);
  if (result) return result;
  head.code_bytes = code_bytes;
  if (data) {
    if (*size < sizeof head + bytes + code_bytes) return ZE_RESULT_ERROR_INVALID_SIZE;
    memcpy(data, &head, sizeof head);
    memcpy(data + sizeof head, module->words, bytes);
    result = program_binary(module, &code_bytes, data + sizeof head + bytes);
  }
  *size = sizeof head + bytes + code_bytes;
  return result;
}

static ze_result_t kernel_names(ze_module_handle_t handle, uint32_t *count, const char **names) {
  const module_t *const module = (module_t *)handle;
  uint32_t found = 0;
  for (const char *name; (name = hal_spirv_kernel_name(module->words, module->word_count, found)); found++)
    if (names && found < *count) names[found] = name;
  if (!names || *count > found) *count = found;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t log_destroy(ze_module_build_log_handle_t log) {
  free(log);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t log_string(ze_module_build_log_handle_t log, size_t *size, char *text) {
  const size_t needed = strlen((const char *)log) + 1;
  if (text) snprintf(text, *size, "%s", (const char *)log);
  *size = needed;
  return ZE_RESULT_SUCCESS;
}

/* ---- kernels ---- */

static ze_result_t kernel_create(ze_module_handle_t handle, const ze_kernel_desc_t *desc, ze_kernel_handle_t *out) {
  module_t *const module = (module_t *)handle;
  kernel_t *const kernel = calloc(1, sizeof *kernel);
  if (!kernel) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  kernel->module = module;
  kernel->name = strdup(desc->pKernelName);
  for (int i = 0; i < 3; i++) kernel->group[i] = 1;
  ze_result_t result = ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  if (hal_spirv_signature(module->words, module->word_count, desc->pKernelName, &kernel->signature))
    result = code_make(module, desc->pKernelName, &kernel->code);
  if (!result) {
    *out = (ze_kernel_handle_t)kernel;
    return ZE_RESULT_SUCCESS;
  }
  free(kernel->name);
  free(kernel);
  return result;
}

static ze_result_t kernel_destroy(ze_kernel_handle_t handle) {
  kernel_t *const kernel = (kernel_t *)handle;
  code_release(kernel->code);
  free(kernel->name);
  free(kernel);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t group_size(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
  if (!x || !y || !z || (uint64_t)x * y * z > 1024) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  uint32_t *const group = ((kernel_t *)handle)->group;
  group[0] = x, group[1] = y, group[2] = z;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t suggest(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z, uint32_t *out_x,
                           uint32_t *out_y, uint32_t *out_z) {
  (void)handle, (void)y, (void)z;
  *out_x = 256;
  while (x % *out_x) *out_x /= 2;
  *out_y = *out_z = 1;
  return ZE_RESULT_SUCCESS;
}

/* The storage of a value never moves and has its first size. */
static ze_result_t argument(ze_kernel_handle_t handle, uint32_t index, size_t size, const void *value) {
  kernel_t *const kernel = (kernel_t *)handle;
  if (index >= kernel->signature.count || index >= MAX_ARGS) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
  const hal_spirv_signature_t *const signature = &kernel->signature;
  const int local = signature->kinds[index] == HAL_ARG_LOCAL;
  const uint64_t bit = UINT64_C(1) << index;
  if (!size || (signature->sizes[index] && size != signature->sizes[index]) || (local && value))
    return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
  if (!local && kernel->given & bit && kernel->sizes[index] != size)
    return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
  if (!local && !(kernel->given & bit)) {
    const size_t taken = (size + 15) / 16 * 16;
    if (size > MAX_ARG_BYTES || taken > MAX_ARG_BYTES - kernel->used)
      return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    kernel->offsets[index] = kernel->used;
    kernel->used += (uint32_t)taken;
  }
  kernel->given |= bit;
  kernel->sizes[index] = (uint32_t)size;
  if (local) return ZE_RESULT_SUCCESS;
  if (value)
    memcpy(kernel->values + kernel->offsets[index], value, size);
  else
    memset(kernel->values + kernel->offsets[index], 0, size);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t properties(ze_kernel_handle_t handle, ze_kernel_properties_t *out) {
  const kernel_t *const kernel = (kernel_t *)handle;
  out->numKernelArgs = kernel->signature.count;
  out->requiredGroupSizeX = out->requiredGroupSizeY = out->requiredGroupSizeZ = 0;
  out->requiredNumSubGroups = out->requiredSubgroupSize = 0;
  out->maxSubgroupSize = 1;
  out->maxNumSubgroups = 1024;
  out->localMemSize = code_local_bytes(kernel->code);
  out->privateMemSize = out->spillMemSize = 0;
  memset(&out->uuid, 0, sizeof out->uuid);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t indirect_access(ze_kernel_handle_t handle, ze_kernel_indirect_access_flags_t flags) {
  (void)handle, (void)flags; /* all memory is always resident */
  return ZE_RESULT_SUCCESS;
}

launch_t *launch_make(const kernel_t *kernel, const ze_group_count_t *grid) {
  const uint32_t count = kernel->signature.count;
  const uint64_t all = count && count <= 64 ? UINT64_MAX >> (64 - count) : 0;
  if (count > MAX_ARGS || kernel->given != all || !grid->groupCountX || !grid->groupCountY || !grid->groupCountZ)
    return NULL;
  launch_t *const launch = aligned_alloc(16, (sizeof *launch + kernel->used + 15) / 16 * 16);
  if (!launch) return NULL;
  *launch = (launch_t){
      .code = kernel->code, .grid = {grid->groupCountX, grid->groupCountY, grid->groupCountZ}, .count = count};
  memcpy(launch->group, kernel->group, sizeof launch->group);
  memcpy(launch->kinds, kernel->signature.kinds, sizeof launch->kinds);
  memcpy(launch->sizes, kernel->sizes, sizeof launch->sizes);
  memcpy(launch->offsets, kernel->offsets, sizeof launch->offsets);
  memcpy(launch->values, kernel->values, kernel->used);
  launch->bytes = kernel->used;
  code_keep(launch->code);
  return launch;
}

launch_t *launch_copy(const launch_t *launch) {
  const size_t bytes = (sizeof *launch + launch->bytes + 15) / 16 * 16;
  launch_t *const copy = aligned_alloc(16, bytes);
  if (!copy) return NULL;
  memcpy(copy, launch, sizeof *launch + launch->bytes);
  code_keep(copy->code);
  return copy;
}

void launch_release(launch_t *launch) {
  if (launch) code_release(launch->code);
  free(launch);
}

void module_fill_tables(ze_module_dditable_t *modules, ze_module_build_log_dditable_t *logs,
                        ze_kernel_dditable_t *kernels) {
  if (modules) {
    modules->pfnCreate = create;
    modules->pfnDestroy = destroy;
    modules->pfnGetNativeBinary = native_binary;
    modules->pfnGetKernelNames = kernel_names;
  }
  if (logs) {
    logs->pfnDestroy = log_destroy;
    logs->pfnGetString = log_string;
  }
  if (kernels) {
    kernels->pfnCreate = kernel_create;
    kernels->pfnDestroy = kernel_destroy;
    kernels->pfnSetGroupSize = group_size;
    kernels->pfnSuggestGroupSize = suggest;
    kernels->pfnSetArgumentValue = argument;
    kernels->pfnGetProperties = properties;
    kernels->pfnSetIndirectAccess = indirect_access;
  }
}
