/* call.c: the beginning of a collective. Before data moves, every rank publishes its call, waits for the calls of the
 * others and compares them. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "comm/shm/internal.h"

static uint64_t fingerprint(const hal_shm_entry_t *entry) {
  const uint64_t words[] = {entry->op,      entry->reduce, (uint64_t)entry->dtype, (uint64_t)entry->root,
                            entry->refused, entry->count,  entry->length};
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a of words, with one final mix, because it is only compared */
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
  return hash;
}

static void show(hal_shm_t *shm, hal_shm_call_t *call) {
  hal_shm_entry_t *const entry = &hal_shm_page(shm, shm->rank)->entries[call->sequence & 1];
  entry->sequence = call->sequence;
  entry->op = call->op;
  entry->reduce = call->reduce;
  entry->dtype = call->dtype;
  entry->root = hal_comm_op_has_root(call->op) ? call->root : 0;
  entry->refused = (uint32_t)call->refused;
  entry->uneven = (uint32_t)call->uneven;
  entry->count = call->count;
  entry->length = shm->length;
  if (call->reduce == HAL_REDUCE_PREMUL_SUM && call->scale)
    memcpy(entry->scale, call->scale, call->dtype == HAL_FLOAT64 ? sizeof(double) : sizeof(float));
  if (call->uneven) {
    memcpy(entry->give, call->give, (size_t)shm->size * sizeof(uint64_t));
    memcpy(entry->take, call->take, (size_t)shm->size * sizeof(uint64_t));
  }
  entry->fingerprint = fingerprint(entry);
}

static const hal_shm_entry_t *entry_of(const hal_shm_t *shm, int32_t rank, uint64_t sequence) {
  return &hal_shm_page(shm, rank)->entries[sequence & 1];
}

/* Returns the elements that rank `from` has for rank `to`, by its entry. */
static uint64_t given(const hal_shm_entry_t *entry, int32_t from, int32_t to) {
  switch (entry->op) {
    case HAL_COMM_BROADCAST:
      return from == entry->root ? entry->count : 0;
    case HAL_COMM_GATHER:
      return to == entry->root ? entry->count : 0;
    case HAL_COMM_ALL_GATHER:
      return entry->count;
    case HAL_COMM_SCATTER:
      return from != entry->root ? 0 : entry->uneven ? entry->give[to] : entry->count;
    default:
      return entry->uneven ? entry->give[to] : entry->count;
  }
}

/* Returns the elements that rank `to` expects from rank `from`, by its entry. */
static uint64_t taken(const hal_shm_entry_t *entry, int32_t from, int32_t to) {
  switch (entry->op) {
    case HAL_COMM_BROADCAST:
    case HAL_COMM_SCATTER:
      return from == entry->root ? entry->count : 0;
    case HAL_COMM_GATHER:
      return to != entry->root ? 0 : entry->uneven ? entry->take[from] : entry->count;
    case HAL_COMM_REDUCE_SCATTER:
      return entry->count;
    default:
      return entry->uneven ? entry->take[from] : entry->count;
  }
}

static hal_status_t differ(hal_shm_t *shm, int32_t one, int32_t other, uint64_t sequence) {
  char first[HAL_SHM_WHAT], second[HAL_SHM_WHAT];
  hal_shm_describe_entry(entry_of(shm, one, sequence), first, sizeof first);
  hal_shm_describe_entry(entry_of(shm, other, sequence), second, sizeof second);
  return hal_shm_fail(shm, HAL_INVALID_ARGUMENT,
                      "the calls do not match: rank %d called %s, rank %d called %s; all ranks have to call the same "
                      "collectives in the same order",
                      (int)one, first, (int)other, second);
}

static void describe_bracket(const hal_shm_entry_t *entry, char *out, size_t size) {
  char what[HAL_SHM_WHAT];
  hal_shm_describe_entry(entry, what, sizeof what);
  if (entry->length == 1)
    snprintf(out, size, "one collective, %s", what);
  else
    snprintf(out, size, "a bracket of %u collectives that begins with %s", (unsigned)entry->length, what);
}

/* Without this comparison the rank with the longer bracket would wait for its timeout. */
static hal_status_t differ_in_length(hal_shm_t *shm, int32_t other, uint64_t sequence) {
  char first[HAL_SHM_WHAT + 64], second[HAL_SHM_WHAT + 64];
  describe_bracket(entry_of(shm, 0, sequence), first, sizeof first);
  describe_bracket(entry_of(shm, other, sequence), second, sizeof second);
  return hal_shm_fail(shm, HAL_INVALID_ARGUMENT,
                      "the calls do not match: rank 0 called %s, rank %d called %s; all ranks have to call the same "
                      "collectives in the same order",
                      first, (int)other, second);
}

/* Compares the counts of all pairs of ranks. Every rank compares all of them, so that all return the same error. The
 * block that a rank has for itself needs no round. */
static hal_status_t compare_blocks(hal_shm_t *shm, hal_shm_call_t *call) {
  call->most = 0;
  for (int32_t from = 0; from < shm->size; from++)
    for (int32_t to = 0; to < shm->size; to++) {
      const uint64_t gives = given(entry_of(shm, from, call->sequence), from, to);
      const uint64_t takes = taken(entry_of(shm, to, call->sequence), from, to);
      if (gives > call->most && from != to) call->most = gives;
      if (gives == takes) continue;
      char first[HAL_SHM_WHAT], second[HAL_SHM_WHAT];
      hal_shm_describe_entry(entry_of(shm, from, call->sequence), first, sizeof first);
      hal_shm_describe_entry(entry_of(shm, to, call->sequence), second, sizeof second);
      return hal_shm_fail(
          shm, HAL_INVALID_ARGUMENT,
          "the calls do not match: rank %d called %s and has %llu elements for rank %d, which called %s and takes %llu",
          (int)from, first, (unsigned long long)gives, (int)to, second, (unsigned long long)takes);
    }
  return HAL_OK;
}

static hal_status_t compare(hal_shm_t *shm, hal_shm_call_t *call) {
  const hal_shm_entry_t *const first = entry_of(shm, 0, call->sequence);
  int is_even = !first->uneven;
  for (int32_t rank = 1; rank < shm->size; rank++) {
    const hal_shm_entry_t *const entry = entry_of(shm, rank, call->sequence);
    if (entry->fingerprint == first->fingerprint && entry->uneven == first->uneven) continue;
    if (entry->length != first->length) return differ_in_length(shm, rank, call->sequence);
    const int same = entry->op == first->op && entry->reduce == first->reduce && entry->dtype == first->dtype &&
                     entry->root == first->root && entry->refused == first->refused;
    if (!same || first->op == HAL_COMM_ALL_REDUCE || first->op == HAL_COMM_REDUCE || first->op == HAL_COMM_BROADCAST)
      return differ(shm, 0, rank, call->sequence);
    is_even = 0;
  }
  return is_even ? HAL_OK : compare_blocks(shm, call);
}

static hal_status_t refuse(const hal_shm_call_t *call) {
  char what[HAL_SHM_WHAT];
  hal_shm_describe_call(call, what, sizeof what);
  if (call->op > HAL_COMM_SCATTER)
    return hal_error_set(HAL_UNIMPLEMENTED, "%s: unknown operator number %u", what, (unsigned)call->op);
  return hal_error_set(HAL_UNIMPLEMENTED, "%s: this reduction of %s is not implemented; %s", what,
                       hal_dtype_name(call->dtype), hal_shm_reducer_supported(call->dtype));
}

hal_status_t hal_shm_begin(hal_shm_t *shm, hal_shm_call_t *call) {
  show(shm, call);
  shm->sequence = call->sequence;
  hal_shm_set(shm, HAL_SHM_CALLED, call->sequence);
  hal_shm_notify(shm);
  HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_CALLED, call->sequence));
  HAL_RETURN_IF_ERROR(compare(shm, call));
  return call->refused ? refuse(call) : HAL_OK;
}
