/* comm_vendor_testing.h: ranks whose collectives run in a library: the plugin `cuda` on the mock libraries, each
 * rank a process with its own device, with the transport of shared memory, whose calls are counted. */
#ifndef TEST_HAL_COMM_VENDOR_TESTING_H_
#define TEST_HAL_COMM_VENDOR_TESTING_H_

#include <pthread.h>

#include "comm_testing.h"
#include "hal/hal.h"

enum { ROOM = 1 << 16 };

static hal_comm_transport_t shared_memory;
static atomic_int carried; /* collectives and messages of the transport */
static hal_comm_t *comm;
static hal_stream_t *stream;

static inline hal_status_t count_and_run(void *context, const hal_collective_t *calls, uint32_t count, int64_t limit) {
  atomic_fetch_add(&carried, (int)count);
  return shared_memory.run(context, calls, count, limit);
}

static inline int64_t milliseconds_since(int64_t start) { return (hal_clock_ns() - start) / 1000000; }
static inline void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static inline void open_plugin(void) {
  setenv("CUDA_MOCK_DEVICES", "4", 1);
  setenv("HAL_CUDA_NCCL", NCCL, 0);
  CHECK_OK(hal_registry_open(PLUGIN_DIR "/libhal_cuda.so"));
}

/* A communicator without a library. */
static inline void make_comm(const char *name, int32_t device, int rank, int size, int64_t timeout_ns) {
  CHECK_OK(hal_comm_shm_create(&test_store, name, rank, size, 20 * (int64_t)SECOND, &shared_memory));
  hal_comm_config_t config = {.struct_size = sizeof config,
                              .device = device,
                              .rank = rank,
                              .size = size,
                              .timeout_ns = timeout_ns,
                              .name = name,
                              .transport = shared_memory};
  config.transport.run = count_and_run;
  CHECK_OK(hal_comm_create(&config, &comm));
  CHECK_OK(hal_stream_acquire(device, 0, &stream));
}

static inline void join_library(int rank, int size, uint32_t flags) {
  open_plugin();
  make_comm("dp", rank, rank, size, 20 * (int64_t)SECOND);
  CHECK(!strcmp(hal_comm_library(comm), ""), "a library before it is connected");
  CHECK_OK(hal_comm_connect_library(comm, flags, 0));
  CHECK(!strcmp(hal_comm_library(comm), "nccl"), "library '%s'", hal_comm_library(comm));
  atomic_store(&carried, 0);
}

static inline void *device_memory(size_t bytes) {
  hal_block_t *block;
  CHECK_OK(hal_memory_allocate(hal_stream_device(stream), stream, bytes, &block));
  return hal_memory_block_address(block);
}

static inline void to_device(void *to, const void *from, size_t bytes) {
  CHECK_OK(hal_memory_copy(stream, to, hal_stream_device(stream), from, HAL_HOST, bytes));
  CHECK_OK(hal_stream_synchronize(stream));
}

static inline void to_host(void *to, const void *from, size_t bytes) {
  CHECK_OK(hal_memory_copy(stream, to, HAL_HOST, from, hal_stream_device(stream), bytes));
  CHECK_OK(hal_stream_synchronize(stream));
}

static inline hal_comm_work_t *submit(hal_collective_t call, int64_t timeout_ns) {
  hal_comm_work_t *work;
  call.struct_size = sizeof call;
  CHECK_OK(hal_comm_submit(comm, stream, &call, 1, timeout_ns, NULL, NULL, &work));
  return work;
}

/* Waits like PyTorch: the stream waits, then the host waits for the stream. */
static inline void finish(hal_comm_work_t *work) {
  CHECK_OK(hal_comm_work_wait(work, stream, 0));
  CHECK_OK(hal_stream_synchronize(stream));
  CHECK_OK(hal_comm_work_query(work));
  hal_comm_work_release(work);
}

/* The sum of one float of each rank, in place. */
static inline hal_collective_t sum_at(float *data) {
  return (hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .dtype = HAL_FLOAT32, .send = data, .recv = data, .count = 1};
}

static inline float *float_on_device(float value) {
  float *const data = device_memory(sizeof *data);
  to_device(data, &value, sizeof value);
  return data;
}

static inline float float_at(const float *data) {
  float value;
  to_host(&value, data, sizeof value);
  return value;
}

#endif /* TEST_HAL_COMM_VENDOR_TESTING_H_ */
