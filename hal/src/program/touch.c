/* touch.c: see touch.h. Memory is found by address: areas are sorted, each with a list of its touches. */
#include "program/touch.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "device/kernel_error.h"
#include "hal/host_memory.h"
#include "hal_op_ids.h"
#include "program/fuse.h"

enum {
  SCRATCH_AHEAD = 64, /* commands behind a launch by which its operator has given its scratch memory back */
  MOST_LOOKED = 512   /* touches of one area that are looked at: memory that everything shares takes no time beyond */
};

/* ---- what operators touch --------------------------------------------------------------------------------------------------- */

int hal_touch_bytes(const void *address, int64_t below, int64_t above, uint64_t size, uint64_t *low, uint64_t *high) {
  int64_t first, end;
  if (__builtin_mul_overflow(below, size, &first) || __builtin_add_overflow(above, 1, &end) ||
      __builtin_mul_overflow(end, size, &end))
    return 0;
  return !__builtin_add_overflow((uint64_t)(uintptr_t)address, first, low) &&
         !__builtin_add_overflow((uint64_t)(uintptr_t)address, end, high);
}

/* The memory of a tensor, and whether there is nothing between its elements. Returns as hal_touch_tensor. */
static inline int span_tensor(const hal_tensor_t *tensor, hal_span_t *span) {
  int64_t below = 0, above = 0, elements = 1, reach, length;
  int overflow = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    const int64_t count = tensor->sizes[d];
    if (count == 0) return 0;
    overflow |= __builtin_mul_overflow(count - (count > 0), tensor->strides[d], &reach);
    int64_t *const end = reach < 0 ? &below : &above;
    overflow |= __builtin_add_overflow(*end, reach, end) | __builtin_mul_overflow(elements, count, &elements);
  }
  if (!tensor->data) return 0;
  const uint64_t size = hal_dtype_size(tensor->dtype);
  if (HAL_UNLIKELY(overflow || elements < 0 || __builtin_sub_overflow(above, below, &length) ||
                   !hal_touch_bytes(tensor->data, below, above, size, &span->low, &span->high)))
    return -1;
  span->dense = length == elements - 1;
  return 1;
}

int hal_touch_tensor(const hal_tensor_t *tensor, uint64_t *low, uint64_t *high) {
  hal_span_t span;
  const int has_memory = span_tensor(tensor, &span);
  if (has_memory > 0) {
    *low = span.low;
    *high = span.high;
  }
  return has_memory;
}

static uint32_t tensors_of(const hal_value_t *value) {
  return value->tag == HAL_VALUE_TENSOR ? value->u.t != NULL : value->tag == HAL_VALUE_TENSOR_LIST ? value->count : 0;
}

/* Returns 0 when the tensor may touch any memory. */
static int note_tensor(hal_span_t *spans, uint32_t *count, const hal_tensor_t *tensor, uint32_t writes) {
  hal_span_t *const span = &spans[*count];
  const int has_memory = tensor ? span_tensor(tensor, span) : 0;
  span->writes = writes;
  *count += has_memory > 0;
  return has_memory >= 0;
}

void hal_touch_note(hal_arena_t *arena, hal_program_op_t *op, const hal_op_call_t *call) {
  uint32_t count = call->result_count;
  if (op->op >= HAL_OP_ID_COUNT) return; /* a library's function may do what it likes */
  for (uint32_t i = 0; i < call->arg_count; i++) count += tensors_of(&call->args[i]);
  hal_span_t *const spans =
      hal_arena_take(arena, (count + 1) * sizeof *spans); /* the last one is for a tensor without memory */
  uint32_t noted = 0;
  int all = 1;
  if (!spans) return;
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *const value = &call->args[i];
    for (uint32_t k = 0; k < tensors_of(value); k++)
      all &= note_tensor(spans, &noted, value->tag == HAL_VALUE_TENSOR ? value->u.t : value->u.tl[k], 0);
  }
  for (uint32_t i = 0; i < call->result_count; i++) all &= note_tensor(spans, &noted, call->results[i], 1);
  if (!all) return;
  op->spans = spans;
  op->span_count = noted;
}

/* ---- touches of commands ------------------------------------------------------------------------------------------------------ */

/* What is being listed: the touches of one command after another. */
typedef struct listing_s {
  hal_touches_t *touches;
  hal_fuse_t *fuse;
  const hal_tape_t *tape;
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
  hal_touches_t *const touches = listing->touches;
  if (low >= high) return;
  if (!fits((void **)&touches->touch, touches->count + 1, &touches->room, sizeof *touches->touch)) {
    listing->failed = 1;
    return;
  }
  touches->touch[touches->count++] =
      (hal_touch_t){.low = low, .high = high, .command = listing->command, .how = how, .next = HAL_NO_TOUCH};
}

static void put_bytes(listing_t *listing, const void *address, uint64_t size, uint32_t how) {
  put(listing, (uint64_t)(uintptr_t)address, (uint64_t)(uintptr_t)address + size, how);
}

/* Lists the scratch memory that an address is of: what is given back behind the launch. 0 = it is none. */
static int put_scratch(listing_t *listing, const char *address) {
  const hal_tape_t *const tape = listing->tape;
  for (uint32_t i = listing->command + 1; i < tape->command_count && i < listing->command + SCRATCH_AHEAD; i++) {
    const hal_command_t *const command = &tape->commands[i];
    if (command->kind != HAL_COMMAND_FREED) continue;
    const char *const low = command->u.freed.address;
    if (address < low || address >= low + command->u.freed.size) continue;
    put_bytes(listing, low, command->u.freed.size, HAL_TOUCH_WRITES);
    return 1;
  }
  return 0;
}

/* Whether an address is of an operand, or of a report that nobody else reads. */
static int is_known(const listing_t *listing, const hal_program_op_t *op, const void *address) {
  const uint64_t at = (uint64_t)(uintptr_t)address;
  for (uint32_t i = 0; i < op->span_count; i++)
    if (op->spans[i].low <= at && at < op->spans[i].high) return 1;
  return !address || hal_kernel_error_holds(listing->fuse->device, address);
}

/* A launch of an operator whose call told its operands: these, and scratch memory that the operator gives back. 0 = there are other
 * addresses. */
static int put_launch(listing_t *listing, const hal_program_op_t *op, const hal_launch_t *launch) {
  if (!op->spans) return 0;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    if (launch->args[i].kind != HAL_ARG_POINTER) continue;
    const char *const address = *(char *const *)launch->args[i].value;
    if (!is_known(listing, op, address) && !put_scratch(listing, address)) return 0;
  }
  for (uint32_t i = 0; i < op->span_count; i++)
    put(listing, op->spans[i].low, op->spans[i].high, op->spans[i].writes ? HAL_TOUCH_WRITES : HAL_TOUCH_READS);
  return 1;
}

static void put_results(listing_t *listing, const hal_op_call_t *call) {
  uint64_t low, high;
  for (uint32_t i = 0; i < call->result_count; i++)
    if (call->results[i] && hal_touch_tensor(call->results[i], &low, &high) > 0)
      put(listing, low, high, HAL_TOUCH_WRITES);
}

/* Lists what a command touches; 0 = nobody knows all of it. */
static int put_command(listing_t *listing) {
  const hal_command_t *const command = &listing->tape->commands[listing->command];
  const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &listing->tape->ops[command->op];
  hal_span_t spans[CHAIN_OPERANDS];
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH: {
      const uint32_t count = op ? hal_fuse_spans(listing->fuse, listing->tape, command, spans) : 0;
      for (uint32_t i = 0; i < count; i++)
        put(listing, spans[i].low, spans[i].high, spans[i].writes ? HAL_TOUCH_WRITES : HAL_TOUCH_READS);
      return count || (op && put_launch(listing, op, command->u.launch.launch));
    }
    case HAL_COMMAND_COPY:
      put_bytes(listing, command->u.copy.src, command->u.copy.size, HAL_TOUCH_READS);
      put_bytes(listing, command->u.copy.dst, command->u.copy.size, HAL_TOUCH_WRITES);
      return 1;
    case HAL_COMMAND_FILL:
      put_bytes(listing, command->u.fill.dst, command->u.fill.size, HAL_TOUCH_WRITES);
      return 1;
    case HAL_COMMAND_RANDOM:
      put_bytes(listing, command->u.random->dst, command->u.random->count * hal_dtype_size(command->u.random->dtype),
                HAL_TOUCH_WRITES);
      return 1;
    case HAL_COMMAND_FREED:
      put_bytes(listing, command->u.freed.address, command->u.freed.size, HAL_TOUCH_FREES);
      return 1;
    case HAL_COMMAND_OWN_OP:
      put_results(listing, command->u.own_op.call);
      return 0; /* functions of the plugin, and of the host, may do what they like beside */
    default:
      return 0;
  }
}

/* Lists the touches of all commands, and where there are walls. */
static int list_touches(hal_touches_t *touches, hal_fuse_t *fuse, const hal_tape_t *tape) {
  listing_t listing = {.touches = touches, .fuse = fuse, .tape = tape};
  const uint32_t count = tape->command_count;
  touches->count = 0;
  if (!fits((void **)&touches->wall, count + 1, &touches->wall_room, sizeof *touches->wall)) return 0;
  for (uint32_t i = 0; i < count && !listing.failed; i++) {
    listing.command = i;
    touches->wall[i] = put_command(&listing) ? HAL_NO_TOUCH : i;
  }
  touches->wall[count] = count;
  for (uint32_t i = count; i-- > 0;)
    if (touches->wall[i] == HAL_NO_TOUCH) touches->wall[i] = touches->wall[i + 1];
  return !listing.failed;
}

/* ---- areas -------------------------------------------------------------------------------------------------------------------- */

static int compare_areas(const void *one, const void *other) {
  const hal_area_t *const a = one, *const b = other;
  return (a->low > b->low) - (a->low < b->low);
}

/* Makes areas that overlap one. */
static void merge_areas(hal_touches_t *touches) {
  uint32_t count = 0;
  qsort(touches->area, touches->area_count, sizeof *touches->area, compare_areas);
  for (uint32_t i = 0; i < touches->area_count; i++) {
    hal_area_t *const last = count ? &touches->area[count - 1] : NULL;
    if (last && touches->area[i].low < last->high) {
      if (touches->area[i].high > last->high) last->high = touches->area[i].high;
      continue;
    }
    touches->area[count++] = touches->area[i];
  }
  touches->area_count = count;
}

/* The last area that does not begin behind an address; the first one when there is none. */
static uint32_t area_at(const hal_touches_t *touches, uint64_t address) {
  uint32_t low = 0, high = touches->area_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    *(touches->area[middle].low <= address ? &low : &high) = middle;
  }
  return low;
}

/* One area for each address at which touches begin, found by a table that is half empty; then those that overlap become one. */
static int list_areas(hal_touches_t *touches) {
  uint32_t room = 64;
  while (room < 2 * touches->count) room *= 2;
  uint32_t *const table = hal_calloc(room, sizeof *table); /* numbers of areas, from 1 on */
  touches->area_count = 0;
  if (!table || !fits((void **)&touches->area, touches->count + 1, &touches->area_room, sizeof *touches->area)) {
    hal_free(table);
    return 0;
  }
  for (uint32_t i = 0; i < touches->count; i++) {
    const hal_touch_t *const touch = &touches->touch[i];
    if (touch->how == HAL_TOUCH_FREES) continue;
    uint64_t at = (touch->low * UINT64_C(0x9E3779B97F4A7C15)) >> 32 & (room - 1);
    while (table[at] && touches->area[table[at] - 1].low != touch->low) at = (at + 1) & (room - 1);
    if (!table[at]) {
      touches->area[touches->area_count] =
          (hal_area_t){.low = touch->low, .first = HAL_NO_TOUCH, .last = HAL_NO_TOUCH, .front = HAL_NO_TOUCH};
      table[at] = ++touches->area_count;
    }
    hal_area_t *const area = &touches->area[table[at] - 1];
    if (touch->high > area->high) area->high = touch->high;
  }
  hal_free(table);
  merge_areas(touches);
  return 1;
}

static void chain_touch(hal_touches_t *touches, uint32_t number, hal_area_t *area) {
  if (area->first == HAL_NO_TOUCH)
    area->first = area->front = number;
  else
    touches->touch[area->last].next = number;
  area->last = number;
}

/* Puts each touch into the list of its area; what is given back, which may be several areas, as a touch of each. */
static int chain_touches(hal_touches_t *touches) {
  const uint32_t count =
      touches->count; /* behind it, further pieces of what is given back: they come in the order of the commands, too */
  for (uint32_t i = 0; i < count; i++) {
    const hal_touch_t touch = touches->touch[i];
    uint32_t at = touches->area_count ? area_at(touches, touch.low) : 0;
    if (touch.how != HAL_TOUCH_FREES) {
      chain_touch(touches, i, &touches->area[at]);
      continue;
    }
    uint32_t number = i;
    for (; at < touches->area_count && touches->area[at].low < touch.high; at++) {
      if (touches->area[at].high <= touch.low) continue;
      if (number != i) {
        if (!fits((void **)&touches->touch, touches->count + 1, &touches->room, sizeof touch)) return 0;
        number = touches->count++;
        touches->touch[number] = touch;
      }
      chain_touch(touches, number, &touches->area[at]);
      number = HAL_NO_TOUCH;
    }
  }
  return 1;
}

/* ---- public ------------------------------------------------------------------------------------------------------------------- */

void hal_touches_begin(hal_touches_t *touches, const hal_tape_t *tape) {
  touches->state = 0;
  touches->front = 0;
  if (tape->command_count > touches->command_room) {
    hal_free(touches->done);
    touches->command_room = 2 * tape->command_count;
    touches->done = hal_malloc(touches->command_room);
    if (!touches->done) touches->command_room = 0;
  }
  if (touches->done) memset(touches->done, HAL_TO_DO, tape->command_count);
}

int hal_touches_make(hal_touches_t *touches, hal_fuse_t *fuse, const hal_tape_t *tape) {
  if (!touches->done) return 0;
  if (!touches->state) {
    const int made = list_touches(touches, fuse, tape) && list_areas(touches) && chain_touches(touches);
    touches->state = made ? 1 : -1;
  }
  return touches->state == 1;
}

uint32_t hal_touches_at(hal_touches_t *touches, uint64_t address) {
  if (!touches->area_count) return HAL_NO_TOUCH;
  hal_area_t *const area = &touches->area[area_at(touches, address)];
  if (address < area->low || address >= area->high) return HAL_NO_TOUCH;
  while (area->front != HAL_NO_TOUCH && touches->touch[area->front].command < touches->front)
    area->front = touches->touch[area->front].next;
  return area->front;
}

int hal_touches_may_pass(hal_touches_t *touches, uint64_t low, uint64_t high, int writes, uint32_t begin,
                         uint32_t end) {
  uint32_t looked = 0;
  if (low >= high) return 1;
  for (uint32_t i = hal_touches_at(touches, low); i != HAL_NO_TOUCH; i = touches->touch[i].next) {
    const hal_touch_t *const touch = &touches->touch[i];
    if (touch->command >= end) break;
    if (looked++ == MOST_LOOKED) return 0;
    if (touch->command < begin || touch->how == HAL_TOUCH_FREES || touches->done[touch->command] != HAL_TO_DO) continue;
    if (touch->low < high && low < touch->high && (writes || touch->how == HAL_TOUCH_WRITES)) return 0;
  }
  return 1;
}

int hal_touches_is_changed(const hal_touches_t *touches, const hal_span_t *span, uint32_t command, uint32_t end) {
  uint32_t looked = 0, at = area_at(touches, span->low);
  for (; at < touches->area_count && touches->area[at].low < span->high; at++)
    for (uint32_t i = touches->area[at].first; i != HAL_NO_TOUCH; i = touches->touch[i].next) {
      const hal_touch_t *const touch = &touches->touch[i];
      if (looked++ == MOST_LOOKED) return 1;
      if (touch->command <= command || touch->how == HAL_TOUCH_READS) continue;
      if (touch->command >= end && touches->done[touch->command] != HAL_DONE) continue;
      if (touch->low < span->high && span->low < touch->high) return 1;
    }
  return 0;
}

/* Whether what a touch has written is written at the same place, or given back, by another behind it. */
static int is_superseded(const hal_touches_t *touches, const hal_touch_t *touch) {
  uint32_t looked = 0;
  for (uint32_t i = touch->next; i != HAL_NO_TOUCH && looked++ < MOST_LOOKED; i = touches->touch[i].next) {
    const hal_touch_t *const later = &touches->touch[i];
    if (later->how == HAL_TOUCH_WRITES && later->low == touch->low) return 1;
    if (later->how == HAL_TOUCH_FREES && later->low < touch->high && touch->low < later->high) return 1;
  }
  return 0;
}

uint32_t hal_touches_count_held(const hal_touches_t *touches) {
  uint32_t held = 0;
  for (uint32_t i = 0; i < touches->count; i++)
    held += touches->touch[i].how == HAL_TOUCH_WRITES && !is_superseded(touches, &touches->touch[i]);
  return held;
}

void hal_touches_destroy(hal_touches_t *touches) {
  hal_free(touches->touch);
  hal_free(touches->area);
  hal_free(touches->wall);
  hal_free(touches->done);
  *touches = (hal_touches_t){.count = 0};
}
