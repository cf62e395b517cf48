/* records.c: the buffer of profile records (hal/plugin_records.h). */
#include "hal/plugin_records.h"

#include <string.h>

enum { MOST_RECORDS = 1 << 18, FIRST_RECORDS = 256 };

static int grow(hal_records_t *records) {
  const uint64_t room = records->room ? 2 * records->room : FIRST_RECORDS;
  if (room > MOST_RECORDS) return 0;
  hal_profile_record_t *list = hal_host->mem_alloc(room * sizeof *list, _Alignof(hal_profile_record_t));
  if (!list) return 0;
  if (records->count) memcpy(list, records->records, records->count * sizeof *list);
  hal_host->mem_free(records->records);
  records->records = list;
  records->room = room;
  return 1;
}

void hal_records_append(hal_records_t *records, uint32_t noted, const hal_profile_record_t *record) {
  pthread_mutex_lock(&records->lock);
  if (noted == records->last) {
    if (records->count == records->room && !grow(records))
      records->lost++;
    else
      records->records[records->count++] = *record;
  }
  pthread_mutex_unlock(&records->lock);
}

void hal_records_enable(hal_records_t *records, int32_t on) {
  pthread_mutex_lock(&records->lock);
  const int was_on = __atomic_load_n(&records->on, __ATOMIC_RELAXED) != 0;
  if (on && !was_on) {
    if (++records->last == 0) records->last = 1;
    records->count = records->lost = 0;
  }
  if (!on || !was_on) __atomic_store_n(&records->on, on ? records->last : 0, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&records->lock);
}

/* Removes the buffer, so that work continues while its records are read. */
void hal_records_read(hal_records_t *records, hal_profile_sink_t sink, void *user_data) {
  pthread_mutex_lock(&records->lock);
  hal_profile_record_t *const list = records->records;
  const uint64_t count = records->count, lost = records->lost;
  records->records = NULL;
  records->count = records->room = records->lost = 0;
  pthread_mutex_unlock(&records->lock);
  for (uint64_t i = 0; i < count; i++) sink(user_data, &list[i]);
  if (lost) {
    const int64_t last = count ? list[count - 1].end_ns : 0;
    const hal_profile_record_t missing = {.struct_size = sizeof missing,
                                          .name = "",
                                          .start_ns = last,
                                          .end_ns = last,
                                          .bytes = lost,
                                          .kind = HAL_PROFILE_LOST};
    sink(user_data, &missing);
  }
  hal_host->mem_free(list);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Names that outlive their kernels; a list, so that leak checkers do not report them. */
static hal_name_t *kept;

hal_name_t *hal_name_make(const char *text) {
  const size_t bytes = strlen(text) + 1;
  hal_name_t *name = hal_host->mem_alloc(sizeof *name + bytes, _Alignof(hal_name_t));
  if (!name) return NULL;
  name->next = NULL;
  name->text = memcpy(name + 1, text, bytes);
  return name;
}

void hal_name_drop(hal_name_t *name, int keep) {
  if (!keep) {
    hal_host->mem_free(name);
    return;
  }
  name->next = __atomic_load_n(&kept, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&kept, &name->next, name, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}
