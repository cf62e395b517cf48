/* program.c: the stub's programs and kernels. It compiles nothing: each name is a kernel with "args" arguments. */
#include "stub.h"

struct _cl_program {
  int references;
};
struct _cl_kernel {
  int unused;
};

static cl_program make(cl_int *code) { return stub_made("program", malloc(sizeof(struct _cl_program)), code); }

ENTRY(cl_program)
clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts, const size_t *sizes, cl_int *code) {
  (void)context, (void)count, (void)texts, (void)sizes;
  return make(code);
}

ENTRY(cl_program)
clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices, const size_t *sizes,
                          const unsigned char **binaries, cl_int *codes, cl_int *code) {
  (void)context, (void)count, (void)devices, (void)sizes, (void)binaries;
  if (codes) *codes = CL_SUCCESS;
  return make(code);
}

ENTRY(cl_int)
clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
               void (*told)(cl_program, void *), void *user_data) {
  (void)program, (void)count, (void)devices, (void)options, (void)told, (void)user_data;
  return stub_says("build-fails", NULL) ? CL_BUILD_PROGRAM_FAILURE : CL_SUCCESS;
}

ENTRY(cl_int)
clGetProgramInfo(cl_program program, cl_program_info what, size_t room, void *value, size_t *size) {
  (void)program;
  unsigned long long bytes = 16;
  stub_says("binary", &bytes);
  const size_t told = (size_t)bytes;
  if (what == CL_PROGRAM_BINARY_SIZES) return stub_answer(&told, sizeof told, room, value, size);
  if (what != CL_PROGRAM_BINARIES) return CL_INVALID_VALUE;
  unsigned char *to;
  memcpy(&to, value, sizeof to);
  memset(to, 7, told < 16 ? told : 16);
  return CL_SUCCESS;
}

/* The log: "log=N" sets its reported length, independent of the buffer. */
ENTRY(cl_int)
clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info what, size_t room, void *value,
                      size_t *size) {
  (void)program, (void)device, (void)what;
  unsigned long long bytes = 8;
  if (stub_says("log-fails", NULL)) return CL_OUT_OF_RESOURCES;
  stub_says("log", &bytes);
  if (size) *size = (size_t)bytes;
  if (value) memset(value, 'e', room < 8 ? room : 8);
  return CL_SUCCESS;
}

ENTRY(cl_int) clReleaseProgram(cl_program program) {
  free(program);
  return CL_SUCCESS;
}

ENTRY(cl_kernel) clCreateKernel(cl_program program, const char *name, cl_int *code) {
  (void)program, (void)name;
  return stub_made("kernel", malloc(sizeof(struct _cl_kernel)), code);
}

ENTRY(cl_int) clReleaseKernel(cl_kernel kernel) {
  free(kernel);
  return CL_SUCCESS;
}

ENTRY(cl_int) clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t room, void *value, size_t *size) {
  (void)kernel, (void)what;
  unsigned long long count = 1;
  stub_says("args", &count);
  const cl_uint told = (cl_uint)count;
  return stub_answer(&told, sizeof told, room, value, size);
}

ENTRY(cl_int)
clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_kernel_arg_info what, size_t room, void *value, size_t *size) {
  (void)kernel, (void)index, (void)what;
  const cl_uint nonsense = 0xdead;
  if (stub_says("arg-nonsense", NULL)) return stub_answer(&nonsense, sizeof nonsense, room, value, size);
  return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}

ENTRY(cl_int)
clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what, size_t room,
                         void *value, size_t *size) {
  (void)kernel, (void)device;
  unsigned long long threads = 256;
  stub_says("kernel-threads", &threads);
  const size_t told = (size_t)threads;
  if (what == CL_KERNEL_WORK_GROUP_SIZE) return stub_answer(&told, sizeof told, room, value, size);
  const cl_ulong bytes = stub_says("kernel-memory", NULL) ? UINT64_MAX : 0;
  return stub_answer(&bytes, sizeof bytes, room, value, size);
}

ENTRY(cl_int) clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
  (void)index, (void)size, (void)value;
  return kernel ? CL_SUCCESS : CL_INVALID_KERNEL;
}

ENTRY(cl_int) clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint index, const void *value) {
  (void)index, (void)value;
  return kernel ? CL_SUCCESS : CL_INVALID_KERNEL;
}
