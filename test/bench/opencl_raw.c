/* opencl_raw.c: launches through the HAL and the OpenCL plugin compared with the same kernel queued directly, in the
 * same run and on the same device.
 *
 *   HAL_PLUGIN_PATH=<directory of libhal_opencl.so> bench_opencl_raw [--check]
 *   ... bench_opencl_raw raw|kernel|op CALLS      launches of 256 elements, for callgrind (opencl_launch.py)
 *
 * Directly: a queue without profiling, buffers, arguments set again for each launch. Each row is the best of several
 * rounds in which the sides run alternately. With --check the exit code is 1 if 1 M elements take more than 1.05
 * times the time of direct calls. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hal/hal.h"

enum { ROUNDS = 60, BLOCK = 256, SMALL = 256, LARGE = 1 << 20, BURST = 200, MOST = LARGE };

static const char source[] =
    "__kernel void add(__global float *to, __global const float *a, __global const float *b, uint count) {\n"
    "  size_t i = get_global_id(0);\n"
    "  if (i < count) to[i] = a[i] + b[i];\n"
    "}\n";

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* ---- direct calls ---- */

#define CALLS(X)               \
  X(clGetPlatformIDs)          \
  X(clGetDeviceIDs)            \
  X(clCreateContext)           \
  X(clCreateCommandQueue)      \
  X(clCreateBuffer)            \
  X(clCreateProgramWithSource) \
  X(clBuildProgram)            \
  X(clCreateKernel)            \
  X(clSetKernelArg)            \
  X(clEnqueueNDRangeKernel)    \
  X(clEnqueueWriteBuffer)      \
  X(clEnqueueReadBuffer)       \
  X(clFinish)

#define DECLARE(name) static __typeof__(name) *call_##name;
CALLS(DECLARE)

static cl_command_queue queue;
static cl_kernel by_hand;
static cl_mem buffers[3];

static void must_cl(cl_int code, const char *what) {
  if (!code) return;
  if (code == CL_PLATFORM_NOT_FOUND_KHR || code == CL_DEVICE_NOT_FOUND) {
    printf("not measured: %s; install an OpenCL driver (Debian: pocl-opencl-icd)\n", what);
    exit(0);
  }
  fprintf(stderr, "opencl_raw: %s: %d\n", what, (int)code);
  exit(2);
}

static void load(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) must_cl(CL_PLATFORM_NOT_FOUND_KHR, dlerror());
#define LOAD(name)                                          \
  {                                                         \
    void *symbol = dlsym(library, #name);                   \
    if (!symbol) must_cl(CL_PLATFORM_NOT_FOUND_KHR, #name); \
    memcpy(&call_##name, &symbol, sizeof symbol);           \
  }
  CALLS(LOAD)
}

static void open_by_hand(const float *values) {
  cl_platform_id platform;
  cl_device_id device;
  cl_int code;
  const char *text = source;
  load();
  must_cl(call_clGetPlatformIDs(1, &platform, NULL), "no platform");
  must_cl(call_clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "no device");
  cl_context context = call_clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  must_cl(code, "context");
  queue = call_clCreateCommandQueue(context, device, 0, &code);
  must_cl(code, "queue");
  cl_program program = call_clCreateProgramWithSource(context, 1, &text, NULL, &code);
  must_cl(code, "program");
  must_cl(call_clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
  by_hand = call_clCreateKernel(program, "add", &code);
  must_cl(code, "kernel");
  for (int i = 0; i < 3; i++) {
    buffers[i] = call_clCreateBuffer(context, CL_MEM_READ_WRITE, MOST * sizeof *values, NULL, &code);
    must_cl(code, "buffer");
    must_cl(call_clEnqueueWriteBuffer(queue, buffers[i], CL_TRUE, 0, MOST * sizeof *values, values, 0, NULL, NULL),
            "write");
  }
}

static void launch_by_hand(uint32_t count) {
  const size_t local = BLOCK, global = (count + BLOCK - 1) / BLOCK * BLOCK;
  cl_int code = CL_SUCCESS;
  for (cl_uint i = 0; i < 3; i++) code |= call_clSetKernelArg(by_hand, i, sizeof buffers[i], &buffers[i]);
  code |= call_clSetKernelArg(by_hand, 3, sizeof count, &count);
  code |= call_clEnqueueNDRangeKernel(queue, by_hand, 1, NULL, &global, &local, 0, NULL, NULL);
  must_cl(code, "launch");
}

static void wait_by_hand(void) { must_cl(call_clFinish(queue), "finish"); }

/* ---- through the HAL ---- */

static hal_stream_t *stream;
static hal_module_t *module;
static hal_kernel_t *kernel;
static void *memory[3];
static uint32_t add;

static void must(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "opencl_raw: %s\n", hal_error_message());
  exit(2);
}

static void open_ours(const float *values) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "opencl-c", .options = "", .data = source, .size = sizeof source - 1};
  setenv("HAL_OPENCL_DEVICE", "0:0", 1); /* the same as for direct calls */
  must(hal_registry_open("opencl"));
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_module_load(0, &desc, &module));
  must(hal_kernel_get(module, "add", &kernel));
  must(hal_op_id("add.Tensor", &add));
  for (int i = 0; i < 3; i++) {
    hal_block_t *block;
    must(hal_memory_allocate(0, stream, MOST * sizeof *values, &block));
    memory[i] = hal_memory_block_address(block);
    must(hal_memory_copy(stream, memory[i], 0, values, HAL_HOST, MOST * sizeof *values));
  }
  must(hal_stream_synchronize(stream));
}

static void launch_kernel(uint32_t count) {
  const hal_arg_t args[] = {{&memory[0], sizeof memory[0], HAL_ARG_POINTER},
                            {&memory[1], sizeof memory[1], HAL_ARG_POINTER},
                            {&memory[2], sizeof memory[2], HAL_ARG_POINTER},
                            {&count, sizeof count, HAL_ARG_VALUE}};
  const hal_launch_t launch = {.struct_size = sizeof launch,
                               .grid = {(count + BLOCK - 1) / BLOCK, 1, 1},
                               .block = {BLOCK, 1, 1},
                               .arg_count = 4,
                               .args = args};
  must(hal_kernel_launch(kernel, stream, &launch));
}

/* The operator's call, created once: the measurement begins with the call. */
static struct {
  int64_t size, stride;
  hal_tensor_t tensors[3];
  hal_value_t args[3];
  const hal_tensor_t *results[1];
  hal_op_call_t call;
} adding;

static void prepare_op(uint32_t count) {
  adding.size = count, adding.stride = 1;
  for (int i = 0; i < 3; i++)
    adding.tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                       .data = memory[i],
                                       .sizes = &adding.size,
                                       .strides = &adding.stride,
                                       .ndim = 1,
                                       .dtype = HAL_FLOAT32};
  adding.args[0] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &adding.tensors[1]};
  adding.args[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &adding.tensors[2]};
  adding.args[2] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = 1.0};
  adding.results[0] = &adding.tensors[0];
  adding.call = (hal_op_call_t){.struct_size = sizeof adding.call,
                                .arg_count = 3,
                                .result_count = 1,
                                .flags = HAL_CALL_DENSE,
                                .args = adding.args,
                                .results = adding.results};
}

static void launch_op(uint32_t count) {
  (void)count; /* that of prepare_op */
  must(hal_op_run(0, add, stream, &adding.call));
}

static void wait_ours(void) { must(hal_stream_synchronize(stream)); }

/* ---- the table ---- */

typedef struct side_s {
  const char *name;
  void (*launch)(uint32_t);
  void (*wait)(void);
} side_t;

enum { RAW, KERNEL, OP, SIDES };
static const side_t sides[SIDES] = {
    {"raw", launch_by_hand, wait_by_hand}, {"kernel", launch_kernel, wait_ours}, {"op", launch_op, wait_ours}};

static double round_us(const side_t *side, uint32_t count, int calls) {
  prepare_op(count);
  const double start = now_us();
  for (int i = 0; i < calls; i++) side->launch(count);
  side->wait();
  return (now_us() - start) / calls;
}

/* Prints a row, and returns the ratio of a launch through the HAL to a direct one. */
static double row(const char *name, uint32_t count, int calls) {
  double best[SIDES];
  for (int s = 0; s < SIDES; s++) best[s] = 1e300;
  for (int i = 0; i < ROUNDS; i++)
    for (int s = 0; s < SIDES; s++) {
      const double taken = round_us(&sides[s], count, calls);
      if (i && taken < best[s]) best[s] = taken; /* the first round compiles */
    }
  printf("%-34s %9.1f %9.1f %6.2fx %9.1f %6.2fx\n", name, best[RAW], best[KERNEL], best[KERNEL] / best[RAW], best[OP],
         best[OP] / best[RAW]);
  return best[KERNEL] / best[RAW];
}

/* Both sides must have computed the sums. */
static void check_sums(float *values) {
  must(hal_memory_copy(stream, values, HAL_HOST, memory[0], 0, MOST * sizeof *values));
  wait_ours();
  for (uint32_t i = 0; i < LARGE; i++)
    if (values[i] != 2.0f * (float)(i % 1000)) exit(3);
  must_cl(call_clEnqueueReadBuffer(queue, buffers[0], CL_TRUE, 0, MOST * sizeof *values, values, 0, NULL, NULL),
          "read");
  for (uint32_t i = 0; i < LARGE; i++)
    if (values[i] != 2.0f * (float)(i % 1000)) exit(3);
}

static int count_calls(const char *name, int calls) {
  for (int s = 0; s < SIDES; s++) {
    if (strcmp(name, sides[s].name) != 0) continue;
    prepare_op(SMALL);
    for (int i = 0; i < calls; i++) sides[s].launch(SMALL);
    sides[s].wait();
    return 0;
  }
  return 2;
}

int main(int argc, char **argv) {
  static float values[MOST];
  for (uint32_t i = 0; i < MOST; i++) values[i] = (float)(i % 1000);
  const int counting = argc == 3;
  if (!counting || strcmp(argv[1], "raw") == 0) open_by_hand(values);
  if (!counting || strcmp(argv[1], "raw") != 0) open_ours(values);
  if (counting) return count_calls(argv[1], atoi(argv[2]));
  printf("%-34s %9s %9s %7s %9s %7s   microseconds a launch\n", "float32 a + b", "by hand", "kernel", "", "operator",
         "");
  const double ratio = row("1 M elements, each waited for", LARGE, 1);
  row("1 M elements, 20 in a row", LARGE, 20);
  row("256 elements, each waited for", SMALL, 1);
  row("256 elements, 200 in a row", SMALL, BURST);
  check_sums(values);
  printf("target: kernel of 1 M elements at most 1.05x%s\n", ratio > 1.05 ? ": missed" : "");
  hal_module_unload(module);
  hal_registry_close();
  return argc > 1 && strcmp(argv[1], "--check") == 0 && ratio > 1.05;
}
