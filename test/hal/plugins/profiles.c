/* profiles.c: a plugin of devices that compute nothing. They report the properties of a phone's GPU, a large GPU and
 * a CPU, and accept kernels as source. For each launch they write a line with kernel, groups, threads, local bytes
 * and tiles to the file that PROFILES_LOG names. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles_source.h"
#include "profiles_tile.h"

/* As in launch_plan.c. */
enum { PHONE, LARGE, CPU, DEVICES };
static const struct {
  const char *name;
  uint32_t compute_units, subgroup_size, max_block_threads, max_shared_bytes;
  uint64_t flags;
} profiles[DEVICES] = {{"phone", 12, 16, 512, 32 << 10, 0},
                       {"large", 108, 32, 1024, 48 << 10, HAL_DEVICE_FP64},
                       {"cpu", 16, 1, 4096, 512 << 10, HAL_DEVICE_FP64 | HAL_DEVICE_CPU}};

struct hal_plugin_module_s {
  int32_t device;
  char *source;
};
struct hal_plugin_kernel_s {
  char name[128];
  long local_bytes;
};

static int known(int32_t device) { return device >= 0 && device < DEVICES; }

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "profiles";
  out_info->vendor = "tests";
  out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  if (!known(device)) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "profiles: no such device");
  hal_device_info_t info = {.struct_size = out_info->struct_size,
                            .dialects = "opencl-c",
                            .flags = profiles[device].flags,
                            .total_memory = UINT64_C(1) << 32,
                            .compute_units = profiles[device].compute_units,
                            .subgroup_size = profiles[device].subgroup_size,
                            .max_block_threads = profiles[device].max_block_threads,
                            .max_shared_bytes = profiles[device].max_shared_bytes,
                            .base_alignment = 256};
  snprintf(info.name, sizeof info.name, "%s", profiles[device].name);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)flags;
  void *ptr = NULL;
  if (!known(device) || posix_memalign(&ptr, 256, size ? size : 1))
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "profiles: out of memory; free some tensors");
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memcpy(dst, src, size);
  return HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_plugin_module_t *const module = malloc(sizeof *module);
  char *const source = strndup(desc->data, desc->size);
  if (!module || !source) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "profiles: out of memory");
  *module = (hal_plugin_module_t){.device = device, .source = source};
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  free(module->source);
  free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_plugin_kernel_t *const kernel = malloc(sizeof *kernel); /* as long as the process */
  if (!kernel) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "profiles: out of memory");
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  /* On devices of few wide cores, an item's private memory replaces local memory. */
  kernel->local_bytes = profiles[module->device].flags & HAL_DEVICE_CPU ? 0 : profile_local_bytes(module->source);
  *out_kernel = kernel;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)stream;
  const char *const path = getenv("PROFILES_LOG");
  FILE *const log = path ? fopen(path, "a") : NULL;
  if (!log) return hal_host->error_set(HAL_INTERNAL, 0, "profiles: PROFILES_LOG names no file that can be written");
  char tile[100], local[50] = "";
  profile_tile(kernel->name, launch, tile, sizeof tile);
  if (kernel->local_bytes) snprintf(local, sizeof local, ", %ld local bytes", kernel->local_bytes);
  fprintf(log, "  %-34s %7lu groups of %3lu%s%s\n", kernel->name,
          (unsigned long)launch->grid[0] * launch->grid[1] * launch->grid[2],
          (unsigned long)launch->block[0] * launch->block[1] * launch->block[2], local, tile);
  return fclose(log) ? HAL_INTERNAL : HAL_OK;
}
