/* fake_host_parallel.c: the extension "hal.host_parallel": the plugin's threads compute parts of the program's code. */
#define _GNU_SOURCE
#include <hal/plugin_records.h>
#include <pthread.h>
#include <stdatomic.h>

#include "fake_support.h"

TestSuite(fake_host_parallel, .fini = close_plugin);

#define MOST_PARTS 4096

typedef struct work_s {
  atomic_uint calls[MOST_PARTS]; /* of each part */
  atomic_uint slow, last_thread, threads;
} work_t;

static const hal_host_parallel_t *find(void) {
  const hal_extension_t *first = NULL;
  must(fake_api.extensions(&first));
  const hal_extension_t *const found =
      hal_extension_find(first, HAL_HOST_PARALLEL, HAL_STRUCT_SIZE(hal_host_parallel_t, reserved));
  cr_assert_not_null(found);
  return (const hal_host_parallel_t *)(const void *)found;
}

/* With `slow`, a part takes a millisecond, so that sharing it pays. */
static void count_part(void *data, uint64_t part) {
  static atomic_uint numbers;
  static _Thread_local unsigned number;
  work_t *const work = data;
  if (!number) number = atomic_fetch_add(&numbers, 1) + 1;
  if (atomic_exchange(&work->last_thread, number) != number) atomic_fetch_add(&work->threads, 1);
  if (atomic_load(&work->slow)) fake_sleep_ms(1);
  atomic_fetch_add(&work->calls[part], 1);
}

static void check_each_part(work_t *work, uint64_t parts, unsigned times) {
  for (uint64_t i = 0; i < MOST_PARTS; i++)
    cr_assert_eq(atomic_load(&work->calls[i]), i < parts ? times : 0, "part %llu of %llu", (unsigned long long)i,
                 (unsigned long long)parts);
}

static void run_all_sizes(int async, uint32_t threads) {
  static const uint64_t sizes[] = {0, 1, 2, 3, 8, 100, MOST_PARTS};
  open_mode(async, threads);
  const hal_host_parallel_t *const parallel = find();
  cr_assert_eq(parallel->threads, threads);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    work_t *const work = calloc(1, sizeof *work);
    for (int turn = 0; turn < 3; turn++) parallel->run(count_part, work, sizes[i]);
    check_each_part(work, sizes[i], 3);
    free(work);
  }
}

Test(fake_host_parallel, each_part_runs_once_before_the_call_returns, .timeout = 60) { run_all_sizes(1, 3); }
Test(fake_host_parallel, also_inline, .timeout = 60) { run_all_sizes(0, 3); }
Test(fake_host_parallel, also_on_one_thread, .timeout = 60) { run_all_sizes(1, 1); }

Test(fake_host_parallel, several_threads_compute_long_parts, .timeout = 60) {
  open_mode(1, 4);
  work_t *const work = calloc(1, sizeof *work);
  atomic_store(&work->slow, 1);
  find()->run(count_part, work, 64);
  check_each_part(work, 64, 1);
  cr_assert_gt(atomic_load(&work->threads), 1);
  free(work);
}

static void run_in_stream(void *data) { find()->run(count_part, data, 64); }

Test(fake_host_parallel, functions_of_several_streams_use_it_at_the_same_time, .timeout = 60) {
  enum { STREAMS = 6 };
  open_mode(1, 2);
  hal_plugin_stream_t *streams[STREAMS];
  work_t *const work = calloc(STREAMS, sizeof *work);
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = new_stream();
    atomic_store(&work[i].slow, 1);
    for (int turn = 0; turn < 4; turn++) must(fake_api.stream_host_call(streams[i], run_in_stream, &work[i]));
  }
  for (int i = 0; i < STREAMS; i++) {
    must(fake_api.stream_synchronize(streams[i]));
    check_each_part(&work[i], 64, 4);
  }
  free(work);
}
