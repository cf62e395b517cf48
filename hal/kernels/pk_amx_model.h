/* pk_amx_model.h: AMX's instructions in C, written from Intel's definition of each (Software Developer's Manual, volume
 * 2): LDTILECFG, TILEZERO, TILELOADD, TILESTORED, TDPBF16PS and TILERELEASE. Where the processor raises an exception,
 * the model stores the name of the first one and does nothing. It omits start_row other than 0, which only an
 * interrupted load produces. */
#ifndef PK_AMX_MODEL_H_
#define PK_AMX_MODEL_H_

#include <math.h>
#include <string.h>

#include "pk_types.h"

enum { PK_AMX_TILES = 8, PK_AMX_ROWS = 16, PK_AMX_BYTES = 64 };

/* The operand of LDTILECFG. */
typedef struct {
  pk_u8 palette, start_row, reserved[14];
  pk_u16 colsb[16]; /* bytes of a row of each register */
  pk_u8 rows[16];
} pk_amx_config_t;

typedef struct {
  pk_amx_config_t config; /* palette 0: none */
  pk_u8 tile[PK_AMX_TILES][PK_AMX_ROWS][PK_AMX_BYTES];
  const char *fault; /* the exception that the processor would have raised, and its cause; NULL: none */
} pk_amx_model_t;

static inline int pk_amx_model_fault(pk_amx_model_t *model, const char *fault) {
  if (!model->fault) model->fault = fault;
  return 1;
}

static inline void pk_amx_model_release(pk_amx_model_t *model) {
  memset(&model->config, 0, sizeof model->config);
  memset(model->tile, 0, sizeof model->tile);
}

static inline void pk_amx_model_configure(pk_amx_model_t *model, const pk_amx_config_t *config) {
  if (config->palette > 1) {
    pk_amx_model_fault(model, "#GP: LDTILECFG: palette");
    return;
  }
  for (int i = 0; config->palette && i < 14; i++)
    if (config->reserved[i] && pk_amx_model_fault(model, "#GP: LDTILECFG: reserved byte")) return;
  for (int t = 0; config->palette && t < 16; t++) {
    const int rows = config->rows[t], bytes = config->colsb[t];
    if (t >= PK_AMX_TILES && (rows || bytes) && pk_amx_model_fault(model, "#GP: LDTILECFG: register")) return;
    if (rows > PK_AMX_ROWS && pk_amx_model_fault(model, "#GP: LDTILECFG: rows")) return;
    if (bytes > PK_AMX_BYTES && pk_amx_model_fault(model, "#GP: LDTILECFG: colsb")) return;
    if (!rows != !bytes && pk_amx_model_fault(model, "#GP: LDTILECFG: rows without colsb")) return;
  }
  pk_amx_model_release(model);
  if (config->palette) model->config = *config;
}

/* Returns whether the register cannot be used. */
static inline int pk_amx_model_lacks(pk_amx_model_t *model, int t) {
  if (!model->config.palette) return pk_amx_model_fault(model, "#UD: no configuration");
  return !model->config.rows[t] && pk_amx_model_fault(model, "#UD: register without rows");
}

static inline void pk_amx_model_clear(pk_amx_model_t *model, int t) {
  if (!pk_amx_model_lacks(model, t)) memset(model->tile[t], 0, sizeof model->tile[t]);
}

static inline void pk_amx_model_load(pk_amx_model_t *model, int t, const void *from, pk_i64 step) {
  if (pk_amx_model_lacks(model, t)) return;
  memset(model->tile[t], 0, sizeof model->tile[t]);
  for (int i = 0; i < model->config.rows[t]; i++)
    memcpy(model->tile[t][i], (const char *)from + i * step, model->config.colsb[t]);
}

static inline void pk_amx_model_store(pk_amx_model_t *model, int t, void *to, pk_i64 step) {
  if (pk_amx_model_lacks(model, t)) return;
  for (int i = 0; i < model->config.rows[t]; i++)
    memcpy((char *)to + i * step, model->tile[t][i], model->config.colsb[t]);
}

/* Replaces a subnormal number by a zero of its sign. */
static inline float pk_amx_model_flush(float x) {
  pk_u32 bits;
  memcpy(&bits, &x, sizeof bits);
  if (!(bits & 0x7f800000u)) bits &= 0x80000000u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Returns element `n` of a row of bfloat16. */
static inline float pk_amx_model_element(const pk_u8 *row, int n) {
  const pk_u32 bits = (pk_u32)(row[2 * n] | row[2 * n + 1] << 8) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return pk_amx_model_flush(x);
}

/* Returns whether the shapes of a product's registers do not match. */
static inline int pk_amx_model_unfit(pk_amx_model_t *model, int sums, int a, int b) {
  const pk_amx_config_t *const c = &model->config;
  if (sums == a || sums == b || a == b) return pk_amx_model_fault(model, "#UD: TDPBF16PS: a register twice");
  if (pk_amx_model_lacks(model, sums) || pk_amx_model_lacks(model, a) || pk_amx_model_lacks(model, b)) return 1;
  if (c->colsb[sums] % 4 || c->colsb[a] % 4 || c->colsb[b] % 4)
    return pk_amx_model_fault(model, "#UD: TDPBF16PS: colsb");
  return (c->rows[sums] != c->rows[a] || c->colsb[sums] != c->colsb[b] || c->colsb[a] / 4 != c->rows[b]) &&
         pk_amx_model_fault(model, "#UD: TDPBF16PS: shapes");
}

/* The first and the second elements of pairs have separate sums, which start from 0 and are fused, in the order of k.
 * The sum of both is added to the existing value. Each step rounds to nearest, ties to even, and flushes subnormal
 * numbers. */
static inline void pk_amx_model_dot(pk_amx_model_t *model, int sums, int a, int b) {
  if (pk_amx_model_unfit(model, sums, a, b)) return;
  for (int m = 0; m < model->config.rows[sums]; m++) {
    for (int n = 0; n < model->config.colsb[sums] / 4; n++) {
      float part[2] = {0, 0}, sum;
      for (int k = 0; k < model->config.rows[b]; k++)
        for (int i = 0; i < 2; i++)
          part[i] = pk_amx_model_flush(fmaf(pk_amx_model_element(model->tile[a][m], 2 * k + i),
                                            pk_amx_model_element(model->tile[b][k], 2 * n + i), part[i]));
      memcpy(&sum, model->tile[sums][m] + 4 * n, sizeof sum);
      sum = pk_amx_model_flush(pk_amx_model_flush(sum) + pk_amx_model_flush(part[0] + part[1]));
      memcpy(model->tile[sums][m] + 4 * n, &sum, sizeof sum);
    }
    memset(model->tile[sums][m] + model->config.colsb[sums], 0, PK_AMX_BYTES - (size_t)model->config.colsb[sums]);
  }
  for (int m = model->config.rows[sums]; m < PK_AMX_ROWS; m++) memset(model->tile[sums][m], 0, PK_AMX_BYTES);
}

#endif /* PK_AMX_MODEL_H_ */
