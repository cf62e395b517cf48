/* comm_room.c: ids and shared regions of communicators: see comm.h. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm.h"

enum { MAGIC = 0x77686f6c };

/* Shared regions that this process created and whose ranks have not all arrived. */
typedef struct made_s {
  struct made_s *next;
  comm_id_t id;
} made_t;
static made_t *all_made;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int make_file(uint64_t nonce) {
  const int file = memfd_create("comm", MFD_CLOEXEC);
  if (file >= 0 && !ftruncate(file, sizeof(comm_room_t)) && pwrite(file, &nonce, sizeof nonce, 0) == sizeof nonce)
    return file;
  if (file >= 0) close(file);
  return -1;
}

hal_status_t comm_id_make(comm_id_t *out_id) {
  static _Atomic uint64_t counter;
  made_t *const made = calloc(1, sizeof *made);
  const uint64_t nonce = (uint64_t)comm_now() << 8 ^ (uint64_t)getpid() << 40 ^ ++counter;
  const int file = made ? make_file(nonce) : -1;
  if (file < 0) {
    free(made);
    return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a communicator; free some memory");
  }
  made->id = (comm_id_t){.magic = MAGIC, .pid = getpid(), .file = file, .nonce = nonce};
  pthread_mutex_lock(&lock);
  made->next = all_made, all_made = made;
  pthread_mutex_unlock(&lock);
  *out_id = made->id;
  return HAL_OK;
}

void comm_id_drop(const comm_id_t *id) {
  pthread_mutex_lock(&lock);
  made_t **at = &all_made;
  while (*at && (*at)->id.nonce != id->nonce) at = &(*at)->next;
  made_t *const found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&lock);
  if (found) close(found->id.file);
  free(found);
}

static comm_room_t *map_room(const comm_id_t *id) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id->pid, (int)id->file);
  const int file = id->magic == MAGIC ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return NULL;
  comm_room_t *const room = mmap(NULL, sizeof *room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (room == MAP_FAILED) return NULL;
  if (room->nonce == id->nonce) return room;
  munmap(room, sizeof *room);
  return NULL;
}

hal_status_t comm_room_join(hal_plugin_comm_t *comm, const comm_id_t *id) {
  int32_t size = 0, pid = 0;
  comm->id = *id;
  comm->room = map_room(id);
  if (!comm->room)
    return comm_refuse(HAL_INVALID_ARGUMENT,
                       "whole: communicator '%s': the id is not one of comm_unique_id that is in use; make a new one",
                       comm->name);
  comm_room_t *const room = comm->room;
  if (!atomic_compare_exchange_strong(&room->size, &size, comm->size) && size != comm->size)
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: communicator '%s' has %d ranks here and %d on another rank",
                       comm->name, (int)comm->size, (int)size);
  if (!atomic_compare_exchange_strong(&room->ranks[comm->rank].pid, &pid, getpid()))
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: communicator '%s' has two ranks %d", comm->name, (int)comm->rank);
  atomic_fetch_add(&room->joined, 1);
  return HAL_OK;
}

void comm_room_leave(hal_plugin_comm_t *comm) {
  for (int i = 0; i < COMM_RANKS; i++)
    if (comm->watches[i] >= 0) close(comm->watches[i]);
  if (comm->room) munmap(comm->room, sizeof *comm->room);
  comm_id_drop(&comm->id);
}

/* A descriptor of a process becomes readable when the process exits, also if its parent has not waited for it. */
void comm_room_watch(hal_plugin_comm_t *comm) {
  for (int i = 0; i < comm->size; i++)
    if (i != comm->rank)
      comm->watches[i] = (int)syscall(SYS_pidfd_open, (pid_t)atomic_load(&comm->room->ranks[i].pid), 0);
  comm_id_drop(&comm->id); /* all ranks have opened the shared region */
}

int comm_room_find_ended(hal_plugin_comm_t *comm) {
  struct pollfd watches[COMM_RANKS];
  for (int i = 0; i < COMM_RANKS; i++) watches[i] = (struct pollfd){.fd = comm->watches[i], .events = POLLIN};
  if (poll(watches, COMM_RANKS, 0) <= 0) return -1;
  for (int i = 0; i < comm->size; i++)
    if (watches[i].revents && !atomic_load(&comm->room->ranks[i].left)) return i;
  return -1;
}
