/* access.c: see access.h. Memory is found by address: areas are sorted, each with a list of its accesses. */
#include "fusion/access.h"

#include <stdlib.h>
#include <string.h>

#include "capture/span.h"
#include "device/kernel_error.h"
#include "fusion/fuse.h"
#include "hal/host_memory.h"
#include "hal_op_ids.h"

enum {
  SCRATCH_AHEAD = 64, /* number of commands after a launch by which its operator has released its scratch memory */
  MOST_LOOKED =
      512 /* maximum number of accesses of one area that are examined, so that memory that many commands share takes
           * bounded time */
};

/* ---- accesses of commands ---------------------------------------------------------------------------------------- */

/* The list under construction: the accesses of one command after another. */
typedef struct listing_s {
  hal_accesses_t *accesses;
  hal_fuse_t *fuse;
  const hal_command_list_t *list;
  uint32_t command;
  int failed;
} listing_t;

static int fits(void **items, uint32_t wanted, uint32_t *room, size_t size) {
  if (wanted <= *room) return 1;
  void *const grown = hal_malloc((size_t)wanted * 2 * size);
  if (!grown) return 0;
  if (*room) memcpy(grown, *items, *room * size);
  hal_free(*items);
  *items = grown;
  *room = wanted * 2;
  return 1;
}

static void put(listing_t *listing, uint64_t low, uint64_t high, uint32_t how) {
  hal_accesses_t *const accesses = listing->accesses;
  if (low >= high) return;
  if (!fits((void **)&accesses->access, accesses->count + 1, &accesses->room, sizeof *accesses->access)) {
    listing->failed = 1;
    return;
  }
  accesses->access[accesses->count++] =
      (hal_access_t){.low = low, .high = high, .command = listing->command, .how = how, .next = HAL_NO_ACCESS};
}

static void put_bytes(listing_t *listing, const void *address, uint64_t size, uint32_t how) {
  put(listing, (uint64_t)(uintptr_t)address, (uint64_t)(uintptr_t)address + size, how);
}

/* Lists the scratch memory that contains an address, by its release after the launch. Returns 0 if there is none. */
static int put_scratch(listing_t *listing, const char *address) {
  const hal_command_list_t *const list = listing->list;
  for (uint32_t i = listing->command + 1; i < list->command_count && i < listing->command + SCRATCH_AHEAD; i++) {
    const hal_command_t *const command = &list->commands[i];
    if (command->kind != HAL_COMMAND_FREED) continue;
    const char *const low = command->u.freed.address;
    if (address < low || address >= low + command->u.freed.size) continue;
    put_bytes(listing, low, command->u.freed.size, HAL_ACCESS_WRITES);
    return 1;
  }
  return 0;
}

/* Returns whether an address is that of an operand, or of a report that only this operator uses. */
static int is_known(const listing_t *listing, const hal_program_op_t *op, const void *address) {
  const uint64_t at = (uint64_t)(uintptr_t)address;
  for (uint32_t i = 0; i < op->span_count; i++)
    if (op->spans[i].low <= at && at < op->spans[i].high) return 1;
  return !address || hal_kernel_error_holds(listing->fuse->device, address);
}

/* Lists the accesses of a launch whose operator's call has its operands: these, and scratch memory that the operator
 * releases. Returns 0 if there are other addresses. */
static int put_launch(listing_t *listing, const hal_program_op_t *op, const hal_launch_t *launch) {
  if (!op->spans) return 0;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    if (launch->args[i].kind != HAL_ARG_POINTER) continue;
    const char *const address = *(char *const *)launch->args[i].value;
    if (!is_known(listing, op, address) && !put_scratch(listing, address)) return 0;
  }
  for (uint32_t i = 0; i < op->span_count; i++)
    put(listing, op->spans[i].low, op->spans[i].high, op->spans[i].writes ? HAL_ACCESS_WRITES : HAL_ACCESS_READS);
  return 1;
}

static void put_results(listing_t *listing, const hal_op_call_t *call) {
  uint64_t low, high;
  for (uint32_t i = 0; i < call->result_count; i++)
    if (call->results[i] && hal_span_of_tensor(call->results[i], &low, &high) > 0)
      put(listing, low, high, HAL_ACCESS_WRITES);
}

/* Lists the accesses of a command; returns 0 if they are not completely known. */
static int put_command(listing_t *listing) {
  const hal_command_t *const command = &listing->list->commands[listing->command];
  const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &listing->list->ops[command->op];
  hal_span_t spans[CHAIN_OPERANDS];
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH: {
      const uint32_t count = op ? hal_fuse_spans(listing->fuse, listing->list, command, spans) : 0;
      for (uint32_t i = 0; i < count; i++)
        put(listing, spans[i].low, spans[i].high, spans[i].writes ? HAL_ACCESS_WRITES : HAL_ACCESS_READS);
      return count || (op && put_launch(listing, op, command->u.launch.launch));
    }
    case HAL_COMMAND_COPY:
      put_bytes(listing, command->u.copy.src, command->u.copy.size, HAL_ACCESS_READS);
      put_bytes(listing, command->u.copy.dst, command->u.copy.size, HAL_ACCESS_WRITES);
      return 1;
    case HAL_COMMAND_FILL:
      put_bytes(listing, command->u.fill.dst, command->u.fill.size, HAL_ACCESS_WRITES);
      return 1;
    case HAL_COMMAND_RANDOM:
      put_bytes(listing, command->u.random->dst, command->u.random->count * hal_dtype_size(command->u.random->dtype),
                HAL_ACCESS_WRITES);
      return 1;
    case HAL_COMMAND_FREED:
      put_bytes(listing, command->u.freed.address, command->u.freed.size, HAL_ACCESS_FREES);
      return 1;
    case HAL_COMMAND_OWN_OP:
      put_results(listing, command->u.own_op.call);
      return 0; /* functions of the plugin and of the host have unknown memory effects */
    default:
      return 0;
  }
}

/* Lists the accesses of all commands, and the commands with unknown memory effects. */
static int list_accesses(hal_accesses_t *accesses, hal_fuse_t *fuse, const hal_command_list_t *list) {
  listing_t listing = {.accesses = accesses, .fuse = fuse, .list = list};
  const uint32_t count = list->command_count;
  accesses->count = 0;
  if (!fits((void **)&accesses->wall, count + 1, &accesses->wall_room, sizeof *accesses->wall)) return 0;
  for (uint32_t i = 0; i < count && !listing.failed; i++) {
    listing.command = i;
    accesses->wall[i] = put_command(&listing) ? HAL_NO_ACCESS : i;
  }
  accesses->wall[count] = count;
  for (uint32_t i = count; i-- > 0;)
    if (accesses->wall[i] == HAL_NO_ACCESS) accesses->wall[i] = accesses->wall[i + 1];
  return !listing.failed;
}

/* ---- areas ------------------------------------------------------------------------------------------------------- */

static int compare_areas(const void *one, const void *other) {
  const hal_area_t *const a = one, *const b = other;
  return (a->low > b->low) - (a->low < b->low);
}

/* Merges areas that overlap. */
static void merge_areas(hal_accesses_t *accesses) {
  uint32_t count = 0;
  qsort(accesses->area, accesses->area_count, sizeof *accesses->area, compare_areas);
  for (uint32_t i = 0; i < accesses->area_count; i++) {
    hal_area_t *const last = count ? &accesses->area[count - 1] : NULL;
    if (last && accesses->area[i].low < last->high) {
      if (accesses->area[i].high > last->high) last->high = accesses->area[i].high;
      continue;
    }
    accesses->area[count++] = accesses->area[i];
  }
  accesses->area_count = count;
}

/* Returns the last area that begins at or before an address; the first one if there is none. */
static uint32_t area_at(const hal_accesses_t *accesses, uint64_t address) {
  uint32_t low = 0, high = accesses->area_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    *(accesses->area[middle].low <= address ? &low : &high) = middle;
  }
  return low;
}

/* One area for each address at which accesses begin, found by a half-empty hash table; then areas that overlap are
 * merged. */
static int list_areas(hal_accesses_t *accesses) {
  uint32_t room = 64;
  while (room < 2 * accesses->count) room *= 2;
  uint32_t *const table = hal_calloc(room, sizeof *table); /* numbers of areas, from 1 on */
  accesses->area_count = 0;
  if (!table || !fits((void **)&accesses->area, accesses->count + 1, &accesses->area_room, sizeof *accesses->area)) {
    hal_free(table);
    return 0;
  }
  for (uint32_t i = 0; i < accesses->count; i++) {
    const hal_access_t *const access = &accesses->access[i];
    if (access->how == HAL_ACCESS_FREES) continue;
    uint64_t at = (access->low * UINT64_C(0x9E3779B97F4A7C15)) >> 32 & (room - 1);
    while (table[at] && accesses->area[table[at] - 1].low != access->low) at = (at + 1) & (room - 1);
    if (!table[at]) {
      accesses->area[accesses->area_count] =
          (hal_area_t){.low = access->low, .first = HAL_NO_ACCESS, .last = HAL_NO_ACCESS, .front = HAL_NO_ACCESS};
      table[at] = ++accesses->area_count;
    }
    hal_area_t *const area = &accesses->area[table[at] - 1];
    if (access->high > area->high) area->high = access->high;
  }
  hal_free(table);
  merge_areas(accesses);
  return 1;
}

static void chain_access(hal_accesses_t *accesses, uint32_t number, hal_area_t *area) {
  if (area->first == HAL_NO_ACCESS)
    area->first = area->front = number;
  else
    accesses->access[area->last].next = number;
  area->last = number;
}

/* Adds each access to the list of its area. Released memory may be several areas: then there is an access for each. */
static int chain_accesses(hal_accesses_t *accesses) {
  const uint32_t count =
      accesses
          ->count; /* after it, for further pieces of released memory, which are also in the order of the commands */
  for (uint32_t i = 0; i < count; i++) {
    const hal_access_t access = accesses->access[i];
    uint32_t at = accesses->area_count ? area_at(accesses, access.low) : 0;
    if (access.how != HAL_ACCESS_FREES) {
      chain_access(accesses, i, &accesses->area[at]);
      continue;
    }
    uint32_t number = i;
    for (; at < accesses->area_count && accesses->area[at].low < access.high; at++) {
      if (accesses->area[at].high <= access.low) continue;
      if (number != i) {
        if (!fits((void **)&accesses->access, accesses->count + 1, &accesses->room, sizeof access)) return 0;
        number = accesses->count++;
        accesses->access[number] = access;
      }
      chain_access(accesses, number, &accesses->area[at]);
      number = HAL_NO_ACCESS;
    }
  }
  return 1;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

void hal_accesses_begin(hal_accesses_t *accesses, const hal_command_list_t *list) {
  accesses->state = 0;
  accesses->front = 0;
  if (list->command_count > accesses->command_room) {
    hal_free(accesses->done);
    accesses->command_room = 2 * list->command_count;
    accesses->done = hal_malloc(accesses->command_room);
    if (!accesses->done) accesses->command_room = 0;
  }
  if (accesses->done) memset(accesses->done, HAL_TO_DO, list->command_count);
}

int hal_accesses_make(hal_accesses_t *accesses, hal_fuse_t *fuse, const hal_command_list_t *list) {
  if (!accesses->done) return 0;
  if (!accesses->state) {
    const int made = list_accesses(accesses, fuse, list) && list_areas(accesses) && chain_accesses(accesses);
    accesses->state = made ? 1 : -1;
  }
  return accesses->state == 1;
}

uint32_t hal_accesses_at(hal_accesses_t *accesses, uint64_t address) {
  if (!accesses->area_count) return HAL_NO_ACCESS;
  hal_area_t *const area = &accesses->area[area_at(accesses, address)];
  if (address < area->low || address >= area->high) return HAL_NO_ACCESS;
  while (area->front != HAL_NO_ACCESS && accesses->access[area->front].command < accesses->front)
    area->front = accesses->access[area->front].next;
  return area->front;
}

int hal_accesses_may_pass(hal_accesses_t *accesses, uint64_t low, uint64_t high, int writes, uint32_t begin,
                          uint32_t end) {
  uint32_t looked = 0;
  if (low >= high) return 1;
  for (uint32_t i = hal_accesses_at(accesses, low); i != HAL_NO_ACCESS; i = accesses->access[i].next) {
    const hal_access_t *const access = &accesses->access[i];
    if (access->command >= end) break;
    if (looked++ == MOST_LOOKED) return 0;
    if (access->command < begin || access->how == HAL_ACCESS_FREES || accesses->done[access->command] != HAL_TO_DO)
      continue;
    if (access->low < high && low < access->high && (writes || access->how == HAL_ACCESS_WRITES)) return 0;
  }
  return 1;
}

int hal_accesses_is_changed(const hal_accesses_t *accesses, const hal_span_t *span, uint32_t command, uint32_t end) {
  uint32_t looked = 0, at = area_at(accesses, span->low);
  for (; at < accesses->area_count && accesses->area[at].low < span->high; at++)
    for (uint32_t i = accesses->area[at].first; i != HAL_NO_ACCESS; i = accesses->access[i].next) {
      const hal_access_t *const access = &accesses->access[i];
      if (looked++ == MOST_LOOKED) return 1;
      if (access->command <= command || access->how == HAL_ACCESS_READS) continue;
      if (access->command >= end && accesses->done[access->command] != HAL_DONE) continue;
      if (access->low < span->high && span->low < access->high) return 1;
    }
  return 0;
}

/* Returns whether a later access writes the same memory, or releases it. */
static int is_superseded(const hal_accesses_t *accesses, const hal_access_t *access) {
  uint32_t looked = 0;
  for (uint32_t i = access->next; i != HAL_NO_ACCESS && looked++ < MOST_LOOKED; i = accesses->access[i].next) {
    const hal_access_t *const later = &accesses->access[i];
    if (later->how == HAL_ACCESS_WRITES && later->low == access->low) return 1;
    if (later->how == HAL_ACCESS_FREES && later->low < access->high && access->low < later->high) return 1;
  }
  return 0;
}

uint32_t hal_accesses_count_held(const hal_accesses_t *accesses) {
  uint32_t held = 0;
  for (uint32_t i = 0; i < accesses->count; i++)
    held += accesses->access[i].how == HAL_ACCESS_WRITES && !is_superseded(accesses, &accesses->access[i]);
  return held;
}

void hal_accesses_destroy(hal_accesses_t *accesses) {
  hal_free(accesses->access);
  hal_free(accesses->area);
  hal_free(accesses->wall);
  hal_free(accesses->done);
  *accesses = (hal_accesses_t){.count = 0};
}
