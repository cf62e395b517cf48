/* comm_waits.c: threads submit collectives with and without the flags of hal/comm.h, wait for them, query and
 * release them, while others abort or destroy the communicator. For the thread and the address sanitizer. The test's
 * own transport checks that collectives arrive one at a time and in the order of their submission. Runs on the
 * plugin of five functions, or the plugin named by the argument. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "checks.h"

enum { THREADS = 3, CALLS = 300, ABORTS = 60 };

typedef struct group_s {
  hal_comm_t *comm;
  pthread_mutex_t order; /* of the submissions, with the number that each call carries as its count */
  uint64_t submitted;
  _Atomic uint64_t ran;     /* number of the last call of the transport */
  atomic_int inside, ended; /* calls of the transport; of `done` */
  atomic_int aborted;
} group_t;

static uint32_t draw(uint64_t *state, uint32_t below) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33) % below;
}

static void pause_for(uint32_t microseconds) {
  nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

/* ---- the transport ---- */

static hal_status_t move(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  group_t *const group = context;
  (void)count, (void)timeout_ns;
  CHECK(atomic_fetch_add(&group->inside, 1) == 0);
  const uint64_t before = atomic_exchange(&group->ran, calls->count);
  CHECK(calls->count > before);
  if (calls->count % 8 == 0) pause_for(50);
  atomic_fetch_sub(&group->inside, 1);
  return atomic_load(&group->aborted) ? hal_error_set(HAL_ABORTED, "aborted") : HAL_OK;
}

static void stop(void *context, const char *reason) {
  group_t *const group = context;
  (void)reason;
  atomic_store(&group->aborted, 1);
}

static void destroy(void *context) {
  group_t *const group = context;
  CHECK(atomic_load(&group->inside) == 0);
}

/* ---- the program ---- */

static void done(void *user_data, hal_status_t status) {
  group_t *const group = user_data;
  CHECK(!status || atomic_load(&group->aborted));
  atomic_fetch_add(&group->ended, 1);
}

/* Returns NULL if the communicator has failed; `done` is then not called. */
static hal_comm_work_t *submit(group_t *group, uint32_t flags) {
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = flags};
  hal_comm_work_t *work = NULL;
  pthread_mutex_lock(&group->order);
  const hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_BARRIER, .count = group->submitted + 1};
  const hal_status_t status = hal_comm_submit_logged(group->comm, NULL, &call, 1, 0, &entry, done, group, &work);
  group->submitted += !status;
  CHECK(!status || atomic_load(&group->aborted));
  pthread_mutex_unlock(&group->order);
  return status ? NULL : work;
}

typedef struct user_s {
  group_t *group;
  uint64_t state;
  int calls;
  pthread_t thread;
} user_t;

/* Waits for a work, or leaves it to other threads. */
static void use(user_t *user, hal_comm_work_t *work) {
  const int may_fail = atomic_load(&user->group->aborted);
  hal_status_t status = HAL_OK;
  switch (draw(&user->state, 6)) {
    case 0:
      break;
    case 1:
      status = hal_comm_work_query(work);
      if (status == HAL_NOT_READY) status = HAL_OK;
      break;
    case 2:
      status = hal_comm_work_wait(work, NULL, 1000);
      if (status == HAL_NOT_READY) status = HAL_OK;
      break;
    case 3:
      status = hal_comm_work_synchronize(work, 0);
      break;
    default:
      status = hal_comm_work_wait(work, NULL, 0);
      break;
  }
  CHECK(!status || may_fail || atomic_load(&user->group->aborted));
  hal_comm_work_release(work);
}

static void *run(void *argument) {
  user_t *const user = argument;
  hal_comm_work_t *before = NULL;
  for (int i = 0; i < user->calls; i++) {
    hal_comm_work_t *const work = submit(user->group, draw(&user->state, 3));
    if (before) use(user, before);
    before = work;
    if (work && draw(&user->state, 2)) use(user, work), before = NULL;
  }
  if (before) use(user, before);
  return NULL;
}

static void begin(group_t *group) {
  const hal_comm_config_t config = {
      .struct_size = sizeof config,
      .size = 2,
      .name = "stress",
      .transport = {sizeof(hal_comm_transport_t), group, "test", move, stop, destroy, HAL_COMM_COMPARES_CALLS}};
  pthread_mutex_init(&group->order, NULL);
  CHECK_OK(hal_comm_create(&config, &group->comm));
}

/* Runs threads that use one communicator. With `aborts`, another thread aborts it meanwhile. */
static void run_group(int calls, int aborts, uint64_t seed) {
  group_t group = {.comm = NULL};
  user_t users[THREADS];
  begin(&group);
  for (int i = 0; i < THREADS; i++) {
    users[i] = (user_t){.group = &group, .state = seed * 31 + (uint64_t)i, .calls = calls};
    CHECK(pthread_create(&users[i].thread, NULL, run, &users[i]) == 0);
  }
  if (aborts) {
    pause_for(draw(&seed, 2000));
    atomic_store(&group.aborted, 1);
    hal_comm_abort(group.comm, "the test");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(users[i].thread, NULL);
  hal_comm_destroy(group.comm, INT64_C(60000000000));
  CHECK((uint64_t)atomic_load(&group.ended) == group.submitted);
  CHECK(aborts || atomic_load(&group.ran) == group.submitted);
  pthread_mutex_destroy(&group.order);
}

int main(int argument_count, char **arguments) {
  CHECK_OK(hal_registry_open(argument_count > 1 ? arguments[1] : FIXTURE_DIR "/libhal_five.so"));
  run_group(CALLS, 0, 1);
  for (int i = 0; i < ABORTS; i++) run_group(20, 1, (uint64_t)i + 2);
  hal_registry_close();
  return atomic_load(&mistakes) != 0;
}
