/* error.c: the message of an out-of-memory error. It must show whether memory is exhausted, fragmented, or used by
 * another process, and name the setting to change. */
#include <stdio.h>

#include "memory/history.h"
#include "memory/pool.h"

/* A human-readable size: "512 bytes", "1.50 MiB". */
typedef struct readable_s {
  char text[32];
} readable_t;

static readable_t readable(size_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  readable_t out;
  if (bytes < HAL_MEM_KIB) {
    snprintf(out.text, sizeof(out.text), "%zu bytes", bytes);
    return out;
  }
  double value = (double)bytes / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++) value /= 1024;
  snprintf(out.text, sizeof(out.text), "%.2f %s", value, units[unit]);
  return out;
}

/* The values in the message. */
typedef struct accounts_s {
  size_t size, total, free; /* total 0 = unknown */
  size_t allocated, reserved;
  size_t largest, inactive, limit; /* largest free block, inactive split bytes */
  size_t split;                    /* max_split_size */
} accounts_t;

static size_t largest_free(hal_allocator_t *allocator) {
  size_t largest = 0;
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    for (int kind = 0; kind < 2; kind++) {
      hal_mem_pool_t *pool = hal_mem_own_pool(allocator, id, kind);
      if (!pool) continue;
      hal_mem_pool_file_recent(pool);
      if (!pool->rows) continue;
      const uint32_t row = 63 - (uint32_t)__builtin_clzll(pool->rows);
      const hal_block_t *block = pool->bins[row * 64 + 63 - (uint32_t)__builtin_clzll(pool->bits[row])];
      for (; block; block = block->u.bin.next) largest = block->size > largest ? block->size : largest;
    }
  }
  return largest;
}

static accounts_t take_accounts(hal_allocator_t *allocator, size_t size) {
  accounts_t accounts = {.size = size};
  if (hal_memory_info(allocator->device->index, &accounts.free, &accounts.total)) accounts.free = accounts.total = 0;
  hal_lock(&allocator->lock);
  accounts.allocated = (size_t)hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATED_BYTES);
  accounts.reserved = (size_t)hal_mem_reserved(allocator);
  accounts.inactive = (size_t)hal_mem_stat_current(&allocator->stats, HAL_MEM_INACTIVE_SPLIT_BYTES);
  accounts.largest = largest_free(allocator);
  accounts.limit = allocator->limit;
  accounts.split = allocator->config.max_split_size;
  hal_mem_history_exhausted(allocator, size, accounts.free);
  hal_unlock(&allocator->lock);
  return accounts;
}

/* Writes the advice. */
static void advise(const hal_allocator_t *allocator, const accounts_t *accounts, char *text, size_t size) {
  const size_t unused = accounts->reserved > accounts->allocated ? accounts->reserved - accounts->allocated : 0;
  const size_t split = accounts->split;
  const int can_expand = allocator->device->info.virtual_granularity && !allocator->config.expandable_segments;
  char setting[64] = "expandable_segments:True";
  if (!can_expand)
    snprintf(setting, sizeof(setting), "max_split_size_mb:%zu",
             accounts->size / HAL_MEM_MIB > 20 ? accounts->size / HAL_MEM_MIB : (size_t)20);
  if (accounts->size > INT64_MAX) {
    snprintf(text, size, "No device has so much: the size is probably the result of an overflow or a negative number.");
  } else if (accounts->limit && (!accounts->total || accounts->limit <= accounts->total) &&
             (accounts->size > accounts->limit || accounts->allocated > accounts->limit - accounts->size)) {
    snprintf(text, size,
             "The limit of %s set for this process stops it: raise it (set_per_process_memory_fraction in torch, "
             "hal_memory_set_limit in C) or free blocks.",
             readable(accounts->limit).text);
  } else if (unused >= accounts->size && split == SIZE_MAX) {
    snprintf(text, size,
             "%s are reserved but unused, in pieces too small for this: set PYTORCH_ALLOC_CONF=%s, or empty the cache "
             "between phases of the program.",
             readable(unused).text, setting);
  } else if (unused >= accounts->size) {
    snprintf(text, size,
             "%s are reserved but unused, in pieces too small for this: lower max_split_size_mb (now %zu) in "
             "PYTORCH_ALLOC_CONF.",
             readable(unused).text, split / HAL_MEM_MIB);
  } else if (accounts->total && accounts->total - accounts->free > accounts->reserved &&
             accounts->total - accounts->free - accounts->reserved >= accounts->size) {
    snprintf(text, size, "%s are held outside of this allocator, by other libraries or processes.",
             readable(accounts->total - accounts->free - accounts->reserved).text);
  } else {
    snprintf(text, size, "Free blocks that are no longer needed, or work on smaller pieces.");
  }
}

hal_status_t hal_mem_error_exhausted(hal_allocator_t *allocator, const char *what, size_t size, const char *cause) {
  const accounts_t accounts = take_accounts(allocator, size);
  char advice[320], total[80];
  advise(allocator, &accounts, advice, sizeof(advice));
  if (accounts.total) {
    snprintf(total, sizeof(total), "total %s, free %s", readable(accounts.total).text, readable(accounts.free).text);
  } else {
    snprintf(total, sizeof(total), "total and free unknown");
  }
  hal_error_set(HAL_RESOURCE_EXHAUSTED,
                "out of memory. Tried to %s %s on device %s; %s, allocated %s, reserved %s, largest free block %s, "
                "inactive split blocks %s. %s%s%s%s",
                what, readable(size).text, allocator->device->label, total, readable(accounts.allocated).text,
                readable(accounts.reserved).text, readable(accounts.largest).text, readable(accounts.inactive).text,
                advice, *cause ? " (" : "", cause, *cause ? ")" : "");
  hal_mem_observers_run(allocator, size, accounts.limit ? accounts.limit : accounts.total, accounts.free);
  return HAL_RESOURCE_EXHAUSTED;
}
