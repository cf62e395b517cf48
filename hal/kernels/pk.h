/* pk.h: the dialect of the portable kernels: one source compiles as host C, OpenCL C, CUDA C and SPIR-V.
 *
 * A family is one file, <family>.pk: a template that is included (host) or compiled (devices) once per instance with macros
 * that give its name, types and expression (hal/kernels/README.md). Rules of the dialect, each of which one of the four
 * languages breaks on:
 *   - pk_* types in arguments; no size_t, bool, pointer or pointer-holding struct by value;
 *   - constants of floating type through PK_C(1.0), which gives the instance's computing type; no recursion, goto, variadics,
 *     function pointers, _Generic;
 *   - a kernel is written PK_KERNEL_<n>(name, type, arg, ...) { body }, n = number of arguments, at most 16;
 *   - item kernels: PK_ITEM(i, n) { ... } once, at the top level, guards i < n;
 *   - group kernels: PK_GROUP(g) { ... } once, at the top level; in it PK_EACH(l) { ... } runs for each item of the group and
 *     PK_SYNC() stands only BETWEEN PK_EACH regions; a loop around PK_EACH regions must be uniform;
 *   - values of an item that live across a PK_SYNC() are declared with PK_PRIV and used through PK_P;
 *   - PK_LOCAL_ARRAY and PK_PRIV stand at the top level of PK_GROUP, outside every PK_EACH. */
#ifndef PK_H_
#define PK_H_

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__) /* ---- OpenCL C, also clang -x cl -> SPIR-V ---- */
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
#define PK_LOCAL_ARRAY(T, name, n) __local T name[n]
#define PK_ITEM(i, n)                  \
  const pk_u64 i = get_global_id(0); \
  if (i < (n))
#define PK_GROUP(g) for (pk_u64 g = get_group_id(0), g##_1 = 1; g##_1; g##_1 = 0)
#define PK_EACH(l) for (pk_i32 l = get_local_id(0), l##_1 = 1; l##_1; l##_1 = 0)
#define PK_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define PK_PRIV(T, name) T name##_[1]
#define PK_P(name, l) name##_[0 * (l)]
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) /* ---- CUDA C: nvcc and NVRTC ---- */
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
#define PK_LOCAL_ARRAY(T, name, n) __shared__ T name[n]
#define PK_ITEM(i, n)                                                  \
  const pk_u64 i = (pk_u64)blockIdx.x * blockDim.x + threadIdx.x; \
  if (i < (n))
#define PK_GROUP(g) for (pk_u64 g = blockIdx.x, g##_1 = 1; g##_1; g##_1 = 0)
#define PK_EACH(l) for (pk_i32 l = threadIdx.x, l##_1 = 1; l##_1; l##_1 = 0)
#define PK_SYNC() __syncthreads()
#define PK_PRIV(T, name) T name##_[1]
#define PK_P(name, l) name##_[0 * (l)]
#else /* ---- host C: one call computes a range of items or groups ---- */
#define PK_HOST 1
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hal/plugin_kernels.h"
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
#define PK_LOCAL_ARRAY(T, name, n) T name[n]
#define PK_ITEM(i, n)                                                                    \
  const pk_u64 pk_end = pk_range->end < (pk_u64)(n) ? pk_range->end : (pk_u64)(n); \
  for (pk_u64 i = pk_range->begin; i < pk_end; i++)
#define PK_GROUP(g) for (pk_u64 g = pk_range->begin; g < pk_range->end; g++)
#define PK_EACH(l) for (pk_i32 l = 0; l < PK_LSIZE; l++)
#define PK_SYNC() ((void)0) /* the boundary between two loops is the barrier */
#define PK_PRIV(T, name) T name##_[PK_LSIZE]
#define PK_P(name, l) name##_[l]
#endif

typedef pk_u8 pk_bool; /* 0 or 1 in memory */

#define PK_LSIZE 64 /* items of a group, in every group kernel */
#define PK_MAXD 6   /* outer dimensions after collapsing; more are refused by the host, which then copies first */

#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#define PK_CAT3(a, b, c) PK_CAT(a, PK_CAT(b, c))

/* Outer dimensions of a row form, innermost first; strides in elements. Passed by value: 8 + 8 * 6 * 5 = 248 bytes, below
 * OpenCL's guaranteed 1024 bytes of arguments. Operand 0 is the result. */
#define PK_ROW_OPERANDS 4
typedef struct {
  pk_i32 ndim, pad;
  pk_i64 size[PK_MAXD];
  pk_i64 stride[PK_ROW_OPERANDS][PK_MAXD];
} pk_rows_t;

/* Gives the offsets of row r for the first `operands` operands. */
PK_FN void pk_row_offsets(const pk_rows_t *rows, pk_u64 r, int operands, pk_i64 *offsets) {
  for (int k = 0; k < operands; k++) offsets[k] = 0;
  for (int d = 0; d < rows->ndim; d++) {
    const pk_u64 q = r / (pk_u64)rows->size[d];
    const pk_i64 x = (pk_i64)(r - q * (pk_u64)rows->size[d]);
    for (int k = 0; k < operands; k++) offsets[k] += x * rows->stride[k][d];
    r = q;
  }
}

/* ---- kernel definitions, by number of arguments ----------------------------------------------------------------------
 * On devices an ordinary kernel; on the host a body plus the entry that unpacks hal_arg_t values. PK_CLONES marks a hot
 * kernel whose body is compiled for several instruction sets and chosen at run time. */
#ifdef PK_HOST
#ifndef PK_CLONES
#define PK_CLONES
#endif
#define PK_KERNEL_1(name, T0, a0) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0)
#define PK_KERNEL_2(name, T0, a0, T1, a1) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1)
#define PK_KERNEL_3(name, T0, a0, T1, a1, T2, a2) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2)
#define PK_KERNEL_4(name, T0, a0, T1, a1, T2, a2, T3, a3) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3)
#define PK_KERNEL_5(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4)
#define PK_KERNEL_6(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5)
#define PK_KERNEL_7(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6)
#define PK_KERNEL_8(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7)
#define PK_KERNEL_9(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8)
#define PK_KERNEL_10(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9)
#define PK_KERNEL_11(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10)
#define PK_KERNEL_12(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10], *(T11 const *)pk_args[11]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11)
#define PK_KERNEL_13(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10], *(T11 const *)pk_args[11], *(T12 const *)pk_args[12]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12)
#define PK_KERNEL_14(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10], *(T11 const *)pk_args[11], *(T12 const *)pk_args[12], *(T13 const *)pk_args[13]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13)
#define PK_KERNEL_15(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10], *(T11 const *)pk_args[11], *(T12 const *)pk_args[12], *(T13 const *)pk_args[13], *(T14 const *)pk_args[14]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14)
#define PK_KERNEL_16(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14, T15, a15) \
  static inline __attribute__((always_inline)) void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14, T15 a15); \
  PK_CLONES void name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    PK_CAT(name, _body)(pk_range, *(T0 const *)pk_args[0], *(T1 const *)pk_args[1], *(T2 const *)pk_args[2], *(T3 const *)pk_args[3], *(T4 const *)pk_args[4], *(T5 const *)pk_args[5], *(T6 const *)pk_args[6], *(T7 const *)pk_args[7], *(T8 const *)pk_args[8], *(T9 const *)pk_args[9], *(T10 const *)pk_args[10], *(T11 const *)pk_args[11], *(T12 const *)pk_args[12], *(T13 const *)pk_args[13], *(T14 const *)pk_args[14], *(T15 const *)pk_args[15]); \
  } \
  static inline void PK_CAT(name, _body)(const hal_host_range_t *pk_range, T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14, T15 a15)
#else
#ifdef __OPENCL_VERSION__
#define PK_ENTRY __kernel void
#else
#define PK_ENTRY extern "C" __global__ void
#endif
#define PK_KERNEL_1(name, T0, a0) PK_ENTRY name(T0 a0)
#define PK_KERNEL_2(name, T0, a0, T1, a1) PK_ENTRY name(T0 a0, T1 a1)
#define PK_KERNEL_3(name, T0, a0, T1, a1, T2, a2) PK_ENTRY name(T0 a0, T1 a1, T2 a2)
#define PK_KERNEL_4(name, T0, a0, T1, a1, T2, a2, T3, a3) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3)
#define PK_KERNEL_5(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4)
#define PK_KERNEL_6(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5)
#define PK_KERNEL_7(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6)
#define PK_KERNEL_8(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7)
#define PK_KERNEL_9(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8)
#define PK_KERNEL_10(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9)
#define PK_KERNEL_11(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10)
#define PK_KERNEL_12(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11)
#define PK_KERNEL_13(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12)
#define PK_KERNEL_14(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13)
#define PK_KERNEL_15(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14)
#define PK_KERNEL_16(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14, T15, a15) PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, T13 a13, T14 a14, T15 a15)
#endif

#endif /* PK_H_ */
