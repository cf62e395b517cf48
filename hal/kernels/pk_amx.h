/* pk_amx.h: AMX's instructions for products of bfloat16, in two implementations with the same arguments: the
 * processor's (PK_AMX_HARD_*) and a model in C (PK_AMX_MODEL_*, pk_amx_model.h), which computes the same results on
 * every processor. Registers are numbers 0 to 7, known at compile time. Steps between rows are in bytes.
 *
 * The processor's instructions may be executed only after pk_amx_isa returned PK_ISA_AMX. They leave a large state,
 * which systems save for each thread that has it: a kernel ends with the release. */
#ifndef PK_AMX_H_
#define PK_AMX_H_

#include "pk_amx_model.h"
#include "pk_host.h"

/* Eight registers of 16 rows of 64 bytes: 16 x 16 floats, 16 x 16 pairs of bfloat16. */
#define PK_AMX_EDGE 16
#define PK_AMX_WHOLE                                                                                    \
  {                                                                                                     \
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } \
  }

#define PK_AMX_MODEL_CONFIGURE(model, config) pk_amx_model_configure(model, config)
#define PK_AMX_MODEL_CLEAR(model, t) pk_amx_model_clear(model, t)
#define PK_AMX_MODEL_LOAD(model, t, from, step) pk_amx_model_load(model, t, from, step)
#define PK_AMX_MODEL_STORE(model, t, to, step) pk_amx_model_store(model, t, to, step)
#define PK_AMX_MODEL_DOT(model, sums, a, b) pk_amx_model_dot(model, sums, a, b)
#define PK_AMX_MODEL_RELEASE(model) pk_amx_model_release(model)

#if defined(PK_HAS_CLONES)
#include <immintrin.h>
#define PK_TARGET_AMX \
  __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))
/* Compilers know different memory accesses of these instructions: gcc 12 assumes 8 bytes for a configuration, and none
 * for loads. The fence makes the compiler write everything to memory before each, and read it again after it. */
#define PK_AMX_FENCE() __asm__ volatile("" ::: "memory")
#define PK_AMX_HARD(instruction) \
  do {                           \
    PK_AMX_FENCE();              \
    instruction;                 \
    PK_AMX_FENCE();              \
  } while (0)
#define PK_AMX_HARD_CONFIGURE(model, config) PK_AMX_HARD(_tile_loadconfig(config))
#define PK_AMX_HARD_CLEAR(model, t) PK_AMX_HARD(_tile_zero(t))
#define PK_AMX_HARD_LOAD(model, t, from, step) PK_AMX_HARD(_tile_loadd(t, from, step))
#define PK_AMX_HARD_STORE(model, t, to, step) PK_AMX_HARD(_tile_stored(t, to, step))
#define PK_AMX_HARD_DOT(model, sums, a, b) PK_AMX_HARD(_tile_dpbf16ps(sums, a, b))
#define PK_AMX_HARD_RELEASE(model) PK_AMX_HARD(_tile_release())
#endif

/* Returns PK_ISA_AMX if this process may use AMX, PK_ISA_AMX_MODEL if HAL_HOST_ISA requests the model, else 0. The
 * first call requests the system's permission and tries a small product. Thread-safe. */
int pk_amx_isa(void);

/* ---- the steps of that decision, for tests (amx.c) --------------------------------------------------------------- */
/* The capabilities of a machine. */
typedef struct pk_amx_machine_s {
  int (*has)(void);    /* returns whether processor and system have AMX with bfloat16, in the shape of PK_AMX_WHOLE */
  int (*permit)(void); /* requests the system's permission for this process; returns 0, or the errno of a failure */
  hal_host_kernel_fn_t product, model; /* gemm_bf16_tiles with AMX, and with the model */
} pk_amx_machine_t;

extern const pk_amx_machine_t pk_amx_this_machine;

/* Does the same as pk_amx_isa, on a given machine and with the widest requested instruction set. Writes a line for the
 * log, and whether it is a warning. */
int pk_amx_choose(const pk_amx_machine_t *machine, int widest, char *line, size_t size, int *warns);

/* Computes result = a @ b with a kernel, for row-major matrices that fit into one tile. */
void pk_amx_multiply(hal_host_kernel_fn_t product, int m, int n, int k, const pk_bf16 *a, const pk_bf16 *b,
                     pk_bf16 *result);

/* Returns whether two kernels of products return the same for a small product of integers, which is exact in any order
 * of summation. */
int pk_amx_agrees(hal_host_kernel_fn_t product, hal_host_kernel_fn_t other);

#endif /* PK_AMX_H_ */
