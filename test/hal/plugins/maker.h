/* maker.h: shared by the files of the maker plugin: elements of tensors, and the list of operators. */
#ifndef TEST_HAL_PLUGINS_MAKER_H_
#define TEST_HAL_PLUGINS_MAKER_H_

#include <hal/plugin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct maker_operator_s {
  const char *name;
  hal_status_t (*run)(const hal_op_call_t *call);
} maker_operator_t;

/* The list ends with an entry without a name. */
extern const maker_operator_t maker_operators[] /* maker_ops.c */, maker_sized[] /* maker_sized.c */;

enum { DIMS = 8 };

/* ---- elements ---- */

static inline int64_t offset_of(const hal_tensor_t *tensor, const int64_t *index) {
  int64_t offset = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) offset += index[d] * tensor->strides[d];
  return offset;
}

static inline double load(const hal_tensor_t *tensor, const int64_t *index) {
  const int64_t at = offset_of(tensor, index);
  switch (tensor->dtype) {
    case HAL_FLOAT32:
      return ((const float *)tensor->data)[at];
    case HAL_FLOAT64:
      return ((const double *)tensor->data)[at];
    case HAL_INT64:
      return (double)((const int64_t *)tensor->data)[at];
    case HAL_BOOL:
      return ((const uint8_t *)tensor->data)[at];
    default: { /* bfloat16 */
      const uint32_t bits = (uint32_t)((const uint16_t *)tensor->data)[at] << 16;
      float number;
      memcpy(&number, &bits, sizeof number);
      return number;
    }
  }
}

static inline void store(const hal_tensor_t *tensor, const int64_t *index, double number) {
  const int64_t at = offset_of(tensor, index);
  switch (tensor->dtype) {
    case HAL_FLOAT32:
      ((float *)tensor->data)[at] = (float)number;
      break;
    case HAL_FLOAT64:
      ((double *)tensor->data)[at] = number;
      break;
    case HAL_INT64:
      ((int64_t *)tensor->data)[at] = (int64_t)number;
      break;
    case HAL_BOOL:
      ((uint8_t *)tensor->data)[at] = number != 0;
      break;
    default: { /* bfloat16, to nearest, ties to even */
      const float single = (float)number;
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      ((uint16_t *)tensor->data)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

static inline int computes(const hal_tensor_t *tensor) {
  return !tensor || tensor->dtype == HAL_FLOAT32 || tensor->dtype == HAL_FLOAT64 || tensor->dtype == HAL_INT64 ||
         tensor->dtype == HAL_BFLOAT16 || tensor->dtype == HAL_BOOL;
}

/* The next index in C order; 0 after the last one. */
static inline int advance(const hal_tensor_t *tensor, int64_t *index) {
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    if (++index[d] < tensor->sizes[d]) return 1;
    index[d] = 0;
  }
  return 0;
}

static inline int64_t count_of(const hal_tensor_t *tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; d++) count *= tensor->sizes[d];
  return count;
}

static inline const hal_tensor_t *tensor_at(const hal_op_call_t *call, uint32_t i) {
  return call->args[i].tag == HAL_VALUE_TENSOR ? call->args[i].u.t : NULL;
}
/* Lists of two numbers; an empty list is `missing`. */
static inline int64_t pair_at(const hal_op_call_t *call, uint32_t i, int d, int64_t missing) {
  const hal_value_t *value = &call->args[i];
  return value->count == 0 ? missing : value->u.il[value->count == 1 ? 0 : d];
}

/* Finds the index of element `i` in C order. */
static inline void unravel(const hal_tensor_t *tensor, int64_t i, int64_t *index) {
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    index[d] = i % tensor->sizes[d];
    i /= tensor->sizes[d];
  }
}

#endif /* TEST_HAL_PLUGINS_MAKER_H_ */
