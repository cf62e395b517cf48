/* Tests of events between processes for drivers without them (hal/plugin_shared_event.h). */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <criterion/criterion.h>
#include <dirent.h>
#include <hal/plugin_shared_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc_handle.h"
#include "plugin/sdk_testing.h"

TestSuite(shared_event, .init = begin, .timeout = 60);

static hal_shared_event_t *make(void) {
  hal_shared_event_t *event = NULL;
  cr_assert_eq(hal_shared_event_make("mine", &event), HAL_OK, "%s", message);
  return event;
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

static int open_files(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/fd");
  cr_assert_not_null(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

Test(shared_event, a_record_is_done_when_it_was_completed_and_the_last_one_counts) {
  hal_shared_event_t *const event = make();
  cr_assert_eq(hal_shared_event_last(event), 0);
  cr_assert(hal_shared_event_done(event, 0));
  const uint64_t first = hal_shared_event_record(event), second = hal_shared_event_record(event);
  cr_assert(first != second && hal_shared_event_last(event) == second);
  hal_shared_event_complete(event, second); /* of another stream, which was faster */
  cr_assert(hal_shared_event_done(event, second) && !hal_shared_event_done(event, first));
  hal_shared_event_complete(event, first);
  cr_assert(hal_shared_event_done(event, first));
  cr_assert_eq(hal_shared_event_wait(event, first), HAL_OK);
  hal_shared_event_release(event);
}

typedef struct late_s {
  hal_shared_event_t *event;
  uint64_t ticket;
  atomic_int done;
} late_t;

static void *complete_late(void *argument) {
  late_t *const late = argument;
  hal_shared_event_complete(late->event, late->ticket);
  atomic_store(&late->done, 1);
  return NULL;
}

Test(shared_event, a_record_is_not_taken_for_one_64_records_before_it) {
  hal_shared_event_t *const event = make();
  const uint64_t first = hal_shared_event_record(event);
  for (int i = 1; i < 64; i++) hal_shared_event_complete(event, hal_shared_event_record(event));
  late_t late = {event, hal_shared_event_record(event), 0};
  pthread_t thread;
  cr_assert_eq(late.ticket, first + 64);
  cr_assert_eq(pthread_create(&thread, NULL, complete_late, &late), 0);
  for (int i = 0; i < 20; i++) nap();
  cr_assert(!atomic_load(&late.done) && !hal_shared_event_done(event, first));
  hal_shared_event_complete(event, first);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_assert(hal_shared_event_done(event, first) && hal_shared_event_done(event, late.ticket));
  hal_shared_event_release(event);
}

/* Two processes exchange increasing values; each waits for the other's records of two events. */
enum { ROUNDS = 500 };
typedef struct shared_s {
  ipc_handle_t there, back;
  atomic_int ready;
  int number;
} shared_t;

static void answer(shared_t *shared) {
  hal_shared_event_t *there = NULL, *back = NULL;
  if (hal_shared_event_open("mine", shared->there.bytes, shared->there.size, &there) ||
      hal_shared_event_open("mine", shared->back.bytes, shared->back.size, &back))
    _exit(1);
  for (int i = 0; i < ROUNDS; i++) {
    while (hal_shared_event_last(there) < (uint64_t)i + 1) sched_yield();
    if (hal_shared_event_wait(there, (uint64_t)i + 1) || shared->number != 2 * i + 1) _exit(2);
    shared->number++;
    hal_shared_event_complete(back, hal_shared_event_record(back));
  }
  hal_shared_event_release(there);
  hal_shared_event_release(back);
  _exit(0);
}

Test(shared_event, processes_wait_for_each_other_and_see_what_was_written_before) {
  int state = 1;
  shared_t *const shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(shared, MAP_FAILED);
  hal_shared_event_t *const there = make(), *const back = make();
  hal_shared_event_export(there, shared->there.bytes, sizeof shared->there.bytes, &shared->there.size);
  hal_shared_event_export(back, shared->back.bytes, sizeof shared->back.bytes, &shared->back.size);
  const pid_t child = fork();
  if (child == 0) answer(shared);
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t ticket = hal_shared_event_record(there);
    shared->number++;
    hal_shared_event_complete(there, ticket);
    while (hal_shared_event_last(back) < (uint64_t)i + 1) sched_yield();
    cr_assert_eq(hal_shared_event_wait(back, (uint64_t)i + 1), HAL_OK, "%s", message);
    cr_assert_eq(shared->number, 2 * i + 2);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
  hal_shared_event_release(there);
  hal_shared_event_release(back);
}

Test(shared_event, a_process_that_ends_before_its_work_is_done_is_noticed_also_as_a_zombie) {
  for (int reaped = 0; reaped < 2; reaped++) {
    hal_shared_event_t *const event = make();
    const pid_t child = fork();
    if (child == 0) { /* the mapping is inherited */
      hal_shared_event_record(event);
      _exit(0);
    }
    if (reaped) cr_assert_eq(waitpid(child, NULL, 0), child);
    while (!hal_shared_event_last(event)) nap();
    cr_assert_eq(hal_shared_event_wait(event, 1), HAL_ABORTED);
    cr_assert(strstr(message, "mine: the process that recorded an event has ended"), "%s", message);
    if (!reaped) cr_assert_eq(waitpid(child, NULL, 0), child);
    hal_shared_event_complete(event, hal_shared_event_record(event)); /* anew */
    cr_assert_eq(hal_shared_event_wait(event, 2), HAL_OK);
    hal_shared_event_release(event);
  }
}

Test(shared_event, records_continue_after_one_of_a_process_that_has_exited) {
  hal_shared_event_t *const event = make();
  const pid_t child = fork();
  if (child == 0) {
    hal_shared_event_record(event);
    _exit(0);
  }
  cr_assert_eq(waitpid(child, NULL, 0), child);
  for (int i = 0; i < 63; i++) hal_shared_event_complete(event, hal_shared_event_record(event));
  const uint64_t ticket = hal_shared_event_record(event); /* in the slot of the lost record */
  cr_assert_eq(ticket, 65);
  cr_assert_eq(hal_shared_event_wait(event, 1), HAL_ABORTED);
  hal_shared_event_complete(event, ticket); /* and returns */
  cr_assert(hal_shared_event_done(event, ticket));
  hal_shared_event_release(event);
}

/* The result of opening a handle in a separate process. */
static hal_status_t open_elsewhere(const ipc_handle_t *handle) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    hal_shared_event_t *event = NULL;
    const int files = open_files();
    const hal_status_t status = hal_shared_event_open("mine", handle->bytes, handle->size, &event);
    hal_shared_event_release(event);
    _exit(open_files() == files ? status : 99);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state), "%d", state);
  return WEXITSTATUS(state);
}

Test(shared_event, handles_that_are_wrong_old_or_of_this_process_are_refused) {
  hal_shared_event_t *opened = NULL;
  ipc_handle_t handle = {.size = 32};
  cr_assert_eq(hal_shared_event_open("mine", handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(message, "not a handle of an event"), "%s", message);
  hal_shared_event_t *event = make();
  hal_shared_event_export(event, handle.bytes, sizeof handle.bytes, &handle.size);
  cr_assert_eq(hal_shared_event_open("mine", handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(message, "in the process that made it"), "%s", message);
  cr_assert_eq(open_elsewhere(&handle), HAL_OK);
  hal_shared_event_release(event);
  cr_assert_eq(open_elsewhere(&handle), HAL_NOT_FOUND); /* no such file */
  event = make();                                       /* whose file has the number of the old one */
  cr_assert_eq(open_elsewhere(&handle), HAL_NOT_FOUND);
  hal_shared_event_release(event);
  cr_assert_null(opened);
}

Test(shared_event, files_and_memory_are_freed_and_their_lack_is_reported) {
  hal_shared_event_t *event = NULL;
  const int files = open_files();
  for (int i = 0; i < 100; i++) {
    event = make();
    hal_shared_event_keep(event);
    hal_shared_event_release(event);
    hal_shared_event_record(event); /* still there */
    hal_shared_event_release(event);
  }
  hal_shared_event_release(NULL);
  memory_is_short = 1;
  event = NULL;
  cr_assert_eq(hal_shared_event_make("mine", &event), HAL_RESOURCE_EXHAUSTED);
  cr_assert(strstr(message, "no host memory for an event between processes"), "%s", message);
  cr_assert_null(event);
  cr_assert_eq(open_files(), files);
}
