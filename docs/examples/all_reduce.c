/* all_reduce.c: two processes add up their numbers, in plain C, without torch.
 *
 *   all_reduce [<plugin name or path> [<elements>]]      default: fake, 100003 elements
 *
 * It shows all that a program brings to hal/comm.h: processes, a store in which they find each other, a transport, and
 * a communicator on it. The numbers lie in device memory. Exit status: 0 the sums are right, 1 something failed. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <hal/comm.h>
#include <hal/hal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, VALUES = 64 };
static const int64_t timeout_ns = INT64_C(30) * 1000000000;

/* ---- the store: values under keys, in shared memory. Programs on several hosts use a server ---- */

typedef struct value_s {
  atomic_int is_written;
  char key[128];
  size_t size;
  char bytes[1024];
} value_t;

typedef struct store_s {
  atomic_int count;
  value_t values[VALUES];
} store_t;

/* A later value of a key takes the place of an earlier one: readers begin with the last. */
static hal_status_t store_set(void *context, const char *key, const void *value, size_t size) {
  store_t *const store = context;
  const int index = atomic_fetch_add(&store->count, 1);
  if (index >= VALUES || size > sizeof store->values[0].bytes || strlen(key) >= sizeof store->values[0].key)
    return hal_error_set(HAL_UNAVAILABLE, "the store is full: cannot store %zu bytes under %s", size, key);
  strcpy(store->values[index].key, key);
  memcpy(store->values[index].bytes, value, size);
  store->values[index].size = size;
  atomic_store(&store->values[index].is_written, 1);
  return HAL_OK;
}

static hal_status_t store_get(void *context, const char *key, int64_t wait_ns, void *out, size_t room,
                              size_t *out_size) {
  const store_t *const store = context;
  for (;; wait_ns -= 1000000) {
    for (int i = VALUES; i-- > 0;) {
      const value_t *const value = &store->values[i];
      if (!atomic_load(&value->is_written) || strcmp(value->key, key)) continue;
      memcpy(out, value->bytes, value->size < room ? value->size : room);
      *out_size = value->size;
      return HAL_OK;
    }
    if (wait_ns <= 0) return hal_error_set(HAL_NOT_READY, "no value for %s within the time", key);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

/* ---- a rank ---- */

static hal_status_t connect_ranks(store_t *shared, int rank, hal_comm_t **out_comm) {
  const hal_comm_store_t store = {.struct_size = sizeof store, .context = shared, .set = store_set, .get = store_get};
  hal_comm_config_t config = {
      .struct_size = sizeof config, .device = 0, .rank = rank, .size = RANKS, .timeout_ns = timeout_ns, .name = "sums"};
  HAL_RETURN_IF_ERROR(
      hal_comm_transport_shared_memory(&store, config.name, rank, RANKS, timeout_ns, &config.transport));
  const hal_status_t status = hal_comm_create(&config, out_comm);
  if (status) config.transport.destroy(config.transport.context); /* the communicator did not take it */
  return status;
}

/* In place: every rank passes its numbers and receives the sums. */
static hal_status_t sum(hal_comm_t *comm, float *numbers, int64_t count, hal_block_t *block) {
  void *const device = hal_memory_block_address(block);
  const size_t bytes = (size_t)count * sizeof *numbers;
  const hal_collective_t call = {.struct_size = sizeof call,
                                 .op = HAL_COMM_ALL_REDUCE,
                                 .reduce = HAL_REDUCE_SUM,
                                 .dtype = HAL_FLOAT32,
                                 .send = device,
                                 .recv = device,
                                 .count = (uint64_t)count};
  hal_comm_work_t *work = NULL;
  HAL_RETURN_IF_ERROR(hal_memory_copy(NULL, device, 0, numbers, HAL_HOST, bytes));
  HAL_RETURN_IF_ERROR(hal_comm_submit(comm, NULL, &call, 1, timeout_ns, NULL, NULL, &work));
  hal_status_t status = hal_comm_work_wait(work, NULL, timeout_ns); /* the stream's next copy waits for the sums */
  hal_comm_work_release(work);
  if (!status) status = hal_memory_copy(NULL, numbers, HAL_HOST, device, 0, bytes);
  const hal_status_t waited = hal_stream_synchronize(NULL);
  return status ? status : waited;
}

static int64_t count_wrong(const float *numbers, int64_t count) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; i++) wrong += numbers[i] != (float)(i % 1000) * (1 + 2);
  return wrong;
}

static int run_rank(store_t *store, int rank, const char *plugin, int64_t count) {
  float *const numbers = calloc((size_t)count, sizeof *numbers);
  hal_block_t *block = NULL;
  hal_comm_t *comm = NULL;
  int64_t wrong = count;
  hal_status_t status = numbers ? hal_registry_open(plugin) : hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory");
  for (int64_t i = 0; numbers && i < count; i++) numbers[i] = (float)(i % 1000) * (float)(rank + 1);
  if (!status) status = hal_memory_allocate(0, NULL, (size_t)count * sizeof *numbers, &block);
  if (!status) status = connect_ranks(store, rank, &comm);
  if (!status) status = sum(comm, numbers, count, block);
  if (status)
    fprintf(stderr, "rank %d: %s: %s\n", rank, hal_status_name(status), hal_error_message());
  else
    wrong = count_wrong(numbers, count);
  if (!status) printf("rank %d of %d: %lld sums, %lld are wrong\n", rank, RANKS, (long long)count, (long long)wrong);
  hal_comm_destroy(comm, timeout_ns);
  hal_memory_release(block);
  hal_registry_close();
  free(numbers);
  return wrong != 0;
}

int main(int argument_count, char **arguments) {
  const char *const plugin = argument_count > 1 ? arguments[1] : "fake";
  const int64_t count = argument_count > 2 ? strtoll(arguments[2], NULL, 10) : 100003;
  if (count < 1 || count > INT32_MAX) {
    fprintf(stderr, "usage: %s [<plugin name or path> [<elements>]]\n", arguments[0]);
    return 1;
  }
  store_t *const store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t other =
      store == MAP_FAILED ? -1 : fork(); /* before the plugin is loaded: drivers do not survive a fork */
  if (other < 0) {
    perror("all_reduce");
    return 1;
  }
  const int failed = run_rank(store, other ? 0 : 1, plugin, count);
  if (!other) return failed;
  int status = 0;
  waitpid(other, &status, 0);
  return failed || status;
}
