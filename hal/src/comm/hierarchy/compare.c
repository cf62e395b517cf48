/* compare.c: compares the ranks' calls before data moves. Each rank sends one record of its bracket to all ranks. If
 * the records are equal and no rank has arrays of counts, the comparison is complete. Otherwise the ranks exchange each
 * call of the bracket. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/text.h"
#include "comm/hierarchy/internal.h"
#include "comm/shm/internal.h"

enum { REASON = 256 };

typedef struct record_s {
  uint64_t first; /* number of the first call */
  uint64_t fingerprint;
  uint32_t length, details; /* `details`: a call is refused or has arrays */
  int32_t code;             /* the error that only this rank has found in its calls */
  uint32_t reserved;
} record_t;

static hal_hier_entry_t entry_of(const hal_collective_t *call, int refused) {
  hal_hier_entry_t entry = {.op = call->op, .refused = (uint32_t)refused};
  if (call->op == HAL_COMM_BARRIER) return entry;
  entry.reduce = hal_comm_op_reduces(call->op) ? call->reduce : 0;
  entry.dtype = (int32_t)call->dtype;
  entry.root = hal_comm_op_has_root(call->op) ? call->peer : 0;
  entry.count = call->count;
  return entry;
}

static int is_uneven(const hal_hier_t *hier, const hal_collective_t *call) {
  if (call->op >= HAL_COMM_OPS) return 0;
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const int is_root = call->peer == hier->at.rank;
  return (op->send == HAL_COMM_EACH && call->send_counts && (!op->root_sends || is_root)) ||
         (op->recv == HAL_COMM_EACH && call->recv_counts && (!op->root_receives || is_root));
}

static uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 29);
}

static record_t record_of(const hal_hier_t *hier, const hal_collective_t *calls, uint32_t count, char *reason) {
  record_t record = {.first = hier->sequence + 1, .length = count, .fingerprint = UINT64_C(0xcbf29ce484222325)};
  for (uint32_t i = 0; i < count; i++) {
    const hal_status_t status = hal_comm_check(hier->shape, &calls[i]);
    const hal_hier_entry_t entry = entry_of(&calls[i], status == HAL_UNIMPLEMENTED);
    const uint64_t words[] = {entry.op, entry.reduce, (uint64_t)entry.dtype, (uint64_t)entry.root, entry.count};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) record.fingerprint = mixed(record.fingerprint, words[w]);
    record.details |= entry.refused || is_uneven(hier, &calls[i]);
    if (!status || status == HAL_UNIMPLEMENTED || record.code) continue;
    record.code = status;
    snprintf(reason, REASON, "%s", hal_error_message());
  }
  return record;
}

/* ---- text ---- */

static void describe(const hal_hier_entry_t *entry, uint64_t number, char *out) {
  const hal_shm_entry_t shown = {.sequence = number,
                                 .op = entry->op,
                                 .reduce = entry->reduce,
                                 .dtype = entry->dtype,
                                 .root = entry->root,
                                 .uneven = entry->uneven,
                                 .count = entry->count};
  hal_shm_describe_entry(&shown, out, HAL_HIER_WHAT);
}

static hal_status_t differ(hal_hier_run_t *run, const hal_hier_entry_t *entries, int32_t rank, uint64_t number) {
  char first[HAL_HIER_WHAT], other[HAL_HIER_WHAT], text[HAL_HIER_TEXT] = "";
  describe(&entries[0], number, first);
  describe(&entries[rank], number, other);
  hal_text_append(text, sizeof text,
                  "the calls do not match: rank 0 called %s, rank %d called %s; all ranks have to call the same "
                  "collectives in the same order",
                  first, (int)rank, other);
  return hal_hier_fail(run->hier, HAL_INVALID_ARGUMENT, text);
}

/* ---- one call of all ranks ---- */

static int count_may_differ(uint32_t op) {
  return op == HAL_COMM_ALL_GATHER || op == HAL_COMM_REDUCE_SCATTER || op == HAL_COMM_ALL_TO_ALL ||
         op == HAL_COMM_GATHER || op == HAL_COMM_SCATTER;
}

static hal_status_t compare_entries(hal_hier_run_t *run, const hal_hier_entry_t *entries, uint64_t number,
                                    int *out_uneven) {
  const hal_hier_entry_t *const first = &entries[0];
  const int32_t size = run->hier->at.size;
  int uneven = 0;
  for (int32_t rank = 0; rank < size; rank++) uneven |= entries[rank].uneven != 0;
  for (int32_t rank = 1; rank < size; rank++) {
    const hal_hier_entry_t *const entry = &entries[rank];
    if (entry->op != first->op || entry->reduce != first->reduce || entry->dtype != first->dtype ||
        entry->root != first->root || entry->refused != first->refused)
      return differ(run, entries, rank, number);
    if (entry->count != first->count && !(uneven && count_may_differ(first->op)))
      return differ(run, entries, rank, number);
  }
  *out_uneven = uneven;
  return HAL_OK;
}

/* Fills in the numbers of elements that this rank sends to and receives from each rank. */
static void fill_arrays(const hal_hier_t *hier, const hal_collective_t *call, uint64_t *give, uint64_t *take) {
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const int is_root = call->peer == hier->at.rank;
  for (int32_t rank = 0; rank < hier->at.size; rank++) {
    const int with_root = rank == call->peer;
    const uint64_t gives = op->send == HAL_COMM_EACH && call->send_counts ? call->send_counts[rank] : call->count;
    const uint64_t takes = op->recv == HAL_COMM_EACH && call->recv_counts ? call->recv_counts[rank] : call->count;
    give[rank] = (op->root_sends && !is_root) || (op->root_receives && !with_root) ? 0 : gives;
    take[rank] = (op->root_receives && !is_root) || (op->root_sends && !with_root) ? 0 : takes;
  }
}

static hal_status_t compare_arrays(hal_hier_run_t *run, const uint64_t *arrays, const hal_hier_entry_t *entries,
                                   uint64_t number) {
  const size_t size = (size_t)run->hier->at.size;
  for (size_t from = 0; from < size; from++)
    for (size_t to = 0; to < size; to++) {
      const uint64_t gives = arrays[from * 2 * size + to], takes = arrays[(to * 2 + 1) * size + from];
      char first[HAL_HIER_WHAT], second[HAL_HIER_WHAT], text[HAL_HIER_TEXT] = "";
      if (gives == takes) continue;
      describe(&entries[from], number, first);
      describe(&entries[to], number, second);
      hal_text_append(text, sizeof text,
                      "the calls do not match: rank %d called %s and has %llu elements for rank %d, which called %s "
                      "and takes %llu",
                      (int)from, first, (unsigned long long)gives, (int)to, second, (unsigned long long)takes);
      return hal_hier_fail(run->hier, HAL_INVALID_ARGUMENT, text);
    }
  return HAL_OK;
}

/* Exchanges the counts of a call, and stores them in the call. */
static hal_status_t share_arrays(hal_hier_run_t *run, hal_hier_call_t *call, const hal_hier_entry_t *entries,
                                 uint64_t number) {
  const size_t size = (size_t)run->hier->at.size, row = 2 * size * sizeof(uint64_t);
  const void *all;
  uint64_t *const own = hal_malloc(row);
  call->arrays = hal_malloc(size * row);
  hal_status_t status = HAL_OK;
  if (own && call->arrays) {
    fill_arrays(run->hier, &call->desc, own, own + size);
    status = hal_hier_share(run, own, row, &all);
    if (!status) memcpy(call->arrays, all, size * row);
    if (!status) status = compare_arrays(run, call->arrays, entries, number);
  } else {
    hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the counts of %zu ranks", size);
    status = hal_hier_fail_by_last(run, HAL_RESOURCE_EXHAUSTED);
  }
  hal_free(own);
  return status;
}

static hal_status_t compare_call(hal_hier_run_t *run, hal_hier_call_t *call, uint64_t number) {
  hal_hier_t *const hier = run->hier;
  const size_t bytes = (size_t)hier->at.size * sizeof(hal_hier_entry_t);
  const hal_status_t checked = hal_comm_check(hier->shape, &call->desc);
  hal_hier_entry_t own = entry_of(&call->desc, checked == HAL_UNIMPLEMENTED);
  const void *all;
  int uneven = 0;
  own.uneven = (uint32_t)is_uneven(hier, &call->desc);
  HAL_RETURN_IF_ERROR(hal_hier_share(run, &own, sizeof own, &all));
  hal_hier_entry_t *const entries = hal_malloc(bytes);
  if (!entries) {
    hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the calls of %d ranks", (int)hier->at.size);
    return hal_hier_fail_by_last(run, HAL_RESOURCE_EXHAUSTED);
  }
  memcpy(entries, all, bytes);
  hal_status_t status = compare_entries(run, entries, number, &uneven);
  if (!status && own.refused) status = hal_comm_check(hier->shape, &call->desc); /* all ranks refuse it */
  if (!status && uneven) status = share_arrays(run, call, entries, number);
  hal_free(entries);
  return status;
}

/* ---- the bracket ---- */

static hal_status_t fail_by_reason(hal_hier_run_t *run, const char *reason, int32_t rank, int32_t code) {
  char text[HAL_HIER_TEXT] = "";
  const void *all;
  HAL_RETURN_IF_ERROR(hal_hier_share(run, reason, REASON, &all));
  hal_text_append(text, sizeof text, "rank %d: %.*s", (int)rank, REASON - 1, (const char *)all + (size_t)rank * REASON);
  return hal_hier_fail(run->hier, code, text);
}

static hal_status_t fail_by_length(hal_hier_run_t *run, uint64_t number, uint32_t first, int32_t rank, uint32_t other) {
  char text[HAL_HIER_TEXT] = "";
  hal_text_append(text, sizeof text,
                  "the calls do not match: from collective #%llu on, rank 0 called a bracket of %u, rank %d one of %u; "
                  "all ranks have to call the same collectives in the same order",
                  (unsigned long long)number, first, (int)rank, other);
  return hal_hier_fail(run->hier, HAL_INVALID_ARGUMENT, text);
}

static hal_status_t compare_all(hal_hier_run_t *run, hal_hier_call_t *calls, uint32_t count, const record_t *records,
                                const char *reason) {
  const uint64_t number = records[0].first;
  const uint32_t length = records[0].length;
  uint32_t least = count, other = count;
  int32_t differs = 0;
  for (int32_t rank = 0; rank < run->hier->at.size; rank++) {
    if (records[rank].code) return fail_by_reason(run, reason, rank, records[rank].code);
    if (records[rank].length < least) least = records[rank].length;
    if (!differs && records[rank].length != length) differs = rank, other = records[rank].length;
  }
  /* The next share overwrites the records. */
  for (uint32_t i = 0; i < least; i++) HAL_RETURN_IF_ERROR(compare_call(run, &calls[i], number + i));
  return differs ? fail_by_length(run, number, length, differs, other) : HAL_OK;
}

hal_status_t hal_hier_compare(hal_hier_run_t *run, const hal_collective_t *calls, uint32_t count,
                              hal_hier_call_t *out) {
  char reason[REASON] = "";
  const record_t own = record_of(run->hier, calls, count, reason);
  const void *all;
  int is_equal = 1;
  for (uint32_t i = 0; i < count; i++) {
    out[i].desc = calls[i];
    out[i].size = calls[i].op == HAL_COMM_BARRIER ? 1 : hal_dtype_size(calls[i].dtype);
  }
  HAL_RETURN_IF_ERROR(hal_hier_share(run, &own, sizeof own, &all));
  const record_t *const records = all;
  for (int32_t rank = 0; rank < run->hier->at.size; rank++)
    is_equal &= records[rank].fingerprint == own.fingerprint && records[rank].length == count && !records[rank].code &&
                !records[rank].details;
  return is_equal ? HAL_OK : compare_all(run, out, count, records, reason);
}

void hal_hier_calls_free(hal_hier_call_t *calls, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) hal_free(calls[i].arrays);
}

/* ---- blocks ---- */

uint64_t hal_hier_gives(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t from, int32_t to) {
  const hal_comm_op_t *const op = &hal_comm_ops[call->desc.op];
  if (call->arrays) return call->arrays[(size_t)from * 2 * (size_t)hier->at.size + (size_t)to];
  if ((op->root_sends && from != call->desc.peer) || (op->root_receives && to != call->desc.peer)) return 0;
  return call->desc.count;
}

static uint64_t starts_at(const uint64_t *counts, const uint64_t *displs, uint64_t count, int32_t rank) {
  uint64_t at = 0;
  if (displs) return displs[rank];
  if (!counts) return count * (uint64_t)rank;
  for (int32_t i = 0; i < rank; i++) at += counts[i];
  return at;
}

uint64_t hal_hier_send_at(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t to) {
  (void)hier;
  const hal_collective_t *const desc = &call->desc;
  if (hal_comm_ops[desc->op].send != HAL_COMM_EACH) return 0;
  return starts_at(desc->send_counts, desc->send_displs, desc->count, to);
}

uint64_t hal_hier_recv_at(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t from) {
  (void)hier;
  const hal_collective_t *const desc = &call->desc;
  if (hal_comm_ops[desc->op].recv != HAL_COMM_EACH) return 0;
  return starts_at(desc->recv_counts, desc->recv_displs, desc->count, from);
}
