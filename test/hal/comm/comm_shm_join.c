/* Tests of the join of ranks in shared memory: stale, missing and wrong ranks. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#include "comm_testing.h"
#include "hal/log.h"

static void check_sum(hal_comm_transport_t *comm, int size) {
  int32_t one = 1, sum = 0;
  CHECK_OK(run_one(comm, (hal_collective_t){.dtype = HAL_INT32, .send = &one, .recv = &sum, .count = 1},
                   20 * (int64_t)SECOND));
  CHECK(sum == size, "the sum is %d", (int)sum);
}

static void join_and_sum(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  create(argument, rank, size, &comm);
  check_sum(&comm, size);
  comm.destroy(comm.context);
}

/* ---- stale keys ---- */

/* Rank 0 of an attempt that does not complete: it is killed in the join. */
static void offer_and_hang(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  hal_comm_shm_create(&test_store, argument, rank, size, 60 * (int64_t)SECOND, &comm);
  fail_rank("the join was to hang");
}

static void wait_for_record(const char *part) {
  for (;; nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL))
    for (unsigned i = 0; i < STORE_RECORDS && i < atomic_load(&board->store.used); i++)
      if (atomic_load(&board->store.record[i].is_written) && strstr(board->store.record[i].key, part)) return;
}

Test(comm_shm_join, keys_of_a_dead_attempt) {
  make_board();
  const pid_t dead = start_rank(0, 2, offer_and_hang, "again");
  wait_for_record("offer");
  kill(dead, SIGKILL);
  join_rank(0, dead, SIGKILL);
  /* The others begin before the new rank 0 has written its offer, and respond to the stale one. */
  const pid_t other = start_rank(1, 2, join_and_sum, "again");
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  const pid_t first = start_rank(0, 2, join_and_sum, "again");
  join_rank(0, first, 0);
  join_rank(1, other, 0);
}

/* A name is reused, in the same processes, while the first communicator still exists. */
static void twice_in_turn(int rank, int size, void *argument) {
  hal_comm_transport_t first, second;
  create(argument, rank, size, &first);
  check_sum(&first, size);
  create(argument, rank, size, &second);
  check_sum(&second, size);
  check_sum(&first, size);
  first.destroy(first.context);
  check_sum(&second, size);
  second.destroy(second.context);
}
Test(comm_shm_join, a_name_is_used_again) { run_ranks(3, twice_in_turn, "name"); }

/* An attempt that has failed in all its processes is followed by another one under the same name: what that one
 * finds are the offer and the verdict of the first. */
static void fail_then_join(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  if (rank < 2)
    CHECK_FAILS(hal_comm_shm_create(&test_store, argument, rank, size, SECOND / 4, &comm), HAL_NOT_READY,
                "rank 2 did not join");
  if (rank == 0) {
    atomic_store(&board->stage, 1);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* the others begin before the new offer */
  }
  wait_stage(1);
  join_and_sum(rank, size, argument);
}
Test(comm_shm_join, an_attempt_after_one_that_failed) { run_ranks(3, fail_then_join, "retry"); }
Test(comm_shm_join, attempts_in_new_processes) {
  for (int i = 0; i < 5; i++) run_ranks(2, join_and_sum, "restart");
}

/* ---- ranks that are missing or wrong ---- */

/* The last line of the log in this rank, and the number of lines. */
static struct {
  int count;
  char line[512];
} logged;

static void note_line(int32_t level, const char *message, void *user_data) {
  (void)user_data;
  if (level > HAL_LOG_WARNING) return;
  logged.count++;
  snprintf(logged.line, sizeof logged.line, "%s", message);
}

/* A join that lasts is logged after half of its time, by rank 0, or by the others if rank 0 is missing. */
static void check_logged(int is_reported, const char *text) {
  CHECK(logged.count == is_reported && (!is_reported || strstr(logged.line, text)), "%d lines are logged: '%s'",
        logged.count, logged.line);
}

static void miss_one(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int64_t start = hal_clock_ns();
  (void)argument;
  if (rank == 2) return;
  hal_log_set_sink(note_line, NULL);
  CHECK_FAILS(hal_comm_shm_create(&test_store, "miss", rank, size, SECOND / 2, &comm), HAL_NOT_READY,
              "communicator 'miss': rank 2 did not join within 0.500 s");
  CHECK((double)(hal_clock_ns() - start) / 1e9 < 1.5, "it took %.3f s", (double)(hal_clock_ns() - start) / 1e9);
  check_logged(rank == 0, "communicator 'miss': rank 2 did not join yet; rank 0 waits for 0.");
}
Test(comm_shm_join, a_rank_is_missing) { run_ranks(4, miss_one, NULL); }

static void miss_first(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  if (!rank) return;
  hal_log_set_sink(note_line, NULL);
  CHECK_FAILS(hal_comm_shm_create(&test_store, "first", rank, size, SECOND / 4, &comm), HAL_NOT_READY,
              "rank 0 did not join");
  check_logged(1, "communicator 'first': rank 0 did not join yet; rank 1 waits for 0.");
}
Test(comm_shm_join, the_first_rank_is_missing) { run_ranks(2, miss_first, NULL); }

static void other_size(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int wrong = *(const int *)argument;
  CHECK_FAILS(
      hal_comm_shm_create(&test_store, "size", rank, rank == size - 1 ? wrong : size, 20 * (int64_t)SECOND, &comm),
      HAL_INVALID_ARGUMENT, "rank 0 has a size of", "use the same size on all ranks");
}
Test(comm_shm_join, a_size_is_wrong) {
  int wrong[] = {4, 63};
  for (int i = 0; i < 2; i++) {
    make_board();
    run_ranks(3, other_size, &wrong[i]);
  }
}

/* Rank 1 is there twice, and rank 2 not at all; then the same of rank 0. */
static void same_rank(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int twice = *(const int *)argument;
  const int number = rank == size - 1 ? twice : rank;
  char text[64];
  snprintf(text, sizeof text, "two processes joined as rank %d", twice);
  CHECK_FAILS(hal_comm_shm_create(&test_store, "twice", number, size, 20 * (int64_t)SECOND, &comm),
              HAL_INVALID_ARGUMENT, text);
}
Test(comm_shm_join, a_rank_is_there_twice) {
  int twice = 1;
  run_ranks(3, same_rank, &twice);
}
Test(comm_shm_join, rank_0_is_there_twice) {
  int twice = 0;
  run_ranks(3, same_rank, &twice);
}

/* ---- another version, another host: the store of one rank shows it an offer that was changed ---- */

static size_t changed_at;

static hal_status_t get_changed(void *context, const char *key, int64_t timeout_ns, void *out, size_t room,
                                size_t *out_size) {
  const hal_status_t status = store_get(context, key, timeout_ns, out, room, out_size);
  if (!status && strstr(key, "offer")) ((unsigned char *)out)[changed_at] ^= 0x41;
  return status;
}

typedef struct change_s {
  size_t at;
  hal_status_t code;
  const char *text;
} change_t;

static void see_changed(int rank, int size, void *argument) {
  const change_t *const change = argument;
  hal_comm_store_t store = test_store;
  hal_comm_transport_t comm;
  changed_at = change->at;
  if (rank == 2) store.get = get_changed;
  CHECK_FAILS(hal_comm_shm_create(&store, "changed", rank, size, 20 * (int64_t)SECOND, &comm), change->code,
              change->text);
}
Test(comm_shm_join, another_version) {
  change_t change = {8, HAL_INCOMPATIBLE, "install one version"};
  run_ranks(3, see_changed, &change);
}
/* The number of the file: what rank 2 opens, if anything, is not the memory of rank 0. */
Test(comm_shm_join, memory_that_cannot_be_opened) {
  change_t change = {20, HAL_UNIMPLEMENTED, "rank 2 cannot open the shared memory of rank 0"};
  run_ranks(3, see_changed, &change);
}

/* ---- pid namespaces, where this process may make them ---- */

/* Rank 1 is in a pid namespace of its own, with a /proc of its own or the one of rank 0. */
static void join_from_a_namespace(int rank, int size, void *argument) {
  const int own_proc = *(const int *)argument;
  hal_comm_transport_t comm;
  if (rank == 1) {
    CHECK(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0, "unshare: %s", strerror(errno));
    const pid_t child = fork(); /* the first process in it */
    int status = 1;
    if (child) _exit(waitpid(child, &status, 0) != child || status);
    CHECK(!own_proc ||
              (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0),
          "mount: %s", strerror(errno));
  }
  const hal_status_t joined =
      hal_comm_shm_create(&test_store, own_proc ? "own" : "shared", rank, size, 10 * (int64_t)SECOND, &comm);
  if (own_proc) {
    CHECK_FAILS(joined, HAL_UNIMPLEMENTED, "rank 1 cannot open the shared memory of rank 0", "use another transport");
    return;
  }
  CHECK_OK(joined);
  check_sum(&comm, size);
  comm.destroy(comm.context);
}

static int may_unshare(void) {
  const pid_t child = fork();
  int status = 1;
  if (!child) _exit(unshare(CLONE_NEWPID | CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
  return waitpid(child, &status, 0) == child && !status;
}

Test(comm_shm_join, another_pid_namespace) {
  if (!may_unshare()) cr_skip_test("this process may not make namespaces");
  for (int own_proc = 0; own_proc < 2; own_proc++) {
    make_board();
    run_ranks(3, join_from_a_namespace, &own_proc);
  }
}

/* ---- arguments ---- */

Test(comm_shm_join, arguments) {
  hal_comm_transport_t comm;
  make_board();
  cr_assert_eq(hal_comm_shm_create(&test_store, "x", 0, 1, SECOND, &comm), HAL_UNIMPLEMENTED);
  cr_assert_eq(hal_comm_shm_create(&test_store, "x", 0, 65, SECOND, &comm), HAL_UNIMPLEMENTED);
  cr_assert_eq(hal_comm_shm_create(&test_store, "x", 2, 2, SECOND, &comm), HAL_INVALID_ARGUMENT);
  cr_assert_eq(hal_comm_shm_create(&test_store, "x", -1, 2, SECOND, &comm), HAL_INVALID_ARGUMENT);
  cr_assert_eq(hal_comm_shm_create(NULL, "x", 0, 2, SECOND, &comm), HAL_INVALID_ARGUMENT);
  cr_assert_eq(hal_comm_shm_create(&test_store, NULL, 0, 2, SECOND, &comm), HAL_INVALID_ARGUMENT);
  char name[1000];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  cr_assert_eq(hal_comm_shm_create(&test_store, name, 0, 2, SECOND, &comm), HAL_OUT_OF_RANGE);
}

/* ---- nothing is left ---- */

static int count_of(const char *folder) {
  int count = 0;
  DIR *const opened = opendir(folder);
  CHECK(opened, "%s cannot be read", folder);
  while (readdir(opened)) count++;
  closedir(opened);
  return count;
}

static int maps(void) {
  FILE *const file = fopen("/proc/self/maps", "r");
  char line[512];
  int count = 0;
  while (file && fgets(line, sizeof line, file)) count += strstr(line, "hal_comm") != NULL;
  if (file) fclose(file);
  return count;
}

static void leave_nothing(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  const int files = count_of("/proc/self/fd");
  for (int i = 0; i < 5; i++) {
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    create(name, rank, size, &comm);
    CHECK(maps() > 0 && count_of("/proc/self/fd") == files, "%d maps, %d files instead of %d", maps(),
          count_of("/proc/self/fd"), files);
    check_sum(&comm, size);
    comm.destroy(comm.context);
    CHECK(maps() == 0, "%d maps are left", maps());
  }
}
Test(comm_shm_join, nothing_is_left) { run_ranks(2, leave_nothing, NULL); }
