/* launch.c: launches, and queries of kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mock.h"

typedef struct launch_s {
  command_t command;
  CUmodule module;
  const module_kernel_t *kernel;
  module_range_t range;
  unsigned shared_bytes;
  char attributes[64]; /* for cubin_record */
  _Alignas(16) char values[ARGUMENT_BYTES];
} launch_t;

enum { CLUSTER_SCHEDULING = 5 }; /* CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, a hint */
enum { MOST_THREADS = 1024, OWN_REGISTERS = 32, MOST_SHARED = 99 << 10, BLOCKS_PER_UNIT = 8 };

static void run(command_t *command, CUcontext context) {
  launch_t *const launch = (launch_t *)command;
  void *arguments[MAX_ARGUMENTS];
  size_t at = 0;
  for (unsigned i = 0; i < launch->kernel->count; i++) {
    arguments[i] = launch->values + at;
    at += (launch->kernel->sizes[i] + 15) & ~(size_t)15;
  }
  if (launch->module->cubin) {
    cubin_record(launch->kernel, &launch->range, launch->shared_bytes, launch->attributes, arguments);
    return;
  }
  launch->range.shared = launch->shared_bytes ? calloc(1, launch->shared_bytes) : NULL;
  if (launch->shared_bytes && !launch->range.shared)
    atomic_store(&context->error, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  else
    launch->kernel->run(&launch->range, arguments);
  free(launch->range.shared);
}

static void drop(command_t *command) { module_release(((launch_t *)command)->module); }

/* The values are read during the call. */
static int take_arguments(launch_t *launch, void **arguments) {
  size_t at = 0;
  for (unsigned i = 0; i < launch->kernel->count; i++) {
    const size_t bytes = launch->kernel->sizes[i];
    if (!arguments || !arguments[i] || bytes > sizeof launch->values - at) return 0;
    memcpy(launch->values + at, arguments[i], bytes);
    at += (bytes + 15) & ~(size_t)15;
  }
  return 1;
}

static CUresult check(CUfunction function, const module_range_t *range, unsigned shared_bytes, CUcontext context) {
  const unsigned *const grid = range->grid, *const block = range->block;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (function->module->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2] || grid[0] > 2147483647u ||
      grid[1] > 65535 || grid[2] > 65535 || block[0] > MOST_THREADS || block[1] > MOST_THREADS || block[2] > 64 ||
      (uint64_t)block[0] * block[1] * block[2] > MOST_THREADS || shared_bytes > (unsigned)function->most_shared)
    return CUDA_ERROR_INVALID_VALUE;
  if (function->module->cubin && !cubin_takes(function->module->cubin, function->kernel, block))
    return CUDA_ERROR_INVALID_VALUE;
  return fault_takes(FAULT_LAUNCH) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

static CUresult push(CUfunction function, const module_range_t *range, unsigned shared_bytes, CUstream stream,
                     void **arguments, void **extra, const char *attributes) {
  CUcontext context;
  CUresult code = enter(&context);
  if (!code) code = check(function, range, shared_bytes, context);
  if (code) return code;
  if (extra) return CUDA_ERROR_NOT_SUPPORTED;
  launch_t *const launch = command_new(sizeof *launch, run);
  if (!launch) return CUDA_ERROR_OUT_OF_MEMORY;
  launch->module = function->module;
  launch->kernel = function->kernel;
  launch->range = *range;
  launch->shared_bytes = shared_bytes;
  snprintf(launch->attributes, sizeof launch->attributes, "%s", attributes);
  if (launch->module->image->yield) launch->range.fibres = fibres_run;
  if (!take_arguments(launch, arguments)) {
    free(launch);
    return CUDA_ERROR_INVALID_VALUE;
  }
  atomic_fetch_add(&launch->module->users, 1);
  launch->command.drop = drop;
  return command_push(stream, context, &launch->command);
}

API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                            CUstream stream, void **arguments, void **extra) {
  const module_range_t range = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}};
  return push(function, &range, shared_bytes, stream, arguments, extra, "");
}

/* Adds an attribute of a cubin's launch to the text that is recorded. */
static void note(char *text, size_t room, const CUlaunchAttribute *one) {
  const size_t size = strlen(text);
  text += size;
  room -= size;
  if (one->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    snprintf(text, room, "cluster:%u:%u:%u;", one->value.clusterDim.x, one->value.clusterDim.y,
             one->value.clusterDim.z);
  else if (one->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    snprintf(text, room, "cooperative:%d;", one->value.cooperative);
  else if (one->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
    snprintf(text, room, "overlap:%d;", one->value.programmaticStreamSerializationAllowed);
}

/* Blocks run one after the other: cooperative launches and clusters are refused, except those of cubins, which do not
 * run. */
static CUresult check_attribute(const CUlaunchAttribute *one, const module_range_t *range, int is_cubin) {
  switch (one->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return one->value.cooperative && !is_cubin && range->grid[0] * range->grid[1] * range->grid[2] > 1
                 ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return is_cubin && range->grid[0] % one->value.clusterDim.x == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return is_cubin && (int)one->id == CLUSTER_SCHEDULING ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  }
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  const module_range_t range = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                .block = {config->blockDimX, config->blockDimY, config->blockDimZ}};
  char attributes[64] = "";
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const CUresult code = check_attribute(&config->attrs[i], &range, function->module->cubin != NULL);
    if (code) return code;
    note(attributes, sizeof attributes, &config->attrs[i]);
  }
  return push(function, &range, config->sharedMemBytes, config->hStream, arguments, extra, attributes);
}

/* ---- queries ---- */

API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = MOST_THREADS;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = OWN_REGISTERS;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->most_shared;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > MOST_SHARED)
    return CUDA_ERROR_INVALID_VALUE;
  function->most_shared = value;
  return CUDA_SUCCESS;
}

API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
  size_t at = 0;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->kernel->count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < index; i++) at += (function->kernel->sizes[i] + 7) & ~(size_t)7;
  *offset = at;
  if (bytes) *bytes = function->kernel->sizes[index];
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_threads,
                                                         size_t shared_bytes) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!function || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = block_threads > MOST_THREADS || shared_bytes > MOST_SHARED ? 0 : BLOCKS_PER_UNIT;
  return CUDA_SUCCESS;
}
