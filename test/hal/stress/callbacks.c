/* stress/callbacks.c: four threads hold a mutex of the application while they call the HAL, and each function of the
 * application that the HAL calls locks that mutex: release functions, listeners of deferred work, a log sink, a
 * reader of profiles. A call under a lock of the HAL causes a deadlock, which the alarm reports; builds with
 * HAL_CHECK_CALLBACKS abort immediately. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "timed.h"

enum { THREADS = 4, BYTES = 4096, PATIENCE = 60 };

static pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER; /* recursive: a callback may run on the thread that holds it */
static pthread_mutexattr_t recursive;
static atomic_int mistakes;
static atomic_long called, adopted, released;
static hal_lazy_t *lazy;
static hal_stream_t *lazy_stream, *other;
static double end;

static void expect(hal_status_t status, int line) {
  if (!status) return;
  fprintf(stderr, "line %d: %s\n", line, hal_error_message());
  atomic_fetch_add(&mistakes, 1);
}
#define OK(call) expect((call), __LINE__)

static void called_back(void) {
  pthread_mutex_lock(&mutex);
  atomic_fetch_add(&called, 1);
  pthread_mutex_unlock(&mutex);
}

static void release(void *memory) {
  called_back();
  free(memory);
  atomic_fetch_add(&released, 1);
}

static void note_line(int32_t level, const char *message, void *user_data) {
  (void)level, (void)message, (void)user_data;
  called_back();
}

static uint64_t here(void *state) {
  (void)state;
  return 1;
}

static void describe(void *state, uint64_t origin, char *text, size_t room) {
  (void)state;
  called_back();
  snprintf(text, room, "line %d", (int)origin);
}

static void note_compiled(void *state, uint64_t origin, const char *text) {
  (void)state, (void)origin, (void)text;
  called_back();
}

static void note_queueing(void *state, const char *cause, const char *text) {
  (void)state, (void)cause, (void)text;
  called_back();
}

static void note_activity(void *user_data, const hal_profile_activity_t *activity) {
  (void)user_data, (void)activity;
  called_back();
}

/* Memory whose release function is called when the work of `stream` is done. */
static void adopt(hal_stream_t *stream, hal_stream_t *user) {
  hal_block_t *block;
  char *const memory = malloc(BYTES);
  OK(hal_memory_adopt(0, stream, memory, BYTES, release, memory, &block));
  atomic_fetch_add(&adopted, 1);
  OK(hal_memory_record_stream(block, user));
  hal_memory_release(block);
}

/* A program that generates random numbers, which it records in memory that it allocates. */
static void record(hal_stream_t *stream) {
  hal_program_t *program;
  hal_generator_t *generator;
  hal_draw_t draw;
  OK(hal_program_begin(stream, NULL, &program));
  OK(hal_generator_create(0, &generator));
  OK(hal_generator_draw(generator, stream, 4, &draw));
  OK(hal_program_end(program));
  OK(hal_program_run(program, other));
  hal_generator_destroy(generator);
  hal_program_destroy(program);
}

static void profile(void) {
  uint64_t lost;
  if (hal_profile_start()) return; /* another thread has begun one */
  OK(hal_profile_read(note_activity, NULL, &lost));
  hal_profile_stop();
}

static void use(hal_block_t *block, hal_stream_t *own, uint64_t r) {
  static const float one = 1;
  static char host[BYTES];
  size_t size;
  switch (r % 16) {
    case 0:
      adopt(other, lazy_stream);
      break;
    case 1:
      adopt(lazy_stream, other);
      break;
    case 2:
      OK(hal_stream_synchronize(lazy_stream));
      break;
    case 3:
      OK(hal_lazy_flush(lazy));
      break;
    case 4:
      OK(hal_lazy_text(lazy, HAL_PROGRAM_LINES, NULL, 0, &size));
      break;
    case 5:
      record(own);
      break;
    case 6:
      if (r >> 8 & 7) break;
      profile();
      break;
    case 7:
      hal_log(HAL_LOG_WARNING, "a line");
      break;
    case 8:
      OK(hal_memory_empty_cache(0));
      break;
    case 9:
      OK(hal_memory_defer(0, lazy_stream, release, malloc(1)));
      atomic_fetch_add(&adopted, 1);
      break;
    default:
      OK(hal_memory_copy(lazy_stream, hal_memory_block_address(block), 0, host, HAL_HOST, sizeof host));
      OK(hal_memory_fill(lazy_stream, 0, hal_memory_block_address(block), &one, sizeof one, BYTES));
      OK(hal_memory_fill(other, 0, (char *)hal_memory_block_address(block) + BYTES, &one, sizeof one, BYTES));
  }
}

static void *work(void *data) {
  uint64_t state = UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)((intptr_t)data + 1);
  hal_block_t *block;
  hal_stream_t *own;
  OK(hal_stream_acquire(0, 0, &own));
  OK(hal_memory_allocate(0, lazy_stream, 2 * BYTES, &block));
  OK(hal_memory_record_stream(block, other));
  while (timed_now() < end) {
    const uint64_t r = timed_random(&state);
    const int holds = r >> 60 & 1;
    if (holds) pthread_mutex_lock(&mutex);
    use(block, own, r >> 8);
    if (holds) pthread_mutex_unlock(&mutex);
  }
  hal_memory_release(block);
  return NULL;
}

static void hangs(int number) {
  static const char text[] = "deadlock: a thread waits for the HAL, and a callback for that thread\n";
  (void)number;
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(2);
  _exit(1);
}

int main(void) {
  pthread_t threads[THREADS];
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc,
                                .origin = here,
                                .describe = describe,
                                .compiled = note_compiled,
                                .queueing = note_queueing};
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&mutex, &recursive);
  setenv("HAL_LOG", "debug", 1);
  hal_log_set_sink(note_line, NULL);
  end = timed_end();
  signal(SIGALRM, hangs);
  alarm((unsigned)(end - timed_now()) + PATIENCE);
  OK(hal_registry_add_path(PLUGIN_DIR));
  if (hal_registry_open("fake")) return 77; /* not built for this sanitizer */
  OK(hal_stream_acquire(0, 0, &lazy_stream));
  OK(hal_stream_acquire(0, 0, &other));
  OK(hal_lazy_begin(lazy_stream, &desc, &lazy));
  for (intptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)i)) return 1;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  OK(hal_lazy_end(lazy));
  adopt(other, other);
  hal_registry_close();
  printf("%ld callbacks, %ld of %ld released, %d mistakes\n", atomic_load(&called), atomic_load(&released),
         atomic_load(&adopted), atomic_load(&mistakes));
  return atomic_load(&mistakes) || atomic_load(&released) != atomic_load(&adopted);
}
