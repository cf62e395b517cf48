/* comm_store.h: a store of hal/comm.h in memory that the processes of a test or benchmark share, initially zero. Its
 * `context` is the store. Records are never removed, so that a rank may be killed at any time. */
#ifndef TEST_HAL_COMM_STORE_H_
#define TEST_HAL_COMM_STORE_H_

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "hal/comm.h"
#include "hal/status.h"

enum { STORE_RECORDS = 512 };

/* The last record with a key applies. */
typedef struct store_record_s {
  _Atomic int is_written;
  size_t size;
  char key[256];
  unsigned char value[4096];
} store_record_t;

typedef struct store_s {
  _Atomic unsigned used;
  store_record_t record[STORE_RECORDS];
} store_t;

static inline hal_status_t store_set(void *context, const char *key, const void *value, size_t size) {
  store_t *const store = context;
  const unsigned index = atomic_fetch_add(&store->used, 1);
  if (index >= STORE_RECORDS || size > sizeof store->record[0].value || strlen(key) >= sizeof store->record[0].key)
    return hal_error_set(HAL_UNAVAILABLE, "the store of the test is full");
  store_record_t *const record = &store->record[index];
  snprintf(record->key, sizeof record->key, "%s", key);
  memcpy(record->value, value, size);
  record->size = size;
  atomic_store(&record->is_written, 1);
  return HAL_OK;
}

static inline hal_status_t store_get(void *context, const char *key, int64_t timeout_ns, void *out, size_t capacity,
                                     size_t *out_size) {
  const store_t *const store = context;
  for (const int64_t end = hal_clock_ns() + timeout_ns;;) {
    unsigned count = atomic_load(&store->used);
    for (count = count < STORE_RECORDS ? count : STORE_RECORDS; count-- > 0;) {
      const store_record_t *const record = &store->record[count];
      if (!atomic_load(&record->is_written) || strcmp(record->key, key) != 0) continue;
      memcpy(out, record->value, record->size < capacity ? record->size : capacity);
      *out_size = record->size;
      return HAL_OK;
    }
    if (hal_clock_ns() >= end) return hal_error_set(HAL_NOT_READY, "no value for %s", key);
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  }
}

static inline hal_comm_store_t store_of(store_t *store) {
  return (hal_comm_store_t){
      .struct_size = sizeof(hal_comm_store_t), .context = store, .set = store_set, .get = store_get};
}

#endif /* TEST_HAL_COMM_STORE_H_ */
