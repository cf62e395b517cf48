/* pk.h: the dialect of the portable kernels: one source compiles as host C, OpenCL C, CUDA C and SPIR-V.
 *
 * A family is one file, <family>.pk: a template that is included (host) or compiled (devices) once per instance with
 * macros that define its name, types and expression (hal/kernels/README.md). Rules of the dialect, each of which at
 * least one of the four languages requires:
 *   - pk_* types in arguments; no size_t, bool, pointer or pointer-holding struct by value;
 *   - constants of floating type through PK_C(1.0), of the instance's computing type; no recursion, goto, variadics,
 *     function pointers, _Generic, variadic macros;
 *   - a kernel is written PK_KERNEL(name, ARGS) { ... }, where ARGS is the list of its arguments (pk_args.h), at most
 *     16;
 *   - item kernels: PK_ITEM(i, n) { ... } once, at the top level, guards i < n;
 *   - group kernels: PK_GROUP(g) { ... } once, at the top level. In it PK_EACH(l) { ... } runs for each item of the
 *     group, and PK_SYNC() is allowed only BETWEEN PK_EACH regions. A loop around PK_EACH regions must be uniform. A
 *     PK_SYNC must not be in a branch, and a loop that contains one must end with one: PoCL 3.1 compiles other code
 *     incorrectly. PK_EACH_BELOW(l, n) { ... } runs for the items below n, which is at most PK_LSIZE and the same for
 *     all items. PK_EACH_ALONG(k, n) { ... } runs for k = 0 .. n-1, divided over the items: a PK_EACH region whose
 *     iterations are independent;
 *   - the items of a PK_ITEM or PK_EACH are independent: no item accesses what another item writes in the same region.
 *     An item may read the element that it writes itself (in-place operators), so pointers are PK_RESTRICT only if the
 *     launcher rejects equal addresses;
 *   - PK_VECTOR_ITEM(i, n) is a PK_ITEM, and PK_VECTOR_LOOP(j, n) a loop over j = 0 .. n-1, which the host vectorizes
 *     without a check for overlapping pointers. Their iterations are independent and declare no array;
 *   - values of an item that are used across a PK_SYNC() are declared with PK_PRIV and used through PK_P;
 *   - PK_LOCAL_ARRAY is at the top level of the kernel, before PK_GROUP (OpenCL C has local memory only there), PK_PRIV
 *     at the top level of PK_GROUP, outside every PK_EACH;
 *   - variables must not have names of the languages' types: half, uint, event_t; variants must not have names of
 *     OpenCL C's functions, which may be macros: select. */
#ifndef PK_H_
#define PK_H_

#include "pk_args.h"

/* Products and sums are fused only in the instances that the host fuses too (PK_CONTRACT, which codegen/kernels.py
 * defines). CUDA C has an option for that, --fmad=false, but no pragma. */
#if defined(PK_OPENCL) && !defined(PK_CONTRACT)
#pragma OPENCL FP_CONTRACT OFF
#endif

/* Loops that the compiler may vectorize without a check for overlapping pointers. */
#if defined(PK_OPENCL) && !defined(PK_CPU_VECTOR) || defined(PK_CUDA)
#define PK_INDEPENDENT
#elif defined(__clang__)
#define PK_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PK_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Loops that are unrolled completely. */
#if defined(PK_OPENCL) || defined(PK_CUDA)
#define PK_UNROLLED _Pragma("unroll")
#else
#define PK_UNROLLED
#endif

/* Functions that access all elements of ranges. The instances of a sanitizer (PK_CHECKED) check the ranges once, and
 * the loops run without the checks that the compiler inserts before each access. */
#if defined(PK_CHECKED)
#define PK_RANGE_FN static __attribute__((noinline, unused, no_sanitize_address))
#define PK_READS(p, n) pk_checked_read(p, (long)(n) * (long)sizeof *(p), sizeof *(p))
#define PK_WRITES(p, n) pk_checked_write(p, (long)(n) * (long)sizeof *(p), sizeof *(p))
void pk_checked_read(const void *address, long size, long element);
void pk_checked_write(const void *address, long size, long element);
#else
#define PK_RANGE_FN PK_FN
#define PK_READS(p, n) ((void)0)
#define PK_WRITES(p, n) ((void)0)
#endif

#if defined(PK_OPENCL)
#define PK_ITEM(i, n)                \
  const pk_u64 i = get_global_id(0); \
  if (i < (n))
#define PK_VECTOR_ITEM(i, n) PK_ITEM(i, n)
#define PK_VECTOR_LOOP(j, n) PK_INDEPENDENT for (pk_u64 j = 0; j < (n); j++)
#define PK_GROUP(g) const pk_u64 g = get_group_id(0);
/* few wide cores: a group is one item, which loops as the host does, and vectors have 16 elements (vload16) */
#ifdef PK_CPU_VECTOR
#define PK_LOCAL_ARRAY(T, name, n) T name[n]
#define PK_EACH(l) for (pk_i32 l = 0; l < PK_LSIZE; l++)
#define PK_EACH_BELOW(l, n) PK_INDEPENDENT for (pk_i32 l = 0; l < (pk_i32)(n); l++)
#define PK_EACH_ALONG(k, n) PK_INDEPENDENT for (pk_i64 k = 0; k < (pk_i64)(n); k++)
#define PK_SYNC() ((void)0)
#define PK_PRIV(T, name) T name##_[PK_LSIZE]
#define PK_P(name, l) name##_[l]
typedef uchar16 pk_vector_u8;
typedef char16 pk_vector_i8;
typedef short16 pk_vector_i16;
typedef int16 pk_vector_i32;
typedef long16 pk_vector_i64;
typedef float16 pk_vector_f32;
#if PK_FP64
typedef double16 pk_vector_f64;
#endif
#else
#define PK_LOCAL_ARRAY(T, name, n) __local T name[n]
#define PK_EACH(l) for (pk_i32 l = get_local_id(0), l##_1 = 1; l##_1; l##_1 = 0)
#define PK_EACH_BELOW(l, n) PK_EACH(l) if (l < (n))
#define PK_EACH_ALONG(k, n) PK_EACH(k##_2) for (pk_i64 k = k##_2; k < (n); k += PK_LSIZE)
#define PK_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define PK_PRIV(T, name) T name##_[1]
#define PK_P(name, l) name##_[0 * (l)]
#endif
#elif defined(PK_CUDA)
#define PK_LOCAL_ARRAY(T, name, n) __shared__ T name[n]
#define PK_ITEM(i, n)                                             \
  const pk_u64 i = (pk_u64)blockIdx.x * blockDim.x + threadIdx.x; \
  if (i < (n))
#define PK_GROUP(g) const pk_u64 g = blockIdx.x;
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
#include <string.h>

#include "hal/plugin_kernels.h"
#include "pk_host.h"
#include "pk_widen.h"
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

/* Devices with few wide cores: an item is a long loop, which is vectorized. On other devices an item is one of
 * thousands. */
#if defined(PK_HOST) || defined(PK_CPU_VECTOR)
#define PK_WIDE_CORES 1
#endif

/* On devices with wide cores, functions of float32 and exp of float64 are straight-line code of this dialect, which is
 * vectorized; the language's functions are a call per element. The code needs doubles. */
#if defined(PK_WIDE_CORES) && PK_FP64
#define PK_OWN_MATH 1
#endif

/* Combines s[0] to s[63] of a group into s[0], in a fixed order. Called between PK_EACH regions, after a PK_SYNC. The
 * steps have constant sizes: on the host each one is a few vector instructions. */
#define PK_FOLD_STEP(s, d, combine)                         \
  PK_EACH_BELOW(l, d) { s[l] = combine(s[l], s[l + (d)]); } \
  PK_SYNC();
#if defined(PK_CUDA)
/* The last 32 in registers, without barriers: all items take part, and the results of the second half are not used. */
#define PK_FOLD_SHUFFLE(x, d, combine)                                                                 \
  {                                                                                                    \
    const auto pk_y = __shfl_down_sync(0xffffffffu, x, d); /* once, however often `combine` uses it */ \
    x = combine(x, pk_y);                                                                              \
  }
#define PK_FOLD(s, combine)                            \
  PK_EACH(pk_l) {                                      \
    auto pk_x = s[pk_l];                               \
    if (pk_l < 32) pk_x = combine(pk_x, s[pk_l + 32]); \
    PK_FOLD_SHUFFLE(pk_x, 16, combine)                 \
    PK_FOLD_SHUFFLE(pk_x, 8, combine)                  \
    PK_FOLD_SHUFFLE(pk_x, 4, combine)                  \
    PK_FOLD_SHUFFLE(pk_x, 2, combine)                  \
    PK_FOLD_SHUFFLE(pk_x, 1, combine)                  \
    if (pk_l == 0) s[0] = pk_x;                        \
  }                                                    \
  PK_SYNC();
#else
#define PK_FOLD(s, combine)    \
  PK_FOLD_STEP(s, 32, combine) \
  PK_FOLD_STEP(s, 16, combine) \
  PK_FOLD_STEP(s, 8, combine)  \
  PK_FOLD_STEP(s, 4, combine)  \
  PK_FOLD_STEP(s, 2, combine)  \
  PK_FOLD_STEP(s, 1, combine)
#endif
#define PK_PLUS(x, y) ((x) + (y))

#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#define PK_CAT3(a, b, c) PK_CAT(a, PK_CAT(b, c))

/* The numbers of an element-wise operator that has several, by computing type. */
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
#if PK_FP64
PK_DEFINE_NUMBERS(f64, double)
#endif
PK_DEFINE_NUMBERS(bool, pk_bool)

/* Every instance defines these macros: PK_PREFIX (add_f32_), T (its computing type) and PK_TOKEN (f32). */
#define PK_NAME(variant) PK_CAT(PK_PREFIX, variant)
#define PK_C(x) ((T)(x))

/* Returns x / y. On OpenCL devices with many threads it divides in 32 bits if both numbers fit; CUDA's division of 64
 * bits checks that itself. */
PK_FN pk_u64 pk_divide_u64(pk_u64 x, pk_u64 y) {
#if defined(PK_OPENCL) && !defined(PK_WIDE_CORES)
  if ((x | y) >> 32 == 0) return (pk_u32)x / (pk_u32)y;
#endif
  return x / y;
}

/* Computes the offsets of row r for the first `operands` operands. The last dimension needs no division: it is often
 * the only one, and a division of 64 bits takes as long as a vector loop over a short row. */
PK_FN void pk_row_offsets(const pk_rows_t *rows, pk_u64 r, int operands, pk_i64 *offsets) {
  for (int k = 0; k < operands; k++) offsets[k] = 0;
  for (int d = 0; d < rows->ndim; d++) {
    const pk_u64 q = d + 1 < rows->ndim ? pk_divide_u64(r, (pk_u64)rows->size[d]) : 0;
    const pk_i64 x = (pk_i64)(r - q * (pk_u64)rows->size[d]);
    for (int k = 0; k < operands; k++) offsets[k] += x * rows->stride[k][d];
    r = q;
  }
}

/* ---- kernel definitions
 * ----------------------------------------------------------------------------------------------
 *
 * On devices an ordinary kernel; on the host an inline function and entries that unpack hal_arg_t values
 * (pk_host.h). */
#define PK_PARAMETER(kind, type, name) PK_PARAMETER_##kind(type, name)
#define PK_PARAMETER_IN(type, name) PK_PARAMETER_POINTER(const type, name)
#define PK_PARAMETER_OUT(type, name) PK_PARAMETER_POINTER(type, name)
#define PK_PARAMETER_BOTH(type, name) PK_PARAMETER_POINTER(type, name)
#define PK_PARAMETER_VALUE(type, name) type name
#define PK_PARAMETER_STRUCT(type, name) type name
#define PK_PARAMETER_NUMBER(type, name) type name
#if defined(PK_HOST)
#define PK_KERNEL(name, args) PK_HOST_KERNEL(name, args)
#elif defined(PK_OPENCL)
#define PK_KERNEL(name, args) __kernel void name(args(PK_PARAMETER))
#else
#define PK_KERNEL(name, args) extern "C" __global__ void name(args(PK_PARAMETER))
#endif

/* PK_PROLOGUE follows the opening brace of a kernel in the sources for devices (codegen/kernel_text.py).
 * PK_POINTER_OFFSETS is for OpenCL without shared virtual memory, where an address is a buffer and an offset in it:
 * each pointer is followed by an offset in bytes, which is added here. A missing pointer is NULL with the offset 0.
 * The value 2 is for Vulkan: a pointer is not converted to one of bytes, the offset is a multiple of an element. */
#if defined(PK_POINTER_OFFSETS)
#define PK_PARAMETER_POINTER(type, name) PK_GLOBAL type *name, pk_u64 name##_offset
#define PK_PROLOGUE(args) args(PK_MOVED);
#define PK_MOVED(kind, type, name) PK_MOVED_##kind(type, name)
#if PK_POINTER_OFFSETS == 2
#define PK_MOVED_IN(type, name) name += name##_offset / sizeof *name
#define PK_MOVED_OUT(type, name) PK_MOVED_IN(type, name)
#else
#define PK_MOVED_IN(type, name) name = (PK_GLOBAL const type *)((PK_GLOBAL const pk_u8 *)name + name##_offset)
#define PK_MOVED_OUT(type, name) name = (PK_GLOBAL type *)((PK_GLOBAL pk_u8 *)name + name##_offset)
#endif
#define PK_MOVED_BOTH(type, name) PK_MOVED_OUT(type, name)
#define PK_MOVED_VALUE(type, name) (void)0
#define PK_MOVED_STRUCT(type, name) (void)0
#define PK_MOVED_NUMBER(type, name) (void)0
#else
#define PK_PARAMETER_POINTER(type, name) PK_GLOBAL type *name
#define PK_PROLOGUE(args)
#endif

#endif /* PK_H_ */
