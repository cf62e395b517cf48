/* comm_divide.c: communicators of a subset of another one's ranks, and registered memory. Each rank writes its
 * request into the parent's shared region. When all have, each reads the members of its group, and joins the shared
 * region of the first of them. */
#include <stdio.h>

#include "comm.h"

static comm_record_t *record_of(hal_plugin_comm_t *parent, uint64_t number, int rank) {
  return &parent->room->records[number % COMM_RECORDS][rank];
}

static int comes_before(hal_plugin_comm_t *parent, uint64_t number, int one, int other) {
  const int32_t a = record_of(parent, number, one)->key, b = record_of(parent, number, other)->key;
  return a != b ? a < b : one < other;
}

/* ---- data that each rank reads ---- */

/* The first rank that has not written its request; -1 = none. */
static int find_missing(const hal_plugin_comm_t *comm) {
  for (int i = 0; i < comm->parent->size; i++)
    if ((comm->among >> i & 1) && atomic_load(&record_of(comm->parent, comm->division, i)->number) != comm->division)
      return i;
  return -1;
}

static void join_division(hal_plugin_comm_t *comm) {
  hal_plugin_comm_t *const parent = comm->parent;
  int first = parent->rank;
  comm->rank = comm->size = 0;
  for (int i = 0; i < parent->size; i++) {
    if (!(comm->among >> i & 1) || record_of(parent, comm->division, i)->color != comm->color) continue;
    comm->size++;
    comm->rank += comes_before(parent, comm->division, i, parent->rank);
    if (comes_before(parent, comm->division, i, first)) first = i;
  }
  const comm_id_t id = record_of(parent, comm->division, first)->id;
  atomic_store(&parent->room->ranks[parent->rank].read, comm->division);
  if (first != parent->rank) comm_id_drop(&comm->id);
  const hal_status_t status = comm_room_join(comm, &id);
  if (status) comm_fail(comm, status, -1, "the shared region of the first rank cannot be opened");
}

void comm_divide_look(hal_plugin_comm_t *comm) {
  char text[COMM_TEXT];
  if (atomic_flag_test_and_set(&comm->looking)) return; /* another thread looks */
  const int missing = comm->room ? -1 : find_missing(comm);
  if (missing >= 0 && comm->deadline && comm_now() >= comm->deadline) {
    snprintf(text, sizeof text, "rank %d of the parent is missing after the timeout", missing);
    comm_fail(comm, HAL_NOT_READY, -1, text);
  } else if (missing < 0 && !comm->room) {
    join_division(comm);
  }
  atomic_flag_clear(&comm->looking);
}

/* ---- data that each rank writes ---- */

/* Records are reused: the others have read the one that is replaced. */
static hal_status_t wait_for_record(hal_plugin_comm_t *parent, unsigned among, uint64_t number, int64_t timeout_ns) {
  const int64_t end = timeout_ns > 0 ? comm_now() + timeout_ns : 0;
  for (int i = 0; number > COMM_RECORDS && i < parent->size; i++)
    while ((among >> i & 1) && atomic_load(&parent->room->ranks[i].read) + COMM_RECORDS < number) {
      if (end && comm_now() >= end)
        return comm_refuse(HAL_NOT_READY, "whole: communicator '%s': rank %d is missing after the timeout",
                           parent->name, i);
      comm_nap();
    }
  return HAL_OK;
}

static hal_status_t divide(hal_plugin_comm_t *parent, unsigned among, int32_t color, int32_t key,
                           const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  const uint64_t number = atomic_fetch_add(&parent->divisions, 1) + 1;
  comm_record_t *const own = record_of(parent, number, parent->rank);
  hal_plugin_comm_t *comm = NULL;
  comm_id_t id = {0};
  hal_status_t status = color >= 0 ? comm_new(parent->device, desc, &comm) : HAL_OK;
  if (!status && comm) status = comm_id_make(&id);
  if (!status) status = wait_for_record(parent, among, number, desc->timeout_ns);
  if (status) return comm ? comm_drop(comm) : (void)0, comm_id_drop(&id), status;
  own->color = color, own->key = key, own->id = id;
  atomic_store(&own->number, number);
  *out_comm = NULL;
  if (!comm) return atomic_store(&parent->room->ranks[parent->rank].read, number), HAL_OK;
  comm_keep(parent);
  comm->parent = parent, comm->division = number, comm->among = among, comm->color = color, comm->id = id;
  comm->rank = parent->rank, comm->size = parent->size; /* until it is known */
  return comm_complete(comm, desc, out_comm);
}

hal_status_t whole_comm_split(hal_plugin_comm_t *parent, int32_t color, int32_t key, const hal_comm_desc_t *desc,
                              hal_plugin_comm_t **out_comm) {
  hal_status_t status = comm_check_flags("comm_split", desc->flags, HAL_COMM_NONBLOCKING | HAL_COMM_DETERMINISTIC);
  if (!status) status = comm_check(parent, "comm_split");
  if (!status && color < -1)
    status = comm_refuse(HAL_INVALID_ARGUMENT, "whole: comm_split with color %d: expected -1 or more", (int)color);
  return status ? status : divide(parent, (1U << parent->size) - 1, color, key, desc, out_comm);
}

/* The parent may have failed: its shared region exists as long as one rank has it. */
hal_status_t whole_comm_shrink(hal_plugin_comm_t *parent, const int32_t *ranks, size_t count, uint32_t flags,
                               const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  unsigned among = (1U << parent->size) - 1;
  hal_status_t status = comm_check_flags("comm_shrink", flags, HAL_COMM_SHRINK_ABORT);
  if (!status) status = comm_check_flags("comm_shrink", desc->flags, HAL_COMM_NONBLOCKING | HAL_COMM_DETERMINISTIC);
  if (!status && comm_look(parent) == HAL_COMM_CREATING) status = comm_check(parent, "comm_shrink");
  for (size_t i = 0; i < count && !status; i++) {
    if (ranks[i] < 0 || ranks[i] >= parent->size || ranks[i] == parent->rank)
      status = comm_refuse(HAL_INVALID_ARGUMENT, "whole: comm_shrink by rank %d of %d without rank %d",
                           (int)parent->rank, (int)parent->size, (int)ranks[i]);
    else
      among &= ~(1U << ranks[i]);
  }
  if (status) return status;
  if (flags & HAL_COMM_SHRINK_ABORT) { /* the others do it themselves */
    comm_fail(parent, HAL_ABORTED, parent->rank, "comm_shrink ended its calls");
    atomic_store(&parent->state, (int)HAL_COMM_ABORTED);
  }
  return divide(parent, among, 0, parent->rank, desc, out_comm);
}

/* ---- registered memory: transfers use all memory in the same way, so that no preparation is needed ---- */

hal_status_t whole_comm_register(hal_plugin_comm_t *comm, void *ptr, size_t size, uint32_t flags,
                                 hal_plugin_comm_memory_t **out_memory) {
  hal_pointer_info_t info = {.struct_size = sizeof info};
  hal_status_t status = comm_check_flags("comm_register", flags, HAL_COMM_REGISTER_SYMMETRIC);
  if (!status) status = comm_check(comm, "comm_register");
  if (status) return status;
  if (!ptr || !size || whole_good.memory_pointer_info(ptr, &info) || info.kind != HAL_POINTER_DEVICE)
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: comm_register of %zu bytes at %p, which is not device memory",
                       size, ptr);
  hal_plugin_comm_memory_t *const memory = calloc(1, sizeof *memory);
  if (!memory) return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory to register memory");
  pthread_mutex_lock(&comm->lock);
  memory->next = comm->memories, comm->memories = memory;
  pthread_mutex_unlock(&comm->lock);
  *out_memory = memory;
  return HAL_OK;
}

hal_status_t whole_comm_deregister(hal_plugin_comm_t *comm, hal_plugin_comm_memory_t *memory) {
  pthread_mutex_lock(&comm->lock);
  hal_plugin_comm_memory_t **at = &comm->memories;
  while (*at && *at != memory) at = &(*at)->next;
  const int found = *at != NULL;
  if (found) *at = memory->next;
  pthread_mutex_unlock(&comm->lock);
  if (!found) return comm_refuse(HAL_INVALID_ARGUMENT, "whole: comm_deregister of memory that is not registered");
  free(memory);
  return HAL_OK;
}
