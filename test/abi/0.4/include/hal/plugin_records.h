/* plugin_records.h: for plugins: the buffer behind profile_enable and profile_read. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_RECORDS_H_
#define HAL_PLUGIN_RECORDS_H_

#include <pthread.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a profile of a device collects. All zeros and an initialised lock to begin with. Since 0.2. */
typedef struct hal_records_s {
  uint32_t on;          /* the number of the collection that runs, 0 = none; read and written atomically */
  uint32_t last;        /* that of the latest */
  pthread_mutex_t lock; /* of the rest */
  hal_profile_record_t *records;
  uint64_t count, room, lost;
} hal_records_t;

/* Tells, as work is submitted, whether it is to leave a record: the number of the collection, 0 = none. Cheap when none runs; then
 * `*out_correlation` is untouched, else it gets what the record has to carry. Thread-safe. Since 0.2. */
static inline uint32_t hal_records_note(const hal_records_t *records, uint64_t *out_correlation) {
  const uint32_t on = __atomic_load_n(&records->on, __ATOMIC_RELAXED);
  if (__builtin_expect(!on, 1)) return 0;
  *out_correlation = hal_host->struct_size >= HAL_STRUCT_SIZE(hal_host_api_t, profile_correlation)
                         ? hal_host->profile_correlation()
                         : 0;
  return on;
}

/* Appends a record of work that was noted in the collection `noted`, unless another has begun since. A record that finds no room is
 * counted as lost. Thread-safe. Since 0.2. */
void hal_records_append(hal_records_t *records, uint32_t noted, const hal_profile_record_t *record);

/* Begins (1) or ends (0) a collection, as of profile_enable; twice the same changes nothing. Thread-safe. Since 0.2. */
void hal_records_enable(hal_records_t *records, int32_t on);

/* Hands the records to `sink` and forgets them, as of profile_read; work goes on meanwhile. Thread-safe. Since 0.2. */
void hal_records_read(hal_records_t *records, hal_profile_sink_t sink, void *user_data);

/* A kernel's name, in memory of its own: records that the host has not read yet have its address. Since 0.2. */
typedef struct hal_name_s {
  struct hal_name_s *next;
  const char *text;
} hal_name_t;

/* Copies a name, NULL when there is no memory. Released by hal_name_drop. Thread-safe. Since 0.2. */
hal_name_t *hal_name_make(const char *text);

/* Releases a name, or keeps it for the life of the process when `keep` is 1: records may name it. Thread-safe. Since 0.2. */
void hal_name_drop(hal_name_t *name, int keep);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_RECORDS_H_ */
