/* profile.c: records of the work that ran. */
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { MOST = 64, SIZE = 40000 };

typedef struct records_s {
  hal_profile_record_t all[MOST];
  int count, bad_size;
} records_t;

static void keep(void *data, const hal_profile_record_t *record) {
  records_t *const records = data;
  if (record->struct_size < HAL_STRUCT_SIZE(hal_profile_record_t, direction)) records->bad_size = 1;
  if (records->count < MOST) records->all[records->count] = *record;
  records->count++;
}

/* Queues a copy to the device, a fill, and a copy to the host. */
static void work(cts_t *t, hal_plugin_stream_t *stream) {
  static uint8_t bytes[SIZE];
  const uint32_t pattern = 5;
  void *const device = cts_alloc(t, SIZE);
  cts_put(t, stream, device, bytes, SIZE);
  CTS_OK(t, memory_fill, stream, t->device, device, &pattern, sizeof pattern, SIZE / 2);
  cts_get(t, stream, bytes, device, SIZE);
  cts_sync(t, stream);
}

static int count_kind(const records_t *records, uint32_t kind, uint64_t bytes, uint32_t direction) {
  int count = 0;
  for (int i = 0; i < records->count && i < MOST; i++) {
    const hal_profile_record_t *const record = &records->all[i];
    count += record->kind == kind && record->bytes == bytes &&
             (!direction || record->direction == direction || !record->direction);
  }
  return count;
}

void cts_case_profile_records(cts_t *t) {
  static records_t records;
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_OK(t, profile_enable, t->device, 1);
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, t->device, keep, &records);
  CTS_CHECK(t, !records.bad_size, "a record has a struct_size that is too small");
  CTS_CHECK(t, records.count >= 3, "a copy, a fill and a copy left %d records", records.count);
  CTS_CHECK(t, count_kind(&records, HAL_PROFILE_COPY, SIZE, HAL_COPY_HOST_TO_DEVICE) >= 1,
            "a copy of %d bytes to the device left no record", SIZE);
  CTS_CHECK(t, count_kind(&records, HAL_PROFILE_COPY, SIZE, HAL_COPY_DEVICE_TO_HOST) >= 1,
            "a copy of %d bytes to the host left no record", SIZE);
  CTS_CHECK(t, count_kind(&records, HAL_PROFILE_FILL, SIZE / 2, 0) == 1, "a fill of %d bytes left %d records", SIZE / 2,
            count_kind(&records, HAL_PROFILE_FILL, SIZE / 2, 0));
  CTS_JUDGE(t, profile_read, "those of one stream in its order");
  const hal_profile_record_t *last = NULL;
  for (int i = 0; i < records.count && i < MOST; i++) {
    const hal_profile_record_t *const record = &records.all[i];
    if (record->kind == HAL_PROFILE_LOST || record->kind == HAL_PROFILE_RANGE) continue;
    CTS_CHECK(t, record->start_ns <= record->end_ns, "record %d ends before it starts", i);
    if (record->stream != stream || !CTS_PROVIDES(t, stream_create)) continue;
    CTS_CHECK(t, !last || record->start_ns >= last->start_ns, "the records of one stream are not in its order");
    last = record;
  }
  CTS_JUDGE(t, profile_read, "forgets them");
  static records_t again;
  CTS_OK(t, profile_read, t->device, keep, &again);
  CTS_CHECK(t, again.count == 0, "profile_read handed out %d records a second time", again.count);
}

void cts_case_profile_forgets(cts_t *t) {
  static records_t records;
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_OK(t, profile_enable, t->device, 1);
  CTS_OK(t, profile_enable, t->device, 1);
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 1);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, t->device, keep, &records);
  CTS_CHECK(t, records.count == 0, "after the profile was turned on anew there were %d records of earlier work",
            records.count);
}

void cts_case_profile_clock(cts_t *t) {
  int64_t device_ns = -1, host_ns = -1, last_ns = INT64_MIN;
  for (int i = 0; i < 20; i++) {
    const int64_t before = cts_now_ns();
    CTS_OK(t, profile_timestamp, t->device, &device_ns, &host_ns);
    const int64_t after = cts_now_ns();
    CTS_CHECK(t, host_ns >= before && host_ns <= after,
              "profile_timestamp gave the host's time %lld, which is not between %lld and %lld", (long long)host_ns,
              (long long)before, (long long)after);
    CTS_CHECK(t, device_ns >= last_ns, "the device's clock went back from %lld to %lld", (long long)last_ns,
              (long long)device_ns);
    last_ns = device_ns;
  }
}

void cts_case_profile_range(cts_t *t) {
  CTS_OK(t, profile_range, "outer");
  CTS_OK(t, profile_range, "inner");
  CTS_OK(t, profile_range, NULL);
  CTS_OK(t, profile_range, NULL);
}

/* What is on stays on, what is off keeps its records, and work of before is not seen. */
void cts_case_profile_switches(cts_t *t) {
  static records_t first, second, third;
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, SIZE);
  CTS_OK(t, profile_enable, t->device, 0); /* off already */
  CTS_JUDGE(t, profile_enable, "work that was submitted earlier");
  if (held) cts_gate_close(t, &gate, stream);
  CTS_OK(t, memory_fill, stream, t->device, device, "", 1, 4096);
  CTS_OK(t, profile_enable, t->device, 1);
  if (held) cts_gate_open(&gate);
  cts_sync(t, stream);
  CTS_OK(t, profile_read, t->device, keep, &first);
  CTS_CHECK(t, count_kind(&first, HAL_PROFILE_FILL, 4096, 0) == 0,
            "a fill that was submitted before profile_enable left a record");
  CTS_JUDGE(t, profile_enable, "Twice the same");
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 1);
  CTS_JUDGE(t, profile_enable, "Off keeps the records");
  CTS_OK(t, profile_enable, t->device, 0);
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, t->device, keep, &second);
  const int count = count_kind(&second, HAL_PROFILE_FILL, SIZE / 2, 0);
  CTS_CHECK(t, count == 1, "one fill between on and off left %d records, when on and off were said twice", count);
  CTS_JUDGE(t, profile_enable, "Turns the collection");
  work(t, stream);
  CTS_OK(t, profile_read, t->device, keep, &third);
  CTS_CHECK(t, third.count == 0, "work left %d records while their collection was off", third.count);
}
