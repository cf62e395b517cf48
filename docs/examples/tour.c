/* tour.c: the parts of the C API, one function each. docs/c-api.md explains them.
 *
 *   tour [<plugin name or path>]      default: fake
 *
 * Exit status: 0 all parts ran, 1 one failed, 2 the plugin has no operator and no kernel for "add.Tensor". */
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 16, BYTES = COUNT * sizeof(float) };

/* errors: a function returns a status; the message belongs to the last failure of the calling thread. */
static hal_status_t errors(void) {
  hal_block_t *block = NULL;
  const hal_status_t status = hal_memory_allocate(1000, NULL, BYTES, &block);
  if (status != HAL_OUT_OF_RANGE) return hal_error_set(HAL_INTERNAL, "device 1000 exists: %s", hal_status_name(status));
  printf("errors: %s: %s\n", hal_status_name(status), hal_error_message());
  return HAL_OK;
}

/* streams: work of one stream runs in order, work of two streams concurrently. */
static hal_status_t streams(void) {
  hal_stream_t *first = NULL, *second = NULL;
  hal_block_t *block = NULL;
  hal_event_t *filled = NULL;
  float value = 1.0f, *const copy = malloc(BYTES);
  hal_status_t status = copy ? hal_stream_acquire(0, 0, &first) : HAL_RESOURCE_EXHAUSTED;
  if (!status) status = hal_stream_acquire(0, -1, &second); /* high priority */
  if (!status) status = hal_memory_allocate(0, first, BYTES, &block);
  if (!status) status = hal_event_create(0, 0, &filled);
  if (!status) status = hal_memory_fill(first, 0, hal_memory_block_address(block), &value, sizeof value, BYTES);
  if (!status) status = hal_event_record(filled, first);
  if (!status) status = hal_stream_wait_event(second, filled);   /* the host does not wait */
  if (!status) status = hal_memory_record_stream(block, second); /* or the block could be reused too early */
  if (!status) status = hal_memory_copy(second, copy, HAL_HOST, hal_memory_block_address(block), 0, BYTES);
  if (!status) status = hal_stream_synchronize(second); /* reports failures of both streams */
  if (!status) printf("streams: the last element is %g\n", copy[COUNT - 1]);
  hal_event_destroy(filled);
  hal_memory_release(block);
  free(copy);
  return status;
}

/* events: the time between two events of one device. */
static hal_status_t events(void) {
  hal_event_t *start = NULL, *end = NULL;
  hal_block_t *block = NULL;
  int64_t nanoseconds = -1;
  hal_status_t status = hal_event_create(0, HAL_EVENT_TIMING, &start);
  if (!status) status = hal_event_create(0, HAL_EVENT_TIMING, &end);
  if (!status) status = hal_memory_allocate(0, NULL, BYTES, &block);
  if (!status) status = hal_event_record(start, NULL); /* NULL: the current stream */
  if (!status) status = hal_memory_fill(NULL, 0, hal_memory_block_address(block), "", 1, BYTES);
  if (!status) status = hal_event_record(end, NULL);
  if (!status) status = hal_event_synchronize(end);
  if (!status) status = hal_event_elapsed(start, end, &nanoseconds);
  if (!status) printf("events: the fill took %s\n", nanoseconds >= 0 ? "some nanoseconds" : "an unknown time");
  hal_memory_release(block);
  hal_event_destroy(start);
  hal_event_destroy(end);
  return status;
}

/* pinned memory: copies from and to it are queued, and the host continues. */
static hal_status_t pinned(void) {
  void *host = NULL;
  hal_block_t *block = NULL;
  hal_status_t status = hal_host_allocate(0, BYTES, &host);
  if (!status) status = hal_memory_allocate(0, NULL, BYTES, &block);
  if (!status) memset(host, 1, BYTES);
  if (!status) status = hal_memory_copy(NULL, hal_memory_block_address(block), 0, host, HAL_HOST, BYTES);
  if (!status) status = hal_host_record_stream(host, NULL); /* freed below: reused only after the copy */
  hal_host_free(host);
  hal_memory_release(block);
  if (!status) status = hal_stream_synchronize(NULL);
  if (!status) printf("pinned memory: copied %d bytes\n", (int)BYTES);
  return status;
}

/* Queues x = x + 1 on the current stream. */
static hal_status_t add_one(const hal_block_t *block) {
  const int64_t count = COUNT, stride = 1;
  uint32_t add;
  HAL_RETURN_IF_ERROR(hal_op_id("add.Tensor", &add));
  const hal_tensor_t x = {.struct_size = sizeof x,
                          .data = hal_memory_block_address(block),
                          .sizes = &count,
                          .strides = &stride,
                          .ndim = 1,
                          .dtype = HAL_FLOAT32};
  const hal_value_t arguments[3] = {{.tag = HAL_VALUE_TENSOR, .u.t = &x},
                                    {.tag = HAL_VALUE_DOUBLE, .u.d = 1.0},
                                    {.tag = HAL_VALUE_DOUBLE, .u.d = 1.0}};
  const hal_tensor_t *const results[1] = {&x};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 3,
                        .result_count = 1,
                        .flags = HAL_CALL_DENSE,
                        .args = arguments,
                        .results = results};
  return hal_op_run(0, add, NULL, &call);
}

/* graphs: a program records work once and queues it again with one call. */
static hal_status_t graphs(void) {
  hal_block_t *block = NULL;
  hal_program_t *program = NULL;
  float first = -1;
  hal_status_t status = hal_memory_allocate(0, NULL, BYTES, &block);
  if (!status) status = hal_memory_fill(NULL, 0, hal_memory_block_address(block), "", 1, BYTES);
  if (!status) status = hal_program_begin(NULL, NULL, &program);
  if (!status) {
    const hal_status_t recorded = add_one(block);
    const hal_status_t ended = hal_program_end(program);
    status = recorded ? recorded : ended;
  }
  for (int run = 0; run < 3 && !status; run++) status = hal_program_run(program, NULL);
  if (!status) status = hal_memory_copy(NULL, &first, HAL_HOST, hal_memory_block_address(block), 0, sizeof first);
  const hal_status_t waited = hal_stream_synchronize(NULL);
  if (!status) status = waited;
  if (!status) printf("graphs: 0 plus 3 runs is %g\n", first);
  hal_program_destroy(program); /* queued runs complete */
  hal_memory_release(block);
  return status;
}

/* pools: memory of a pool is separate, also after it is released. */
static hal_status_t pools(void) {
  hal_memory_pool_t *pool = NULL;
  hal_block_t *block = NULL;
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  hal_status_t status = hal_memory_pool_create(0, &pool);
  if (!status) status = hal_memory_pool_begin(pool, NULL);
  if (!status) {
    status = hal_memory_allocate(0, NULL, BYTES, &block);
    const hal_status_t ended = hal_memory_pool_end(pool, NULL);
    if (!status) status = ended;
  }
  if (!status) status = hal_memory_stats(0, &stats);
  if (!status) printf("pools: %lld bytes are allocated\n", (long long)stats.allocated_bytes[HAL_POOL_ALL].current);
  hal_memory_release(block);
  if (pool) hal_memory_pool_release(pool);
  return status;
}

static void count_record(void *user_data, const hal_profile_activity_t *activity) {
  (void)activity;
  ++*(int *)user_data;
}

/* profiler: records of the work of a device, if the plugin collects them. */
static hal_status_t profiler(void) {
  hal_block_t *block = NULL;
  uint64_t lost = 0;
  int count = 0;
  hal_status_t status = hal_memory_allocate(0, NULL, BYTES, &block);
  if (!status) status = hal_profile_start();
  if (!status) {
    status = hal_memory_fill(NULL, 0, hal_memory_block_address(block), "", 1, BYTES);
    const hal_status_t stopped = hal_profile_stop(); /* waits for the work */
    if (!status) status = stopped;
  }
  if (!status) status = hal_profile_read(count_record, &count, &lost);
  if (!status) printf("profiler: %d records, %llu lost\n", count, (unsigned long long)lost);
  hal_memory_release(block);
  return status;
}

int main(int argument_count, char **arguments) {
  hal_status_t (*const parts[])(void) = {errors, streams, events, pinned, pools, profiler, graphs};
  hal_status_t status = hal_registry_open(argument_count > 1 ? arguments[1] : "fake");
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !status; i++) status = parts[i]();
  if (status) fprintf(stderr, "%s: %s\n", hal_status_name(status), hal_error_message());
  hal_registry_close();
  return status == HAL_UNIMPLEMENTED ? 2 : status != HAL_OK;
}
