/* opencl_testing.h: the OpenCL plugin on any driver, and kernels for it. Each program runs once per kind of memory
 * of the plugin (HAL_OPENCL_MEMORY) and with two devices. */
#ifndef TEST_HAL_OPENCL_TESTING_H_
#define TEST_HAL_OPENCL_TESTING_H_

#include <stdlib.h>

#include "support.h"

/* Also reports the skip to ctest, by SKIP_REGULAR_EXPRESSION: Criterion does not report a skipped test. */
static inline void skip(const char *why) {
  fprintf(stderr, "SKIPPED: %s\n", why);
  cr_skip_test("%s", why);
}

/* Opens plugins, of which this one is the first. The test is skipped without a driver, or if its device lacks the
   kind of memory. */
static inline void open_plugins(const char *names) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  hal_status_t status = hal_registry_open(names);
  if (status == HAL_UNAVAILABLE) skip(hal_error_message());
  assert_ok(status);
  status = hal_device_info(0, &info);
  if (status && strstr(hal_error_message(), "has no such memory")) skip(hal_error_message());
  assert_ok(status);
}

/* Tests that apply to all drivers also run on other plugins: HAL_TEST_PLUGIN. */
static inline void open_opencl(void) {
  const char *const plugin = getenv("HAL_TEST_PLUGIN");
  open_plugins(plugin ? plugin : "opencl");
}

/* Modules of make_kernel, until the test ends. */
static hal_module_t *kept_modules[16];
static int kept_count;

static inline void close_opencl(void) {
  while (kept_count) hal_module_unload(kept_modules[--kept_count]);
  hal_registry_close();
}

static inline const char *memory_kind(void) {
  const char *const kind = getenv("HAL_OPENCL_MEMORY");
  return kind ? kind : "";
}

/* Definitions of words of OpenCL C for compilers of CUDA C, so that tests have one source text. */
static const char cuda_words[] =
    "#define __kernel extern \"C\" __global__\n"
    "#define __global\n"
    "#define barrier(what) __syncthreads()\n"
    "typedef unsigned int uint;\n"
    "typedef unsigned long long ulong;\n"
    "__device__ inline uint get_of(uint3 v, int d) { return d == 0 ? v.x : d == 1 ? v.y : v.z; }\n"
    "__device__ inline uint get_local_id(int d) { return get_of(threadIdx, d); }\n"
    "__device__ inline uint get_group_id(int d) { return get_of(blockIdx, d); }\n"
    "__device__ inline uint get_local_size(int d) { return d == 0 ? blockDim.x : d == 1 ? blockDim.y : blockDim.z; }\n"
    "__device__ inline uint get_num_groups(int d) { return d == 0 ? gridDim.x : d == 1 ? gridDim.y : gridDim.z; }\n"
    "__device__ inline uint get_global_size(int d) { return get_num_groups(d) * get_local_size(d); }\n"
    "__device__ inline uint get_global_id(int d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }\n"
    "#line 1\n";

/* Returns whether the plugin under test accepts CUDA C. */
static inline int takes_cuda(void) {
  const char *const plugin = getenv("HAL_TEST_PLUGIN");
  return plugin && strcmp(plugin, "cuda") == 0;
}

static inline hal_status_t load_cuda(int32_t device, const char *source, const char *options,
                                     hal_module_t **out_module) {
  const size_t size = strlen(source) + sizeof cuda_words;
  char *const text = malloc(size);
  if (!text) return HAL_RESOURCE_EXHAUSTED;
  snprintf(text, size, "%s%s", cuda_words, source);
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "cuda-c", .options = options, .data = text, .size = size - 1};
  const hal_status_t status = hal_module_load(device, &desc, out_module);
  free(text);
  return status;
}

static inline hal_status_t load_source(int32_t device, const char *source, const char *options,
                                       hal_module_t **out_module) {
  if (takes_cuda()) return load_cuda(device, source, options, out_module);
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "opencl-c", .options = options, .data = source, .size = strlen(source)};
  return hal_module_load(device, &desc, out_module);
}

static inline hal_kernel_t *make_kernel(int32_t device, const char *source, const char *name) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  assert_ok(load_source(device, source, "", &module));
  cr_assert_lt(kept_count, 16);
  kept_modules[kept_count++] = module;
  assert_ok(hal_kernel_get(module, name, &kernel));
  return kernel;
}

static inline hal_status_t launch_1d(hal_kernel_t *kernel, hal_stream_t *stream, uint32_t grid, uint32_t block,
                                     const hal_arg_t *args, uint32_t arg_count) {
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {grid, 1, 1}, .block = {block, 1, 1}, .arg_count = arg_count, .args = args};
  return hal_kernel_launch(kernel, stream, &launch);
}

/* `size` bytes of device memory, freed at the end of the test. */
static inline char *device_bytes(int32_t device, size_t size) {
  hal_block_t *block;
  assert_ok(hal_memory_allocate(device, NULL, size, &block));
  return hal_memory_block_address(block);
}

#define POINTER(name) \
  { &name, sizeof name, HAL_ARG_POINTER }
#define VALUE(name) \
  { &name, sizeof name, HAL_ARG_VALUE }

/* A kernel that runs about 0.1 s, long enough to observe waits for it. Compilers cannot shorten the computation. */
#define SLOW_SOURCE                                                                   \
  "__kernel void slow(__global uint *to, uint value, uint rounds) {\n"                \
  "  uint x = value;\n"                                                               \
  "  for (uint i = 0; i < rounds; i++) x = (x ^ x >> 13) * 1664525u + 1013904223u;\n" \
  "  to[get_global_id(0)] = x == 12345u ? x : value;\n"                               \
  "}\n"                                                                               \
  "__kernel void add_one(__global uint *to) { to[get_global_id(0)] += 1; }\n"

enum { SLOW_ROUNDS = 50000000 };

#endif /* TEST_HAL_OPENCL_TESTING_H_ */
