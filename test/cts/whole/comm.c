/* comm.c: the capabilities of the library of collectives, and its communicators from creation to destruction. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum { NO_RANK = -1 };

hal_status_t comm_refuse(hal_status_t status, const char *format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return whole_refuse(status, text);
}

int64_t comm_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void comm_nap(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

hal_status_t comm_check_flags(const char *op, uint32_t flags, uint32_t known) {
  if (!(flags & ~known)) return HAL_OK;
  return comm_refuse(HAL_UNIMPLEMENTED, "whole: %s: unknown flags 0x%x", op, (unsigned)(flags & ~known));
}

/* ---- what it can do ---- */

hal_status_t whole_comm_info(int32_t device, hal_comm_info_t *out_info) {
  hal_device_info_t about = {.struct_size = sizeof about};
  const size_t size = out_info->struct_size;
  if (whole_good.device_info(device, &about) || !(about.flags & HAL_DEVICE_HOST_VISIBLE))
    return comm_refuse(HAL_UNIMPLEMENTED, "whole: collectives need a device whose memory the host sees");
  hal_comm_info_t info = {.struct_size = size,
                          .id_bytes = sizeof(comm_id_t),
                          .max_ranks = COMM_RANKS,
                          .ops = (UINT64_C(1) << (HAL_COMM_SCATTER + 1)) - 1,
                          .flags = HAL_COMM_CAN_NONBLOCKING | HAL_COMM_CAN_SPLIT | HAL_COMM_CAN_SHRINK |
                                   HAL_COMM_CAN_REGISTER | HAL_COMM_CAN_CAPTURE | HAL_COMM_CAN_UNEVEN |
                                   HAL_COMM_CAN_TAG | HAL_COMM_CAN_SHARE_DEVICE | HAL_COMM_CAN_FLOAT32_SUM |
                                   HAL_COMM_CAN_DETERMINISTIC | HAL_COMM_CAN_SCALE_ON_DEVICE,
                          .version = 1,
                          .name = "whole"};
  for (hal_dtype_t dtype = 0; dtype < 64; dtype++)
    if (comm_dtype_size(dtype)) info.copy_dtypes |= HAL_DTYPE_BIT(dtype);
  memcpy(info.reduce_dtypes, comm_reduce_dtypes, sizeof info.reduce_dtypes);
  memcpy(out_info, &info, size < sizeof info ? size : sizeof info); /* an older host's struct is shorter */
  return HAL_OK;
}

hal_status_t whole_comm_unique_id(int32_t device, uint32_t flags, void *id, size_t room, size_t *out_size) {
  comm_id_t made;
  (void)device;
  hal_status_t status = comm_check_flags("comm_unique_id", flags, 0);
  if (!status && room >= sizeof made) status = comm_id_make(&made);
  if (status) return status;
  if (room >= sizeof made) memcpy(id, &made, sizeof made);
  *out_size = sizeof made;
  return HAL_OK;
}

/* ---- states ---- */

void comm_fail(hal_plugin_comm_t *comm, hal_status_t status, int32_t bad_rank, const char *text) {
  pthread_mutex_lock(&comm->lock);
  if (!comm->error) {
    comm->error = status, comm->bad_rank = bad_rank;
    snprintf(comm->message, sizeof comm->message, "%s", text);
  }
  pthread_mutex_unlock(&comm->lock);
  int state = atomic_load(&comm->state);
  while (state != (int)HAL_COMM_ABORTED && !atomic_compare_exchange_weak(&comm->state, &state, (int)HAL_COMM_FAILED)) {
  }
}

/* Whether all ranks have arrived is decided once, for all: the last rank to arrive and those whose time is over
 * change one word. */
static void look_for_ranks(hal_plugin_comm_t *comm) {
  comm_room_t *const room = comm->room;
  int32_t waiting = ROOM_WAITING;
  int creating = (int)HAL_COMM_CREATING;
  char text[COMM_TEXT];
  if (atomic_load(&room->joined) == comm->size)
    atomic_compare_exchange_strong(&room->state, &waiting, ROOM_COMPLETE);
  else if (comm->deadline && comm_now() >= comm->deadline)
    atomic_compare_exchange_strong(&room->state, &waiting, ROOM_GIVEN_UP);
  if (atomic_load(&room->state) == ROOM_COMPLETE) {
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->state) == (int)HAL_COMM_CREATING) {
      comm_room_watch(comm);
      atomic_compare_exchange_strong(&comm->state, &creating, (int)HAL_COMM_READY);
    }
    pthread_mutex_unlock(&comm->lock);
  } else if (atomic_load(&room->state) == ROOM_GIVEN_UP) {
    int32_t missing = 0;
    while (missing < comm->size - 1 && atomic_load(&room->ranks[missing].pid)) missing++;
    snprintf(text, sizeof text, "rank %d of %d is missing after the timeout", (int)missing, (int)comm->size);
    comm_fail(comm, HAL_NOT_READY, missing, text);
  }
}

static void look_for_failures(hal_plugin_comm_t *comm) {
  char text[COMM_TEXT];
  const int by = atomic_load(&comm->room->aborted_by);
  if (by) return comm_fail(comm, HAL_ABORTED, by - 1, comm->room->reason);
  const int ended = comm_room_find_ended(comm);
  if (ended < 0) return;
  snprintf(text, sizeof text, "rank %d (process %d) has ended", ended, (int)atomic_load(&comm->room->ranks[ended].pid));
  comm_fail(comm, HAL_UNAVAILABLE, ended, text);
}

uint32_t comm_look(hal_plugin_comm_t *comm) {
  if (atomic_load(&comm->state) == (int)HAL_COMM_CREATING && !comm->room) comm_divide_look(comm);
  if (atomic_load(&comm->state) == (int)HAL_COMM_CREATING && comm->room) look_for_ranks(comm);
  if (atomic_load(&comm->state) == (int)HAL_COMM_READY) look_for_failures(comm);
  return (uint32_t)atomic_load(&comm->state);
}

hal_status_t comm_check(hal_plugin_comm_t *comm, const char *op) {
  switch (comm_look(comm)) {
    case HAL_COMM_READY:
      return HAL_OK;
    case HAL_COMM_CREATING:
      return comm_refuse(HAL_FAILED_PRECONDITION,
                         "whole: %s on communicator '%s', which is being created; wait until comm_query reports READY",
                         op, comm->name);
    case HAL_COMM_ABORTED:
      return comm_refuse(HAL_ABORTED, "whole: %s on communicator '%s', which was aborted; create a new one", op,
                         comm->name);
    default:
      return comm_refuse(HAL_UNAVAILABLE, "whole: %s on communicator '%s', which has failed: %s", op, comm->name,
                         comm->message);
  }
}

hal_status_t whole_comm_query(hal_plugin_comm_t *comm, hal_comm_state_t *out_state) {
  hal_comm_state_t state = {.struct_size = out_state->struct_size, .state = comm_look(comm)};
  state.queued = atomic_load(&comm->queued), state.started = atomic_load(&comm->started);
  state.done = atomic_load(&comm->done);
  pthread_mutex_lock(&comm->lock);
  state.error = comm->error, state.bad_rank = comm->bad_rank;
  memcpy(state.message, comm->message, sizeof comm->message);
  pthread_mutex_unlock(&comm->lock);
  memcpy(out_state, &state, state.struct_size < sizeof state ? state.struct_size : sizeof state);
  return HAL_OK;
}

/* ---- creation ---- */

hal_status_t comm_new(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *const comm = calloc(1, sizeof *comm);
  if (!comm) return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a communicator; free some memory");
  atomic_store(&comm->users, 1);
  atomic_store(&comm->state, (int)HAL_COMM_CREATING);
  comm->device = device, comm->rank = desc->rank, comm->size = desc->size, comm->bad_rank = NO_RANK;
  comm->deadline = desc->timeout_ns > 0 ? comm_now() + desc->timeout_ns : 0;
  pthread_mutex_init(&comm->lock, NULL);
  snprintf(comm->name, sizeof comm->name, "%s", desc->name ? desc->name : "");
  for (int i = 0; i < COMM_RANKS; i++) comm->watches[i] = -1;
  *out_comm = comm;
  return HAL_OK;
}

void comm_keep(hal_plugin_comm_t *comm) { atomic_fetch_add(&comm->users, 1); }

void comm_drop(hal_plugin_comm_t *comm) {
  if (atomic_fetch_sub(&comm->users, 1) != 1) return;
  while (comm->captured) {
    comm_job_t *const job = comm->captured;
    comm->captured = job->next;
    comm_job_free(job);
  }
  while (comm->memories) {
    hal_plugin_comm_memory_t *const memory = comm->memories;
    comm->memories = memory->next;
    free(memory);
  }
  comm_message_free(comm);
  if (comm->parent) comm_drop(comm->parent);
  comm_room_leave(comm);
  pthread_mutex_destroy(&comm->lock);
  free(comm);
}

/* The others need not wait for a rank that has cancelled. */
static void give_up(hal_plugin_comm_t *comm) {
  int32_t waiting = ROOM_WAITING;
  if (comm->room) atomic_compare_exchange_strong(&comm->room->state, &waiting, ROOM_GIVEN_UP);
}

hal_status_t comm_complete(hal_plugin_comm_t *comm, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_status_t status = HAL_OK;
  if (!(desc->flags & HAL_COMM_NONBLOCKING))
    while (comm_look(comm) == HAL_COMM_CREATING) comm_nap();
  if (atomic_load(&comm->state) != (int)HAL_COMM_CREATING && atomic_load(&comm->state) != (int)HAL_COMM_READY)
    status = comm_refuse(comm->error, "whole: communicator '%s' cannot be created as rank %d of %d: %s", comm->name,
                         (int)comm->rank, (int)comm->size, comm->message);
  if (status)
    comm_drop(comm);
  else
    *out_comm = comm;
  return status;
}

hal_status_t whole_comm_create(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *comm = NULL;
  comm_id_t id;
  hal_status_t status = comm_check_flags("comm_create", desc->flags, HAL_COMM_NONBLOCKING | HAL_COMM_DETERMINISTIC);
  if (status) return status;
  if (!desc->id || desc->id_size != sizeof id)
    return comm_refuse(HAL_INVALID_ARGUMENT,
                       "whole: comm_create with an id of %zu bytes: expected the %zu bytes of comm_unique_id",
                       desc->id ? desc->id_size : 0, sizeof id);
  if (desc->size < 1 || desc->size > COMM_RANKS || desc->rank < 0 || desc->rank >= desc->size)
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: comm_create with rank %d of %d; at most %d ranks", (int)desc->rank,
                       (int)desc->size, COMM_RANKS);
  memcpy(&id, desc->id, sizeof id);
  status = comm_new(device, desc, &comm);
  if (status) return status;
  status = comm_room_join(comm, &id);
  if (!status) return comm_complete(comm, desc, out_comm);
  comm_drop(comm);
  return status;
}

/* ---- ends ---- */

/* Jobs check the state while they wait, and at their start: queued jobs end when their stream reaches them. */
hal_status_t whole_comm_abort(hal_plugin_comm_t *comm, const char *reason) {
  if (atomic_exchange(&comm->state, (int)HAL_COMM_ABORTED) == (int)HAL_COMM_ABORTED) return HAL_OK;
  comm_fail(comm, HAL_ABORTED, comm->rank, reason ? reason : "aborted");
  give_up(comm);
  if (comm->room && !atomic_exchange(&comm->room->aborting, 1)) { /* the first one notifies the other ranks */
    snprintf(comm->room->reason, sizeof comm->room->reason, "rank %d aborted: %s", (int)comm->rank,
             reason ? reason : "no reason was given");
    atomic_store(&comm->room->aborted_by, comm->rank + 1);
  }
  return HAL_OK;
}

/* Jobs of an aborted communicator end automatically, and keep it until then. */
static hal_status_t drain(hal_plugin_comm_t *comm, int64_t timeout_ns) {
  const int64_t end = timeout_ns > 0 ? comm_now() + timeout_ns : 0;
  if (atomic_load(&comm->state) == (int)HAL_COMM_ABORTED) return HAL_OK;
  for (; atomic_load(&comm->jobs) && atomic_load(&comm->state) != (int)HAL_COMM_ABORTED; comm_nap())
    if (end && comm_now() >= end)
      return comm_refuse(HAL_NOT_READY, "whole: communicator '%s' has calls that have not ended; abort it first",
                         comm->name);
  if (atomic_load(&comm->state) == (int)HAL_COMM_ABORTED)
    return comm_refuse(HAL_ABORTED, "whole: communicator '%s' was aborted while comm_destroy waited", comm->name);
  return HAL_OK;
}

hal_status_t whole_comm_destroy(hal_plugin_comm_t *comm, int64_t timeout_ns) {
  const hal_status_t status = drain(comm, timeout_ns);
  if (status) return status;
  give_up(comm);
  if (comm->room) atomic_store(&comm->room->ranks[comm->rank].left, 1);
  comm_drop(comm);
  return HAL_OK;
}
