/* translate.c: which calls a vendor's library runs, and in which data types. The library lists what it supports
 * (hal_comm_info_t). The host passes copies as bytes, bool as bytes of 0 and 1, and sums of complex numbers as sums of
 * their parts. */
#include <string.h>

#include "base/dtype.h"
#include "comm/vendor/vendor.h"

static int has(uint64_t mask, uint32_t bit) { return bit < 64 && (mask >> bit & 1); }

static int reduces(const hal_comm_info_t *info, uint32_t reduce, hal_dtype_t dtype) {
  const uint32_t most = sizeof info->reduce_dtypes / sizeof *info->reduce_dtypes;
  return reduce < most && has(info->reduce_dtypes[reduce], (uint32_t)dtype);
}

/* For bytes of 0 and 1. */
static int find_bool(const hal_comm_info_t *info, uint32_t reduce, hal_comm_words_t *out) {
  static const uint32_t bits[] = {
      [HAL_REDUCE_SUM] = HAL_REDUCE_BOR, [HAL_REDUCE_PROD] = HAL_REDUCE_BAND, [HAL_REDUCE_MIN] = HAL_REDUCE_BAND,
      [HAL_REDUCE_MAX] = HAL_REDUCE_BOR, [HAL_REDUCE_AVG] = UINT32_MAX,       [HAL_REDUCE_BAND] = HAL_REDUCE_BAND,
      [HAL_REDUCE_BOR] = HAL_REDUCE_BOR, [HAL_REDUCE_BXOR] = HAL_REDUCE_BXOR};
  if (reduce >= sizeof bits / sizeof *bits || bits[reduce] == UINT32_MAX) return 0;
  out->dtype = HAL_UINT8;
  out->reduce = bits[reduce];
  if (reduces(info, out->reduce, HAL_UINT8)) return 1;
  if (out->reduce == HAL_REDUCE_BXOR) return 0;
  out->reduce = out->reduce == HAL_REDUCE_BOR ? HAL_REDUCE_MAX : HAL_REDUCE_MIN;
  return reduces(info, out->reduce, HAL_UINT8);
}

static int find_complex(const hal_comm_info_t *info, uint32_t reduce, hal_comm_words_t *out) {
  out->dtype = out->dtype == HAL_COMPLEX128 ? HAL_FLOAT64 : HAL_FLOAT32;
  out->factor = 2;
  return (reduce == HAL_REDUCE_SUM || reduce == HAL_REDUCE_AVG) && reduces(info, reduce, out->dtype);
}

static int find_reduction(const hal_comm_info_t *info, const hal_collective_t *call, hal_comm_words_t *out) {
  if (reduces(info, call->reduce, call->dtype)) return 1;
  if (call->dtype == HAL_BOOL) return find_bool(info, call->reduce, out);
  if (call->dtype == HAL_COMPLEX64 || call->dtype == HAL_COMPLEX128) return find_complex(info, call->reduce, out);
  return 0;
}

static int find_copy(const hal_comm_info_t *info, const hal_collective_t *call, hal_comm_words_t *out) {
  if (has(info->copy_dtypes, (uint32_t)call->dtype)) return 1;
  out->dtype = HAL_UINT8;
  out->factor = hal_dtype_size(call->dtype);
  return has(info->copy_dtypes, HAL_UINT8);
}

/* A library that ignores tags would match messages in another order. */
static int lists_message(const hal_comm_info_t *info, const hal_collective_t *call) {
  return has(info->ops, HAL_COMM_SEND) && has(info->ops, HAL_COMM_RECV) &&
         (!call->tag || (info->flags & HAL_COMM_CAN_TAG));
}

int hal_comm_vendor_lists(const hal_comm_info_t *info, const hal_collective_t *call, hal_comm_words_t *out_words) {
  *out_words = (hal_comm_words_t){call->dtype, call->reduce, 1};
  if (!has(info->ops, call->op)) return 0;
  if ((call->flags & HAL_COLLECTIVE_FLOAT32_SUM) && !(info->flags & HAL_COMM_CAN_FLOAT32_SUM)) return 0;
  if ((call->flags & HAL_COLLECTIVE_DETERMINISTIC) && !(info->flags & HAL_COMM_CAN_DETERMINISTIC)) return 0;
  if (call->op == HAL_COMM_BARRIER) return 1;
  if ((call->send_counts || call->recv_counts) && !(info->flags & HAL_COMM_CAN_UNEVEN)) return 0;
  if (hal_comm_op_is_message(call->op) && !lists_message(info, call)) return 0;
  return (hal_comm_op_reduces(call->op) ? find_reduction : find_copy)(info, call, out_words);
}

static void scale_array(const uint64_t **array, uint64_t **next, int32_t size, uint64_t factor) {
  if (!*array || factor == 1) return;
  for (int32_t i = 0; i < size; i++) (*next)[i] = (*array)[i] * factor; /* hal_comm_check has checked the bytes */
  *array = *next;
  *next += size;
}

void hal_comm_vendor_translate(const hal_comm_t *comm, const hal_comm_info_t *info, const hal_collective_t *call,
                               hal_collective_t *out, uint64_t **next) {
  hal_comm_words_t words;
  hal_comm_vendor_lists(info, call, &words);
  *out = (hal_collective_t){0};
  memcpy(out, call, call->struct_size < sizeof *out ? call->struct_size : sizeof *out);
  out->struct_size = sizeof *out;
  out->dtype = words.dtype;
  out->reduce = words.reduce;
  out->count *= words.factor;
  scale_array(&out->send_counts, next, comm->size, words.factor);
  scale_array(&out->send_displs, next, comm->size, words.factor);
  scale_array(&out->recv_counts, next, comm->size, words.factor);
  scale_array(&out->recv_displs, next, comm->size, words.factor);
  if (out->op == HAL_COMM_BROADCAST && out->peer == comm->rank && !out->recv) out->recv = (void *)(uintptr_t)out->send;
  out->fingerprint = hal_comm_fingerprint(comm, call);
}
