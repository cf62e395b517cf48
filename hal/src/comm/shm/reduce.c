/* reduce.c: all_reduce, reduce and reduce_scatter.
 *
 * Each rank reduces one part of the elements of a round for all ranks. It copies the other ranks' parts into its slot,
 * and waits for theirs. It reduces its own part directly from its memory and from their slots. It writes this to its
 * result and to its own part of its slot, where the others read it. Every rank reduces all of a small result, which
 * saves one of the two waits. */
#include "comm/shm/internal.h"

/* How a call is divided. */
typedef struct plan_s {
  const hal_shm_call_t *call;
  uint64_t rounds, first; /* `first`: rounds before this call */
  uint64_t part;          /* elements of a rank in a round */
  int is_scatter;         /* reduce_scatter: a rank's part is its own block */
  int is_small;           /* each rank reduces all parts */
  int collects;           /* this rank needs the whole result */
} plan_t;

/* Rounds up to a number of elements that fills whole cache lines for every element size. */
static uint64_t aligned(uint64_t elements) { return (elements + HAL_SHM_LINE - 1) / HAL_SHM_LINE * HAL_SHM_LINE; }

static plan_t plan_of(const hal_shm_t *shm, const hal_shm_call_t *call) {
  const uint64_t ranks = (uint64_t)shm->size, slot = HAL_SHM_SLOT / call->size;
  const uint64_t most = slot / ranks / HAL_SHM_LINE * HAL_SHM_LINE; /* elements of a part that fit */
  plan_t plan = {.call = call, .first = shm->round, .is_scatter = call->op == HAL_COMM_REDUCE_SCATTER};
  plan.collects = call->op == HAL_COMM_ALL_REDUCE || (call->op == HAL_COMM_REDUCE && shm->rank == call->root);
  if (plan.is_scatter) {
    plan.part = most;
    plan.rounds = (call->most + most - 1) / most;
    return plan;
  }
  if (call->count * call->size <= HAL_SHM_SMALL / ranks) {
    plan.is_small = 1;
    plan.part = call->count;
    plan.rounds = call->count ? 1 : 0;
    return plan;
  }
  plan.rounds = (call->count + most * ranks - 1) / (most * ranks);
  plan.part = aligned((call->count + plan.rounds * ranks - 1) / (plan.rounds * ranks)); /* rounds of equal length */
  return plan;
}

/* Returns the elements of rank `rank` in a round, and where they start in `send`. In the slot they start at rank
 * * part. */
static uint64_t part_of(const hal_shm_t *shm, const plan_t *plan, int32_t rank, uint64_t round, uint64_t *out_at) {
  const uint64_t ranks = (uint64_t)shm->size;
  const uint64_t all = plan->is_scatter ? plan->call->give[rank] : plan->call->count;
  const uint64_t at = plan->is_scatter ? round * plan->part : (round * ranks + (uint64_t)rank) * plan->part;
  *out_at = at + (plan->is_scatter ? plan->call->give_at[rank] : 0);
  if (at >= all) return 0;
  return all - at < plan->part ? all - at : plan->part;
}

/* Copies the parts of the other ranks into the slot of a round, after all ranks have read its previous content. */
static hal_status_t fill(hal_shm_t *shm, const plan_t *plan, uint64_t round) {
  const uint64_t number = plan->first + round + 1;
  const size_t size = plan->call->size;
  if (number > HAL_SHM_SLOTS)
    HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DRAINED, number - HAL_SHM_SLOTS));
  unsigned char *const slot = hal_shm_slot(shm, shm->rank, number);
  for (int32_t rank = 0; rank < shm->size; rank++) {
    uint64_t at;
    if (rank == shm->rank) continue;
    const uint64_t count = part_of(shm, plan, rank, round, &at);
    if (count)
      HAL_RETURN_IF_ERROR(
          hal_shm_copy(shm, slot + (size_t)rank * plan->part * size, plan->call->send + at * size, count * size));
  }
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_FILLED, number);
  return HAL_OK;
}

static void scales_of(const hal_shm_t *shm, const hal_shm_call_t *call, const void **out) {
  for (int32_t rank = 0; rank < shm->size; rank++)
    out[rank] = hal_shm_page(shm, rank)->entries[call->sequence & 1].scale;
}

/* Reduces this rank's part of a round. */
static hal_status_t reduce(hal_shm_t *shm, const plan_t *plan, uint64_t round) {
  const uint64_t number = plan->first + round + 1;
  const size_t size = plan->call->size;
  const void *in[HAL_SHM_RANKS], *scales[HAL_SHM_RANKS];
  uint64_t at;
  const uint64_t count = part_of(shm, plan, shm->rank, round, &at);
  HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_FILLED, number));
  scales_of(shm, plan->call, scales);
  const size_t offset = (size_t)shm->rank * plan->part * size;
  for (int32_t rank = 0; rank < shm->size; rank++) in[rank] = hal_shm_slot(shm, rank, number) + offset;
  in[shm->rank] = plan->call->send + at * size;
  unsigned char *const slot = hal_shm_slot(shm, shm->rank, number) + offset;
  unsigned char *const recv = plan->call->recv + (plan->is_scatter ? round * plan->part : at) * size;
  const int keeps = plan->is_scatter || plan->collects;
  if (count)
    HAL_RETURN_IF_ERROR(hal_shm_combine(shm, plan->call, in, scales, (size_t)count, keeps ? recv : slot,
                                        keeps && !plan->is_scatter ? slot : NULL));
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_REDUCED, number);
  return HAL_OK;
}

/* Copies the parts that the others have reduced. */
static hal_status_t collect(hal_shm_t *shm, const plan_t *plan, uint64_t round) {
  const uint64_t number = plan->first + round + 1;
  const size_t size = plan->call->size;
  for (int32_t i = 1; plan->collects && i < shm->size; i++) {
    const int32_t rank = (shm->rank + i) % shm->size;
    uint64_t at;
    const uint64_t count = part_of(shm, plan, rank, round, &at);
    if (!count) continue;
    HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, HAL_SHM_BIT(rank), HAL_SHM_REDUCED, number));
    HAL_RETURN_IF_ERROR(hal_shm_copy(shm, plan->call->recv + at * size,
                                     hal_shm_slot(shm, rank, number) + (size_t)rank * plan->part * size, count * size));
  }
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_DRAINED, number);
  return HAL_OK;
}

static hal_status_t large(hal_shm_t *shm, const plan_t *plan) {
  for (uint64_t round = 0; round < plan->rounds; round++) {
    if (round + 1 < plan->rounds) {
      HAL_RETURN_IF_ERROR(fill(shm, plan, round + 1));
      hal_shm_notify(shm);
    }
    HAL_RETURN_IF_ERROR(reduce(shm, plan, round));
    if (!plan->is_scatter) hal_shm_notify(shm);
    HAL_RETURN_IF_ERROR(collect(shm, plan, round));
    hal_shm_notify(shm);
  }
  return HAL_OK;
}

/* ---- small results ---- */

static hal_status_t fill_small(hal_shm_t *shm, const plan_t *plan) {
  const uint64_t number = plan->first + 1;
  if (number > HAL_SHM_SLOTS)
    HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DRAINED, number - HAL_SHM_SLOTS));
  HAL_RETURN_IF_ERROR(
      hal_shm_copy(shm, hal_shm_slot(shm, shm->rank, number), plan->call->send, plan->call->count * plan->call->size));
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_FILLED, number);
  return HAL_OK;
}

/* Reduces all parts. Every rank has filled its slot before it called. */
static hal_status_t small(hal_shm_t *shm, const plan_t *plan) {
  const uint64_t number = plan->first + 1;
  const void *in[HAL_SHM_RANKS], *scales[HAL_SHM_RANKS];
  scales_of(shm, plan->call, scales);
  for (int32_t rank = 0; rank < shm->size; rank++) in[rank] = hal_shm_slot(shm, rank, number);
  if (plan->collects)
    HAL_RETURN_IF_ERROR(
        hal_shm_combine(shm, plan->call, in, scales, (size_t)plan->call->count, plan->call->recv, NULL));
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_DRAINED, number);
  hal_shm_notify(shm);
  return HAL_OK;
}

/* No data of the others is read, and no memory of the caller is written, before hal_shm_begin has compared the calls.
 * The first fill precedes it, and depends only on this rank's own call. */
hal_status_t hal_shm_run_reduction(hal_shm_t *shm, hal_shm_call_t *call) {
  plan_t plan = plan_of(shm, call);
  if (call->refused) return hal_shm_begin(shm, call);
  if (plan.rounds) HAL_RETURN_IF_ERROR(plan.is_small ? fill_small(shm, &plan) : fill(shm, &plan, 0));
  HAL_RETURN_IF_ERROR(hal_shm_begin(shm, call));
  plan = plan_of(shm, call); /* uneven counts: the other ranks may have more rounds */
  if (plan.is_small && plan.rounds) HAL_RETURN_IF_ERROR(small(shm, &plan));
  if (!plan.is_small) HAL_RETURN_IF_ERROR(large(shm, &plan));
  shm->round += plan.rounds;
  return HAL_OK;
}
