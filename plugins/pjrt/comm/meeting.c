/* meeting.c: groups of ranks, and the meeting of all ranks at each collective. The last rank that comes runs the
 * program for all. */
#define _POSIX_C_SOURCE 200809L /* pthread_condattr_setclock */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm.h"

static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and `come` and `users` */
static comm_group_t *groups;

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static comm_group_t *create(const hal_comm_desc_t *desc) {
  pthread_condattr_t clock;
  comm_group_t *const group = hal_host->mem_alloc(sizeof *group, _Alignof(comm_group_t));
  if (!group) return NULL;
  memset(group, 0, sizeof *group);
  memcpy(group->id, desc->id, sizeof group->id);
  group->size = desc->size;
  pthread_mutex_init(&group->lock, NULL);
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&group->changed, &clock);
  pthread_condattr_destroy(&clock);
  group->next = groups, groups = group;
  return group;
}

static void destroy(comm_group_t *group) {
  comm_programs_release(group);
  pthread_cond_destroy(&group->changed);
  pthread_mutex_destroy(&group->lock);
  hal_host->mem_free(group);
}

/* A group remains until all its ranks have come, so that a late rank finds its failure. */
static void drop(comm_group_t *group) {
  if (--group->users || group->come < group->size) return;
  comm_group_t **link = &groups;
  while (*link != group) link = &(*link)->next;
  *link = group->next;
  destroy(group);
}

void comm_keep(comm_group_t *group) {
  pthread_mutex_lock(&groups_lock);
  group->users++;
  pthread_mutex_unlock(&groups_lock);
}

void comm_leave(comm_group_t *group) {
  pthread_mutex_lock(&groups_lock);
  drop(group);
  pthread_mutex_unlock(&groups_lock);
}

static hal_status_t find(const hal_comm_desc_t *desc, comm_group_t **out_group) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&groups_lock);
  comm_group_t *group = groups;
  while (group && memcmp(group->id, desc->id, sizeof group->id) != 0) group = group->next;
  if (!group) group = create(desc);
  if (!group)
    status = pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for a communicator");
  else if (group->size != desc->size)
    status = pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: comm_create with %d ranks, another rank has %d", (int)desc->size,
                        (int)group->size);
  else
    group->come++, group->users++;
  pthread_mutex_unlock(&groups_lock);
  *out_group = group;
  return status;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void fail(comm_group_t *group, hal_status_t status, const char *why) {
  if (!group->error) {
    group->error = status;
    snprintf(group->why, sizeof group->why, "%s", why);
  }
  pthread_cond_broadcast(&group->changed);
}

void comm_fail(comm_group_t *group, hal_status_t status, const char *why) {
  pthread_mutex_lock(&group->lock);
  fail(group, status, why);
  pthread_mutex_unlock(&group->lock);
}

/* Waits for a change; returns 0 at the end of the time. `end_ns` 0: no limit. */
static int await(comm_group_t *group, int64_t end_ns) {
  if (!end_ns) return !pthread_cond_wait(&group->changed, &group->lock);
  const struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
  return !pthread_cond_timedwait(&group->changed, &group->lock, &end);
}

static int64_t end_of(int64_t timeout_ns) {
  int64_t end;
  if (timeout_ns <= 0 || __builtin_add_overflow(pjrt_now_ns(), timeout_ns, &end)) return 0;
  return end;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* A failure is that of all ranks. */
static void add_rank(comm_group_t *group, int32_t rank, int32_t device) {
  char why[PJRT_WHY];
  if (group->joined[rank]) {
    snprintf(why, sizeof why, "rank %d has joined twice", (int)rank);
    return fail(group, HAL_INVALID_ARGUMENT, why);
  }
  for (int32_t other = 0; other < group->size; other++) {
    if (!group->joined[other]) continue;
    if (pjrt.platform_of[group->devices[other]] != pjrt.platform_of[device]) {
      snprintf(why, sizeof why, "ranks %d and %d use devices of two platforms, which have no program together",
               (int)other, (int)rank);
      return fail(group, HAL_UNIMPLEMENTED, why);
    }
    if (group->devices[other] == device) {
      snprintf(why, sizeof why, "ranks %d and %d use device %d; each rank needs a device of its own", (int)other,
               (int)rank, (int)device);
      return fail(group, HAL_INVALID_ARGUMENT, why);
    }
  }
  group->joined[rank] = 1;
  group->devices[rank] = device;
  if (++group->ranks == group->size) pthread_cond_broadcast(&group->changed);
}

hal_status_t comm_join(const hal_comm_desc_t *desc, int32_t device, comm_group_t **out_group) {
  comm_group_t *group;
  char why[PJRT_WHY];
  hal_status_t status = find(desc, &group);
  if (status) return status;
  const int64_t end = end_of(desc->timeout_ns);
  pthread_mutex_lock(&group->lock);
  if (!group->error) add_rank(group, desc->rank, device);
  while (!group->error && group->ranks < group->size)
    if (!await(group, end) && !group->error && group->ranks < group->size) {
      snprintf(why, sizeof why, "%d of %d ranks have joined in the time of the first one", (int)group->ranks,
               (int)group->size);
      fail(group, HAL_NOT_READY, why);
    }
  status = group->error;
  snprintf(why, sizeof why, "%s", group->why);
  pthread_mutex_unlock(&group->lock);
  if (!status) {
    *out_group = group;
    return HAL_OK;
  }
  comm_leave(group);
  return pjrt_error(status, "pjrt: communicator '%.60s' cannot be created: %s", desc->name ? desc->name : "", why);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* The ranks leave the round. */
static void end_round(comm_group_t *group, hal_status_t status, const char *why) {
  group->running = 0;
  group->arrived = 0;
  memset(group->calls, 0, sizeof group->calls);
  group->round++;
  if (status) fail(group, status, why);
  pthread_cond_broadcast(&group->changed);
}

/* Without the lock: a rank may query or abort the communicator meanwhile. An abort then waits for the program, which
 * uses the memory of all ranks. */
static void run_round(comm_group_t *group) {
  char why[PJRT_WHY] = "";
  group->running = 1;
  pthread_mutex_unlock(&group->lock);
  const hal_status_t status = comm_run(group, why);
  pthread_mutex_lock(&group->lock);
  end_round(group, status, why);
}

hal_status_t comm_meet(const comm_call_t *call, char *why) {
  comm_group_t *const group = call->group;
  pthread_mutex_lock(&group->lock);
  const uint64_t round = group->round;
  if (!group->error) {
    group->calls[call->rank] = call;
    if (++group->arrived == group->size) run_round(group);
    while (group->round == round && (!group->error || group->running)) await(group, 0);
    if (group->round == round) group->calls[call->rank] = NULL, group->arrived--;
  }
  const hal_status_t status = group->error;
  if (status) snprintf(why, PJRT_WHY, "%s", group->why);
  group->done[call->rank]++;
  pthread_cond_broadcast(&group->changed);
  pthread_mutex_unlock(&group->lock);
  return status;
}

hal_status_t comm_wait(comm_group_t *group, int32_t rank, int64_t timeout_ns) {
  const int64_t end = end_of(timeout_ns);
  int in_time = 1;
  pthread_mutex_lock(&group->lock);
  while (!group->error && group->done[rank] < group->queued[rank] && in_time) in_time = await(group, end);
  const hal_status_t status = group->error                              ? HAL_ABORTED
                              : group->done[rank] < group->queued[rank] ? HAL_NOT_READY
                                                                        : HAL_OK;
  pthread_mutex_unlock(&group->lock);
  return status;
}
