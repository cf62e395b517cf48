/* gemm_amx.h: the inner loops of gemm.pk for bfloat16 with AMX's instructions, the processor's or the model's
 * (pk_amx.h), over operands packed by gemm_pairs.h. Four registers hold 2 x 2 squares of 16 x 16 sums; two hold 32 rows
 * of a and two 32 columns of b, 16 pairs deep. All squares are complete, because packing pads them with zeros, so that
 * one configuration is sufficient for a launch. */
#include "gemm_pairs.h"
#ifdef PK_IS_BF16
#include "pk_amx.h"

/* Computes the sums of 32 rows (16 unless `tall`) x PK_GEMM_N columns, `deep` squares deep; `more`: adds them to the
 * existing ones. */
#define PK_DEFINE_AMX(kind, attribute, AMX)                                                                           \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(configure_), kind)(pk_amx_model_t * model) {         \
    static const pk_amx_config_t whole = PK_AMX_WHOLE;                                                                \
    (void)model;                                                                                                      \
    AMX##_CONFIGURE(model, &whole);                                                                                   \
  }                                                                                                                   \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(release_), kind)(pk_amx_model_t * model) {           \
    (void)model;                                                                                                      \
    AMX##_RELEASE(model);                                                                                             \
  }                                                                                                                   \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(rows_), kind)(                                       \
      pk_amx_model_t * model, pk_i64 deep, int tall, int more, const pk_pair_t *a, const pk_pair_t *panel, T *sums) { \
    enum { SQUARE = PK_PAIRS * PK_PAIRS, BYTES = 4 * PK_PAIRS, ROW = PK_GEMM_TILE_N * sizeof(T) };                    \
    T *const lower = sums + PK_PAIRS * PK_GEMM_TILE_N;                                                                \
    const pk_i64 step = tall ? 2 * SQUARE : SQUARE;                                                                   \
    (void)model;                                                                                                      \
    if (more) {                                                                                                       \
      AMX##_LOAD(model, 0, sums, ROW);                                                                                \
      AMX##_LOAD(model, 1, sums + PK_PAIRS, ROW);                                                                     \
    } else {                                                                                                          \
      AMX##_CLEAR(model, 0);                                                                                          \
      AMX##_CLEAR(model, 1);                                                                                          \
    }                                                                                                                 \
    if (more && tall) {                                                                                               \
      AMX##_LOAD(model, 2, lower, ROW);                                                                               \
      AMX##_LOAD(model, 3, lower + PK_PAIRS, ROW);                                                                    \
    } else {                                                                                                          \
      AMX##_CLEAR(model, 2);                                                                                          \
      AMX##_CLEAR(model, 3);                                                                                          \
    }                                                                                                                 \
    for (pk_i64 k = 0; k < deep; k++, a += step, panel += PK_PAIRS * PK_GEMM_N) {                                     \
      AMX##_LOAD(model, 4, a, BYTES);                                                                                 \
      AMX##_LOAD(model, 6, panel, PK_GEMM_N * 4);                                                                     \
      AMX##_LOAD(model, 7, panel + PK_PAIRS, PK_GEMM_N * 4);                                                          \
      AMX##_DOT(model, 0, 4, 6);                                                                                      \
      AMX##_DOT(model, 1, 4, 7);                                                                                      \
      if (!tall) continue;                                                                                            \
      AMX##_LOAD(model, 5, a + SQUARE, BYTES);                                                                        \
      AMX##_DOT(model, 2, 5, 6);                                                                                      \
      AMX##_DOT(model, 3, 5, 7);                                                                                      \
    }                                                                                                                 \
    AMX##_STORE(model, 0, sums, ROW);                                                                                 \
    AMX##_STORE(model, 1, sums + PK_PAIRS, ROW);                                                                      \
    if (!tall) return;                                                                                                \
    AMX##_STORE(model, 2, lower, ROW);                                                                                \
    AMX##_STORE(model, 3, lower + PK_PAIRS, ROW);                                                                     \
  }
PK_DEFINE_AMX(model, , PK_AMX_MODEL)
#ifdef PK_HAS_CLONES
PK_DEFINE_AMX(hard, PK_TARGET_AMX, PK_AMX_HARD)
/* The function for the entry's instruction set, which is a constant. */
#define PK_OF_AMX(name) (pk_isa == PK_ISA_AMX ? PK_CAT(PK_NAME(name), _hard) : PK_CAT(PK_NAME(name), _model))
#else
#define PK_OF_AMX(name) ((void)pk_isa, PK_CAT(PK_NAME(name), _model))
#endif
#undef PK_DEFINE_AMX
#endif
