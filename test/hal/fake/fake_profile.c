/* fake_profile.c: the records that the fake device collects of its work. */
#define _GNU_SOURCE
#include <hal/plugin_kernels.h>
#include <pthread.h>

#include "fake_support.h"

TestSuite(fake_profile, .fini = close_plugin, .timeout = 120);

/* The records, in the order in which they were read. */
typedef struct records_s {
  hal_profile_record_t list[8192];
  char names[64];
  size_t count;
  uint64_t lost;
} records_t;

static void keep(void *user_data, const hal_profile_record_t *record) {
  records_t *records = user_data;
  cr_assert_geq(record->struct_size, sizeof *record);
  if (record->kind == HAL_PROFILE_LOST) {
    records->lost += record->bytes;
    return;
  }
  cr_assert_eq(records->lost, 0, "what is lost comes last");
  cr_assert_lt(records->count, sizeof records->list / sizeof *records->list);
  if (!records->count) snprintf(records->names, sizeof records->names, "%s", record->name);
  records->list[records->count++] = *record;
}

static records_t records;

static size_t read_records(int32_t device) {
  records.count = records.lost = 0;
  must(fake_api.profile_read(device, keep, &records));
  return records.count;
}

static void one_add(hal_plugin_stream_t *stream, size_t n) { add_ones(stream, new_floats(n, 0), new_floats(n, 1), n); }

Test(fake_profile, off_collects_nothing) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  one_add(stream, 1000);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(read_records(0), 0);
}

static void a_kernel(int async) {
  const size_t n = 1 << 20;
  open_mode(async, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *out = new_floats(n, 0), *ones = new_floats(n, 1);
  must(fake_api.profile_enable(0, 1));
  const int64_t before = fake_clock();
  fake_correlation = 4711;
  add_ones(stream, out, ones, n);
  fake_correlation = 1; /* the time of submission counts */
  must(fake_api.stream_synchronize(stream));
  const int64_t after = fake_clock();
  must(fake_api.profile_enable(0, 0));
  cr_assert_eq(read_records(0), 1);
  const hal_profile_record_t *record = &records.list[0];
  cr_assert_str_eq(records.names, "add_f32_contig");
  cr_assert_eq(record->kind, HAL_PROFILE_KERNEL);
  cr_assert_eq(record->correlation, 4711);
  cr_assert_eq(record->stream, stream);
  cr_assert_eq(record->bytes, 0);
  cr_assert(before <= record->start_ns && record->end_ns <= after);
  cr_assert_gt(record->end_ns - record->start_ns, 20000, "12 MiB of memory in %lld ns",
               (long long)(record->end_ns - record->start_ns));
  cr_assert_eq(out[n - 1], 1.0f);
  cr_assert_eq(read_records(0), 0, "records are forgotten once read");
}

Test(fake_profile, a_kernel_leaves_name_times_stream_and_correlation) { a_kernel(1); }
Test(fake_profile, a_kernel_leaves_name_times_stream_and_correlation_inline) { a_kernel(0); }

static void copies(int async) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(async, 2);
  hal_plugin_stream_t *stream = new_stream();
  char host[300] = "bytes", *a = new_memory(4096), *b = new_memory(4096);
  void *peer = NULL;
  must(fake_api.memory_alloc(1, 4096, 0, &peer));
  must(fake_api.profile_enable(0, 1));
  must(fake_api.memory_copy(stream, a, 0, host, HAL_HOST, 100));
  must(fake_api.memory_copy(stream, b, 0, a, 0, 200));
  must(fake_api.memory_copy(stream, host, HAL_HOST, b, 0, 300));
  must(fake_api.memory_copy(stream, peer, 1, a, 0, 400));
  must(fake_api.memory_fill(stream, 0, a, "\1\2\3\4", 4, 512));
  must(fake_api.stream_synchronize(stream));
  must(fake_api.memory_copy(NULL, a, 0, host, HAL_HOST, 50));                 /* the synchronous stream */
  must(fake_api.memory_copy(NULL, host, HAL_HOST, host + 100, HAL_HOST, 10)); /* no device's work */
  must(fake_api.profile_enable(0, 0));
  cr_assert_eq(read_records(0), 6);
  static const struct {
    uint32_t kind, direction;
    uint64_t bytes;
  } expected[] = {{HAL_PROFILE_COPY, HAL_COPY_HOST_TO_DEVICE, 100},
                  {HAL_PROFILE_COPY, HAL_COPY_DEVICE_TO_DEVICE, 200},
                  {HAL_PROFILE_COPY, HAL_COPY_DEVICE_TO_HOST, 300},
                  {HAL_PROFILE_COPY, HAL_COPY_PEER, 400},
                  {HAL_PROFILE_FILL, 0, 512},
                  {HAL_PROFILE_COPY, HAL_COPY_HOST_TO_DEVICE, 50}};
  for (size_t i = 0; i < 6; i++) {
    cr_assert_eq(records.list[i].kind, expected[i].kind, "%zu", i);
    cr_assert_eq(records.list[i].direction, expected[i].direction, "%zu", i);
    cr_assert_eq(records.list[i].bytes, expected[i].bytes, "%zu", i);
    cr_assert_eq(records.list[i].stream, i < 5 ? stream : NULL, "%zu", i);
  }
}

Test(fake_profile, copies_and_fills_leave_bytes_and_direction) { copies(1); }
Test(fake_profile, copies_and_fills_leave_bytes_and_direction_inline) { copies(0); }

Test(fake_profile, records_of_a_stream_are_in_its_order_and_do_not_overlap) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *out = new_floats(64, 0), *ones = new_floats(64, 1);
  must(fake_api.profile_enable(0, 1));
  for (uint64_t i = 1; i <= 2000; i++) {
    fake_correlation = i;
    add_ones(stream, out, ones, 64);
  }
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(read_records(0), 2000);
  for (size_t i = 0; i < 2000; i++) {
    cr_assert_eq(records.list[i].correlation, i + 1);
    cr_assert_leq(records.list[i].start_ns, records.list[i].end_ns);
    if (i) cr_assert_geq(records.list[i].start_ns, records.list[i - 1].end_ns);
  }
}

Test(fake_profile, a_full_buffer_counts_what_it_loses) {
  setenv("HAL_FAKE_PROFILE", "8", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  must(fake_api.profile_enable(0, 1));
  for (int i = 0; i < 20; i++) one_add(stream, 16);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(read_records(0), 8);
  cr_assert_eq(records.lost, 12);
  one_add(stream, 16); /* there is free space again, and the count restarts */
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(read_records(0), 1);
  cr_assert_eq(records.lost, 0);
}

Test(fake_profile, work_submitted_before_or_after_leaves_none) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  one_add(stream, 16); /* runs during the profile */
  must(fake_api.profile_enable(0, 1));
  one_add(stream, 16);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
  must(fake_api.profile_enable(0, 0));
  one_add(stream, 16);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(read_records(0), 1);
}

Test(fake_profile, enabling_twice_changes_nothing_and_anew_forgets) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  must(fake_api.profile_enable(0, 0)); /* it is off */
  must(fake_api.profile_enable(0, 1));
  one_add(stream, 16);
  must(fake_api.stream_synchronize(stream));
  must(fake_api.profile_enable(0, 1));
  cr_assert_eq(read_records(0), 1);
  one_add(stream, 16);
  must(fake_api.stream_synchronize(stream));
  must(fake_api.profile_enable(0, 0));
  must(fake_api.profile_enable(0, 0));
  must(fake_api.profile_enable(0, 1)); /* not read yet */
  cr_assert_eq(read_records(0), 0);
  must(fake_api.profile_enable(0, 0));
}

Test(fake_profile, devices_collect_for_themselves) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *first = new_stream(), *second = NULL;
  must(fake_api.stream_create(1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &second));
  must(fake_api.profile_enable(1, 1));
  one_add(first, 16); /* from the device that does not collect records */
  one_add(second, 16);
  one_add(second, 16);
  must(fake_api.device_synchronize(0));
  must(fake_api.device_synchronize(1));
  cr_assert_eq(read_records(0), 0);
  cr_assert_eq(read_records(1), 2);
  must_fail(fake_api.profile_enable(2, 1), HAL_INVALID_ARGUMENT, "invalid device 2");
  must_fail(fake_api.profile_read(-1, keep, &records), HAL_INVALID_ARGUMENT, "invalid device -1");
}

/* A kernel without a stream belongs to the device that owns its memory. */
Test(fake_profile, a_launch_on_no_stream_is_of_its_memory_s_device) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 2);
  void *out = NULL;
  must(fake_api.memory_alloc(1, 64, 0, &out));
  must(fake_api.memory_fill(NULL, 1, out, "", 1, 64));
  must(fake_api.profile_enable(0, 1));
  must(fake_api.profile_enable(1, 1));
  add_ones(NULL, out, out, 16);
  cr_assert_eq(read_records(0), 0);
  cr_assert_eq(read_records(1), 1);
}

Test(fake_profile, a_failed_launch_leaves_none) {
  setenv("HAL_FAKE_FAULT", "2", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  must(fake_api.profile_enable(0, 1));
  for (int i = 0; i < 3; i++) one_add(stream, 16);
  must_fail(fake_api.stream_synchronize(stream), HAL_INTERNAL, "add_f32_contig");
  cr_assert_lt(read_records(0), 3);
}

/* ---- threads ---- */

enum { THREADS = 4, LAUNCHES = 1000 };

static void *launch_many(void *argument) {
  hal_plugin_stream_t *stream = argument;
  float *out = new_floats(64, 0), *ones = new_floats(64, 1);
  fake_correlation = (uint64_t)(uintptr_t)stream;
  for (int i = 0; i < LAUNCHES; i++) add_ones(stream, out, ones, 64);
  must(fake_api.stream_synchronize(stream));
  return NULL;
}

static void threads(int async) {
  open_mode(async, 2);
  fake_kernel("add_f32_contig"); /* loads the module once */
  must(fake_api.profile_enable(0, 1));
  pthread_t ids[THREADS];
  size_t total = 0;
  for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_create(&ids[i], NULL, launch_many, new_stream()), 0);
  for (int i = 0; i < 200; i++) { /* reading while other threads work must not lose or duplicate records */
    total += read_records(0);
    for (size_t j = 0; j < records.count; j++)
      cr_assert_eq(records.list[j].correlation, (uint64_t)(uintptr_t)records.list[j].stream);
    cr_assert_eq(records.lost, 0);
    fake_sleep_ms(1);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  total += read_records(0);
  cr_assert_eq(total, THREADS * LAUNCHES, "%zu", total);
}

Test(fake_profile, threads_lose_nothing_while_one_reads) { threads(1); }
Test(fake_profile, threads_lose_nothing_while_one_reads_inline) { threads(0); }

/* ---- names ---- */

static void do_nothing(const hal_host_range_t *range, void *const *args) { (void)range, (void)args; }

/* The library of a kernel may be unloaded when its record is read. */
Test(fake_profile, a_name_outlives_its_module) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  char *name = malloc(32);
  hal_host_kernel_t *table = malloc(sizeof *table);
  snprintf(name, 32, "of_a_library");
  *table = (hal_host_kernel_t){.name = name, .fn = do_nothing, .unit = HAL_HOST_ITEMS, .grain = 64};
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "host", .options = "", .data = table, .size = sizeof *table};
  hal_plugin_module_t *module = NULL;
  hal_plugin_kernel_t *kernel = NULL;
  const hal_launch_t launch = {.struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  must(fake_api.profile_enable(0, 1));
  must(fake_api.module_load(0, &desc, &module));
  must(fake_api.kernel_get(module, "of_a_library", &kernel));
  must(fake_api.kernel_launch(kernel, stream, &launch));
  must(fake_api.stream_synchronize(stream));
  must(fake_api.module_unload(module));
  memset(name, 'x', 31);
  free(name);
  free(table);
  cr_assert_eq(read_records(0), 1);
  cr_assert_str_eq(records.names, "of_a_library");
}

/* The variable sets the capacity in records. */
Test(fake_profile, a_wrong_size_of_the_buffer_is_refused) {
  setenv("HAL_FAKE_PROFILE", "none", 1);
  fake_load();
  must_fail(fake_api.init(""), HAL_INVALID_ARGUMENT, "HAL_FAKE_PROFILE is 'none'");
}
