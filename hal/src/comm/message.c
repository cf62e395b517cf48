/* message.c: SEND and RECV over a transport that does not compare calls. A header with the type and the size precedes
 * the message, and the receiver compares it with its own call. The receiver sends no reply, so that a message has no
 * additional latency. A failure of the receiver ends the communicator, which notifies the sender. */
#define _POSIX_C_SOURCE 200809L /* hal_clock_ns */
#include "base/clock.h"
#include "base/dtype.h"
#include "comm/comm.h"
#include "hal/status.h"

#define MAGIC UINT32_C(0x4D4C4148) /* also the version of the header */

typedef struct header_s {
  uint32_t magic, dtype, tag, reserved;
  uint64_t count;
} header_t;

static hal_status_t run(const hal_comm_transport_t *transport, const hal_collective_t *call, int64_t deadline_ns) {
  const int64_t least_ns = 1000000, left_ns = deadline_ns - hal_clock_ns();
  return transport->run(transport->context, call, 1, left_ns > least_ns ? left_ns : least_ns);
}

static hal_status_t run_header(const hal_comm_transport_t *transport, const hal_collective_t *call, header_t *header,
                               int64_t deadline_ns) {
  hal_collective_t bytes = {.struct_size = sizeof bytes,
                            .op = call->op,
                            .dtype = HAL_UINT8,
                            .peer = call->peer,
                            .tag = call->tag,
                            .count = sizeof *header};
  if (call->op == HAL_COMM_SEND) bytes.send = header;
  if (call->op == HAL_COMM_RECV) bytes.recv = header;
  return run(transport, &bytes, deadline_ns);
}

static hal_status_t compare(int32_t rank, const hal_collective_t *recv, const header_t *header) {
  if (header->magic != MAGIC)
    return hal_error_set(HAL_DATA_LOSS,
                         "rank %d received something else than the header of a message from rank %d; install one "
                         "version of torch_backend on all ranks",
                         rank, recv->peer);
  if (header->dtype == (uint32_t)recv->dtype && header->count == recv->count) return HAL_OK;
  return hal_error_set(
      HAL_INVALID_ARGUMENT,
      "the messages do not match: rank %d sends (%s, %llu elements, tag %u) to rank %d, which receives "
      "(%s, %llu elements)",
      recv->peer, hal_dtype_name((hal_dtype_t)header->dtype), (unsigned long long)header->count, header->tag, rank,
      hal_dtype_name(recv->dtype), (unsigned long long)recv->count);
}

hal_status_t hal_comm_run_message(const hal_comm_transport_t *transport, int32_t rank, const hal_collective_t *call,
                                  int64_t timeout_ns) {
  int64_t deadline_ns;
  if (transport->flags & HAL_COMM_COMPARES_CALLS) return transport->run(transport->context, call, 1, timeout_ns);
  if (__builtin_add_overflow(hal_clock_ns(), timeout_ns, &deadline_ns)) deadline_ns = INT64_MAX;
  header_t header = {.magic = MAGIC, .dtype = (uint32_t)call->dtype, .tag = call->tag, .count = call->count};
  HAL_RETURN_IF_ERROR(run_header(transport, call, &header, deadline_ns));
  if (call->op == HAL_COMM_RECV) HAL_RETURN_IF_ERROR(compare(rank, call, &header));
  return run(transport, call, deadline_ns);
}
