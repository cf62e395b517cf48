/* comm_device_testing.h: a transport whose `run` submits each call on memory of the device `fake` that the host cannot
 * access. With it, the tests of transports test collectives of communicators. With `counts_copies`, a call must copy no
 * byte between the device and the host if the ranks share device memory, and must copy some if they do not. */
#ifndef TEST_HAL_COMM_DEVICE_TESTING_H_
#define TEST_HAL_COMM_DEVICE_TESTING_H_

#include "base/status_internal.h"
#include "comm/comm.h"
#include "comm_testing.h"
#include "hal/hal.h"

static int counts_copies;

typedef struct on_device_s {
  hal_comm_t *comm;
  hal_stream_t *stream;
} on_device_t;

/* Copies of a profile between the device and the host, and within the device. */
typedef struct copies_seen_s {
  uint64_t host, device;
} copies_seen_t;

static void see_copy(void *user_data, const hal_profile_activity_t *activity) {
  copies_seen_t *const seen = user_data;
  if (activity->kind != HAL_PROFILE_COPY) return;
  if (activity->direction == HAL_COPY_DEVICE_TO_DEVICE)
    seen->device++;
  else
    seen->host++;
}

/* Host memory of a call, and the device memory that replaces it. */
typedef struct mirror_s {
  char *host, *device;
  size_t bytes;
  hal_block_t *block;
} mirror_t;

static void upload(const on_device_t *on, mirror_t *mirror, const void *host, size_t bytes) {
  *mirror = (mirror_t){.host = (char *)(uintptr_t)host, .bytes = bytes};
  CHECK_OK(hal_memory_allocate(0, on->stream, bytes, &mirror->block));
  mirror->device = hal_memory_block_address(mirror->block);
  if (bytes) CHECK_OK(hal_memory_copy(on->stream, mirror->device, 0, mirror->host, HAL_HOST, bytes));
  CHECK_OK(hal_stream_synchronize(on->stream));
}

static void download(const on_device_t *on, mirror_t *mirror, int is_result) {
  if (is_result && mirror->bytes)
    CHECK_OK(hal_memory_copy(on->stream, mirror->host, HAL_HOST, mirror->device, 0, mirror->bytes));
  CHECK_OK(hal_stream_synchronize(on->stream));
  hal_memory_release(mirror->block);
}

static hal_status_t run_counted(on_device_t *on, const hal_collective_t *call, int64_t timeout_ns) {
  copies_seen_t seen = {0, 0};
  hal_comm_work_t *work;
  if (counts_copies) CHECK_OK(hal_profile_start());
  hal_status_t status = hal_comm_submit(on->comm, on->stream, call, 1, timeout_ns, NULL, NULL, &work);
  if (!status) {
    status = hal_comm_work_synchronize(work, timeout_ns);
    hal_comm_work_release(work);
  }
  if (!counts_copies || status) return status;
  CHECK_OK(hal_profile_stop());
  CHECK_OK(hal_profile_read(see_copy, &seen, NULL));
  const int moves = hal_comm_send_bytes(on->comm, call) || hal_comm_recv_bytes(on->comm, call);
  const int is_on_device = hal_comm_shm_takes_device_memory(&on->comm->transport, call, 1);
  CHECK(is_on_device ? !seen.host : !moves || seen.host, "%s of %s: %llu copies of host memory, %llu on the device",
        hal_comm_op_name(call->op), hal_dtype_name(call->dtype), (unsigned long long)seen.host,
        (unsigned long long)seen.device);
  return HAL_OK;
}

static hal_status_t run_on_device(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  on_device_t *const on = context;
  hal_collective_t call = *calls;
  mirror_t sent, received;
  CHECK(count == 1, "%u calls", count);
  const hal_status_t checked = hal_comm_check(on->comm, &call);
  if (checked) return checked;
  const uint64_t send_bytes = call.send ? hal_comm_send_bytes(on->comm, &call) : 0;
  const uint64_t recv_bytes = call.recv ? hal_comm_recv_bytes(on->comm, &call) : 0;
  const char *const send = call.send, *const recv = call.recv;
  const int is_inside = send_bytes && recv_bytes && send < recv + recv_bytes && recv < send + send_bytes;
  if (is_inside) { /* in place */
    const char *const start = send < recv ? send : recv;
    const char *const end = send + send_bytes > recv + recv_bytes ? send + send_bytes : recv + recv_bytes;
    upload(on, &received, start, (size_t)(end - start));
    call.send = received.device + (send - start), call.recv = received.device + (recv - start);
  } else {
    upload(on, &sent, send, send_bytes), upload(on, &received, recv, recv_bytes);
    call.send = send_bytes ? sent.device : NULL, call.recv = recv_bytes ? received.device : NULL;
  }
  const hal_status_t status = run_counted(on, &call, timeout_ns);
  hal_error_saved_t saved;
  hal_error_save(&saved);
  if (!is_inside) download(on, &sent, 0);
  download(on, &received, 1);
  hal_error_restore(&saved);
  return status;
}

static void abort_on_device(void *context, const char *reason) {
  hal_comm_abort(((on_device_t *)context)->comm, reason);
}

static void destroy_on_device(void *context) {
  hal_comm_destroy(((on_device_t *)context)->comm, 20 * (int64_t)SECOND);
  free(context);
}

static inline void open_protected(void) {
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 0);
  setenv("HAL_FAKE_PROTECT", "1", 1); /* the host cannot access device memory */
  CHECK_OK(hal_registry_open("fake"));
}

/* Creates a communicator of the device, whose plugin must be open. */
static inline hal_comm_t *create_group(const char *name, int rank, int size) {
  hal_comm_t *comm;
  hal_comm_config_t config = {
      .struct_size = sizeof config, .rank = rank, .size = size, .timeout_ns = 20 * (int64_t)SECOND, .name = name};
  create(name, rank, size, &config.transport);
  CHECK_OK(hal_comm_create(&config, &comm));
  return comm;
}

static inline void create_on_device(const char *name, int rank, int size, hal_comm_transport_t *out) {
  on_device_t *const on = malloc(sizeof *on);
  CHECK(on, "no memory");
  open_protected();
  on->comm = create_group(name, rank, size);
  CHECK_OK(hal_stream_acquire(0, 0, &on->stream));
  *out = (hal_comm_transport_t){.struct_size = sizeof *out,
                                .context = on,
                                .name = "device",
                                .run = run_on_device,
                                .abort = abort_on_device,
                                .destroy = destroy_on_device};
}

#endif /* TEST_HAL_COMM_DEVICE_TESTING_H_ */
