/* exchange.c: the collectives that copy: broadcast, all_gather, gather, scatter, all_to_all.
 *
 * In each round a rank copies the next piece of its block into its slot, and the others read it there. If it has
 * another block for each rank, its slot is divided among them. */
#include "comm/shm/internal.h"

typedef struct plan_s {
  const hal_shm_call_t *call;
  uint64_t rounds, first; /* `first`: rounds before this call */
  uint64_t piece;         /* elements of a block in a round */
  size_t stride;          /* bytes from one rank's piece to the next in a slot; 0: all ranks read the same piece */
  hal_shm_set_t from;     /* the other ranks that this one reads from */
  int gives;              /* another rank reads from this one */
} plan_t;

static plan_t plan_of(const hal_shm_t *shm, const hal_shm_call_t *call) {
  plan_t plan = {.call = call, .first = shm->round};
  const int divides = call->op == HAL_COMM_SCATTER || call->op == HAL_COMM_ALL_TO_ALL;
  const size_t part = divides ? HAL_SHM_SLOT / (size_t)shm->size / HAL_SHM_LINE * HAL_SHM_LINE : HAL_SHM_SLOT;
  plan.stride = divides ? part : 0;
  plan.piece = part / call->size;
  plan.rounds = (call->most + plan.piece - 1) / plan.piece;
  for (int32_t rank = 0; rank < shm->size; rank++) {
    if (rank == shm->rank) continue;
    if (call->take[rank]) plan.from |= HAL_SHM_BIT(rank);
    plan.gives |= call->give[rank] != 0;
  }
  return plan;
}

/* Returns the elements of a block in a round. */
static uint64_t piece_of(const plan_t *plan, uint64_t block, uint64_t round) {
  const uint64_t at = round * plan->piece;
  if (at >= block) return 0;
  return block - at < plan->piece ? block - at : plan->piece;
}

static hal_status_t fill(hal_shm_t *shm, const plan_t *plan, uint64_t round) {
  const uint64_t number = plan->first + round + 1;
  const hal_shm_call_t *const call = plan->call;
  if (number > HAL_SHM_SLOTS)
    HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DRAINED, number - HAL_SHM_SLOTS));
  unsigned char *const slot = hal_shm_slot(shm, shm->rank, number);
  for (int32_t rank = 0; rank < shm->size; rank++) {
    const uint64_t count = rank == shm->rank ? 0 : piece_of(plan, call->give[rank], round);
    if (!count) continue;
    HAL_RETURN_IF_ERROR(hal_shm_copy(shm, slot + (size_t)rank * plan->stride,
                                     call->send + (call->give_at[rank] + round * plan->piece) * call->size,
                                     count * call->size));
    if (!plan->stride) break;
  }
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_FILLED, number);
  return HAL_OK;
}

static hal_status_t take(hal_shm_t *shm, const plan_t *plan, uint64_t round) {
  const uint64_t number = plan->first + round + 1;
  const hal_shm_call_t *const call = plan->call;
  for (int32_t i = 1; i < shm->size; i++) {
    const int32_t rank = (shm->rank + i) % shm->size;
    const uint64_t count = piece_of(plan, call->take[rank], round);
    if (!count) continue;
    HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, HAL_SHM_BIT(rank), HAL_SHM_FILLED, number));
    HAL_RETURN_IF_ERROR(hal_shm_copy(shm, call->recv + (call->take_at[rank] + round * plan->piece) * call->size,
                                     hal_shm_slot(shm, rank, number) + (size_t)shm->rank * plan->stride,
                                     count * call->size));
  }
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  hal_shm_set(shm, HAL_SHM_DRAINED, number);
  return HAL_OK;
}

/* Copies the block that a rank has for itself. */
static hal_status_t copy_own(hal_shm_t *shm, const hal_shm_call_t *call) {
  if (!call->take[shm->rank]) return HAL_OK;
  const unsigned char *const from = call->send + call->give_at[shm->rank] * call->size;
  unsigned char *const to = call->recv + call->take_at[shm->rank] * call->size;
  return from == to ? HAL_OK : hal_shm_copy(shm, to, from, call->take[shm->rank] * call->size);
}

static hal_status_t move(hal_shm_t *shm, const plan_t *plan) {
  if (!plan->from) { /* this rank reads no slot of these rounds */
    hal_shm_set(shm, HAL_SHM_DRAINED, plan->first + plan->rounds);
    hal_shm_notify(shm);
  }
  for (uint64_t round = 0; round < plan->rounds; round++) {
    if (plan->gives && round + 1 < plan->rounds) {
      HAL_RETURN_IF_ERROR(fill(shm, plan, round + 1));
      hal_shm_notify(shm);
    }
    if (!plan->from) continue;
    HAL_RETURN_IF_ERROR(take(shm, plan, round));
    hal_shm_notify(shm);
  }
  return HAL_OK;
}

hal_status_t hal_shm_run_exchange(hal_shm_t *shm, hal_shm_call_t *call) {
  if (call->refused) return hal_shm_begin(shm, call);
  plan_t plan = plan_of(shm, call);
  if (plan.gives) HAL_RETURN_IF_ERROR(fill(shm, &plan, 0));
  HAL_RETURN_IF_ERROR(hal_shm_begin(shm, call));
  plan = plan_of(shm, call); /* uneven counts: the other ranks may have more rounds */
  HAL_RETURN_IF_ERROR(copy_own(shm, call));
  HAL_RETURN_IF_ERROR(move(shm, &plan));
  shm->round += plan.rounds;
  return hal_shm_finish(shm);
}
