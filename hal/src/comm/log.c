/* log.c: the ring of the last works, and their groups. log_write.c writes the log to a file. */
#define _POSIX_C_SOURCE 200809L
#include "comm/log.h"

#include <stdio.h>
#include <string.h>

#include "base/host_malloc.h"
#include "comm/log_internal.h"
#include "hal/status.h"

hal_comm_log_t hal_comm_log = {.capacity = 2000};

/* ---- memory ---- */

static char *copy_text(const char *text) {
  const size_t size = strlen(text) + 1;
  char *const copy = hal_malloc(size);
  if (copy) memcpy(copy, text, size);
  return copy;
}

/* The entry never refers to freed memory, also in a process that another thread forks meanwhile. The caller holds the
 * lock. */
static void clear(hal_comm_log_entry_t *entry) {
  hal_comm_log_stack_t *const stack = entry->stack;
  int64_t *const numbers = entry->numbers != entry->few ? entry->numbers : NULL;
  memset(entry, 0, sizeof *entry);
  hal_comm_log_stack_release(stack);
  hal_free(numbers);
}

/* The caller holds the lock. */
static void drop_entries(void) {
  hal_comm_log_t *const log = &hal_comm_log;
  for (uint32_t i = 0; log->entries && i < log->capacity; i++) clear(&log->entries[i]);
  hal_free(log->entries);
  log->entries = NULL;
  hal_comm_log_stacks_clear();
}

hal_status_t hal_comm_log_configure(uint32_t entries, const char *file) {
  hal_comm_log_t *const log = &hal_comm_log;
  if (entries > UINT32_C(1) << 20)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a log of %u collectives; at most %u are possible", entries,
                         UINT32_C(1) << 20);
  char *copy = file && *file ? copy_text(file) : NULL;
  if (file && *file && !copy)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the log's file name");
  hal_lock(&log->lock);
  char *const before = log->file;
  log->file = copy;
  if (entries != log->capacity) drop_entries();
  log->capacity = entries;
  hal_unlock(&log->lock);
  hal_free(before);
  return HAL_OK;
}

/* ---- groups ---- */

/* Returns the ranks as "[0, 1]"; NULL if memory is exhausted. */
static char *text_of(const uint64_t *ranks, uint32_t count) {
  const size_t capacity = 3 + 22 * (size_t)count;
  char *const text = hal_malloc(capacity);
  size_t size = 0;
  if (!text) return NULL;
  text[size++] = '[';
  for (uint32_t i = 0; i < count; i++)
    size += (size_t)snprintf(text + size, capacity - size, "%s%llu", i ? ", " : "", (unsigned long long)ranks[i]);
  memcpy(text + size, "]", 2);
  return text;
}

static void free_group(hal_comm_log_group_t *group) {
  hal_free(group->name);
  hal_free(group->description);
  hal_free(group->ranks);
}

/* Returns where a group is stored; NULL if memory is exhausted. The caller holds the lock. */
static hal_comm_log_group_t *place_of(const char *name) {
  hal_comm_log_t *const log = &hal_comm_log;
  for (uint32_t i = 0; i < log->group_count; i++)
    if (!strcmp(log->groups[i].name, name)) return &log->groups[i];
  if (log->group_count == log->group_capacity) {
    const uint32_t capacity = log->group_capacity ? 2 * log->group_capacity : 16;
    hal_comm_log_group_t *const groups = hal_calloc(capacity, sizeof *groups);
    if (!groups) return NULL;
    if (log->group_count) memcpy(groups, log->groups, log->group_count * sizeof *groups);
    hal_free(log->groups);
    log->groups = groups;
    log->group_capacity = capacity;
  }
  return &log->groups[log->group_count++];
}

hal_status_t hal_comm_log_group(const char *name, const char *description, const uint64_t *ranks, uint32_t count,
                                uint32_t *out_group) {
  hal_comm_log_group_t made = {copy_text(name), copy_text(description), text_of(ranks, count)};
  hal_comm_log_group_t *place = NULL;
  hal_lock(&hal_comm_log.lock);
  if (made.name && made.description && made.ranks && (place = place_of(name))) {
    const hal_comm_log_group_t before = *place;
    *place = made;
    made = before;
    *out_group = (uint32_t)(place - hal_comm_log.groups);
  }
  hal_unlock(&hal_comm_log.lock);
  free_group(&made);
  return place ? HAL_OK : hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the log of group '%s'", name);
}

/* ---- entries ---- */

static size_t numbers_of(const hal_comm_entry_t *from) {
  size_t count = 0;
  for (uint32_t i = 0; i < from->input_count + from->output_count; i++) count += 2 + (size_t)from->tensors[i].dims;
  return count;
}

static void copy_tensors(int64_t *to, const hal_comm_entry_t *from) {
  for (uint32_t i = 0; i < from->input_count + from->output_count; i++) {
    const hal_comm_tensor_t *const tensor = &from->tensors[i];
    *to++ = tensor->dtype;
    *to++ = tensor->dims;
    if (tensor->dims) memcpy(to, tensor->sizes, tensor->dims * sizeof *to);
    to += tensor->dims;
  }
}

/* Fills an empty entry. If memory is exhausted, the entry omits what it cannot copy. The caller holds the lock. */
static void fill(hal_comm_log_entry_t *to, const hal_comm_entry_t *from, int64_t timeout_ns) {
  const size_t count = numbers_of(from);
  to->group = from->group, to->is_message = from->is_message, to->sequence = from->sequence;
  to->operation = from->operation;
  to->timeout_ms = timeout_ns / 1000000;
  to->created_ns = hal_comm_log_now();
  if (from->name) memcpy(to->name, from->name, strnlen(from->name, sizeof to->name - 1));
  to->stack = hal_comm_log_stack_take(from->stack);
  to->numbers = count <= HAL_COMM_LOG_NUMBERS ? to->few : hal_malloc(count * sizeof *to->numbers);
  if (!count || !to->numbers) return;
  copy_tensors(to->numbers, from);
  to->input_count = from->input_count;
  to->output_count = from->output_count;
}

uint64_t hal_comm_log_add(const hal_comm_entry_t *entry, int64_t timeout_ns) {
  hal_comm_log_t *const log = &hal_comm_log;
  uint64_t number = 0;
  if (!log->capacity) return 0;
  hal_lock(&log->lock);
  if (!log->entries && log->capacity) log->entries = hal_calloc(log->capacity, sizeof *log->entries);
  if (log->entries) {
    hal_comm_log_entry_t *const place = &log->entries[log->last % log->capacity];
    clear(place);
    fill(place, entry, timeout_ns);
    number = place->number = ++log->last;
  }
  hal_unlock(&log->lock);
  return number;
}

/* Returns the entry of a work; NULL if it was overwritten. The caller holds the lock. */
static hal_comm_log_entry_t *find(uint64_t number) {
  hal_comm_log_t *const log = &hal_comm_log;
  if (!number || !log->entries) return NULL;
  hal_comm_log_entry_t *const entry = &log->entries[(number - 1) % log->capacity];
  return entry->number == number ? entry : NULL;
}

/* Returns whether torch's analyzer of dumps (2.13 to 2.15) reads names that begin with this library's name. */
static int is_known(const char *library) {
  static const char *const known[] = {"nccl", "ncclx", "xccl", "rccl", "rcclx", "mccl", "hccl"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(library, known[i])) return 1;
  return 0;
}

void hal_comm_log_start_library(uint64_t number, const char *library) {
  hal_lock(&hal_comm_log.lock);
  hal_comm_log_entry_t *const entry = find(number);
  char name[sizeof entry->name];
  const char *const colon = entry ? strchr(entry->name, ':') : NULL;
  if (colon && is_known(library) && snprintf(name, sizeof name, "%s%s", library, colon) < (int)sizeof name)
    memcpy(entry->name, name, sizeof name);
  hal_unlock(&hal_comm_log.lock);
  hal_comm_log_start(number);
}

void hal_comm_log_start(uint64_t number) {
  hal_lock(&hal_comm_log.lock);
  hal_comm_log_entry_t *const entry = find(number);
  if (entry && !entry->started_ns) entry->started_ns = hal_comm_log_now();
  hal_unlock(&hal_comm_log.lock);
}

void hal_comm_log_end(uint64_t number, hal_status_t status) {
  hal_lock(&hal_comm_log.lock);
  hal_comm_log_entry_t *const entry = find(number);
  if (entry) {
    entry->retired = 1;
    if (!status) entry->ended_ns = hal_comm_log_now();
  }
  hal_unlock(&hal_comm_log.lock);
}
