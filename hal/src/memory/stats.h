/* stats.h: the allocator's counters. Private to hal/src.
 *
 * torch reports, per quantity and pool, current, peak, allocated (sum of all increases) and freed (sum of all
 * decreases). Values that follow from others are not stored: freed = allocated - growth of current, the sum of the
 * pools, and `active` = allocated blocks plus released ones that wait for events. So a release is one subtraction per
 * quantity. */
#ifndef HAL_SRC_MEMORY_STATS_H_
#define HAL_SRC_MEMORY_STATS_H_

#include "base/likely.h"
#include "hal/memory.h"

enum { HAL_MEM_SMALL = 0, HAL_MEM_LARGE = 1 };

enum {
  HAL_MEM_ALLOCATION = 0,
  HAL_MEM_ALLOCATED_BYTES,
  HAL_MEM_REQUESTED_BYTES,
  HAL_MEM_INACTIVE_SPLIT,
  HAL_MEM_INACTIVE_SPLIT_BYTES,
  HAL_MEM_SEGMENT,
  HAL_MEM_RESERVED_BYTES,
  HAL_MEM_PENDING_BLOCKS, /* released, waiting for events; the `allocated` of these two stays 0 */
  HAL_MEM_PENDING_BYTES,
  HAL_MEM_OVERSIZE_ALLOCATIONS,
  HAL_MEM_OVERSIZE_SEGMENTS,
  HAL_MEM_QUANTITIES
};

typedef struct hal_mem_counter_s {
  int64_t current, peak, allocated;
  int64_t base; /* `current` when `allocated` was last reset */
} hal_mem_counter_t;

typedef struct hal_mem_stats_s {
  hal_mem_counter_t counter[2][HAL_MEM_QUANTITIES]; /* by kind */
  int64_t peak[HAL_MEM_QUANTITIES];                 /* of the sum of both kinds */
  /* Peaks of active that were reached while blocks were pending; otherwise active equals allocated. */
  int64_t active_peak[HAL_POOL_COUNT], active_bytes_peak[HAL_POOL_COUNT];
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
} hal_mem_stats_t;

static inline int64_t hal_mem_stat_current(const hal_mem_stats_t *stats, int quantity) {
  return stats->counter[0][quantity].current + stats->counter[1][quantity].current;
}

static inline void hal_mem_stat_increase(hal_mem_stats_t *stats, uint32_t kind, int quantity, int64_t amount) {
  hal_mem_counter_t *counter = &stats->counter[kind][quantity];
  const int64_t current = counter->current + amount, all = current + stats->counter[kind ^ 1][quantity].current;
  counter->current = current;
  counter->allocated += amount;
  if (HAL_UNLIKELY(current > counter->peak)) counter->peak = current;
  if (HAL_UNLIKELY(all > stats->peak[quantity])) stats->peak[quantity] = all;
}

static inline void hal_mem_stat_decrease(hal_mem_stats_t *stats, uint32_t kind, int quantity, int64_t amount) {
  stats->counter[kind][quantity].current -= amount;
}

/* Changes a quantity by an amount of either sign. */
static inline void hal_mem_stat_change(hal_mem_stats_t *stats, uint32_t kind, int quantity, int64_t amount) {
  if (amount > 0) {
    hal_mem_stat_increase(stats, kind, quantity, amount);
  } else {
    hal_mem_stat_decrease(stats, kind, quantity, -amount);
  }
}

/* Records the peaks of `active`; called after every allocation while blocks are pending. */
void hal_mem_stats_note_active(hal_mem_stats_t *stats);

void hal_mem_stats_read(const hal_mem_stats_t *stats, hal_memory_stats_t *out_stats);
void hal_mem_stats_reset_peak(hal_mem_stats_t *stats);
void hal_mem_stats_reset_accumulated(hal_mem_stats_t *stats);

#endif /* HAL_SRC_MEMORY_STATS_H_ */
