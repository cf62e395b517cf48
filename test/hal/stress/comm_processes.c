/* comm_processes.c: ranks as processes with a communicator over shared memory, on the plugin named by the argument. In
 * each rank one thread submits collectives, another one messages, a third one waits for the works and queries them, and
 * a thread of one rank aborts the group. For the thread and the address sanitizer, which watch each process. */
#define _GNU_SOURCE
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "comm/comm_store.h"

enum { MOST_RANKS = 4, CALLS = 60, COUNT = 3000, ABORTS = 6 };
static const int64_t timeout_ns = INT64_C(60000000000);

/* Memory of all ranks. */
typedef struct shared_s {
  store_t keys;
  atomic_int created, destroyed; /* communicators */
} shared_t;

typedef struct rank_s {
  int number, size, calls;
  hal_comm_t *comm;
  hal_comm_work_t *_Atomic last; /* passed to the thread that waits */
  atomic_int ended, aborts;      /* no further works; the group may fail */
} rank_t;

static void pause_for(unsigned microseconds) {
  nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

/* After an abort every call may fail. Returns whether it has failed. */
static int has_failed(rank_t *rank, hal_status_t status) {
  CHECK(!status || atomic_load(&rank->aborts));
  return status != HAL_OK;
}

/* ---- the threads of a rank ---- */

typedef struct buffer_s {
  hal_stream_t *stream;
  hal_block_t *block;
  int32_t host[COUNT], *device;
} buffer_t;

static void open_buffer(buffer_t *buffer) {
  CHECK_OK(hal_stream_acquire(0, 0, &buffer->stream));
  CHECK_OK(hal_memory_allocate(0, buffer->stream, sizeof buffer->host, &buffer->block));
  buffer->device = hal_memory_block_address(buffer->block);
}

static hal_status_t copy(buffer_t *buffer, int to_device) {
  void *const dst = to_device ? (void *)buffer->device : buffer->host;
  const void *const src = to_device ? (const void *)buffer->host : buffer->device;
  return hal_memory_copy(buffer->stream, dst, to_device ? 0 : HAL_HOST, src, to_device ? HAL_HOST : 0,
                         sizeof buffer->host);
}

static void close_buffer(rank_t *rank, buffer_t *buffer) {
  has_failed(rank, hal_stream_synchronize(buffer->stream)); /* the failure of an aborted group, once more */
  hal_memory_release(buffer->block);
}

/* Sums of all ranks in place; every third work goes to the thread that waits. */
static void *reduce(void *argument) {
  rank_t *const rank = argument;
  static _Thread_local buffer_t buffer;
  int failed = 0, sum = 0;
  open_buffer(&buffer);
  for (int r = 0; r < rank->size; r++) sum += r;
  for (int call = 0; call < rank->calls && !failed; call++) {
    hal_comm_work_t *work = NULL;
    for (int i = 0; i < COUNT; i++) buffer.host[i] = rank->number + call * i;
    if ((failed = has_failed(rank, copy(&buffer, 1)))) break;
    const hal_collective_t all = {.struct_size = sizeof all,
                                  .op = HAL_COMM_ALL_REDUCE,
                                  .dtype = HAL_INT32,
                                  .count = COUNT,
                                  .send = buffer.device,
                                  .recv = buffer.device};
    if ((failed = has_failed(rank, hal_comm_submit(rank->comm, buffer.stream, &all, 1, 0, NULL, NULL, &work)))) break;
    failed = has_failed(rank, hal_comm_work_wait_stream(work, buffer.stream));
    if (call % 3 == 0) work = atomic_exchange(&rank->last, work);
    hal_comm_work_release(work);
    failed |= has_failed(rank, copy(&buffer, 0));
    failed |= has_failed(rank, hal_stream_synchronize(buffer.stream));
    for (int i = 0; i < COUNT && !failed; i++) CHECK(buffer.host[i] == sum + rank->size * call * i);
  }
  close_buffer(rank, &buffer);
  atomic_store(&rank->ended, 1);
  return NULL;
}

/* A message to the next rank, and one from the rank before. */
static void *pass_on(void *argument) {
  rank_t *const rank = argument;
  static _Thread_local buffer_t out, in;
  const int next = (rank->number + 1) % rank->size, before = (rank->number + rank->size - 1) % rank->size;
  int failed = 0;
  open_buffer(&out), open_buffer(&in);
  for (int call = 0; call < rank->calls && !failed; call++) {
    hal_comm_work_t *works[2] = {NULL, NULL};
    for (int i = 0; i < COUNT; i++) out.host[i] = rank->number * 1000 + call + i;
    if ((failed = has_failed(rank, copy(&out, 1)))) break;
    hal_collective_t message = {.struct_size = sizeof message,
                                .op = HAL_COMM_SEND,
                                .dtype = HAL_INT32,
                                .count = COUNT,
                                .peer = next,
                                .send = out.device};
    failed = has_failed(rank, hal_comm_submit(rank->comm, out.stream, &message, 1, 0, NULL, NULL, &works[0]));
    message.op = HAL_COMM_RECV, message.peer = before, message.send = NULL, message.recv = in.device;
    failed |= has_failed(rank, hal_comm_submit(rank->comm, in.stream, &message, 1, 0, NULL, NULL, &works[1]));
    for (int i = 0; i < 2; i++) {
      if (works[i]) failed |= has_failed(rank, hal_comm_work_synchronize(works[i], 0));
      hal_comm_work_release(works[i]);
    }
    failed |= has_failed(rank, copy(&in, 0));
    failed |= has_failed(rank, hal_stream_synchronize(in.stream));
    for (int i = 0; i < COUNT && !failed; i++) CHECK(in.host[i] == before * 1000 + call + i);
  }
  close_buffer(rank, &out), close_buffer(rank, &in);
  return NULL;
}

static void *wait_for_works(void *argument) {
  rank_t *const rank = argument;
  for (int i = 0; !atomic_load(&rank->ended) || atomic_load(&rank->last); i++) {
    hal_comm_work_t *const work = atomic_exchange(&rank->last, NULL);
    (void)hal_comm_error(rank->comm);
    if (!work) {
      pause_for(100);
      continue;
    }
    const hal_status_t status = i % 2 ? hal_comm_work_query(work) : hal_comm_work_synchronize(work, 0);
    if (status != HAL_NOT_READY) has_failed(rank, status);
    hal_comm_work_release(work);
  }
  return NULL;
}

/* ---- the ranks ---- */

/* Every rank creates its communicator before one of them aborts. */
static void run_group(int number, int size, shared_t *shared, int group, int calls, unsigned abort_us) {
  const hal_comm_store_t store = store_of(&shared->keys);
  char name[32];
  snprintf(name, sizeof name, "group%d", group);
  rank_t rank = {.number = number, .size = size, .calls = calls};
  hal_comm_config_t config = {
      .struct_size = sizeof config, .rank = number, .size = size, .name = name, .timeout_ns = timeout_ns};
  pthread_t threads[3];
  void *(*const functions[3])(void *) = {reduce, pass_on, wait_for_works};
  atomic_store(&rank.aborts, abort_us > 0);
  CHECK_OK(hal_comm_transport_shared_memory(&store, name, number, size, timeout_ns, &config.transport));
  CHECK_OK(hal_comm_create(&config, &rank.comm));
  atomic_fetch_add(&shared->created, 1);
  while (atomic_load(&shared->created) < size * (group + 1)) pause_for(100);
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, functions[i], &rank) == 0);
  if (abort_us && number == size - 1) {
    pause_for(abort_us);
    hal_comm_abort(rank.comm, "the test");
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  hal_comm_destroy(rank.comm, timeout_ns);
  atomic_fetch_add(&shared->destroyed, 1); /* a device is closed when no rank uses its memory */
  while (atomic_load(&shared->destroyed) < size * (group + 1)) pause_for(100);
}

static int run_rank(const char *plugin, int number, int size, shared_t *shared) {
  CHECK_OK(hal_registry_open(plugin));
  run_group(number, size, shared, 0, CALLS, 0);
  for (int i = 0; i < ABORTS; i++) run_group(number, size, shared, i + 1, 100000, 1 + 3000 * (unsigned)i);
  CHECK(hal_memory_collect_shared() == 0); /* the others have released this rank's device memory */
  hal_registry_close();
  return atomic_load(&mistakes) != 0;
}

static int run_processes(const char *plugin, int size) {
  shared_t *const shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[MOST_RANKS];
  int failed = 0;
  fflush(NULL);
  for (int r = 0; r < size; r++) {
    if ((pids[r] = fork()) == 0) {
      alarm(200); /* a rank that hangs ends by its signal */
      exit(run_rank(plugin, r, size, shared));
    }
  }
  for (int r = 0; r < size; r++) {
    int status = -1;
    waitpid(pids[r], &status, 0);
    if (status) fprintf(stderr, "rank %d of %d ended with status 0x%x\n", r, size, (unsigned)status);
    failed |= status != 0;
  }
  munmap(shared, sizeof *shared);
  return failed;
}

int main(int argument_count, char **arguments) {
  const char *const plugin = argument_count > 1 ? arguments[1] : FIXTURE_DIR "/libhal_five.so";
  return run_processes(plugin, 2) | run_processes(plugin, MOST_RANKS);
}
