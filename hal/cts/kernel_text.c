/* kernel_text.c: see kernel_text.h. */
#include "kernel_text.h"

#include <stddef.h>

/* One text in two languages, which define its upper-case names. */
#define BODY                                                                                                    \
  "KERNEL void cts_ramp(GLOBAL int *to, int value, int count) {\n"                                              \
  "  int i = (int)PLACE;\n"                                                                                     \
  "  if (i < count) to[i] = value + 3 * i;\n"                                                                   \
  "}\n"                                                                                                         \
  "KERNEL void cts_add(GLOBAL int *to, int value, int count) {\n"                                               \
  "  int i = (int)AT(0);\n"                                                                                     \
  "  if (i < count) to[i] = to[i] * 2 + value;\n"                                                               \
  "}\n"                                                                                                         \
  "KERNEL void cts_values(GLOBAL long *to, char byte, short half_word, int word, long whole, float single) {\n" \
  "  if (AT(0)) return;\n"                                                                                      \
  "  to[0] = byte, to[1] = half_word, to[2] = word, to[3] = whole, to[4] = (long)(single * 4);\n"               \
  "}\n"                                                                                                         \
  "KERNEL void cts_spin(GLOBAL uint32 *to, long value, int count) {\n"                                          \
  "  int i = (int)AT(0), rounds = (int)(value & 0x7fffffff);\n"                                                 \
  "  uint32 x = (uint32)(value >> 32) + (uint32)i;\n"                                                           \
  "  for (int round = 0; round < rounds; round++) x = x * 1664525u + 1013904223u;\n"                            \
  "  if (i < count) to[i] = x;\n"                                                                               \
  "}\n"
#define DOUBLE_BODY                                                        \
  "KERNEL void cts_double(GLOBAL double *to, double value, int count) {\n" \
  "  int i = (int)AT(0);\n"                                                \
  "  if (i < count) to[i] = value + i;\n"                                  \
  "}\n"
#define WRONG "KERNEL void broken(GLOBAL int *to) { to[0] = there_is_no_such_name; }"
#define OPENCL                       \
  "#define KERNEL __kernel\n"        \
  "#define uint32 uint\n"            \
  "#define GLOBAL __global\n"        \
  "#define AT(d) get_global_id(d)\n" \
  "#define PLACE (AT(0) + get_global_size(0) * (AT(1) + get_global_size(1) * AT(2)))\n"
#define OPENCL_DOUBLE "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
#define CUDA                                               \
  "#define KERNEL extern \"C\" __global__\n"               \
  "#define uint32 unsigned\n"                              \
  "#define GLOBAL\n"                                       \
  "#define AT(d) AT_##d\n"                                 \
  "#define AT_0 (blockIdx.x * blockDim.x + threadIdx.x)\n" \
  "#define AT_1 (blockIdx.y * blockDim.y + threadIdx.y)\n" \
  "#define AT_2 (blockIdx.z * blockDim.z + threadIdx.z)\n" \
  "#define PLACE (AT_0 + gridDim.x * blockDim.x * (AT_1 + gridDim.y * blockDim.y * AT_2))\n"

const cts_language_t cts_languages[] = {{"opencl-c", OPENCL BODY, OPENCL OPENCL_DOUBLE DOUBLE_BODY, OPENCL WRONG},
                                        {"cuda-c", CUDA BODY, CUDA DOUBLE_BODY, CUDA WRONG},
                                        {NULL, NULL, NULL, NULL}};
