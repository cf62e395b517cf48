/* driver_launch.c: only launches a kernel of 256 elements CALLS times through the HAL and a plugin of a vendor's
 * driver, for callgrind (npu_launch.py, cuda_launch.py).
 *
 *   HAL_PLUGIN_PATH=<directory of libhal_npu.so> bench_driver_launch npu CALLS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal/hal.h"

static const char opencl_source[] =
    "__kernel void add(__global float *to, __global const float *a, __global const float *b, uint count) {\n"
    "  size_t i = get_global_id(0);\n"
    "  if (i < count) to[i] = a[i] + b[i];\n"
    "}\n";
static const char cuda_source[] =
    "extern \"C\" __global__ void add(float *to, const float *a, const float *b, unsigned count) {\n"
    "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < count) to[i] = a[i] + b[i];\n"
    "}\n";

static void must(hal_status_t status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", what, hal_error_message());
  exit(1);
}

int main(int argc, char **argv) {
  enum { COUNT = 256, SYNCHRONIZE_EVERY = 100 };
  const char *const plugin = argc > 1 ? argv[1] : "npu";
  const long calls = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
  const int is_cuda = strcmp(plugin, "cuda") == 0;
  const char *const source = is_cuda ? cuda_source : opencl_source;
  const hal_module_desc_t desc = {.struct_size = sizeof desc,
                                  .dialect = is_cuda ? "cuda-c" : "opencl-c",
                                  .options = "",
                                  .data = source,
                                  .size = strlen(source)};
  hal_stream_t *stream;
  hal_block_t *block;
  hal_module_t *module;
  hal_kernel_t *kernel;
  must(hal_registry_open(plugin), "open");
  must(hal_stream_acquire(0, 0, &stream), "stream");
  must(hal_memory_allocate(0, NULL, 3 * COUNT * sizeof(float), &block), "memory");
  must(hal_module_load(0, &desc, &module), "module");
  must(hal_kernel_get(module, "add", &kernel), "kernel");
  char *const to = hal_memory_block_address(block), *const a = to + COUNT * sizeof(float),
              *const b = a + COUNT * sizeof(float);
  const uint32_t count = COUNT;
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER},
                            {&a, sizeof a, HAL_ARG_POINTER},
                            {&b, sizeof b, HAL_ARG_POINTER},
                            {&count, sizeof count, HAL_ARG_VALUE}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {COUNT, 1, 1}, .arg_count = 4, .args = args};
  for (long i = 1; i <= calls; i++) {
    must(hal_kernel_launch(kernel, stream, &launch), "launch");
    if (i % SYNCHRONIZE_EVERY == 0) must(hal_stream_synchronize(stream), "synchronize");
  }
  must(hal_stream_synchronize(stream), "synchronize");
  hal_module_unload(module);
  hal_registry_close();
  return 0;
}
