/* profile.c: records of the work that ran. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

enum { MOST = 64, SIZE = 40000 };

typedef struct records_s {
  hal_profile_record_t all[MOST];
  int count, bad_size;
} records_t;

static char names[MOST][64]; /* of the records that were read last, because they are borrowed */

static void keep(void *data, const hal_profile_record_t *record) {
  records_t *const records = data;
  if (records->count < MOST) snprintf(names[records->count], sizeof names[0], "%s", record->name ? record->name : "");
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
  CTS_JUDGE(t, profile_read, "those of one stream in order");
  const hal_profile_record_t *last = NULL;
  for (int i = 0; i < records.count && i < MOST; i++) {
    const hal_profile_record_t *const record = &records.all[i];
    if (record->kind == HAL_PROFILE_LOST || record->kind == HAL_PROFILE_RANGE) continue;
    CTS_CHECK(t, record->start_ns <= record->end_ns, "record %d ends before it starts", i);
    if (record->stream != stream || !CTS_PROVIDES(t, stream_create)) continue;
    CTS_CHECK(t, !last || record->start_ns >= last->start_ns, "the records of one stream are not in its order");
    last = record;
  }
  CTS_JUDGE(t, profile_read, "discards them");
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
              "profile_timestamp returned the host's time %lld, which is not between %lld and %lld", (long long)host_ns,
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

/* A repeated "on" changes nothing, "off" keeps the records, and earlier work leaves no record. */
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
  CTS_JUDGE(t, profile_enable, "A repeated call");
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 1);
  CTS_JUDGE(t, profile_enable, "Off keeps the records");
  CTS_OK(t, profile_enable, t->device, 0);
  work(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, t->device, keep, &second);
  const int count = count_kind(&second, HAL_PROFILE_FILL, SIZE / 2, 0);
  CTS_CHECK(t, count == 1, "one fill between on and off left %d records, when each was called twice", count);
  CTS_JUDGE(t, profile_enable, "Turns the collection");
  work(t, stream);
  CTS_OK(t, profile_read, t->device, keep, &third);
  CTS_CHECK(t, third.count == 0, "work left %d records while their collection was off", third.count);
}

/* ---- every piece of work has a record, or is counted as lost ---- */
enum { MANY = 20000, PIECE = 192 /* size of a fill, which no other work has */ };

typedef struct tally_s {
  uint64_t fills, lost, lost_records, behind_lost; /* of one reading: records after that of the lost ones */
} tally_t;

static void count_record(void *data, const hal_profile_record_t *record) {
  tally_t *const tally = data;
  tally->behind_lost += tally->lost_records != 0;
  tally->fills += record->kind == HAL_PROFILE_FILL && record->bytes == PIECE;
  if (record->kind == HAL_PROFILE_LOST) tally->lost_records++, tally->lost += record->bytes;
}

static void read_into(cts_t *t, tally_t *sum) {
  tally_t once = {0};
  CTS_OK(t, profile_read, t->device, count_record, &once);
  CTS_JUDGE(t, profile_read, "HAL_PROFILE_LOST comes last");
  CTS_CHECK(t, once.lost_records <= 1, "one profile_read returned %llu records of lost ones",
            (unsigned long long)once.lost_records);
  CTS_CHECK(t, !once.behind_lost, "%llu records came after that of the lost ones",
            (unsigned long long)once.behind_lost);
  CTS_CHECK(t, once.lost || !once.lost_records, "a record of lost ones has the count 0");
  sum->fills += once.fills, sum->lost += once.lost;
}

void cts_case_profile_loses(cts_t *t) {
  tally_t sum = {0};
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, PIECE);
  CTS_OK(t, profile_enable, t->device, 1);
  for (int i = 0; i < MANY; i++) {
    CTS_OK(t, memory_fill, stream, t->device, device, "", 1, PIECE);
    if (i % 1000 == 999) cts_sync(t, stream);
  }
  cts_sync(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  read_into(t, &sum);
  CTS_CHECK(t, sum.fills + sum.lost == MANY, "%d fills left %llu records, and %llu are reported as lost", MANY,
            (unsigned long long)sum.fills, (unsigned long long)sum.lost);
}

typedef struct filler_s {
  cts_t *t;
  hal_plugin_stream_t *stream;
  void *device;
  hal_status_t failure;
  atomic_int done;
  atomic_uint readings; /* that have begun */
} filler_t;

/* Waits until a reading begins, without sleeping, so that work that is queued then overlaps it on any machine. It stops
 * when the case is over. */
static void await_reading(filler_t *with, unsigned *seen) {
  const int64_t until = cts_now_ns() + INT64_C(1000000000);
  while (atomic_load(&with->readings) == *seen && cts_now_ns() < until) sched_yield();
  *seen = atomic_load(&with->readings);
}

/* Calls bypass the page, where only one thread at a time can record its call. */
static void *fill_many(void *data) {
  filler_t *const with = data;
  hal_plugin_t *const plugin = with->t->plugin;
  unsigned seen = 0;
  for (int i = 0; i < MANY / 4 && !with->failure; i++) {
    if (i % 250 == 0) await_reading(with, &seen);
    with->failure = hal_call_memory_fill(plugin, with->stream, with->t->device, with->device, "", 1, PIECE);
    if (i % 500 == 499 && !with->failure) with->failure = hal_call_stream_synchronize(plugin, with->stream);
  }
  if (!with->failure) with->failure = hal_call_stream_synchronize(plugin, with->stream);
  atomic_store(&with->done, 1);
  return NULL;
}

/* Records are read while work runs: none is missing, and none occurs twice. */
void cts_case_profile_meanwhile(cts_t *t) {
  tally_t sum = {0};
  filler_t with = {.t = t, .stream = cts_stream(t), .device = cts_alloc(t, PIECE)};
  pthread_t thread;
  CTS_OK(t, profile_enable, t->device, 1);
  CTS_CHECK(t, !pthread_create(&thread, NULL, fill_many, &with), "error of the suite: no thread can be made");
  do {
    CTS_JUDGE(t, profile_read, "Work may run meanwhile");
    atomic_fetch_add(&with.readings, 1);
    read_into(t, &sum);
    cts_nap();
  } while (!atomic_load(&with.done));
  pthread_join(thread, NULL);
  CTS_CHECK(t, !with.failure, "a fill while records were read returned %s", hal_status_name(with.failure));
  CTS_OK(t, profile_enable, t->device, 0);
  read_into(t, &sum);
  CTS_JUDGE(t, profile_read, "Work may run meanwhile");
  CTS_CHECK(t, sum.fills + sum.lost == MANY / 4,
            "%d fills, of which records were read meanwhile, left %llu records, and %llu are reported as lost",
            MANY / 4, (unsigned long long)sum.fills, (unsigned long long)sum.lost);
}

/* A kernel's record has its name, and each record the number that the host returned when it was submitted. */
void cts_case_profile_kernels(cts_t *t) {
  enum { LAUNCHES = 3 };
  static records_t records;
  if (!CTS_PROVIDES(t, kernel_launch)) cts_skip(t, "the plugin does not provide kernel_launch");
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  int seen = 0;
  CTS_OK(t, profile_enable, t->device, 1);
  for (int i = 0; i < LAUNCHES; i++) cts_ramp_launch(t, kernel, stream, device, i, CTS_RAMP);
  cts_sync(t, stream);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, t->device, keep, &records);
  for (int i = 0; i < records.count && i < MOST; i++) {
    const hal_profile_record_t *const record = &records.all[i];
    if (record->kind != HAL_PROFILE_KERNEL) continue;
    seen++;
    CTS_CHECK(t, record->name && strcmp(names[i], "cts_ramp") == 0,
              "the record of a launch has the name \"%s\" instead of \"cts_ramp\"", names[i]);
    CTS_CHECK(t, !record->stream || record->stream == stream, "the record of a launch names another stream");
  }
  CTS_CHECK(t, seen == LAUNCHES, "%d launches left %d records of kernels", LAUNCHES, seen);
}

/* The records of one device contain no others. */
void cts_case_profile_of_one_device(cts_t *t) {
  static records_t own, others;
  const int32_t other = t->device ? 0 : 1;
  cts_t second = *t;
  second.device = other;
  hal_plugin_stream_t *const here = cts_stream(t), *const there = cts_stream(&second);
  CTS_OK(t, profile_enable, t->device, 1);
  work(&second, there);
  work(t, here);
  CTS_OK(t, profile_enable, t->device, 0);
  CTS_OK(t, profile_read, other, keep, &others);
  CTS_CHECK(t, others.count == 0, "%d records of a device whose collection was never turned on", others.count);
  CTS_OK(t, profile_read, t->device, keep, &own);
  CTS_CHECK(t, count_kind(&own, HAL_PROFILE_FILL, SIZE / 2, 0) == 1,
            "one fill on a device, and one on another, left it %d records",
            count_kind(&own, HAL_PROFILE_FILL, SIZE / 2, 0));
}
