/* lazy.c: threads defer work on one stream while others flush it, read its results, allocate and free, for the
 * thread sanitizer; a second stream is lazy at the same time. Each thread adds to its own numbers, so that the sums
 * show lost or repeated work. With the argument "groups", only groups of operators are deferred. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "checks.h"

enum { THREADS = 6, ROUNDS = 400, COUNT = 1000 };

static uint32_t add_op;
static hal_lazy_t *lazy;

/* result = a + number * b, all of COUNT float32. */
static void add(float *result, float *a, float *b, double number) {
  static const int64_t sizes[] = {COUNT}, strides[] = {1};
  hal_tensor_t tensors[3];
  float *const data[] = {result, a, b};
  for (int i = 0; i < 3; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof tensors[i],
                                .data = data[i],
                                .sizes = sizes,
                                .strides = strides,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]},
                              {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[2]},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = number}};
  const hal_tensor_t *const results[] = {&tensors[0]};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  CHECK_OK(hal_op_run(0, add_op, NULL, &call));
}

static void ask(int round) {
  hal_event_t *event;
  hal_lazy_info_t info = {.struct_size = sizeof info};
  switch (round % 16) {
    case 3:
      CHECK_OK(hal_lazy_flush(lazy));
      break;
    case 7:
      CHECK_OK(hal_event_create(0, 0, &event));
      CHECK_OK(hal_event_record(event, NULL));
      CHECK_OK(hal_event_synchronize(event));
      hal_event_destroy(event);
      break;
    case 11:
      CHECK_OK(hal_lazy_info(lazy, &info));
      break;
    case 13:
      CHECK_OK(hal_device_synchronize(0)); /* flushes the work of all streams */
      break;
    case 15:
      CHECK_OK(hal_stream_synchronize(NULL));
      break;
    default:
      break;
  }
}

static void *work(void *argument) {
  const int number = (int)(intptr_t)argument;
  static const float zero[COUNT], one = 1;
  float host[COUNT];
  hal_block_t *sum, *ones;
  CHECK_OK(hal_memory_allocate(0, NULL, sizeof host, &sum));
  CHECK_OK(hal_memory_allocate(0, NULL, sizeof host, &ones));
  CHECK_OK(hal_memory_copy(NULL, hal_memory_block_address(sum), 0, zero, HAL_HOST, sizeof host));
  CHECK_OK(hal_memory_fill(NULL, 0, hal_memory_block_address(ones), &one, sizeof one, sizeof host));
  for (int round = 0; round < ROUNDS; round++) {
    hal_block_t *twice;
    CHECK_OK(hal_memory_allocate(0, NULL, sizeof host, &twice));
    add(hal_memory_block_address(twice), hal_memory_block_address(ones), hal_memory_block_address(ones), number);
    add(hal_memory_block_address(sum), hal_memory_block_address(sum), hal_memory_block_address(twice), 1);
    hal_memory_release(twice);
    ask(round + number);
  }
  CHECK_OK(hal_memory_copy(NULL, host, HAL_HOST, hal_memory_block_address(sum), 0, sizeof host));
  CHECK_OK(hal_stream_synchronize(NULL));
  for (int i = 0; i < COUNT; i++) CHECK(host[i] == (float)(ROUNDS * (1 + number)));
  hal_memory_release(sum);
  hal_memory_release(ones);
  return NULL;
}

/* Recordings that end while other threads wait for the device, which calls the recorder of each stream. */
static void come_and_go(hal_stream_t *stream) {
  static const hal_lazy_desc_t groups = {.struct_size = sizeof groups, .flags = HAL_LAZY_GROUPS, .least = 1};
  static const float one = 1;
  hal_block_t *block;
  hal_lazy_t *recording;
  CHECK_OK(hal_memory_allocate(0, stream, COUNT * sizeof(float), &block));
  for (int round = 0; round < 10 * ROUNDS; round++) {
    CHECK_OK(hal_lazy_begin(stream, round % 3 ? NULL : &groups, &recording));
    CHECK_OK(hal_memory_fill(stream, 0, hal_memory_block_address(block), &one, sizeof one, COUNT * sizeof(float)));
    CHECK_OK(hal_lazy_end(recording));
  }
  hal_memory_release(block);
}

int main(int count, char **arguments) {
  const hal_lazy_desc_t groups = {.struct_size = sizeof groups, .flags = HAL_LAZY_GROUPS, .least = COUNT};
  const hal_lazy_desc_t *const desc = count > 1 && strcmp(arguments[1], "groups") == 0 ? &groups : NULL;
  pthread_t threads[THREADS];
  hal_stream_t *other;
  hal_lazy_t *second;
  CHECK_OK(hal_registry_add_path(PLUGIN_DIR));
  CHECK_OK(hal_registry_open("fake"));
  CHECK_OK(hal_op_id("add.Tensor", &add_op));
  CHECK_OK(hal_lazy_begin(NULL, desc, &lazy));
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
  CHECK_OK(hal_stream_acquire(0, 0, &other));
  come_and_go(other);
  CHECK_OK(hal_lazy_begin(other, desc, &second));
  CHECK_OK(hal_stream_set_current(other, NULL));
  work((void *)(intptr_t)2); /* its flushes belong to the first stream, its work to the second */
  CHECK_OK(hal_lazy_end(second));
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_OK(hal_lazy_end(lazy));
  hal_registry_close();
  if (!mistakes) printf("lazy: %d threads, %d rounds each\n", THREADS + 1, ROUNDS);
  return atomic_load(&mistakes) ? 1 : 0;
}
