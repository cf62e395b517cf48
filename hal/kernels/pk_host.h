/* pk_host.h: compiles a kernel of the dialect as host C: an always-inline function, entries that unpack the arguments,
 * and a descriptor for the generated table. Included by pk.h on the host only.
 *
 * A hot instance (PK_CLONES 1) also gets entries for AVX2 and AVX-512, chosen once per process (host_table.c). They are
 * plain functions and a table of addresses, not target_clones: an ifunc's resolver runs before the sanitizers are
 * initialized, and clang 14 has no target_clones in C. PK_NO_CLONES omits the additional entries.
 *
 * All entries return equal bits, because contraction is off and no code reassociates. In gemm, similar families and
 * float32 functions contraction is on: there the base, which has no fused multiply-add, rounds differently from the
 * others (hal/kernels/CMakeLists.txt). PK_CLONES 2, for products of bfloat16, adds entries for AVX512-BF16 and for AMX
 * (pk_amx.h), which round differently from all others, and one that computes AMX's instructions in C, on every
 * processor.
 *
 * PK_CLONES MODULE is for kernels that the host's C compiler compiles at run time (dialect "c"), for this processor:
 * one form, in a module that exports the kernels for the plugin. */
#ifndef PK_HOST_H_
#define PK_HOST_H_

#include "hal/plugin_kernels.h"

enum {
  PK_ISA_BASE = 0,
  PK_ISA_AVX2 = 1,
  PK_ISA_AVX512 = 2,
  PK_ISA_AVX512_BF16 = 3,
  PK_ISA_AMX = 4,
  PK_ISA_AMX_MODEL = 5, /* not an instruction set: AMX's instructions in C */
  PK_ISA_COUNT = 6
};

/* A kernel in every instruction set that it was compiled for; NULL = not compiled. */
typedef struct pk_host_entry_s {
  const char *name;
  uint32_t arg_count;
  hal_host_kernel_fn_t fn[PK_ISA_COUNT];
} pk_host_entry_t;

/* Returns the widest instruction set that this CPU has and HAL_HOST_ISA permits, PK_ISA_*, at most
 * PK_ISA_AVX512_BF16. */
int pk_host_isa(void);

/* Returns a kernel for the widest instruction set of pk_host_isa for which it was compiled, or for AMX if this process
 * may use it. The first request for such a kernel requests the system's permission (amx.c). */
hal_host_kernel_fn_t pk_host_entry_fn(const pk_host_entry_t *entry);

/* Returns a kernel as compiled for one instruction set; NULL if there is none or this process may not use the set. For
 * tests. */
hal_host_kernel_fn_t pk_host_kernel_fn(const char *name, int isa);

#define PK_STRING_(x) #x
#define PK_STRING(x) PK_STRING_(x)
#define PK_INLINE static inline __attribute__((always_inline))

/* The content of entry i of the launch's arguments, which the order of the list numbers. */
#define PK_HELD(kind, type, name) (*(PK_HELD_##kind(type) const *)pk_args[pk_at_##name])
#define PK_HELD_IN(type) const type *
#define PK_HELD_OUT(type) type *
#define PK_HELD_BOTH(type) type *
#define PK_HELD_VALUE(type) type
#define PK_HELD_STRUCT(type) type
#define PK_HELD_NUMBER(type) type
#define PK_SLOT(kind, type, name) pk_at_##name
#define PK_UNIT(kind, type, name) 1
#define PK_COUNT(args) ((uint32_t)sizeof((char[]){args(PK_UNIT)}))

/* The kernel's code gets the entry's instruction set as the constant pk_isa. */
#define PK_HOST_FN(attribute, fn_name, name, isa, args)                                   \
  attribute static void fn_name(const hal_host_range_t *pk_range, void *const *pk_args) { \
    enum { args(PK_SLOT) };                                                               \
    PK_CAT(name, _body)(pk_range, isa, args(PK_HELD));                                    \
  }
#define PK_ENTRIES_0(name, args)                             \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args) \
  extern const pk_host_entry_t PK_CAT(name, _entry);         \
  const pk_host_entry_t PK_CAT(name, _entry) = {PK_STRING(name), PK_COUNT(args), {PK_CAT(name, _base)}};
/* A group is one item of a launch, as on other devices with few wide cores, so that both are launched alike. PK_GRAIN:
 * smallest number of items for which another thread is worthwhile. */
#define PK_GRAIN 64
#define PK_ENTRIES_MODULE(name, args)                            \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args)     \
  extern const hal_host_kernel_t PK_CAT(hal_host_kernel_, name); \
  const hal_host_kernel_t PK_CAT(hal_host_kernel_, name) = {     \
      PK_STRING(name), PK_CAT(name, _base), PK_COUNT(args), HAL_HOST_ITEMS, PK_GRAIN, 0};
#if defined(__x86_64__) && !defined(PK_NO_CLONES)
#define PK_HAS_CLONES 1
#define PK_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define PK_TARGET_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define PK_TARGET_AVX512_BF16 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
/* PK_CLONES 3, for products of bytes: AVX512-VNNI in the entry for AVX512-BF16; every such processor has both. */
#define PK_TARGET_AVX512_VNNI __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define PK_ENTRIES_1(name, args)                                                 \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args)                     \
  PK_HOST_FN(PK_TARGET_AVX2, PK_CAT(name, _avx2), name, PK_ISA_AVX2, args)       \
  PK_HOST_FN(PK_TARGET_AVX512, PK_CAT(name, _avx512), name, PK_ISA_AVX512, args) \
  extern const pk_host_entry_t PK_CAT(name, _entry);                             \
  const pk_host_entry_t PK_CAT(name, _entry) = {                                 \
      PK_STRING(name), PK_COUNT(args), {PK_CAT(name, _base), PK_CAT(name, _avx2), PK_CAT(name, _avx512)}};
#define PK_ENTRIES_2(name, args)                                                                                  \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args)                                                      \
  PK_HOST_FN(PK_TARGET_AVX2, PK_CAT(name, _avx2), name, PK_ISA_AVX2, args)                                        \
  PK_HOST_FN(PK_TARGET_AVX512, PK_CAT(name, _avx512), name, PK_ISA_AVX512, args)                                  \
  PK_HOST_FN(PK_TARGET_AVX512_BF16, PK_CAT(name, _bf16), name, PK_ISA_AVX512_BF16, args)                          \
  PK_HOST_FN(PK_TARGET_AVX512_BF16, PK_CAT(name, _amx), name, PK_ISA_AMX, args)                                   \
  PK_HOST_FN(, PK_CAT(name, _model), name, PK_ISA_AMX_MODEL, args)                                                \
  extern const pk_host_entry_t PK_CAT(name, _entry);                                                              \
  const pk_host_entry_t PK_CAT(name, _entry) = {PK_STRING(name),                                                  \
                                                PK_COUNT(args),                                                   \
                                                {PK_CAT(name, _base), PK_CAT(name, _avx2), PK_CAT(name, _avx512), \
                                                 PK_CAT(name, _bf16), PK_CAT(name, _amx), PK_CAT(name, _model)}};
#define PK_ENTRIES_3(name, args)                                                         \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args)                             \
  PK_HOST_FN(PK_TARGET_AVX2, PK_CAT(name, _avx2), name, PK_ISA_AVX2, args)               \
  PK_HOST_FN(PK_TARGET_AVX512, PK_CAT(name, _avx512), name, PK_ISA_AVX512, args)         \
  PK_HOST_FN(PK_TARGET_AVX512_VNNI, PK_CAT(name, _vnni), name, PK_ISA_AVX512_BF16, args) \
  extern const pk_host_entry_t PK_CAT(name, _entry);                                     \
  const pk_host_entry_t PK_CAT(name, _entry) = {                                         \
      PK_STRING(name),                                                                   \
      PK_COUNT(args),                                                                    \
      {PK_CAT(name, _base), PK_CAT(name, _avx2), PK_CAT(name, _avx512), PK_CAT(name, _vnni)}};
#else
#define PK_ENTRIES_1 PK_ENTRIES_0
#define PK_ENTRIES_3 PK_ENTRIES_0
#define PK_ENTRIES_2(name, args)                                   \
  PK_HOST_FN(, PK_CAT(name, _base), name, PK_ISA_BASE, args)       \
  PK_HOST_FN(, PK_CAT(name, _model), name, PK_ISA_AMX_MODEL, args) \
  extern const pk_host_entry_t PK_CAT(name, _entry);               \
  const pk_host_entry_t PK_CAT(name, _entry) = {                   \
      PK_STRING(name), PK_COUNT(args), {PK_CAT(name, _base), 0, 0, 0, 0, PK_CAT(name, _model)}};
#endif

/* Defines a kernel; its code follows. */
#define PK_HOST_KERNEL(name, args)                                                                            \
  PK_INLINE void PK_CAT(name, _body)(const hal_host_range_t *pk_range, const int pk_isa, args(PK_PARAMETER)); \
  PK_CAT(PK_ENTRIES_, PK_CLONES)                                                                              \
  (name, args) PK_INLINE void PK_CAT(name, _body)(const hal_host_range_t *pk_range,                           \
                                                  const int pk_isa __attribute__((unused)), args(PK_PARAMETER))

#endif /* PK_HOST_H_ */
