/* pk_types.h: the types and limits that kernels and their launchers share; host C may include it without the rest of
 * the dialect (pk.h). Structs of these types have the same layout in all four languages. */
#ifndef PK_TYPES_H_
#define PK_TYPES_H_

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__) /* ---- OpenCL C, also clang -x cl -> SPIR-V ---- */
#define PK_OPENCL 1
#if defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define PK_FP64 1
#elif defined(__opencl_c_fp64)
#define PK_FP64 1
#else
#define PK_FP64 0 /* no double: all instances except those of float64 and complex128 compile */
#endif
#define PK_FN static inline
#define PK_GLOBAL __global
#define PK_RESTRICT restrict
typedef char pk_i8;
typedef uchar pk_u8;
typedef short pk_i16;
typedef ushort pk_u16;
typedef int pk_i32;
typedef uint pk_u32;
typedef long pk_i64; /* OpenCL's long has 64 bits everywhere */
typedef ulong pk_u64;
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) /* ---- CUDA C: nvcc and NVRTC ---- */
#define PK_CUDA 1
#define PK_FP64 1
#define PK_FN static __device__ __forceinline__
#define PK_GLOBAL
#define PK_RESTRICT __restrict__
typedef signed char pk_i8;
typedef unsigned char pk_u8;
typedef short pk_i16;
typedef unsigned short pk_u16;
typedef int pk_i32;
typedef unsigned int pk_u32;
typedef long long pk_i64;
typedef unsigned long long pk_u64;
#else /* ---- host C ---- */
#include <stdint.h>
#define PK_FP64 1
#define PK_FN static inline __attribute__((always_inline, unused))
#define PK_GLOBAL
#define PK_RESTRICT restrict
typedef int8_t pk_i8;
typedef uint8_t pk_u8;
typedef int16_t pk_i16;
typedef uint16_t pk_u16;
typedef int32_t pk_i32;
typedef uint32_t pk_u32;
typedef int64_t pk_i64;
typedef uint64_t pk_u64;
#endif

typedef pk_u8 pk_bool; /* 0 or 1 in memory */
typedef struct {
  pk_u16 bits;
} pk_f16, pk_bf16; /* elements in memory; kernels compute in float (pk_half.h) */
typedef struct {
  float re, im;
} pk_c64;
#if PK_FP64
typedef double pk_double; /* in arguments: eight bytes everywhere (pk_double.h) */
typedef struct {
  double re, im;
} pk_c128;
#else
typedef struct {
  pk_u32 low, high;
} pk_double;
#endif

#define PK_LSIZE 64       /* items of a group, in every group kernel */
#define PK_MAXD 6         /* dimensions of a row form after collapsing; the launcher loops over more */
#define PK_MOST_NUMBERS 3 /* of an element-wise operator */

/* Dimensions of a row form, innermost first; strides in elements. Passed by value: 8 + 8 * 6 * 5 = 248 bytes, below
 * OpenCL's guaranteed 1024 bytes of arguments. Operand 0 is the result. */
#define PK_ROW_OPERANDS 4
typedef struct {
  pk_i32 ndim, pad;
  pk_i64 size[PK_MAXD];
  pk_i64 stride[PK_ROW_OPERANDS][PK_MAXD];
} pk_rows_t;

/* One stage of a reduction over one dimension. */
typedef struct {
  pk_i64 n, stride, b_stride;              /* the reduced dimension */
  pk_i64 chunk, chunks;                    /* the dimension's parts */
  pk_i64 columns, result_column, c_column; /* the kept dimension of cols */
  pk_i64 divisor;                          /* number of elements reduced; -1 = the result is not finished */
  pk_i32 final;                            /* write results, not accumulators */
  pk_i32 with_c;                           /* c exists; else it counts as 0 */
} pk_reduce_t;

#endif /* PK_TYPES_H_ */
