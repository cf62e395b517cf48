/* fake_launch.c: the cost of a launch on the fake device, and its memory bandwidth, compared with memcpy and a plain
 * loop in two threads, in the same run.
 *
 *   HAL_PLUGIN_PATH=<directory of libhal_fake.so> fake_launch
 *
 * Each mode runs in a separate process, since the settings are read once. Figures are the best of several
 * repetitions for throughput and the median for latency: on a shared machine, the worst figure shows the load of
 * other programs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../hal/fake/fake_testing.h"

#define SAMPLES 2001
#define BIG (16u << 20) /* floats */

static hal_plugin_kernel_t *add;
static hal_plugin_stream_t *stream;

static void must(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s\n", fake_message);
  exit(2);
}

static int compare(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t median(int64_t *samples, int count) {
  qsort(samples, (size_t)count, sizeof *samples, compare);
  return samples[count / 2];
}

static void *device_memory(size_t bytes) {
  void *ptr = NULL;
  must(fake_api.memory_alloc(0, bytes, 0, &ptr));
  return ptr;
}

/* ---- latency
 * ------------------------------------------------------------------------------------------------------------ */

static void spin_for(int64_t ns) {
  const int64_t end = fake_clock() + ns;
  while (fake_clock() < end) continue;
}

/* Time of one launch of 16 floats; `pause_ns` between launches: 0 = one after another, 3000 = as from Python, more
 * than the 20 us of spinning = the worker sleeps. The two clock readings are subtracted. */
static double launch_ns(int64_t pause_ns, int samples) {
  static int64_t taken[SAMPLES], empty[SAMPLES];
  float *data = device_memory(4096);
  memset(data, 0, 4096);
  fake_add_t launch;
  fake_add_set(&launch, data, data + 16, data + 32, 1.0f, 16);
  must(fake_api.stream_synchronize(stream));
  for (int i = 0; i < samples; i++) {
    if (pause_ns >= 100000)
      fake_sleep_ms(1);
    else
      spin_for(pause_ns);
    const int64_t before = fake_clock();
    must(fake_api.kernel_launch(add, stream, &launch.launch));
    const int64_t after = fake_clock();
    taken[i] = after - before;
    empty[i] = fake_clock() - after;
  }
  must(fake_api.stream_synchronize(stream));
  must(fake_api.memory_free(0, data));
  return (double)(median(taken, samples) - median(empty, samples));
}

/* Time per launch of `count` launches in a row, best of 50; with `wait`, the time includes the completion of the
   work. */
static double burst_ns(int count, int wait) {
  float *data = device_memory(4096);
  memset(data, 0, 4096);
  fake_add_t launch;
  fake_add_set(&launch, data, data + 16, data + 32, 1.0f, 16);
  int64_t best = INT64_MAX;
  for (int i = 0; i < 50; i++) {
    must(fake_api.stream_synchronize(stream));
    const int64_t before = fake_clock();
    for (int k = 0; k < count; k++) must(fake_api.kernel_launch(add, stream, &launch.launch));
    if (wait) must(fake_api.stream_synchronize(stream));
    const int64_t taken = fake_clock() - before;
    if (taken < best) best = taken;
  }
  must(fake_api.stream_synchronize(stream));
  must(fake_api.memory_free(0, data));
  return (double)best / count;
}

static _Atomic int64_t started;
static void stamp(void *data) {
  (void)data;
  atomic_store(&started, fake_clock());
}

/* From the enqueue to the start of the item on the worker. */
static double start_ns(int asleep, int samples) {
  static int64_t taken[SAMPLES];
  for (int i = 0; i < samples; i++) {
    atomic_store(&started, 0);
    if (asleep)
      fake_sleep_ms(1);
    else
      spin_for(3000);
    const int64_t before = fake_clock();
    must(fake_api.stream_host_call(stream, stamp, NULL));
    while (!atomic_load(&started)) continue;
    taken[i] = atomic_load(&started) - before;
  }
  return (double)median(taken, samples);
}

/* ---- throughput
 * --------------------------------------------------------------------------------------------------------- */

typedef struct half_s {
  float *out;
  const float *a, *b; /* b NULL = copy */
  size_t n;
} half_t;

static void *run_half(void *argument) {
  const half_t *half = argument;
  float *restrict out = half->out;
  const float *restrict a = half->a, *restrict b = half->b;
  if (!b) memcpy(out, a, half->n * sizeof *out);
  for (size_t i = 0; b && i < half->n; i++) out[i] = a[i] + b[i];
  return NULL;
}

/* The baseline: existing threads would save a few microseconds of some milliseconds. */
static void two_threads(float *out, const float *a, const float *b, size_t n) {
  half_t low = {out, a, b, n / 2}, high = {out + n / 2, a + n / 2, b ? b + n / 2 : NULL, n - n / 2};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_half, &high)) exit(2);
  run_half(&low);
  pthread_join(thread, NULL);
}

enum { PLUGIN_COPY, MEMCPY, THREADS_COPY, PLUGIN_ADD, LOOP_ADD, THREADS_ADD, KINDS };

static void run_kind(int kind, float *out, const float *a, const float *b, fake_add_t *launch) {
  switch (kind) {
    case PLUGIN_COPY:
      must(fake_api.memory_copy(stream, out, 0, a, 0, BIG * sizeof *out));
      must(fake_api.stream_synchronize(stream));
      break;
    case MEMCPY:
      memcpy(out, a, BIG * sizeof *out);
      break;
    case THREADS_COPY:
      two_threads(out, a, NULL, BIG);
      break;
    case PLUGIN_ADD:
      must(fake_api.kernel_launch(add, stream, &launch->launch));
      must(fake_api.stream_synchronize(stream));
      break;
    case LOOP_ADD:
      run_half(&(half_t){out, a, b, BIG});
      break;
    default:
      two_threads(out, a, b, BIG);
      break;
  }
}

/* The kinds run alternately, so that all of them run under the same load. */
static void throughput(void) {
  static const char *const names[KINDS] = {"copy, plugin", "copy, memcpy",     "copy, 2 threads memcpy",
                                           "add,  plugin", "add,  plain loop", "add,  2 threads loop"};
  const size_t bytes = BIG * sizeof(float);
  float *a = device_memory(bytes), *b = device_memory(bytes), *out = device_memory(bytes);
  for (size_t i = 0; i < BIG; i++) a[i] = (float)i, b[i] = 1.0f, out[i] = 0;
  fake_add_t launch;
  fake_add_set(&launch, out, a, b, 1.0f, BIG);
  int64_t best[KINDS];
  for (int k = 0; k < KINDS; k++) best[k] = INT64_MAX;
  for (int i = 0; i < 20; i++) {
    for (int k = 0; k < KINDS; k++) {
      const int64_t before = fake_clock();
      run_kind(k, out, a, b, &launch);
      const int64_t taken = fake_clock() - before;
      if (taken < best[k]) best[k] = taken;
      if (out[BIG - 1] != a[BIG - 1] + (k >= PLUGIN_ADD ? 1.0f : 0.0f)) exit(3);
    }
  }
  for (int k = 0; k < KINDS; k++) {
    const int peer = k < PLUGIN_ADD ? THREADS_COPY : THREADS_ADD;
    printf("  %-24s %7.2f ms %7.1f GB/s   %4.2fx of 2 threads\n", names[k], (double)best[k] * 1e-6,
           (double)(bytes * (k < PLUGIN_ADD ? 2 : 3)) / (double)best[k], (double)best[k] / (double)best[peer]);
  }
  must(fake_api.memory_free(0, a));
  must(fake_api.memory_free(0, b));
  must(fake_api.memory_free(0, out));
}

/* ---- modes
 * -------------------------------------------------------------------------------------------------------------- */

static int run_mode(const char *async) {
  setenv("HAL_FAKE_ASYNC", async, 1);
  fake_open();
  add = fake_kernel("add_f32_contig");
  must(fake_api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  printf("HAL_FAKE_ASYNC=%s\n", async);
  if (*async == '0') {
    printf("  launch, 16 floats        %7.0f ns\n", burst_ns(1000, 0));
  } else {
    printf(
        "  launch, 16 floats: enqueue only, 200 in a row %7.0f ns; worker awake (every 3 us) %7.0f ns; asleep %7.0f "
        "ns\n",
        burst_ns(200, 0), launch_ns(3000, SAMPLES), launch_ns(1000000, 501));
    printf("  launch and run, 1000 in a row %7.0f ns\n", burst_ns(1000, 1));
    printf("  from enqueue to start: worker awake %7.0f ns, asleep %7.0f ns\n", start_ns(0, SAMPLES), start_ns(1, 501));
  }
  printf("  16 M floats:\n");
  throughput();
  must(fake_api.stream_destroy(stream));
  fflush(stdout);
  return 0;
}

int main(void) {
  int failed = 0;
  fake_load();
  static const char *const modes[] = {"0", "1"};
  for (int i = 0; i < 2; i++) {
    const pid_t child = fork();
    if (child == 0) _exit(run_mode(modes[i]));
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) failed = 1;
  }
  return failed;
}
