/* check.c: the checks of a call that need no other rank. */
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/shm/internal.h"

/* A region of memory: [start, end) as numbers. */
typedef struct region_s {
  uintptr_t start, end;
} region_t;

static const char *name_of(const hal_shm_call_t *call) { return hal_comm_op_name(call->op); }

static hal_status_t out_of_range(const hal_shm_call_t *call, uint64_t count) {
  return hal_error_set(HAL_OUT_OF_RANGE, "%s: %llu elements of %zu bytes do not fit into the address space",
                       name_of(call), (unsigned long long)count, call->size);
}

/* Computes the region of `count` elements from element `at` of a buffer. */
static hal_status_t region_of(const hal_shm_call_t *call, const void *base, uint64_t at, uint64_t count,
                              region_t *out) {
  uint64_t end, bytes, last;
  if (__builtin_add_overflow(at, count, &end) || __builtin_mul_overflow(end, (uint64_t)call->size, &bytes) ||
      bytes > PTRDIFF_MAX || __builtin_add_overflow((uint64_t)(uintptr_t)base, bytes, &last)) {
    return out_of_range(call, count);
  }
  *out = (region_t){(uintptr_t)base + (uintptr_t)(at * call->size), (uintptr_t)last};
  return HAL_OK;
}

static int overlaps(const region_t *a, const region_t *b) {
  return a->start < a->end && b->start < b->end && a->start < b->end && b->start < a->end;
}

/* Fills in the blocks of one side: `counts` and `displs` of the caller, or `count` elements each, one after another. */
static hal_status_t blocks(const hal_shm_call_t *call, int32_t size, const uint64_t *counts, const uint64_t *displs,
                           uint64_t *out_counts, uint64_t *out_at) {
  uint64_t next = 0;
  for (int32_t rank = 0; rank < size; rank++) {
    out_counts[rank] = counts ? counts[rank] : call->count;
    out_at[rank] = displs ? displs[rank] : next;
    if (__builtin_add_overflow(next, out_counts[rank], &next)) return out_of_range(call, out_counts[rank]);
  }
  return HAL_OK;
}

static void one_block(uint64_t *counts, uint64_t *at, int32_t rank, uint64_t count) {
  counts[rank] = count;
  at[rank] = 0;
}

/* Fills in the counts of the operators that move blocks. The others use only `count`. */
static hal_status_t fill_blocks(const hal_shm_t *shm, const hal_collective_t *desc, hal_shm_call_t *call) {
  const int is_root = shm->rank == call->root;
  const size_t bytes = (size_t)shm->size * sizeof(uint64_t);
  memset(call->give, 0, bytes);
  memset(call->take, 0, bytes);
  memset(call->give_at, 0, bytes);
  memset(call->take_at, 0, bytes);
  const int gives_blocks = call->op == HAL_COMM_REDUCE_SCATTER || call->op == HAL_COMM_ALL_TO_ALL ||
                           (call->op == HAL_COMM_SCATTER && is_root);
  const int takes_blocks =
      call->op == HAL_COMM_ALL_GATHER || call->op == HAL_COMM_ALL_TO_ALL || (call->op == HAL_COMM_GATHER && is_root);
  if (gives_blocks)
    HAL_RETURN_IF_ERROR(blocks(call, shm->size, desc->send_counts, desc->send_displs, call->give, call->give_at));
  if (takes_blocks)
    HAL_RETURN_IF_ERROR(blocks(call, shm->size, desc->recv_counts, desc->recv_displs, call->take, call->take_at));
  for (int32_t rank = 0; rank < shm->size; rank++) {
    if (call->give[rank] > call->most) call->most = call->give[rank];
    if (call->take[rank] > call->most) call->most = call->take[rank];
  }
  call->uneven = (gives_blocks && desc->send_counts) || (takes_blocks && desc->recv_counts);
  if (call->op == HAL_COMM_ALL_GATHER || (call->op == HAL_COMM_BROADCAST && is_root))
    for (int32_t rank = 0; rank < shm->size; rank++) one_block(call->give, call->give_at, rank, call->count);
  if (call->op == HAL_COMM_GATHER) one_block(call->give, call->give_at, call->root, call->count);
  if (call->op == HAL_COMM_SCATTER || call->op == HAL_COMM_BROADCAST)
    one_block(call->take, call->take_at, call->root, call->count);
  return HAL_OK;
}

static int moves_blocks(uint32_t op) {
  return op != HAL_COMM_ALL_REDUCE && op != HAL_COMM_REDUCE && op != HAL_COMM_SEND && op != HAL_COMM_RECV;
}

/* Computes the regions of one side; returns their number through `out_count`. A whole buffer is one region, even if all
 * ranks receive it. */
static hal_status_t regions(const hal_shm_t *shm, const hal_shm_call_t *call, int is_send, region_t *out,
                            int *out_count) {
  const void *const base = is_send ? (const void *)call->send : call->recv;
  const int shared =
      is_send && (call->op == HAL_COMM_ALL_GATHER || call->op == HAL_COMM_BROADCAST || call->op == HAL_COMM_GATHER);
  const int reduced = !is_send && call->op == HAL_COMM_REDUCE_SCATTER;
  *out_count = 0;
  if (!moves_blocks(call->op) || shared || reduced) {
    const int is_root = shm->rank == call->root;
    const int none = (call->op == HAL_COMM_BROADCAST && is_send && !is_root) ||
                     (call->op == HAL_COMM_REDUCE && !is_send && !is_root) || (call->op == HAL_COMM_SEND && !is_send) ||
                     (call->op == HAL_COMM_RECV && is_send);
    *out_count = !none;
    return none ? HAL_OK : region_of(call, base, 0, call->count, out);
  }
  const uint64_t *const counts = is_send ? call->give : call->take, *const at = is_send ? call->give_at : call->take_at;
  for (int32_t rank = 0; rank < shm->size; rank++) {
    if (!counts[rank]) continue;
    HAL_RETURN_IF_ERROR(region_of(call, base, at[rank], counts[rank], &out[*out_count]));
    ++*out_count;
  }
  return HAL_OK;
}

/* Returns whether `send` and `recv` are in place as comm.h allows. */
static int is_in_place(const hal_shm_t *shm, const hal_shm_call_t *call) {
  switch (call->op) {
    case HAL_COMM_ALL_REDUCE:
    case HAL_COMM_REDUCE:
    case HAL_COMM_BROADCAST:
      return call->send == call->recv;
    case HAL_COMM_ALL_GATHER:
      return call->send == call->recv + call->take_at[shm->rank] * call->size;
    case HAL_COMM_REDUCE_SCATTER:
      return call->recv == call->send + call->give_at[shm->rank] * call->size;
    default:
      return 0;
  }
}

static hal_status_t check_memory(const hal_shm_t *shm, const hal_shm_call_t *call) {
  region_t sent[HAL_SHM_RANKS], received[HAL_SHM_RANKS];
  int sends = 0, receives = 0;
  HAL_RETURN_IF_ERROR(regions(shm, call, 1, sent, &sends));
  HAL_RETURN_IF_ERROR(regions(shm, call, 0, received, &receives));
  for (int i = 0; i < sends; i++)
    if (sent[i].start < sent[i].end && !call->send)
      return hal_error_set(HAL_INVALID_ARGUMENT, "%s: send is NULL, and %llu elements are to be sent", name_of(call),
                           (unsigned long long)((sent[i].end - sent[i].start) / call->size));
  for (int i = 0; i < receives; i++)
    if (received[i].start < received[i].end && !call->recv)
      return hal_error_set(HAL_INVALID_ARGUMENT, "%s: recv is NULL, and %llu elements are to be received",
                           name_of(call), (unsigned long long)((received[i].end - received[i].start) / call->size));
  for (int i = 0; i < receives; i++)
    for (int j = i + 1; j < receives; j++)
      if (overlaps(&received[i], &received[j]))
        return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the blocks of two ranks overlap in recv; change recv_displs",
                             name_of(call));
  if (is_in_place(shm, call)) return HAL_OK;
  for (int i = 0; i < sends; i++)
    for (int j = 0; j < receives; j++)
      if (overlaps(&sent[i], &received[j]))
        return hal_error_set(HAL_INVALID_ARGUMENT,
                             "%s: send and recv overlap; pass memory of its own, or in place as hal/comm.h describes",
                             name_of(call));
  return HAL_OK;
}

static hal_status_t check_peer(const hal_shm_t *shm, const hal_shm_call_t *call) {
  const int needed = hal_comm_op_is_message(call->op) || hal_comm_op_has_root(call->op);
  if (!needed || (call->root >= 0 && call->root < shm->size)) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "%s: peer %d is out of range: the communicator has %d ranks",
                       name_of(call), (int)call->root, (int)shm->size);
}

hal_status_t hal_shm_check(const hal_shm_t *shm, const hal_collective_t *desc, hal_shm_call_t *out) {
  if (!HAL_HAS_FIELD(desc, scale))
    return hal_error_set(HAL_INVALID_ARGUMENT, "a collective's struct_size is %zu, less than the fields up to scale",
                         desc->struct_size);
  out->op = desc->op;
  out->reduce = hal_comm_op_reduces(desc->op) ? desc->reduce : 0;
  out->dtype = desc->op == HAL_COMM_BARRIER ? HAL_UINT8 : desc->dtype;
  out->root = desc->peer;
  out->count = desc->op == HAL_COMM_BARRIER ? 0 : desc->count;
  out->send = desc->send;
  out->recv = desc->recv;
  out->scale = desc->scale;
  out->size = hal_dtype_size(out->dtype);
  out->refused = out->uneven = 0;
  out->sequence = shm->sequence + 1;
  out->most = out->count;
  if (desc->op > HAL_COMM_SCATTER) {
    out->refused = 1;
    return HAL_OK;
  }
  if (!out->size) return hal_error_set(HAL_INVALID_ARGUMENT, "%s: invalid dtype %d", name_of(out), (int)out->dtype);
  HAL_RETURN_IF_ERROR(check_peer(shm, out));
  if (hal_comm_op_reduces(out->op)) out->refused = !hal_shm_reducer_find(out->dtype, out->reduce, &out->reducer);
  if (moves_blocks(out->op)) HAL_RETURN_IF_ERROR(fill_blocks(shm, desc, out));
  if (out->op != HAL_COMM_BARRIER) HAL_RETURN_IF_ERROR(check_memory(shm, out));
  if (hal_comm_op_reduces(out->op) && out->reduce == HAL_REDUCE_PREMUL_SUM && !out->refused && !out->scale)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the reduction premul_sum needs scale, which is NULL", name_of(out));
  return HAL_OK;
}
