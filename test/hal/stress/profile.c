/* profile.c: threads run operators on their own streams while profiles begin, are read and end. A plain program, for
 * the sanitizers. Each record must have the number of the thread whose stream it ran on, and be in its order. The
 * argument is the plugin's name; without one it is fake. */
#define _XOPEN_SOURCE 700
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ROUNDED: nanoseconds by which times of a driver's events are rounded. */
enum { THREADS = 4, ROUNDS = 60, ELEMENTS = 512, ROUNDED = 1000, SKIPPED = 77 };

#define MUST(call)                                                                           \
  do {                                                                                       \
    const hal_status_t status_ = (call);                                                     \
    if (status_) {                                                                           \
      fprintf(stderr, "%s: %s: %s\n", #call, hal_status_name(status_), hal_error_message()); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

typedef struct worker_s {
  uint64_t number;
  hal_stream_t *stream;
  hal_block_t *blocks[2];
} worker_t;

static atomic_int finished;
static worker_t workers[THREADS];

static void negate(const worker_t *worker, uint32_t op) {
  const int64_t size = ELEMENTS, stride = 1;
  hal_tensor_t tensors[2];
  for (int i = 0; i < 2; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                .data = hal_memory_block_address(worker->blocks[i]),
                                .sizes = &size,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]}};
  const hal_tensor_t *results[] = {&tensors[1]};
  hal_op_call_t call = {
      .struct_size = sizeof call, .args = args, .arg_count = 1, .results = results, .result_count = 1};
  MUST(hal_op_run(0, op, worker->stream, &call));
}

static void *work(void *argument) {
  const worker_t *worker = argument;
  uint32_t op = 0;
  MUST(hal_op_id("neg", &op));
  while (!atomic_load(&finished)) {
    MUST(hal_profile_push(worker->number));
    for (int i = 0; i < 20; i++) negate(worker, op);
    hal_profile_pop();
    MUST(hal_stream_synchronize(worker->stream));
  }
  return NULL;
}

typedef struct check_s {
  size_t count, unnamed, wrong;
  int64_t last[THREADS];
} check_t;

static void look(void *user_data, const hal_profile_activity_t *activity) {
  check_t *const check = user_data;
  int of = -1;
  for (int i = 0; i < THREADS; i++)
    if (activity->stream == hal_stream_id(workers[i].stream)) of = i;
  check->count++;
  /* No name: the profile began in the middle of the operator. Number 0: it began in the middle of the bracket. */
  const int named = strcmp(activity->op, "neg") == 0;
  check->unnamed += !named;
  if (of < 0 || activity->start_ns + ROUNDED < check->last[of] || (!named && activity->op[0]) ||
      (activity->correlation != workers[of].number && activity->correlation != 0)) {
    check->wrong++;
    fprintf(stderr, "stream %lld: %s of '%s' with number %llu, %lld ns after the previous record\n",
            (long long)activity->stream, activity->name, activity->op, (unsigned long long)activity->correlation,
            of < 0 ? 0LL : (long long)(activity->start_ns - check->last[of]));
  }
  if (of >= 0) check->last[of] = activity->end_ns;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  check_t check = {0};
  uint64_t lost = 0;
  hal_registry_add_path(PLUGIN_DIR);
  if (argc < 2 && !KERNEL_PLUGIN_EXISTS) return SKIPPED;
  MUST(hal_registry_open(argc < 2 ? "fake" : argv[1]));
  for (int i = 0; i < THREADS; i++) {
    workers[i].number = (uint64_t)i + 1;
    MUST(hal_stream_acquire(0, 0, &workers[i].stream));
    for (int j = 0; j < 2; j++) {
      MUST(hal_memory_allocate(0, NULL, ELEMENTS * sizeof(float), &workers[i].blocks[j]));
      MUST(hal_memory_fill(NULL, 0, hal_memory_block_address(workers[i].blocks[j]), "", 1, ELEMENTS * sizeof(float)));
    }
  }
  MUST(hal_device_synchronize(0));
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, work, &workers[i])) return 1;
  for (int round = 0; round < ROUNDS; round++) {
    const struct timespec pause = {.tv_nsec = 2000000};
    memset(check.last, 0, sizeof check.last);
    MUST(hal_profile_start());
    nanosleep(&pause, NULL);
    MUST(hal_profile_read(look, &check, &lost));
    nanosleep(&pause, NULL);
    if (argc > 1)
      memset(check.last, 0, sizeof check.last); /* each read relates the driver's clock to the host's anew */
    MUST(hal_profile_stop());
    MUST(hal_profile_read(look, &check, &lost));
  }
  atomic_store(&finished, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++)
    for (int j = 0; j < 2; j++) hal_memory_release(workers[i].blocks[j]);
  hal_registry_close();
  printf("%zu records, %zu wrong\n", check.count, check.wrong);
  return check.wrong || !check.count || check.unnamed > ROUNDS * THREADS;
}
