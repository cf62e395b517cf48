/* kernel_attention.c: the attention kernels in each instruction set of this CPU. AVX2 and AVX-512 must produce equal
 * bits. The base set, which has no fused multiply-add, must produce equal numbers within rounding. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#include "pk_host.h"

enum { HEADS = 2, QUERIES = 45, KEYS = 200, SIZE = 20, VALUES = 48, MOST = HEADS * KEYS * VALUES };

/* pk_attention_t of hal/ops/attention/attention.pk. */
typedef struct attention_s {
  int64_t heads, kv_heads, shared, queries, keys, size, value_size, block;
  int64_t query[3], key[3], value[3], result[3], bias[4];
  int64_t grad[3], grad_query[3], grad_key[3], grad_value[3];
  int64_t part, parts, part_stride;
  int32_t with_bias, causal, wanted, pad;
} attention_t;

/* Result, logarithms and gradients of query, key and value, as doubles for any computed type. */
typedef struct outputs_s {
  double data[5][MOST];
} outputs_t;

static const size_t counts[5] = {HEADS * QUERIES * VALUES, HEADS *QUERIES, HEADS *QUERIES *SIZE, HEADS *KEYS *SIZE,
                                 HEADS *KEYS *VALUES};

static attention_t problem(size_t element) {
  return (attention_t){.heads = HEADS,
                       .kv_heads = HEADS,
                       .shared = 1,
                       .queries = QUERIES,
                       .keys = KEYS,
                       .size = SIZE,
                       .value_size = VALUES,
                       .block = (int64_t)(128 / element),
                       .query = {0, QUERIES * SIZE, SIZE},
                       .key = {0, KEYS * SIZE, SIZE},
                       .value = {0, KEYS * VALUES, VALUES},
                       .result = {0, QUERIES * VALUES, VALUES},
                       .grad = {0, QUERIES * VALUES, VALUES},
                       .grad_query = {0, QUERIES * SIZE, SIZE},
                       .grad_key = {0, KEYS * SIZE, SIZE},
                       .grad_value = {0, KEYS * VALUES, VALUES},
                       .part = 256,
                       .parts = 1,
                       .wanted = 7};
}

/* Runs both kernels over operands of either type; returns 0 if this CPU or this build lacks the instruction set. */
#define DEFINE_COMPUTE(T, token)                                                                              \
  static int compute_##token(int isa, outputs_t *out) {                                                       \
    static T operands[4][MOST], results[5][MOST];                                                             \
    hal_host_kernel_fn_t forward = pk_host_kernel_fn("attention_" #token "_forward", isa);                    \
    hal_host_kernel_fn_t backward = pk_host_kernel_fn("attention_" #token "_backward", isa);                  \
    hal_host_kernel_fn_t norm = pk_host_kernel_fn("attention_" #token "_normalizers", isa);                   \
    if (!forward || !norm || !backward) return 0;                                                             \
    for (int i = 0; i < 4; i++)                                                                               \
      for (int j = 0; j < MOST; j++) operands[i][j] = (T)sin((i + 1) * 0.37 * j + i);                         \
    attention_t s = problem(sizeof(T));                                                                       \
    T scale = (T)0.3, *q = operands[0], *k = operands[1], *v = operands[2], *g = operands[3];                 \
    T *o = results[0], *l = results[1], *dq = results[2], *dk = results[3], *dv = results[4];                 \
    uint64_t units = HEADS * ((QUERIES + (uint64_t)s.block - 1) / (uint64_t)s.block), heads = HEADS, one = 1; \
    void *fargs[] = {&o, &l, &q, &k, &v, &q, &s, &scale, &units, &one};                                       \
    static T normalizers[HEADS * QUERIES];                                                                    \
    T *n = normalizers;                                                                                       \
    void *nargs[] = {&n, &q, &k, &q, &l, &s, &scale, &units, &one};                                           \
    void *bargs[] = {&dq, &dk, &dv, &g, &q, &k, &v, &q, &o, &l, &n, &s, &scale, &heads, &one};                \
    forward(&(hal_host_range_t){0, units}, fargs);                                                            \
    norm(&(hal_host_range_t){0, units}, nargs);                                                               \
    backward(&(hal_host_range_t){0, heads}, bargs);                                                           \
    for (int i = 0; i < 5; i++)                                                                               \
      for (size_t j = 0; j < counts[i]; j++) out->data[i][j] = results[i][j];                                 \
    return 1;                                                                                                 \
  }
DEFINE_COMPUTE(float, f32)
DEFINE_COMPUTE(double, f64)

static void compare(int (*compute)(int, outputs_t *), double tolerance) {
  static outputs_t base, wide, widest;
  cr_assert(compute(PK_ISA_BASE, &base), "there are no kernels of attention");
  if (!compute(PK_ISA_AVX2, &wide)) return;
  for (int i = 0; i < 5; i++)
    for (size_t j = 0; j < counts[i]; j++)
      cr_assert(fabs(base.data[i][j] - wide.data[i][j]) <= tolerance, "output %d[%zu]: %.9g in the base, %.9g in AVX2",
                i, j, base.data[i][j], wide.data[i][j]);
  if (!compute(PK_ISA_AVX512, &widest)) return;
  for (int i = 0; i < 5; i++)
    cr_assert_eq(memcmp(wide.data[i], widest.data[i], counts[i] * sizeof(double)), 0,
                 "output %d: other bits in AVX-512", i);
}

Test(kernel_attention, instruction_sets_agree) {
  compare(compute_f32, 1e-5);
  compare(compute_f64, 1e-14);
}
