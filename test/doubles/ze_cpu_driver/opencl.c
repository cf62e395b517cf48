/* opencl.c: a CPU's OpenCL executes SPIR-V: directly if it supports it, else converted to bitcode by llvm-spirv
 * (PoCL). The library is opened when the first module is created. */
#define _GNU_SOURCE /* pipe2, RTLD_LOCAL */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

extern char **environ;

#define CALLS(X)                        \
  X(clGetPlatformIDs)                   \
  X(clGetDeviceIDs)                     \
  X(clGetDeviceInfo)                    \
  X(clCreateContext)                    \
  X(clCreateCommandQueueWithProperties) \
  X(clCreateProgramWithIL)              \
  X(clCreateProgramWithBinary)          \
  X(clBuildProgram)                     \
  X(clGetProgramInfo)                   \
  X(clGetProgramBuildInfo)              \
  X(clReleaseProgram)                   \
  X(clCreateKernel)                     \
  X(clReleaseKernel)                    \
  X(clGetKernelWorkGroupInfo)           \
  X(clSetKernelArg)                     \
  X(clSetKernelArgSVMPointer)           \
  X(clEnqueueNDRangeKernel)             \
  X(clWaitForEvents)                    \
  X(clGetEventInfo)                     \
  X(clReleaseEvent)

static struct {
#define DECLARE(name) __typeof__(name) *name;
  CALLS(DECLARE)
  cl_context context;
  cl_device_id device;
  cl_command_queue queue;
  int takes_spirv, ready;
} cl;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct code_s {
  cl_kernel kernel;
  pthread_mutex_t lock; /* a cl_kernel stores its arguments */
  atomic_int users;
} code_t;

/* ---- the device ---- */

static int find_symbols(char *log) {
  void *const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  const char *missing = library ? NULL : dlerror();
  void *symbol;
#define FIND(name)                                      \
  symbol = library ? dlsym(library, #name) : NULL;      \
  if (!symbol && !missing) missing = "it lacks " #name; \
  memcpy(&cl.name, &symbol, sizeof symbol);
  CALLS(FIND)
  if (missing) snprintf(log, LOG_BYTES, "ze_cpu_driver: libOpenCL.so.1, which executes kernels: %s", missing);
  return missing == NULL;
}

static int find_device(char *log) {
  enum { MOST = 8 };
  cl_platform_id platforms[MOST];
  cl_uint count = 0;
  cl_int code = cl.clGetPlatformIDs(MOST, platforms, &count);
  for (cl_uint i = 0; !code && i < count && i < MOST && !cl.device; i++)
    if (cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_CPU, 1, &cl.device, NULL)) cl.device = NULL;
  if (cl.device) cl.context = cl.clCreateContext(NULL, 1, &cl.device, NULL, NULL, &code);
  if (cl.context) cl.queue = cl.clCreateCommandQueueWithProperties(cl.context, cl.device, NULL, &code);
  if (!cl.queue)
    snprintf(log, LOG_BYTES,
             "ze_cpu_driver: no OpenCL device of type CPU executes kernels (%d); install pocl-opencl-icd", (int)code);
  return cl.queue != NULL;
}

static int open_device(char *log) {
  char il[256] = "";
  pthread_mutex_lock(&lock);
  if (!cl.ready && find_symbols(log) && find_device(log)) {
    cl.clGetDeviceInfo(cl.device, CL_DEVICE_IL_VERSION, sizeof il, il, NULL);
    cl.takes_spirv = strstr(il, "SPIR-V") != NULL;
    cl.ready = 1;
  }
  const int ready = cl.ready;
  pthread_mutex_unlock(&lock);
  return ready;
}

/* ---- SPIR-V to bitcode ---- */

static int run_tool(const char *const *arguments) {
  /* On PATH, which tests hide from the plugin, and in its usual folder. */
  static const char *const names[] = {"llvm-spirv-14", "llvm-spirv-15", "llvm-spirv", "/usr/bin/llvm-spirv-14",
                                      "/usr/bin/llvm-spirv-15"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    pid_t child;
    int status = 0;
    if (posix_spawnp(&child, names[i], NULL, NULL, (char *const *)(uintptr_t)arguments, environ)) continue;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) continue;
    return status == 0;
  }
  return 0;
}

static void *read_all(int file, size_t *out_size) {
  struct stat facts;
  if (fstat(file, &facts) || facts.st_size <= 0) return NULL;
  unsigned char *const data = malloc((size_t)facts.st_size);
  if (data && pread(file, data, (size_t)facts.st_size, 0) != facts.st_size) {
    free(data);
    return NULL;
  }
  *out_size = (size_t)facts.st_size;
  return data;
}

/* PoCL has no mem_fence: fences are removed. The work that they order becomes visible to others when the kernel has
   ended, like all work here. */
static void drop_fences(uint32_t *words, size_t count) {
  enum { HEADER_WORDS = 5, OP_MEMORY_BARRIER = 225, OP_NOP = 1 << 16 };
  for (size_t at = HEADER_WORDS, length; at < count && (length = words[at] >> 16); at += length)
    if ((words[at] & 0xffff) == OP_MEMORY_BARRIER && length <= count - at)
      for (size_t i = length; i-- > 0;) words[at + i] = OP_NOP;
}

/* Both files are memory files; the tool opens them through /proc, so that no file remains. */
static void *to_bitcode(const module_t *module, size_t size, size_t *out_size, char *log) {
  char from[64], to[64];
  void *bitcode = NULL;
  const int in = memfd_create("spirv", MFD_CLOEXEC), out = memfd_create("bitcode", MFD_CLOEXEC);
  snprintf(from, sizeof from, "/proc/%d/fd/%d", (int)getpid(), in);
  snprintf(to, sizeof to, "/proc/%d/fd/%d", (int)getpid(), out);
  uint32_t *const words = malloc(size);
  if (words) drop_fences(memcpy(words, module->words, size), module->word_count);
  const char *const arguments[] = {"llvm-spirv", "-r", "--spirv-target-env=CL1.2", from, "-o", to, NULL};
  if (words && in >= 0 && out >= 0 && write(in, words, size) == (ssize_t)size && run_tool(arguments))
    bitcode = read_all(out, out_size);
  if (!bitcode)
    snprintf(log, LOG_BYTES,
             "ze_cpu_driver: llvm-spirv -r does not take the module, or is missing (Debian: llvm-spirv-14)");
  free(words);
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  return bitcode;
}

/* ---- programs ---- */

static ze_result_t build(module_t *module, const char *options, char *log) {
  const cl_int code = cl.clBuildProgram(module->program, 1, &cl.device, options, NULL, NULL);
  if (!code) return ZE_RESULT_SUCCESS;
  if (cl.clGetProgramBuildInfo(module->program, cl.device, CL_PROGRAM_BUILD_LOG, LOG_BYTES, log, NULL) || !*log)
    snprintf(log, LOG_BYTES, "ze_cpu_driver: OpenCL cannot build the module (%d)", (int)code);
  program_release(module);
  return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

static ze_result_t from_binary(module_t *module, const unsigned char *binary, size_t size, const char *options,
                               char *log) {
  cl_int code = CL_SUCCESS, binary_code = CL_SUCCESS;
  if (!open_device(log)) return ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
  module->program = cl.clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &binary, &binary_code, &code);
  if (module->program && !code && !binary_code) return build(module, options, log);
  program_release(module);
  snprintf(log, LOG_BYTES, "ze_cpu_driver: OpenCL does not take the binary (%d, %d)", (int)code, (int)binary_code);
  return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
}

ze_result_t program_make(module_t *module, const char *options, char *log) {
  size_t size = module->word_count * sizeof *module->words;
  cl_int code = CL_SUCCESS;
  if (!open_device(log)) return ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
  if (cl.takes_spirv) {
    module->program = cl.clCreateProgramWithIL(cl.context, module->words, size, &code);
    return module->program ? build(module, options, log) : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  }
  unsigned char *const bitcode = to_bitcode(module, size, &size, log);
  if (!bitcode) return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  const ze_result_t result = from_binary(module, bitcode, size, "-x spir -spir-std=1.2", log);
  free(bitcode);
  return result;
}

ze_result_t program_load(module_t *module, const unsigned char *binary, size_t size, char *log) {
  return from_binary(module, binary, size, "", log);
}

ze_result_t program_binary(const module_t *module, size_t *size, unsigned char *data) {
  const cl_int code = data ? cl.clGetProgramInfo(module->program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL)
                           : cl.clGetProgramInfo(module->program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL);
  return code ? ZE_RESULT_ERROR_UNKNOWN : ZE_RESULT_SUCCESS;
}

void program_release(module_t *module) {
  if (module->program) cl.clReleaseProgram(module->program);
  module->program = NULL;
}

/* ---- kernels ---- */

ze_result_t code_make(const module_t *module, const char *name, struct code_s **out_code) {
  cl_int error = CL_SUCCESS;
  code_t *const code = calloc(1, sizeof *code);
  if (!code) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  code->kernel = cl.clCreateKernel(module->program, name, &error);
  if (!code->kernel) {
    free(code);
    return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  }
  pthread_mutex_init(&code->lock, NULL);
  atomic_init(&code->users, 1);
  *out_code = code;
  return ZE_RESULT_SUCCESS;
}

void code_keep(struct code_s *code) { atomic_fetch_add(&code->users, 1); }

void code_release(struct code_s *code) {
  if (!code || atomic_fetch_sub(&code->users, 1) != 1) return;
  cl.clReleaseKernel(code->kernel);
  pthread_mutex_destroy(&code->lock);
  free(code);
}

uint32_t code_local_bytes(const struct code_s *code) {
  cl_ulong bytes = 0;
  cl.clGetKernelWorkGroupInfo(code->kernel, cl.device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
  return (uint32_t)bytes;
}

/* A number passed as an address crashes some runtimes: the module shows which arguments are addresses. */
static cl_int set_argument(cl_kernel kernel, const launch_t *launch, uint32_t index) {
  const unsigned char *const value = launch->values + launch->offsets[index];
  void *address = NULL;
  if (launch->kinds[index] == HAL_ARG_LOCAL) return cl.clSetKernelArg(kernel, index, launch->sizes[index], NULL);
  if (launch->kinds[index] == HAL_ARG_VALUE) return cl.clSetKernelArg(kernel, index, launch->sizes[index], value);
  memcpy(&address, value, sizeof address);
  return address ? cl.clSetKernelArgSVMPointer(kernel, index, address)
                 : cl.clSetKernelArg(kernel, index, sizeof(cl_mem), NULL);
}

int code_run(const launch_t *launch) {
  code_t *const code = launch->code;
  cl_event done = NULL;
  cl_int error = CL_SUCCESS, state = CL_COMPLETE;
  size_t local[3], global[3];
  for (int i = 0; i < 3; i++) local[i] = launch->group[i], global[i] = local[i] * launch->grid[i];
  const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
  pthread_mutex_lock(&code->lock);
  for (uint32_t i = 0; i < launch->count && !error; i++) error = set_argument(code->kernel, launch, i);
  if (!error)
    error = cl.clEnqueueNDRangeKernel(cl.queue, code->kernel, dimensions, NULL, global, local, 0, NULL, &done);
  pthread_mutex_unlock(&code->lock);
  if (error || !done) return error ? error : CL_INVALID_EVENT;
  error = cl.clWaitForEvents(1, &done);
  if (!error) error = cl.clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
  cl.clReleaseEvent(done);
  return error ? error : state < 0 ? state : 0;
}
