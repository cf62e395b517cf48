/* slots.c: a plugin whose streams, events, modules, operators, graphs, handles, virtual memory and collectives library
 * return the fuzzer's numbers (hostile/slots.c, hostile/comms.c): each call of the host works or is an error, and no
 * object is used after its end. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <hal/lazy.h>
#include <hal/profile.h>
#include <hal/program.h>
#include <hal/sensor.h>

#include "hostile/child.h"
#include "other_rank.h"

enum { STREAMS = 3, FLOATS = 64 };
#define MILLISECONDS(count) ((int64_t)(count)*1000000)

static hal_stream_t *streams[STREAMS];
static hal_block_t *blocks[STREAMS];
static other_rank_t other;

static void begin(int32_t device) {
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = NULL, blocks[i] = NULL;
    if (hal_stream_acquire(device, -(i % 2), &streams[i]) != HAL_OK) continue;
    (void)!hal_memory_allocate(device, streams[i], i == 2 ? (size_t)3 << 20 : FLOATS * sizeof(float), &blocks[i]);
  }
}

static void end(int32_t device) {
  for (int i = 0; i < STREAMS; i++) hal_memory_release(blocks[i]);
  (void)!hal_memory_empty_cache(device);
  (void)!hal_device_synchronize(device);
}

/* ---- streams and events ---- */

static void count_call(void *data) { ++*(int *)data; }

static void use_events(int32_t device) {
  hal_event_t *event[2] = {NULL, NULL};
  int64_t nanoseconds = 0;
  int calls = 0;
  for (int i = 0; i < 2; i++)
    if (streams[i] && hal_event_create(device, i ? 0 : HAL_EVENT_TIMING, &event[i]) == HAL_OK) {
      (void)!hal_event_record(event[i], streams[i]);
      if (streams[2]) (void)!hal_stream_wait_event(streams[2], event[i]);
      (void)!hal_event_query(event[i]);
      (void)!hal_event_synchronize(event[i]);
    }
  if (event[0] && event[1]) (void)!hal_event_elapsed(event[0], event[1], &nanoseconds);
  for (int i = 0; i < 2; i++) hal_event_destroy(event[i]);
  if (!streams[2]) return;
  if (blocks[0]) (void)!hal_memory_record_stream(blocks[0], streams[2]);
  const int is_queued = hal_stream_host_call(streams[2], count_call, &calls) == HAL_OK;
  (void)!hal_stream_query(streams[2]);
  (void)!hal_stream_synchronize_timeout(streams[2], 1000);
  (void)!hal_stream_synchronize(streams[2]);
  require(calls <= is_queued);
}

static void use_handles(int32_t device) {
  uint8_t handle[HAL_MEMORY_SHARE_BYTES];
  size_t size = 0;
  int released = 0;
  hal_event_t *event = NULL, *opened_event = NULL;
  hal_block_t *opened = NULL;
  if (blocks[0] && hal_memory_share(blocks[0], NULL, count_call, &released, handle, sizeof handle, &size) == HAL_OK) {
    require(size <= sizeof handle);
    if (hal_memory_open(device, NULL, handle, size, &opened) != HAL_OK) (void)!hal_memory_decline(handle, size);
    hal_memory_release(opened);
  }
  hal_memory_collect_shared();
  if (hal_event_create(device, HAL_EVENT_INTERPROCESS, &event) != HAL_OK) return;
  if (hal_event_ipc_export(event, handle, sizeof handle, &size) == HAL_OK) {
    require(size <= sizeof handle);
    if (hal_event_ipc_open(device, handle, size, &opened_event) == HAL_OK) (void)!hal_event_query(opened_event);
    hal_event_destroy(opened_event);
  }
  hal_event_destroy(event);
}

/* ---- operators ---- */

static void add(int32_t device, hal_stream_t *stream, int from, int to) {
  static uint32_t op;
  const int64_t sizes[] = {FLOATS}, strides[] = {1};
  hal_tensor_t tensors[2];
  if (!blocks[from] || !blocks[to] || (!op && hal_op_id("add.Tensor", &op) != HAL_OK)) return;
  for (int i = 0; i < 2; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof tensors[i],
                                .data = hal_memory_block_address(blocks[i ? to : from]),
                                .sizes = sizes,
                                .strides = strides,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t input = {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]};
  const hal_value_t args[] = {input, input, {.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
  const hal_tensor_t *const results[] = {&tensors[1]};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  (void)!hal_op_run(device, op, stream, &call);
}

static void work(int32_t device, hal_stream_t *stream) {
  const float number = 1;
  add(device, stream, 0, 1);
  if (blocks[0])
    (void)!hal_memory_fill(stream, device, hal_memory_block_address(blocks[0]), &number, sizeof number, 64);
  add(device, stream, 1, 0);
}

static void use_programs(int32_t device) {
  const hal_program_desc_t desc = {.struct_size = sizeof desc};
  const hal_lazy_desc_t lazily = {.struct_size = sizeof lazily};
  hal_program_t *program = NULL;
  hal_lazy_t *lazy = NULL;
  if (!streams[0]) return;
  work(device, streams[0]);
  if (hal_program_begin(streams[0], &desc, &program) == HAL_OK) {
    work(device, streams[0]);
    if (hal_program_end(program) == HAL_OK)
      for (int i = 0; i < 3; i++) (void)!hal_program_run(program, streams[0]);
    hal_program_destroy(program);
  }
  if (hal_lazy_begin(streams[0], &lazily, &lazy) != HAL_OK) return;
  for (int i = 0; i < 3; i++) {
    work(device, streams[0]);
    (void)!hal_lazy_flush(lazy);
  }
  (void)!hal_lazy_end(lazy);
}

static void use_modules(int32_t device) {
  static const char text[] = "kernel";
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "opencl-c", .data = text, .size = sizeof text - 1};
  hal_module_t *module = NULL;
  hal_kernel_t *kernel = NULL;
  hal_kernel_info_t info = {.struct_size = sizeof info};
  uint8_t data[256];
  size_t size = 0;
  if (hal_module_load(device, &desc, &module) != HAL_OK) return;
  if (hal_module_export(module, data, sizeof data, &size) == HAL_OK) require(size <= sizeof data);
  if (hal_kernel_get(module, "kernel", &kernel) == HAL_OK) {
    const hal_launch_t launch = {.struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    (void)!hal_kernel_info(kernel, 32, 0, &info);
    (void)!hal_kernel_launch(kernel, streams[0], &launch);
  }
  (void)!hal_device_synchronize(device);
  hal_module_unload(module);
}

/* ---- reports ---- */

static void count_record(void *data, const hal_profile_activity_t *activity) {
  (void)activity;
  ++*(int *)data;
}

static void count_process(void *data, const hal_device_process_t *process) {
  (void)process;
  ++*(int *)data;
}

static void use_reports(int32_t device) {
  int count = 0;
  uint64_t lost = 0;
  int64_t value = 0;
  if (hal_profile_start() == HAL_OK) {
    work(device, streams[0]);
    (void)!hal_profile_stop();
    (void)!hal_profile_read(count_record, &count, &lost);
  }
  for (uint32_t sensor = 0; sensor < 12; sensor++) (void)!hal_device_sensor(device, sensor, &value);
  (void)!hal_device_processes(device, count_process, &count);
}

/* ---- collectives ---- */

static void count_done(void *data, hal_status_t status) {
  (void)status;
  __atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
}

static hal_comm_t *make_comm(int32_t device, const char *name) {
  hal_comm_t *comm = NULL;
  const hal_comm_config_t config = {.struct_size = sizeof config,
                                    .device = device,
                                    .size = 2,
                                    .timeout_ns = MILLISECONDS(20),
                                    .name = name,
                                    .transport = {.struct_size = sizeof config.transport,
                                                  .context = &other,
                                                  .name = "other",
                                                  .run = other_run,
                                                  .abort = other_abort,
                                                  .destroy = other_destroy}};
  return hal_comm_create(&config, &comm) == HAL_OK ? comm : NULL;
}

static void use_collectives(hal_comm_t *comm) {
  static const uint32_t ops[] = {HAL_COMM_ALL_REDUCE, HAL_COMM_BROADCAST, HAL_COMM_ALL_GATHER, HAL_COMM_SEND,
                                 HAL_COMM_REDUCE_SCATTER};
  int done = 0, submitted = 0;
  for (size_t i = 0; i < sizeof ops / sizeof *ops && blocks[0] && blocks[1]; i++) {
    hal_comm_work_t *work = NULL;
    const hal_collective_t call = {.struct_size = sizeof call,
                                   .op = ops[i],
                                   .dtype = HAL_FLOAT32,
                                   .peer = ops[i] == HAL_COMM_SEND,
                                   .send = hal_memory_block_address(blocks[0]),
                                   .recv = ops[i] == HAL_COMM_SEND ? NULL : hal_memory_block_address(blocks[1]),
                                   .count = FLOATS / 2};
    if (hal_comm_submit(comm, streams[0], &call, 1, 0, count_done, &done, &work) != HAL_OK) continue;
    submitted++;
    (void)!hal_comm_work_wait(work, streams[0], 0);
    (void)!hal_comm_work_query(work);
    if (i % 2) (void)!hal_comm_work_synchronize(work, MILLISECONDS(20));
    hal_comm_work_release(work);
  }
  (void)!hal_stream_synchronize(streams[0]);
  hal_comm_destroy(comm, MILLISECONDS(20));
  require(__atomic_load_n(&done, __ATOMIC_RELAXED) <= submitted);
}

static void use_library(int32_t device) {
  hal_comm_t *const comm = make_comm(device, "first"), *const child = make_comm(device, "child");
  if (comm) (void)!hal_comm_connect_library(comm, HAL_COMM_REGISTER_MEMORY, MILLISECONDS(20));
  if (comm && child) (void)!hal_comm_split_library(comm, 0, 0, child, 0, MILLISECONDS(20));
  if (child) use_collectives(child);
  if (comm) use_collectives(comm);
}

static void use_device(int32_t device) {
  begin(device);
  use_events(device);
  use_programs(device);
  use_modules(device);
  use_handles(device);
  use_reports(device);
  use_library(device);
  end(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
  setenv("HAL_CACHE_DIR", "", 1);
  other = (other_rank_t){data, size};
  return run_input(HOSTILE "/libhal_slots.so", data, size, use_device);
}
