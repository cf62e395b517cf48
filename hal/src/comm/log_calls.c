/* log_calls.c: an entry of the log for collectives that the caller does not describe. */
#include <stdio.h>

#include "base/host_malloc.h"
#include "comm/comm.h"
#include "comm/log.h"

/* Returns 1 + the group's number in the log; 0 if memory is exhausted. */
static uint32_t group_of(hal_comm_t *comm) {
  const uint32_t known = atomic_load(&comm->log_group);
  if (known) return known;
  uint64_t *const ranks = hal_malloc((size_t)comm->size * sizeof *ranks);
  uint32_t group = 0;
  for (int32_t i = 0; ranks && i < comm->size; i++) ranks[i] = (uint64_t)i;
  const char *const name = *comm->name ? comm->name : "group";
  if (!ranks || hal_comm_log_group(name, name, ranks, (uint32_t)comm->size, &group)) {
    hal_free(ranks);
    return 0;
  }
  hal_free(ranks);
  atomic_store(&comm->log_group, group + 1);
  return group + 1;
}

uint64_t hal_comm_log_calls(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, uint64_t sequence,
                            int64_t timeout_ns) {
  const uint32_t group = group_of(comm);
  if (!group) return 0;
  char name[64];
  const int64_t size = (int64_t)calls->count;
  const hal_comm_tensor_t tensors[2] = {{calls->dtype, 1, &size}, {calls->dtype, 1, &size}};
  const char *const op = count > 1 ? "coalesced" : hal_comm_op_name(calls->op);
  if (count == 1 && calls->op == HAL_COMM_SEND)
    snprintf(name, sizeof name, "gloo:send %d->%d", comm->rank, calls->peer);
  else if (count == 1 && calls->op == HAL_COMM_RECV)
    snprintf(name, sizeof name, "gloo:recv %d<-%d", comm->rank, calls->peer);
  else
    snprintf(name, sizeof name, "gloo:%s", op);
  const hal_comm_entry_t entry = {.struct_size = sizeof entry,
                                  .group = group - 1,
                                  .is_message = (uint32_t)hal_comm_op_is_message(calls->op),
                                  .sequence = sequence,
                                  .operation = sequence,
                                  .name = name,
                                  .input_count = 1,
                                  .output_count = 1,
                                  .tensors = tensors};
  return hal_comm_log_add(&entry, timeout_ns);
}
