/* fake.c: many threads, streams, events and host functions on the fake device at once; a plain program, since
 * Criterion does not run under the thread sanitizer. Exits with 0 if each result is correct.
 *
 *   fake [rounds]
 *
 * Runs with HAL_FAKE_ASYNC=1 and 0, each in a separate process.
 *
 * Each stream owns a counter in device memory that only work on that stream accesses, unless an event orders it. A
 * kernel adds one, so that a lost, duplicated or reordered item changes the sum. Cross-stream steps wait for another
 * stream's event and then read the counter of that stream. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "../fake/fake_testing.h"

#define THREADS 8
#define STREAMS 16
#define BIG (1u << 18) /* floats: divided among the pool */

static hal_plugin_stream_t *streams[STREAMS];
static float *counters[STREAMS];     /* 16 floats each */
static atomic_int enqueued[STREAMS]; /* launches whose call has returned */
static atomic_int calls, called, failures;
static hal_plugin_kernel_t *add;
static float *ones;
static int rounds = 300;

#define MUST(call)                                                     \
  do {                                                                 \
    const hal_status_t must_ = (call);                                 \
    if (must_) {                                                       \
      fprintf(stderr, "%s: %d %s\n", #call, (int)must_, fake_message); \
      atomic_fetch_add(&failures, 1);                                  \
    }                                                                  \
  } while (0)

static uint32_t next_random(uint32_t *state) {
  *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
  return *state;
}

static void count_call(void *data) {
  (void)data;
  atomic_fetch_add(&called, 1);
}

static void add_one(int s) {
  fake_add_t launch;
  fake_add_set(&launch, counters[s], counters[s], ones, 1.0f, 16);
  MUST(fake_api.kernel_launch(add, streams[s], &launch.launch));
  atomic_fetch_add(&enqueued[s], 1);
}

/* Stream s waits for an event of stream t, then copies t's counter as it was at the event or later: at least the
 * number of items enqueued before. */
typedef struct crossing_s {
  float seen[16];
  float least;
} crossing_t;

static void check_crossing(void *data) {
  crossing_t *crossing = data;
  if (crossing->seen[0] < crossing->least) {
    fprintf(stderr, "a stream passed an event too early: saw %g, at least %g was queued before it\n", crossing->seen[0],
            crossing->least);
    atomic_fetch_add(&failures, 1);
  }
  free(crossing);
  atomic_fetch_add(&called, 1);
}

static void cross(int s, int t, uint32_t flags) {
  crossing_t *crossing = calloc(1, sizeof *crossing);
  hal_plugin_event_t *event = NULL;
  if (!crossing) exit(2);
  MUST(fake_api.event_create(0, flags, &event));
  crossing->least = (float)atomic_load(&enqueued[t]); /* other threads may be enqueuing more */
  MUST(fake_api.memory_copy(streams[t], crossing->seen, HAL_HOST, counters[t], 0, sizeof crossing->seen));
  MUST(fake_api.event_record(event, streams[t]));
  MUST(fake_api.stream_wait_event(streams[s], event));
  MUST(fake_api.event_destroy(event)); /* right after the call: the wait remains valid */
  atomic_fetch_add(&calls, 1);
  MUST(fake_api.stream_host_call(streams[s], check_crossing, crossing));
}

/* A launch that is divided among the threads of the pool, on a private buffer. */
static void big_launch(int s, float *buffer) {
  fake_add_t launch;
  const float two = 2.0f;
  MUST(fake_api.memory_fill(streams[s], 0, buffer, &two, sizeof two, BIG * sizeof *buffer));
  fake_add_set(&launch, buffer, buffer, buffer, 1.0f, BIG);
  MUST(fake_api.kernel_launch(add, streams[s], &launch.launch));
  MUST(fake_api.stream_synchronize(streams[s]));
  for (uint32_t i = 0; i < BIG; i += 997) {
    if (buffer[i] == 4.0f) continue;
    fprintf(stderr, "big launch: element %u is %g, not 4\n", (unsigned)i, buffer[i]);
    atomic_fetch_add(&failures, 1);
    return;
  }
}

static void *thread_main(void *argument) {
  uint32_t state = 2463534242u + 7919u * (uint32_t)(uintptr_t)argument;
  float *buffer = NULL;
  hal_plugin_event_t *mine = NULL;
  MUST(fake_api.memory_alloc(0, BIG * sizeof *buffer, 0, (void **)&buffer));
  MUST(fake_api.event_create(0, HAL_EVENT_TIMING, &mine));
  for (int i = 0; i < rounds; i++) {
    const int s = (int)(next_random(&state) % STREAMS), t = (int)(next_random(&state) % STREAMS);
    const uint32_t what = next_random(&state) % 16;
    for (int k = 0; k < 8; k++) add_one(s);
    if (what < 6) {
      cross(s, t, what & 1 ? HAL_EVENT_TIMING : 0);
    } else if (what < 8) {
      atomic_fetch_add(&calls, 1);
      MUST(fake_api.stream_host_call(streams[s], count_call, NULL));
    } else if (what < 10) {
      MUST(fake_api.stream_synchronize(streams[s]));
    } else if (what < 12) {
      MUST(fake_api.event_record(mine, streams[s]));
      if (what == 10) MUST(fake_api.event_synchronize(mine));
    } else if (what == 12) {
      big_launch(s, buffer);
    } else if (what == 13) {
      const hal_status_t status = fake_api.stream_query(streams[t]);
      if (status && status != HAL_NOT_READY) atomic_fetch_add(&failures, 1);
    } else if (what == 14) {
      hal_plugin_stream_t *own = NULL;
      MUST(fake_api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(-1), &own));
      MUST(fake_api.event_record(mine, streams[t]));
      MUST(fake_api.stream_wait_event(own, mine));
      atomic_fetch_add(&calls, 1);
      MUST(fake_api.stream_host_call(own, count_call, NULL));
      MUST(fake_api.stream_destroy(own));
    } else {
      fake_api.stream_synchronize_timeout(streams[t], 20000);
    }
  }
  MUST(fake_api.device_synchronize(0));
  MUST(fake_api.event_destroy(mine));
  MUST(fake_api.memory_free(0, buffer));
  return NULL;
}

static int run_mode(const char *async) {
  setenv("HAL_FAKE_ASYNC", async, 1);
  fake_open();
  add = fake_kernel("add_f32_contig");
  MUST(fake_api.memory_alloc(0, 64, 0, (void **)&ones));
  for (int i = 0; i < 16; i++) ones[i] = 1.0f;
  for (int s = 0; s < STREAMS; s++) {
    const float zero = 0;
    MUST(fake_api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(s % 4 ? 0 : -1), &streams[s]));
    MUST(fake_api.memory_alloc(0, 64, 0, (void **)&counters[s]));
    MUST(fake_api.memory_fill(streams[s], 0, counters[s], &zero, sizeof zero, 64));
  }
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, thread_main, (void *)(i + 1))) exit(2);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  MUST(fake_api.device_synchronize(0));
  for (int s = 0; s < STREAMS; s++) {
    const float expected = (float)enqueued[s];
    if (counters[s][0] != expected || counters[s][15] != expected) {
      fprintf(stderr, "stream %d counted %g, expected %g\n", s, counters[s][0], expected);
      atomic_fetch_add(&failures, 1);
    }
    MUST(fake_api.stream_destroy(streams[s]));
    MUST(fake_api.memory_free(0, counters[s]));
  }
  MUST(fake_api.memory_free(0, ones));
  if (called != calls) {
    fprintf(stderr, "%d host functions ran of %d\n", (int)called, (int)calls);
    atomic_fetch_add(&failures, 1);
  }
  MUST(fake_api.shutdown(0));
  printf("HAL_FAKE_ASYNC=%s, %d threads x %d rounds on %d streams: %s\n", async, THREADS, rounds, STREAMS,
         failures ? "WRONG" : "right");
  return failures ? 1 : 0;
}

int main(int argc, char **argv) {
  static const char *const modes[] = {"1", "0"};
  int failed = 0;
  if (argc > 1) rounds = atoi(argv[1]);
  for (int i = 0; i < 2; i++) {
    const pid_t child = fork();
    if (child == 0) return run_mode(modes[i]); /* through exit, where the sanitizers report */
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) failed = 1;
  }
  return failed;
}
