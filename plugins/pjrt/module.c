/* module.c: kernels of the host, which run in the thread of the stream. There are two dialects: "native", the portable
 * kernels compiled into this plugin, and "host", kernels that the caller has compiled into its own library. A kernel
 * handle is the address of its entry in such a table. */
#include <hal/plugin_kernels.h>
#include <stdio.h>
#include <string.h>

#include "opaque.h"

enum { MAX_ARGUMENTS = 16, MAX_BYTES = 4096 };

struct hal_plugin_module_s {
  size_t count;                /* of the kernels of the dialect "host"; 0: the portable ones */
  hal_host_kernel_t kernels[]; /* copies, followed by their names */
};

static hal_status_t check_table(const hal_module_desc_t *desc) {
  if (desc->data && desc->size && desc->size % sizeof(hal_host_kernel_t) == 0) return HAL_OK;
  return pjrt_error(HAL_INVALID_ARGUMENT,
                    "pjrt: invalid module of %zu bytes at %p in the dialect 'host': expected an array of "
                    "hal_host_kernel_t, %zu bytes each",
                    desc->size, desc->data, sizeof(hal_host_kernel_t));
}

/* Creates a module with copies of kernels and their names. */
static hal_plugin_module_t *copy_table(const hal_host_kernel_t *kernels, size_t count) {
  size_t bytes = sizeof(hal_plugin_module_t) + count * sizeof *kernels;
  for (size_t i = 0; i < count; i++) bytes += strlen(kernels[i].name) + 1;
  hal_plugin_module_t *const module = hal_host->mem_alloc(bytes, _Alignof(hal_plugin_module_t));
  if (!module) return NULL;
  char *name = (char *)&module->kernels[count];
  module->count = count;
  for (size_t i = 0; i < count; i++) {
    hal_host_kernel_t kernel = kernels[i];
    const size_t size = strlen(kernel.name) + 1;
    kernel.name = memcpy(name, kernel.name, size);
    memcpy(&module->kernels[i], &kernel, sizeof kernel);
    name += size;
  }
  return module;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_status_t status = pjrt_check_device(device);
  if (status) return status;
  const char *const dialect = desc->dialect ? desc->dialect : "";
  const int host = strcmp(dialect, "host") == 0;
  if (!host && strcmp(dialect, "native") != 0)
    return pjrt_error(HAL_UNIMPLEMENTED, "pjrt: unsupported dialect '%s' of a module: expected 'native' or 'host'",
                      dialect);
  status = host ? check_table(desc) : HAL_OK;
  if (status) return status;
  hal_plugin_module_t *const module =
      copy_table(host ? desc->data : NULL, host ? desc->size / sizeof(hal_host_kernel_t) : 0);
  if (!module) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for a module");
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  hal_host->mem_free(module);
  return HAL_OK;
}

/* Logs the notes of the portable kernels about this machine. */
static void log_notes(void) {
  int32_t warns;
  for (const char *note; (note = hal_host_kernel_note(&warns));) {
    char line[400];
    snprintf(line, sizeof line, "pjrt: %s", note);
    hal_host->log(warns ? HAL_LOG_WARNING : HAL_LOG_INFO, line);
  }
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  const hal_host_kernel_t *kernel = module->count ? NULL : hal_host_kernel_find(name);
  for (size_t i = 0; !kernel && i < module->count; i++)
    if (strcmp(module->kernels[i].name, name) == 0) kernel = &module->kernels[i];
  if (!kernel)
    return pjrt_error(HAL_NOT_FOUND, "pjrt: unknown kernel '%s': it is not among the %zu %s", name,
                      module->count ? module->count : hal_host_kernel_count(),
                      module->count ? "kernels of the module" : "portable kernels");
  if (kernel->arg_count > MAX_ARGUMENTS)
    return pjrt_error(HAL_INTERNAL, "pjrt: kernel '%s' takes %u arguments, more than %d", name,
                      (unsigned)kernel->arg_count, MAX_ARGUMENTS);
  if (!module->count) log_notes();
  *out_kernel = (hal_plugin_kernel_t *)(uintptr_t)kernel;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  (void)kernel;
  HAL_SET_FIELD(out_info, max_block_threads, PJRT_MAX_BLOCK_THREADS);
  HAL_SET_FIELD(out_info, subgroup_size, 1);
  /* A unit is a thread of the host, which runs one block after the other. */
  HAL_SET_FIELD(out_info, blocks_per_unit, block_threads <= PJRT_MAX_BLOCK_THREADS && !shared_bytes ? 1 : 0);
  return HAL_OK;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

typedef struct launch_s {
  const hal_host_kernel_t *kernel;
  uint64_t units;
  uint32_t offsets[MAX_ARGUMENTS]; /* of the arguments in `bytes` */
  uint32_t pointers;               /* a bit for each argument that is an address */
  uint32_t size;
  _Alignas(16) unsigned char bytes[MAX_BYTES];
} launch_t;

/* Makes the content of memory that a kernel uses that of the mirror. */
static hal_status_t use_mirror(const launch_t *launch, char *why) {
  hal_status_t status = HAL_OK;
  for (uint32_t i = 0; i < launch->kernel->arg_count && !status; i++) {
    const void *address;
    if (!(launch->pointers >> i & 1)) continue;
    memcpy(&address, launch->bytes + launch->offsets[i], sizeof address);
    status = pjrt_opaque_kernel(address, why);
  }
  return status;
}

static hal_status_t run_launch(const void *arguments, char *why) {
  const launch_t *const launch = arguments;
  const hal_status_t status = pjrt.opaque ? use_mirror(launch, why) : HAL_OK;
  if (status) return status;
  const hal_host_range_t range = {0, launch->units};
  void *values[MAX_ARGUMENTS];
  for (uint32_t i = 0; i < launch->kernel->arg_count; i++)
    values[i] = (void *)(uintptr_t)(launch->bytes + launch->offsets[i]);
  if (launch->units) launch->kernel->fn(&range, values);
  return HAL_OK;
}

static hal_status_t check_geometry(const char *name, const hal_launch_t *launch) {
  const uint32_t *const grid = launch->grid, *const block = launch->block;
  if (grid[0] && block[0] && block[0] <= PJRT_MAX_BLOCK_THREADS && grid[1] == 1 && grid[2] == 1 && block[1] == 1 &&
      block[2] == 1 && !launch->shared_bytes)
    return HAL_OK;
  return pjrt_error(HAL_INVALID_ARGUMENT,
                    "pjrt: invalid launch of '%s' with grid (%u, %u, %u), block (%u, %u, %u) and %u shared bytes: "
                    "portable kernels have one dimension, at most %d threads of a block, and no shared bytes",
                    name, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0],
                    (unsigned)block[1], (unsigned)block[2], (unsigned)launch->shared_bytes, PJRT_MAX_BLOCK_THREADS);
}

/* Copies the arguments, each at an address aligned to 16 bytes. */
static hal_status_t copy_arguments(launch_t *to, const hal_launch_t *launch) {
  const char *const name = to->kernel->name;
  if (launch->arg_count != to->kernel->arg_count)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: launch of '%s' with %u arguments: expected %u", name,
                      (unsigned)launch->arg_count, (unsigned)to->kernel->arg_count);
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    const hal_arg_t *const argument = &launch->args[i];
    const int known =
        argument->kind == HAL_ARG_POINTER ? argument->size == sizeof(void *) : argument->kind == HAL_ARG_VALUE;
    if (!argument->value || !known || argument->size > sizeof to->bytes - to->size)
      return pjrt_error(HAL_INVALID_ARGUMENT,
                        "pjrt: invalid argument %u of '%s': kind %u, %u bytes at %p; expected values and pointers of "
                        "at most %zu bytes together",
                        (unsigned)i, name, (unsigned)argument->kind, (unsigned)argument->size, argument->value,
                        sizeof to->bytes);
    memcpy(to->bytes + to->size, argument->value, argument->size);
    to->offsets[i] = to->size;
    to->pointers |= (uint32_t)(argument->kind == HAL_ARG_POINTER) << i;
    to->size += (argument->size + 15) & ~15u;
    if (to->size > sizeof to->bytes) to->size = sizeof to->bytes;
  }
  return HAL_OK;
}

/* This device supports no attribute, so it accepts a launch whose attributes are all hints. */
static int has_required(const hal_launch_t *launch) {
  if (!HAL_HAS_FIELD(launch, attribute_count)) return 0;
  for (uint32_t i = 0; i < launch->attribute_count; i++)
    if (launch->attributes[i].required) return 1;
  return 0;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *handle, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  launch_t queued; /* not zeroed: only the bytes in use are copied */
  queued.kernel = (const hal_host_kernel_t *)(const void *)handle;
  queued.size = queued.pointers = 0;
  hal_status_t status = check_geometry(queued.kernel->name, launch);
  if (!status && has_required(launch))
    return pjrt_error(HAL_UNIMPLEMENTED, "pjrt: a launch of '%s' requires an attribute", queued.kernel->name);
  if (!status) status = copy_arguments(&queued, launch);
  if (status) return status;
  queued.units = launch->grid[0];
  if (queued.kernel->unit == HAL_HOST_ITEMS) queued.units *= launch->block[0];
  return pjrt_submit(stream, queued.kernel->name, run_launch, &queued, offsetof(launch_t, bytes) + queued.size);
}
