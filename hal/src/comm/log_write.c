/* log_write.c: writes the log of collectives as a file for torch's analyzer (torch.distributed.flight_recorder,
 * torchfrtrace). */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "comm/log.h"
#include "comm/log_internal.h"
#include "comm/pickle.h"
#include "hal/log.h"
#include "hal/status.h"

static void add_text(hal_pickle_t *to, const char *key, const char *value) {
  hal_pickle_string(to, key);
  hal_pickle_string(to, value);
}

static void add_integer(hal_pickle_t *to, const char *key, int64_t value) {
  hal_pickle_string(to, key);
  hal_pickle_integer(to, value);
}

static void add_bool(hal_pickle_t *to, const char *key, int value) {
  hal_pickle_string(to, key);
  hal_pickle_bool(to, value);
}

static void add_time(hal_pickle_t *to, const char *key, int64_t value) {
  hal_pickle_string(to, key);
  value ? hal_pickle_integer(to, value) : hal_pickle_none(to);
}

/* ---- entries ---- */

/* A line of a stack is "function<TAB>file<TAB>line". */
static void add_frame(hal_pickle_t *to, const char *line, const char *end) {
  const char *const first = memchr(line, '\t', (size_t)(end - line));
  const char *const second = first ? memchr(first + 1, '\t', (size_t)(end - first - 1)) : NULL;
  if (!second) return;
  hal_pickle_open_dict(to);
  hal_pickle_string(to, "name");
  hal_pickle_text(to, line, (size_t)(first - line));
  hal_pickle_string(to, "filename");
  hal_pickle_text(to, first + 1, (size_t)(second - first - 1));
  add_integer(to, "line", strtol(second + 1, NULL, 10));
  hal_pickle_close_dict(to);
}

static void add_frames(hal_pickle_t *to, const char *stack) {
  hal_pickle_string(to, "frames");
  hal_pickle_open_list(to);
  for (const char *line = stack, *end; line && (end = strchr(line, '\n')); line = end + 1) add_frame(to, line, end);
  hal_pickle_close_list(to);
}

/* Returns the numbers after those of `count` tensors. */
static const int64_t *add_sizes(hal_pickle_t *to, const char *key, const int64_t *numbers, uint32_t count) {
  hal_pickle_string(to, key);
  hal_pickle_open_list(to);
  for (uint32_t i = 0; i < count; i++) {
    const int64_t dims = numbers[1];
    hal_pickle_open_list(to);
    for (int64_t j = 0; j < dims; j++) hal_pickle_integer(to, numbers[2 + j]);
    hal_pickle_close_list(to);
    numbers += 2 + dims;
  }
  hal_pickle_close_list(to);
  return numbers;
}

static void add_dtypes(hal_pickle_t *to, const char *key, const int64_t *numbers, uint32_t count) {
  hal_pickle_string(to, key);
  hal_pickle_open_list(to);
  for (uint32_t i = 0; i < count; i++, numbers += 2 + numbers[1])
    hal_pickle_string(to, hal_dtype_name((hal_dtype_t)numbers[0]));
  hal_pickle_close_list(to);
}

static void add_entry(hal_pickle_t *to, const hal_comm_log_entry_t *entry) {
  const hal_comm_log_group_t *const group = &hal_comm_log.groups[entry->group];
  hal_pickle_open_dict(to);
  add_integer(to, "record_id", (int64_t)entry->number - 1);
  add_integer(to, "pg_id", entry->group);
  hal_pickle_string(to, "process_group");
  hal_pickle_string(to, group->name);
  hal_pickle_string(to, group->description);
  hal_pickle_pair(to);
  add_integer(to, "collective_seq_id", entry->is_message ? 0 : (int64_t)entry->sequence);
  add_integer(to, "p2p_seq_id", entry->is_message ? (int64_t)entry->sequence : 0);
  add_integer(to, "op_id", (int64_t)entry->operation);
  add_text(to, "profiling_name", entry->name);
  const int64_t *const outputs = add_sizes(to, "input_sizes", entry->numbers, entry->input_count);
  add_sizes(to, "output_sizes", outputs, entry->output_count);
  add_dtypes(to, "input_dtypes", entry->numbers, entry->input_count);
  add_dtypes(to, "output_dtypes", outputs, entry->output_count);
  add_text(to, "state", entry->ended_ns ? "completed" : entry->started_ns ? "started" : "scheduled");
  add_integer(to, "time_created_ns", entry->created_ns);
  add_time(to, "time_discovered_started_ns", entry->started_ns);
  add_time(to, "time_discovered_completed_ns", entry->ended_ns);
  if (entry->ended_ns && entry->started_ns) {
    hal_pickle_string(to, "duration_ms");
    hal_pickle_real(to, (double)(entry->ended_ns - entry->started_ns) / 1e6);
  }
  add_bool(to, "retired", (int)entry->retired);
  add_integer(to, "timeout_ms", entry->timeout_ms);
  add_bool(to, "is_p2p", (int)entry->is_message);
  add_frames(to, entry->stack ? entry->stack->text : NULL);
  hal_pickle_close_dict(to);
}

/* ---- groups ---- */

static void add_config(hal_pickle_t *to) {
  hal_pickle_string(to, "pg_config");
  hal_pickle_open_dict(to);
  for (uint32_t i = 0; i < hal_comm_log.group_count; i++) {
    const hal_comm_log_group_t *const group = &hal_comm_log.groups[i];
    hal_pickle_string(to, group->name);
    hal_pickle_open_dict(to);
    add_text(to, "name", group->name);
    add_text(to, "desc", group->description);
    add_text(to, "ranks", group->ranks);
    hal_pickle_close_dict(to);
  }
  hal_pickle_close_dict(to);
}

/* Adds the highest number of a logged collective of `group` that was queued, that has started, and that has
 * completed. */
static void add_status_of(hal_pickle_t *to, uint32_t group) {
  uint64_t queued = 0, started = 0, completed = 0;
  for (uint32_t i = 0; hal_comm_log.entries && i < hal_comm_log.capacity; i++) {
    const hal_comm_log_entry_t *const entry = &hal_comm_log.entries[i];
    if (!entry->number || entry->group != group || entry->is_message) continue;
    if (entry->sequence > queued) queued = entry->sequence;
    if (entry->started_ns && entry->sequence > started) started = entry->sequence;
    if (entry->ended_ns && entry->sequence > completed) completed = entry->sequence;
  }
  char key[16];
  snprintf(key, sizeof key, "%u", group);
  hal_pickle_string(to, key);
  hal_pickle_open_dict(to);
  add_integer(to, "last_enqueued_collective", (int64_t)queued);
  add_integer(to, "last_started_collective", (int64_t)started);
  add_integer(to, "last_completed_collective", (int64_t)completed);
  hal_pickle_close_dict(to);
}

static void add_all(hal_pickle_t *to) {
  const hal_comm_log_t *const log = &hal_comm_log;
  hal_pickle_begin(to);
  hal_pickle_open_dict(to);
  add_text(to, "version", "2.10");
  add_config(to);
  hal_pickle_string(to, "pg_status");
  hal_pickle_open_dict(to);
  for (uint32_t i = 0; i < log->group_count; i++) add_status_of(to, i);
  hal_pickle_close_dict(to);
  hal_pickle_string(to, "entries");
  hal_pickle_open_list(to);
  for (uint32_t i = 0; log->entries && i < log->capacity; i++) {
    const hal_comm_log_entry_t *const entry = &log->entries[(log->last + i) % log->capacity];
    if (entry->number) add_entry(to, entry);
  }
  hal_pickle_close_list(to);
  hal_pickle_close_dict(to);
  hal_pickle_end(to);
}

/* ---- the file ---- */

static hal_status_t unavailable(const char *file) {
  return hal_error_set(HAL_UNAVAILABLE, "cannot write the log of collectives to '%s': %s", file, strerror(errno));
}

/* Writes a temporary file and renames it, so that a reader never reads a partial log. */
static hal_status_t write_file(const char *file, const hal_pickle_t *content) {
  char temporary[PATH_MAX];
  const int size = snprintf(temporary, sizeof temporary, "%s.%ld.part", file, (long)getpid());
  if (size < 0 || (size_t)size >= sizeof temporary) {
    errno = ENAMETOOLONG;
    return unavailable(file);
  }
  FILE *const stream = fopen(temporary, "wbe");
  if (!stream) return unavailable(file);
  const int is_written = fwrite(content->data, 1, content->size, stream) == content->size;
  if (fclose(stream) || !is_written || rename(temporary, file)) {
    const hal_status_t status = unavailable(file);
    unlink(temporary);
    return status;
  }
  return HAL_OK;
}

hal_status_t hal_comm_log_write(const char *file) {
  hal_pickle_t content = {0};
  hal_lock(&hal_comm_log.lock);
  add_all(&content);
  hal_unlock(&hal_comm_log.lock);
  const hal_status_t status =
      content.failed ? hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for writing the log of collectives")
                     : write_file(file, &content);
  hal_free(content.data);
  return status;
}

void hal_comm_log_failure(void) {
  char file[PATH_MAX] = "";
  hal_lock(&hal_comm_log.lock);
  if (hal_comm_log.file) snprintf(file, sizeof file, "%s", hal_comm_log.file);
  hal_unlock(&hal_comm_log.lock);
  if (!*file) return;
  hal_error_saved_t saved;
  hal_error_save(&saved);
  if (hal_comm_log_write(file)) hal_log(HAL_LOG_WARNING, "%s", hal_error_message());
  hal_error_restore(&saved);
}
