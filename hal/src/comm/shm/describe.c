/* describe.c: describes calls for error messages. */
#include <stdio.h>

#include "base/dtype.h"
#include "comm/shm/internal.h"

static const char *const reduce_names[] = {
    [HAL_REDUCE_SUM] = "sum", [HAL_REDUCE_PROD] = "prod", [HAL_REDUCE_MIN] = "min",
    [HAL_REDUCE_MAX] = "max", [HAL_REDUCE_AVG] = "avg",   [HAL_REDUCE_BAND] = "band",
    [HAL_REDUCE_BOR] = "bor", [HAL_REDUCE_BXOR] = "bxor", [HAL_REDUCE_PREMUL_SUM] = "premul_sum"};

enum { REDUCTIONS = sizeof reduce_names / sizeof reduce_names[0] };

void hal_shm_describe_entry(const hal_shm_entry_t *entry, char *out, size_t size) {
  out[0] = '\0';
  hal_text_append(out, size, "%s #%llu", hal_comm_op_name(entry->op), (unsigned long long)entry->sequence);
  if (entry->op >= HAL_COMM_OPS) hal_text_append(out, size, " of number %u", (unsigned)entry->op);
  if (entry->op == HAL_COMM_BARRIER) return;
  hal_text_append(out, size, " (");
  if (hal_comm_op_reduces(entry->op) && entry->reduce < REDUCTIONS)
    hal_text_append(out, size, "%s, ", reduce_names[entry->reduce]);
  if (hal_comm_op_reduces(entry->op) && entry->reduce >= REDUCTIONS)
    hal_text_append(out, size, "reduction number %u, ", (unsigned)entry->reduce);
  hal_text_append(out, size, "%s, ", hal_dtype_name(entry->dtype));
  if (entry->uneven) hal_text_append(out, size, "uneven counts");
  if (!entry->uneven)
    hal_text_append(out, size, "%llu element%s", (unsigned long long)entry->count, entry->count == 1 ? "" : "s");
  if (hal_comm_op_has_root(entry->op)) hal_text_append(out, size, ", root %d", (int)entry->root);
  hal_text_append(out, size, ")");
}

void hal_shm_describe_call(const hal_shm_call_t *call, char *out, size_t size) {
  const hal_shm_entry_t entry = {.sequence = call->sequence,
                                 .op = call->op,
                                 .reduce = call->reduce,
                                 .dtype = call->dtype,
                                 .root = call->root,
                                 .uneven = (uint32_t)call->uneven,
                                 .count = call->count};
  hal_shm_describe_entry(&entry, out, size);
}

void hal_shm_describe_activity(const hal_shm_t *shm, char *out, size_t size) {
  if (shm->call) hal_shm_describe_call(shm->call, out, size);
  if (!shm->call) snprintf(out, size, "%s", shm->activity);
}

void hal_shm_append_last(const hal_shm_t *shm, int32_t rank, char *text, size_t size) {
  const hal_shm_rank_t *const page = hal_shm_page(shm, rank);
  const uint64_t called = atomic_load_explicit(&page->counters[HAL_SHM_CALLED], memory_order_acquire);
  const uint64_t messages = atomic_load_explicit(&page->messages, memory_order_acquire);
  char what[HAL_SHM_WHAT] = "none";
  /* The entry is overwritten only when all ranks have called the next collective, including this one. */
  if (called) hal_shm_describe_entry(&page->entries[called & 1], what, sizeof what);
  hal_text_append(text, size, "%s", what);
  if (!messages) return;
  const uint64_t last = atomic_load_explicit(&page->message, memory_order_relaxed);
  const uint64_t count = atomic_load_explicit(&page->message_count, memory_order_relaxed);
  hal_text_append(text, size, ", and its last message is %s #%llu (%s, %llu elements, rank %d, tag %u)",
                  hal_comm_op_name((uint32_t)(last & 0xff)), (unsigned long long)messages,
                  hal_dtype_name((hal_dtype_t)(last >> 8 & 0xff)), (unsigned long long)count, (int)(last >> 16 & 0xff),
                  (unsigned)(last >> 32));
}
