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
 *     PK_EACH_BELOW(l, n) { ... } runs for the items below n, which is at most PK_LSIZE and the same for all items;
 *     PK_EACH_ALONG(k, n) { ... } runs for k = 0 .. n-1, divided over the items: a PK_EACH region whose rounds are independent;
 *   - the items of a PK_ITEM or PK_EACH are independent: what one writes, no other reads or writes in the same region. An
 *     item may read the element that it writes itself (in-place operators), so pointers are PK_RESTRICT only where the
 *     launcher refuses equal addresses;
 *   - PK_VECTOR_ITEM(i, n) is a PK_ITEM, and PK_VECTOR_LOOP(j, n) a loop over j = 0 .. n-1, which the host vectorises without
 *     a check for overlapping pointers. Their rounds are independent and their bodies declare no array;
 *   - values of an item that live across a PK_SYNC() are declared with PK_PRIV and used through PK_P;
 *   - PK_LOCAL_ARRAY and PK_PRIV stand at the top level of PK_GROUP, outside every PK_EACH. */
#ifndef PK_H_
#define PK_H_

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__) /* ---- OpenCL C, also clang -x cl -> SPIR-V ---- */
#define PK_OPENCL 1
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
#define PK_ITEM(i, n)                \
  const pk_u64 i = get_global_id(0); \
  if (i < (n))
#define PK_GROUP(g) for (pk_u64 g = get_group_id(0), g##_1 = 1; g##_1; g##_1 = 0)
#define PK_EACH(l) for (pk_i32 l = get_local_id(0), l##_1 = 1; l##_1; l##_1 = 0)
#define PK_EACH_BELOW(l, n) PK_EACH(l) if (l < (n))
#define PK_EACH_ALONG(k, n) PK_EACH(k##_2) for (pk_i64 k = k##_2; k < (n); k += PK_LSIZE)
#define PK_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define PK_PRIV(T, name) T name##_[1]
#define PK_P(name, l) name##_[0 * (l)]
#define PK_VECTOR_ITEM(i, n) PK_ITEM(i, n)
#define PK_VECTOR_LOOP(j, n) for (pk_u64 j = 0; j < (n); j++)
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) /* ---- CUDA C: nvcc and NVRTC ---- */
#define PK_CUDA 1
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
#define PK_ITEM(i, n)                                             \
  const pk_u64 i = (pk_u64)blockIdx.x * blockDim.x + threadIdx.x; \
  if (i < (n))
#define PK_GROUP(g) for (pk_u64 g = blockIdx.x, g##_1 = 1; g##_1; g##_1 = 0)
#define PK_EACH(l) for (pk_i32 l = threadIdx.x, l##_1 = 1; l##_1; l##_1 = 0)
#define PK_EACH_BELOW(l, n) PK_EACH(l) if (l < (n))
#define PK_EACH_ALONG(k, n) PK_EACH(k##_2) for (pk_i64 k = k##_2; k < (n); k += PK_LSIZE)
#define PK_SYNC() __syncthreads()
#define PK_PRIV(T, name) T name##_[1]
#define PK_P(name, l) name##_[0 * (l)]
#define PK_VECTOR_ITEM(i, n) PK_ITEM(i, n)
#define PK_VECTOR_LOOP(j, n) for (pk_u64 j = 0; j < (n); j++)
#else /* ---- host C: one call computes a range of items or groups ---- */
#define PK_HOST 1
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#include "pk_host.h"
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
#if defined(__clang__)
#define PK_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PK_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define PK_LOCAL_ARRAY(T, name, n) T name[n]
#define PK_ITEM(i, n)                                                              \
  const pk_u64 pk_end = pk_range->end < (pk_u64)(n) ? pk_range->end : (pk_u64)(n); \
  for (pk_u64 i = pk_range->begin; i < pk_end; i++)
#define PK_VECTOR_ITEM(i, n)                                                       \
  const pk_u64 pk_end = pk_range->end < (pk_u64)(n) ? pk_range->end : (pk_u64)(n); \
  PK_INDEPENDENT for (pk_u64 i = pk_range->begin; i < pk_end; i++)
#define PK_VECTOR_LOOP(j, n) PK_INDEPENDENT for (pk_u64 j = 0; j < (n); j++)
#define PK_GROUP(g) for (pk_u64 g = pk_range->begin; g < pk_range->end; g++)
#define PK_EACH(l) for (pk_i32 l = 0; l < PK_LSIZE; l++)
#define PK_EACH_BELOW(l, n) PK_INDEPENDENT for (pk_i32 l = 0; l < (pk_i32)(n); l++)
#define PK_EACH_ALONG(k, n) PK_INDEPENDENT for (pk_i64 k = 0; k < (pk_i64)(n); k++)
#define PK_SYNC() ((void)0) /* the boundary between two loops is the barrier */
#define PK_PRIV(T, name) T name##_[PK_LSIZE]
#define PK_P(name, l) name##_[l]
#endif

typedef pk_u8 pk_bool; /* 0 or 1 in memory */
typedef struct {
  pk_u16 bits;
} pk_f16, pk_bf16; /* elements in memory; kernels compute in float (pk_half.h) */
typedef struct {
  float re, im;
} pk_c64;
typedef struct {
  double re, im;
} pk_c128;

#define PK_LSIZE 64 /* items of a group, in every group kernel */
#define PK_MAXD 6   /* dimensions of a row form after collapsing; the launcher loops over further ones */

/* Combines s[0] to s[63] of a group into s[0], in a fixed order. Called between PK_EACH regions, behind a PK_SYNC. Steps of
 * constant size: on the host each is a few vector instructions. */
#define PK_FOLD_STEP(s, d, combine)                         \
  PK_EACH_BELOW(l, d) { s[l] = combine(s[l], s[l + (d)]); } \
  PK_SYNC();
#define PK_FOLD(s, combine)    \
  PK_FOLD_STEP(s, 32, combine) \
  PK_FOLD_STEP(s, 16, combine) \
  PK_FOLD_STEP(s, 8, combine)  \
  PK_FOLD_STEP(s, 4, combine)  \
  PK_FOLD_STEP(s, 2, combine)  \
  PK_FOLD_STEP(s, 1, combine)
#define PK_PLUS(x, y) ((x) + (y))

#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#define PK_CAT3(a, b, c) PK_CAT(a, PK_CAT(b, c))

/* The numbers of an element-wise operator that has more than one, by computing type. */
#define PK_MOST_NUMBERS 3
#define PK_DEFINE_NUMBERS(token, type) \
  typedef struct {                     \
    type number[PK_MOST_NUMBERS];      \
  } pk_numbers_##token;
PK_DEFINE_NUMBERS(u8, pk_u8)
PK_DEFINE_NUMBERS(i8, pk_i8)
PK_DEFINE_NUMBERS(i16, pk_i16)
PK_DEFINE_NUMBERS(i32, pk_i32)
PK_DEFINE_NUMBERS(i64, pk_i64)
PK_DEFINE_NUMBERS(f32, float)
PK_DEFINE_NUMBERS(f64, double)
PK_DEFINE_NUMBERS(bool, pk_bool)

/* What every instance is given by macro: PK_PREFIX (add_f32_), T (its computing type) and PK_TOKEN (f32). */
#define PK_NAME(variant) PK_CAT(PK_PREFIX, variant)
#define PK_C(x) ((T)(x))

/* Dimensions of a row form, innermost first; strides in elements. Passed by value: 8 + 8 * 6 * 5 = 248 bytes, below OpenCL's
 * guaranteed 1024 bytes of arguments. Operand 0 is the result. */
#define PK_ROW_OPERANDS 4
typedef struct {
  pk_i32 ndim, pad;
  pk_i64 size[PK_MAXD];
  pk_i64 stride[PK_ROW_OPERANDS][PK_MAXD];
} pk_rows_t;

/* Gives the offsets of row r for the first `operands` operands. The last dimension takes no division: mostly it is the only one, and
 * a division of 64 bits takes as long as a vector loop over a short row. */
PK_FN void pk_row_offsets(const pk_rows_t *rows, pk_u64 r, int operands, pk_i64 *offsets) {
  for (int k = 0; k < operands; k++) offsets[k] = 0;
  for (int d = 0; d < rows->ndim; d++) {
    const pk_u64 q = d + 1 < rows->ndim ? r / (pk_u64)rows->size[d] : 0;
    const pk_i64 x = (pk_i64)(r - q * (pk_u64)rows->size[d]);
    for (int k = 0; k < operands; k++) offsets[k] += x * rows->stride[k][d];
    r = q;
  }
}

/* ---- kernel definitions, by number of arguments ----------------------------------------------------------------------
 * On devices an ordinary kernel; on the host a body plus entries that unpack hal_arg_t values (pk_host.h). */
#ifdef PK_HOST
#define PK_KERNEL_1(name, T0, a0) \
  PK_HOST_KERNEL(name, 1, (T0 a0), (PK_HOST_ARG(T0, 0)))
#define PK_KERNEL_2(name, T0, a0, T1, a1) \
  PK_HOST_KERNEL(name, 2, (T0 a0, T1 a1), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1)))
#define PK_KERNEL_3(name, T0, a0, T1, a1, T2, a2) \
  PK_HOST_KERNEL(name, 3, (T0 a0, T1 a1, T2 a2), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2)))
#define PK_KERNEL_4(name, T0, a0, T1, a1, T2, a2, T3, a3) \
  PK_HOST_KERNEL(name, 4, (T0 a0, T1 a1, T2 a2, T3 a3), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), \
  PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3)))
#define PK_KERNEL_5(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4) \
  PK_HOST_KERNEL(name, 5, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), \
  PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4)))
#define PK_KERNEL_6(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) \
  PK_HOST_KERNEL(name, 6, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), \
  PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5)))
#define PK_KERNEL_7(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) \
  PK_HOST_KERNEL(name, 7, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6), (PK_HOST_ARG(T0, 0), \
  PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), \
  PK_HOST_ARG(T6, 6)))
#define PK_KERNEL_8(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) \
  PK_HOST_KERNEL(name, 8, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7), (PK_HOST_ARG(T0, 0), \
  PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), \
  PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7)))
#define PK_KERNEL_9(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) \
  PK_HOST_KERNEL(name, 9, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8), (PK_HOST_ARG(T0, 0), \
  PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), \
  PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8)))
#define PK_KERNEL_10(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) \
  PK_HOST_KERNEL(name, 10, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9), \
  (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), \
  PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8), PK_HOST_ARG(T9, 9)))
#define PK_KERNEL_11(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) \
  PK_HOST_KERNEL(name, 11, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10), \
  (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), \
  PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8), PK_HOST_ARG(T9, 9), \
  PK_HOST_ARG(T10, 10)))
#define PK_KERNEL_12(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) \
  PK_HOST_KERNEL(name, 12, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, \
  T11 a11), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), \
  PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8), PK_HOST_ARG(T9, 9), \
  PK_HOST_ARG(T10, 10), PK_HOST_ARG(T11, 11)))
#define PK_KERNEL_13(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12) \
  PK_HOST_KERNEL(name, 13, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, \
  T11 a11, T12 a12), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), \
  PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8), \
  PK_HOST_ARG(T9, 9), PK_HOST_ARG(T10, 10), PK_HOST_ARG(T11, 11), PK_HOST_ARG(T12, 12)))
#define PK_KERNEL_14(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13) \
  PK_HOST_KERNEL(name, 14, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, \
  T11 a11, T12 a12, T13 a13), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), PK_HOST_ARG(T3, 3), \
  PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), PK_HOST_ARG(T8, 8), \
  PK_HOST_ARG(T9, 9), PK_HOST_ARG(T10, 10), PK_HOST_ARG(T11, 11), PK_HOST_ARG(T12, 12), PK_HOST_ARG(T13, 13)))
#define PK_KERNEL_15(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14) \
  PK_HOST_KERNEL(name, 15, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, \
  T11 a11, T12 a12, T13 a13, T14 a14), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), \
  PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), \
  PK_HOST_ARG(T8, 8), PK_HOST_ARG(T9, 9), PK_HOST_ARG(T10, 10), PK_HOST_ARG(T11, 11), PK_HOST_ARG(T12, 12), \
  PK_HOST_ARG(T13, 13), PK_HOST_ARG(T14, 14)))
#define PK_KERNEL_16(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14, T15, a15) \
  PK_HOST_KERNEL(name, 16, (T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, \
  T11 a11, T12 a12, T13 a13, T14 a14, T15 a15), (PK_HOST_ARG(T0, 0), PK_HOST_ARG(T1, 1), PK_HOST_ARG(T2, 2), \
  PK_HOST_ARG(T3, 3), PK_HOST_ARG(T4, 4), PK_HOST_ARG(T5, 5), PK_HOST_ARG(T6, 6), PK_HOST_ARG(T7, 7), \
  PK_HOST_ARG(T8, 8), PK_HOST_ARG(T9, 9), PK_HOST_ARG(T10, 10), PK_HOST_ARG(T11, 11), PK_HOST_ARG(T12, 12), \
  PK_HOST_ARG(T13, 13), PK_HOST_ARG(T14, 14), PK_HOST_ARG(T15, 15)))
#else
#ifdef PK_OPENCL
#define PK_ENTRY __kernel void
#else
#define PK_ENTRY extern "C" __global__ void
#endif
#define PK_KERNEL_1(name, T0, a0) \
  PK_ENTRY name(T0 a0)
#define PK_KERNEL_2(name, T0, a0, T1, a1) \
  PK_ENTRY name(T0 a0, T1 a1)
#define PK_KERNEL_3(name, T0, a0, T1, a1, T2, a2) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2)
#define PK_KERNEL_4(name, T0, a0, T1, a1, T2, a2, T3, a3) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3)
#define PK_KERNEL_5(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4)
#define PK_KERNEL_6(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5)
#define PK_KERNEL_7(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6)
#define PK_KERNEL_8(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7)
#define PK_KERNEL_9(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8)
#define PK_KERNEL_10(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9)
#define PK_KERNEL_11(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10)
#define PK_KERNEL_12(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11)
#define PK_KERNEL_13(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12)
#define PK_KERNEL_14(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, \
  T13 a13)
#define PK_KERNEL_15(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, \
  T13 a13, T14 a14)
#define PK_KERNEL_16(name, T0, a0, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8, T9, a9, T10, a10, T11, a11, T12, a12, T13, a13, T14, a14, T15, a15) \
  PK_ENTRY name(T0 a0, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8, T9 a9, T10 a10, T11 a11, T12 a12, \
  T13 a13, T14 a14, T15 a15)
#endif

#endif /* PK_H_ */
