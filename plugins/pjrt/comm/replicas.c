/* replicas.c: runs the program of a collective on the devices of all ranks, in their memory. */
#include <stdio.h>
#include <string.h>

#include "../opaque.h"
#include "comm.h"

/* The buffers of one replica. */
typedef struct replica_s {
  pjrt_span_t argument, result;
  pjrt_buffer_t *arguments[2], *output; /* the second argument is the place of the result */
  opaque_version_t *version;            /* of the argument, in memory of the platform */
} replica_t;

/* Programs of several groups run one after the other: a platform with few threads could run only some of the replicas
 * of each, which wait for the others. */
static pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the ranks' calls -------------------------------------------------------------------------------------------- */

static hal_status_t compare(const comm_group_t *group, char *why) {
  const comm_call_t *const first = group->calls[0];
  for (int32_t rank = 1; rank < group->size; rank++) {
    const comm_call_t *const other = group->calls[rank];
    if (first->op == other->op && first->reduce == other->reduce && first->type == other->type &&
        first->peer == other->peer && first->count == other->count)
      continue;
    snprintf(why, PJRT_WHY,
             "rank %d calls operator %u of %lld elements (type %d, reduction %u, rank %d), rank 0 operator %u of %lld "
             "elements (type %d, reduction %u, rank %d)",
             (int)rank, (unsigned)other->op, (long long)other->count, (int)other->type, (unsigned)other->reduce,
             (int)other->peer, (unsigned)first->op, (long long)first->count, (int)first->type, (unsigned)first->reduce,
             (int)first->peer);
    return HAL_INVALID_ARGUMENT;
  }
  return HAL_OK;
}

static int overlap(const pjrt_span_t *a, const pjrt_span_t *b) {
  const char *const from = a->data, *const to = b->data;
  return from < to + pjrt_span_bytes(b) && to < from + pjrt_span_bytes(a);
}

/* A rank that only receives has no argument: the program ignores its elements. */
static void set_spans(const comm_group_t *group, const comm_call_t *call, replica_t *replica) {
  void *const from = call->send ? call->send : call->recv;
  const int reads = call->op != HAL_COMM_BROADCAST || call->rank == call->peer;
  replica->argument = (pjrt_span_t){reads ? from : call->recv, call->type, comm_argument_count(group, call), 0, NULL};
  replica->result = (pjrt_span_t){call->recv, call->type, comm_result_count(group, call), 0, NULL};
}

/* ---- memory of the host ------------------------------------------------------------------------------------------ */

static hal_status_t prepare_addressed(const comm_call_t *call, int32_t device, replica_t *replica, char *why) {
  pjrt_failure_t failure = {.status = HAL_OK};
  hal_status_t status;
  if (comm_in_place(call->op)) {
    if (replica->argument.data != call->recv)
      memcpy(call->recv, replica->argument.data, pjrt_span_bytes(&replica->argument));
    status = pjrt_buffer_over(&replica->result, device, &replica->arguments[0], &failure);
  } else {
    replica->argument.copied = overlap(&replica->argument, &replica->result);
    status = pjrt_buffer_over(&replica->argument, device, &replica->arguments[0], &failure);
    if (!status) status = pjrt_buffer_over(&replica->result, device, &replica->arguments[1], &failure);
  }
  if (status) snprintf(why, PJRT_WHY, "%.240s", failure.text);
  return status;
}

static hal_status_t finish_addressed(int32_t device, replica_t *replica, char *why) {
  pjrt_failure_t failure;
  uint32_t moved = 0;
  const hal_status_t status = pjrt_place_result(device, replica->output, &replica->result, &moved, &failure);
  if (status) snprintf(why, PJRT_WHY, "%.240s", failure.text);
  return status;
}

/* ---- memory of the platform -------------------------------------------------------------------------------------- */

static hal_status_t prepare_opaque(int32_t device, replica_t *replica, char *why) {
  hal_status_t status = pjrt_opaque_argument(&replica->argument, device, &replica->version, why);
  if (status) return status;
  replica->arguments[0] = pjrt_opaque_buffer(replica->version);
  return pjrt_opaque_claim(&replica->result, why);
}

static hal_status_t finish_opaque(int32_t device, replica_t *replica, char *why) {
  pjrt_buffer_t *const output = replica->output;
  replica->output = NULL;
  return pjrt_opaque_result(&replica->result, device, output, why);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static hal_status_t execute(const comm_group_t *group, pjrt_loaded_t *program, replica_t *replicas, char *why) {
  const pjrt_table_t *const table = pjrt_table_of(group->devices[0]);
  pjrt_buffer_t *const *arguments[PJRT_MAX_DEVICES];
  pjrt_buffer_t **results[PJRT_MAX_DEVICES];
  pjrt_event_t *done[PJRT_MAX_DEVICES] = {NULL};
  pjrt_failure_t failure = {.status = HAL_OK}, later;
  pjrt_execute_options_t options = {.struct_size = sizeof options};
  for (int32_t rank = 0; rank < group->size; rank++)
    arguments[rank] = replicas[rank].arguments, results[rank] = &replicas[rank].output;
  pjrt_LoadedExecutable_Execute_t call = {.executable = program,
                                          .options = &options,
                                          .argument_lists = arguments,
                                          .num_devices = (size_t)group->size,
                                          .num_args = replicas[0].arguments[1] ? 2 : 1,
                                          .output_lists = results,
                                          .device_complete_events = done};
  pthread_mutex_lock(&program_lock);
  hal_status_t status = pjrt_failed(table, PJRT_CALL(table, LoadedExecutable_Execute, call), &failure);
  for (int32_t rank = 0; rank < group->size; rank++) {
    const hal_status_t ended = pjrt_await(group->devices[rank], done[rank], status ? &later : &failure);
    if (!status) status = ended;
  }
  pthread_mutex_unlock(&program_lock);
  if (status) snprintf(why, PJRT_WHY, "%.240s", failure.text);
  return status;
}

static hal_status_t run(comm_group_t *group, pjrt_loaded_t *program, replica_t *replicas, char *why) {
  hal_status_t status = HAL_OK;
  for (int32_t rank = 0; rank < group->size && !status; rank++) {
    const comm_call_t *const call = group->calls[rank];
    set_spans(group, call, &replicas[rank]);
    status = pjrt.opaque ? prepare_opaque(group->devices[rank], &replicas[rank], why)
                         : prepare_addressed(call, group->devices[rank], &replicas[rank], why);
  }
  if (!status) status = execute(group, program, replicas, why);
  for (int32_t rank = 0; rank < group->size && !status; rank++)
    status = pjrt.opaque ? finish_opaque(group->devices[rank], &replicas[rank], why)
                         : finish_addressed(group->devices[rank], &replicas[rank], why);
  return status;
}

static void release(const comm_group_t *group, replica_t *replicas) {
  for (int32_t rank = 0; rank < group->size; rank++) {
    pjrt_buffer_destroy(group->devices[rank], replicas[rank].output);
    if (pjrt.opaque) {
      pjrt_opaque_release(replicas[rank].version);
      continue;
    }
    for (int i = 0; i < 2; i++) pjrt_buffer_destroy(group->devices[rank], replicas[rank].arguments[i]);
  }
}

hal_status_t comm_run(comm_group_t *group, char *why) {
  pjrt_loaded_t *program = NULL;
  const comm_call_t *const first = group->calls[0];
  hal_status_t status = compare(group, why);
  if (status || first->op == HAL_COMM_BARRIER || !first->count) return status;
  status = comm_program(group, first, &program, why);
  if (status) return status;
  replica_t *const replicas = hal_host->mem_alloc((size_t)group->size * sizeof *replicas, _Alignof(replica_t));
  if (!replicas) {
    snprintf(why, PJRT_WHY, "no host memory for the buffers of %d ranks", (int)group->size);
    return HAL_RESOURCE_EXHAUSTED;
  }
  memset(replicas, 0, (size_t)group->size * sizeof *replicas);
  status = run(group, program, replicas, why);
  release(group, replicas);
  hal_host->mem_free(replicas);
  return status;
}
