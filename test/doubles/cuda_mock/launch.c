/* launch.c: launches, and queries of kernels. */
#include <stdlib.h>
#include <string.h>

#include "mock.h"

typedef struct launch_s {
  command_t command;
  CUmodule module;
  const module_kernel_t *kernel;
  module_range_t range;
  unsigned shared_bytes;
  _Alignas(16) char values[ARGUMENT_BYTES];
} launch_t;

enum { MOST_THREADS = 1024, OWN_REGISTERS = 32, MOST_SHARED = 99 << 10, BLOCKS_PER_UNIT = 8 };

static void run(command_t *command, CUcontext context) {
  launch_t *const launch = (launch_t *)command;
  void *arguments[MAX_ARGUMENTS];
  size_t at = 0;
  for (unsigned i = 0; i < launch->kernel->count; i++) {
    arguments[i] = launch->values + at;
    at += (launch->kernel->sizes[i] + 15) & ~(size_t)15;
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
  return fault_takes(FAULT_LAUNCH) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

static CUresult push(CUfunction function, const module_range_t *range, unsigned shared_bytes, CUstream stream,
                     void **arguments, void **extra) {
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
  return push(function, &range, shared_bytes, stream, arguments, extra);
}

/* Blocks run one after the other: cooperative launches and clusters are refused. */
API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  const module_range_t range = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                .block = {config->blockDimX, config->blockDimY, config->blockDimZ}};
  for (unsigned i = 0; i < config->numAttrs; i++) switch (config->attrs[i].id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (config->attrs[i].value.cooperative && range.grid[0] * range.grid[1] * range.grid[2] > 1)
          return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  return push(function, &range, config->sharedMemBytes, config->hStream, arguments, extra);
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
