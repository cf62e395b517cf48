/* Tests of communicators that a library derives from another one, and of streams with many communicators. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_vendor_testing.h"
#include "hal/log.h"

TestSuite(comm_vendor_derive, .timeout = 150);

enum { MOST = 24 };

static hal_comm_t *made[MOST];
static char logged[1 << 16]; /* of this rank, since the last hear() */

static void note(int32_t level, const char *text, void *unused) {
  (void)unused, (void)level;
  const size_t used = strlen(logged);
  if (used + 1 < sizeof logged) snprintf(logged + used, sizeof logged - used, "%s\n", text);
}
static void hear(void) { logged[0] = '\0'; }

static void begin(int rank, int size) {
  setenv("HAL_LOG", "info", 1);
  hal_log_set_sink(note, NULL);
  join_library(rank, size, 0);
}

/* A communicator of `size` ranks, of which this one is `rank`, without a library. The counted transport stays that of
 * the parent. */
static hal_comm_t *new_group(const char *name, int rank, int size) {
  hal_comm_config_t config = {.struct_size = sizeof config,
                              .device = hal_stream_device(stream),
                              .rank = rank,
                              .size = size,
                              .timeout_ns = 20 * (int64_t)SECOND,
                              .name = name};
  hal_comm_t *group;
  CHECK_OK(hal_comm_shm_create(&test_store, name, rank, size, 20 * (int64_t)SECOND, &config.transport));
  CHECK_OK(hal_comm_create(&config, &group));
  return group;
}

static hal_comm_work_t *submit_to(hal_comm_t *group, float *data) {
  hal_comm_work_t *work;
  hal_collective_t call = sum_at(data);
  call.struct_size = sizeof call;
  CHECK_OK(hal_comm_submit(group, stream, &call, 1, 0, NULL, NULL, &work));
  return work;
}

static float sum_in(hal_comm_t *group, float value) {
  float *const data = float_on_device(value);
  finish(submit_to(group, data));
  return float_at(data);
}

/* ---- split ---- */

/* Ranks 3 and 1 form a part in this order, ranks 0 and 2 another one. */
static void split_in_two(int rank, int size, void *unused) {
  (void)unused;
  begin(rank, size);
  const int color = rank % 2, key = -rank;
  hear();
  hal_comm_t *const part = new_group(color ? "odd" : "even", rank < 2, 2);
  CHECK_OK(hal_comm_split_library(comm, color, key, part, 0, 0));
  CHECK(strstr(logged, "split from group 'dp'"), "the log is '%s'", logged);
  CHECK(!strcmp(hal_comm_library(part), "nccl"), "library '%s'", hal_comm_library(part));
  const float sum = sum_in(part, (float)(1 << rank)), right = color ? 10.0F : 5.0F;
  CHECK(sum == right, "%g instead of %g", (double)sum, (double)right);
  hal_comm_work_t *const both = submit_to(comm, float_on_device(1));
  CHECK(sum_in(part, 3) == 6, "after a sum of all ranks");
  finish(both);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND); /* the part stays */
  CHECK(sum_in(part, 1) == 2, "without its parent");
  hal_comm_destroy(part, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, parts_in_the_order_of_their_keys) { run_ranks(4, split_in_two, NULL); }

/* Rank 2 joins no part. Collectives of the transport are in progress. */
static void leave_one_out(int rank, int size, void *unused) {
  (void)unused;
  begin(rank, size);
  float *const data = float_on_device((float)rank);
  hal_collective_t highest = sum_at(data);
  highest.reduce = HAL_REDUCE_MAX;
  hal_comm_work_t *const before = submit(highest, 0);
  hal_comm_t *const part = rank == 2 ? NULL : new_group("part", rank, 2);
  CHECK_OK(hal_comm_split_library(comm, rank == 2 ? -1 : 7, 0, part, 0, 0));
  finish(before);
  CHECK(float_at(data) == 2, "%g", (double)float_at(data));
  if (part) CHECK(sum_in(part, 2) == 4, "the sum of the part");
  CHECK(sum_in(comm, 1) == 3, "the sum of all");
  hal_comm_destroy(part, 10 * (int64_t)SECOND);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, a_rank_that_joins_no_part) { run_ranks(3, leave_one_out, NULL); }

/* The library of rank 1 refuses: all ranks connect again. */
static void refuse_split(int rank, int size, void *function) {
  if (rank == 1) setenv("NCCL_MOCK_REFUSES", function, 1);
  begin(rank, size);
  hear();
  hal_comm_t *const part = new_group("part", rank, size);
  CHECK_OK(hal_comm_split_library(comm, 0, 0, part, 0, 0));
  CHECK(strstr(logged, "rank 1 cannot use") && strstr(logged, "comm_split") && strstr(logged, "connect anew"),
        "the log is '%s'", logged);
  CHECK(!strcmp(hal_comm_library(part), "nccl") && sum_in(part, 1) == (float)size, "not connected anew");
  hal_comm_destroy(part, 10 * (int64_t)SECOND);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, a_library_that_cannot_split_on_one_rank) { run_ranks(2, refuse_split, "ncclCommSplit=5"); }

static void split_without_library(int rank, int size, void *unused) {
  (void)unused;
  open_plugin();
  make_comm("dp", rank, rank, size, 20 * (int64_t)SECOND);
  hal_comm_t *const part = new_group("part", rank, size);
  CHECK_OK(hal_comm_split_library(comm, 0, 0, part, 0, 0)); /* of a group that runs by its transport */
  CHECK(!strcmp(hal_comm_library(part), "nccl") && sum_in(part, 1) == 2, "the part has no library");
  hal_comm_destroy(part, 10 * (int64_t)SECOND);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, a_group_without_a_library_is_split_by_connecting) {
  run_ranks(2, split_without_library, NULL);
}

static void bring_the_wrong_part(int rank, int size, void *unused) {
  (void)unused;
  begin(rank, size);
  hal_comm_t *const part = new_group("part", rank, 2);
  CHECK_FAILS(hal_comm_split_library(comm, 0, -rank, part, 0, 0), HAL_INVALID_ARGUMENT, "rank 0 brings a group",
              "rank 0 of 2", "is rank 1 of 2");
  CHECK_FAILS(hal_comm_split_library(comm, -1, 0, part, 0, 0), HAL_INVALID_ARGUMENT, "color -1 with a communicator");
  CHECK_FAILS(hal_comm_split_library(comm, -2, 0, NULL, 0, 0), HAL_INVALID_ARGUMENT, "color -2");
  CHECK(!strcmp(hal_comm_library(part), "") && sum_in(comm, 1) == 2, "the parent goes on");
  hal_comm_destroy(part, SECOND);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, a_part_with_other_ranks_is_an_error) { run_ranks(2, bring_the_wrong_part, NULL); }

/* Rank 1 ends instead. */
static void split_with_a_dead_rank(int rank, int size, void *unused) {
  (void)unused;
  begin(rank, size);
  hal_comm_t *const part = new_group("part", rank, size);
  if (rank == 1) {
    wait_stage(1);
    kill(getpid(), SIGKILL);
  }
  atomic_store(&board->stage, 1);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(hal_comm_split_library(comm, 0, 0, part, 0, 0), HAL_UNAVAILABLE, "rank 1");
  CHECK(milliseconds_since(start) < 3000, "%ld ms", (long)milliseconds_since(start));
  hal_comm_destroy(part, 0);
  hal_comm_destroy(comm, 0);
}
Test(comm_vendor_derive, a_rank_that_has_ended_ends_the_split) {
  make_board();
  const pid_t first = start_rank(0, 2, split_with_a_dead_rank, NULL);
  const pid_t second = start_rank(1, 2, split_with_a_dead_rank, NULL);
  join_rank(1, second, SIGKILL), join_rank(0, first, 0);
}

/* ---- shrink ---- */

static void shrink_by_one(int rank, int size, void *argument) {
  const uint32_t flags = *(const uint32_t *)argument;
  begin(rank, size);
  CHECK(sum_in(comm, 1) == (float)size, "the sum of all");
  if (rank != 1) {
    const int32_t excluded[] = {1};
    hear();
    hal_comm_t *const rest = new_group("rest", rank / 2, size - 1);
    CHECK_FAILS(hal_comm_shrink_library(comm, &(int32_t){rank}, 1, flags, rest, 0, 0), HAL_INVALID_ARGUMENT, "exclude");
    CHECK_OK(hal_comm_shrink_library(comm, excluded, 1, flags, rest, 0, 0));
    CHECK(strstr(logged, "shrunk from group 'dp'"), "the log is '%s'", logged);
    CHECK(sum_in(rest, (float)(rank + 1)) == 4, "the sum of the rest");
    hal_comm_destroy(rest, 10 * (int64_t)SECOND);
  }
  hal_comm_abort(comm, "the group was shrunk");
  hal_comm_destroy(comm, 0);
}
Test(comm_vendor_derive, shrink_leaves_ranks_out) {
  uint32_t flags = 0;
  run_ranks(3, shrink_by_one, &flags);
}
Test(comm_vendor_derive, shrink_that_aborts_first) {
  uint32_t flags = HAL_COMM_SHRINK_ABORT;
  run_ranks(3, shrink_by_one, &flags);
}

/* Rank 1 is killed, so that the host aborts the library of the others before they shrink: they connect again. */
static void shrink_after_a_failure(int rank, int size, void *unused) {
  (void)unused;
  const int32_t excluded[] = {1};
  begin(rank, size);
  if (rank == 1) kill(getpid(), SIGKILL);
  hal_comm_work_t *const work = submit_to(comm, float_on_device(1));
  const hal_status_t status = hal_comm_work_synchronize(work, 0); /* detected here, or reported by the other rank */
  CHECK(status && strstr(hal_error_message(), "rank 1"), "%s: %s", hal_status_name(status), hal_error_message());
  hal_comm_work_release(work);
  (void)!hal_stream_synchronize(stream);
  hear();
  hal_comm_t *const rest = new_group("rest", rank / 2, size - 1);
  CHECK_OK(hal_comm_shrink_library(comm, excluded, 1, HAL_COMM_SHRINK_ABORT, rest, 0, 0));
  CHECK(strstr(logged, "group 'dp' has failed") && strstr(logged, "connect anew"), "the log is '%s'", logged);
  CHECK(!strcmp(hal_comm_library(rest), "nccl") && sum_in(rest, 2) == 4, "the sum of the rest");
  hal_comm_destroy(rest, 10 * (int64_t)SECOND);
  hal_comm_destroy(comm, 0);
}
Test(comm_vendor_derive, after_a_failure_the_rest_connects_anew) {
  make_board();
  pid_t pids[3];
  for (int rank = 0; rank < 3; rank++) pids[rank] = start_rank(rank, 3, shrink_after_a_failure, NULL);
  for (int rank = 0; rank < 3; rank++) join_rank(rank, pids[rank], rank == 1 ? SIGKILL : 0);
}

/* ---- registered memory ---- */

static int count_of(const char *word) {
  int count = 0;
  for (const char *at = logged; (at = strstr(at, word)); at++) count++;
  return count;
}

/* The trace of the plugin's calls shows when memory is registered. */
static void register_memory(int rank, int size, void *argument) {
  const uint32_t flags = *(const uint32_t *)argument;
  hal_block_t *large;
  setenv("HAL_LOG", "info", 1);
  setenv("HAL_LAYERS", "validate,trace", 1);
  hal_log_set_sink(note, NULL);
  join_library(rank, size, flags);
  CHECK_OK(hal_memory_allocate(rank, stream, (size_t)64 << 20, &large)); /* a segment of its own */
  float *const data = hal_memory_block_address(large), one = 1;
  to_device(data, &one, sizeof one);
  hear();
  finish(submit(sum_at(data), 0));
  CHECK(count_of("> nvgpu.comm_register") == (flags != 0), "%d registrations: %s", count_of("> nvgpu.comm_register"),
        logged);
  hear();
  finish(submit(sum_at(data + 5), 0)); /* of the same segment */
  CHECK(!count_of("> nvgpu.comm_register"), "registered again: %s", logged);
  hal_memory_release(large);
  hear();
  CHECK_OK(hal_memory_empty_cache(rank));
  const char *const end = strstr(logged, "> nvgpu.comm_deregister");
  const char *const freed = strstr(logged, "> nvgpu.memory_free");
  CHECK(freed && !!end == (flags != 0) && (!end || end < freed), "the segment was freed so: %s", logged);
  float *const small = float_on_device(1);
  finish(submit(sum_at(small), 0));
  hear();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
  CHECK(count_of("> nvgpu.comm_deregister") == (flags != 0), "the end: %s", logged);
}
Test(comm_vendor_derive, segments_are_registered_until_they_are_freed) {
  uint32_t flags = HAL_COMM_REGISTER_MEMORY;
  run_ranks(2, register_memory, &flags);
}
Test(comm_vendor_derive, no_memory_is_registered_unless_wanted) {
  uint32_t flags = 0;
  run_ranks(2, register_memory, &flags);
}

/* ---- streams ---- */

/* Each rank submits to the groups in another order: on one stream, two of them would wait for each other. */
static void use_many(int rank, int size, void *unused) {
  (void)unused;
  hal_comm_work_t *works[MOST];
  float *data[MOST];
  char name[16];
  begin(rank, size);
  for (int i = 0; i < MOST; i++) {
    snprintf(name, sizeof name, "group %d", i);
    made[i] = new_group(name, rank, size);
    CHECK_OK(hal_comm_split_library(comm, 0, rank, made[i], 0, 0));
    for (int j = 0; j < i; j++)
      CHECK(hal_comm_stream(made[i]) != hal_comm_stream(made[j]), "groups %d and %d have one stream", j, i);
    CHECK(hal_stream_priority(hal_comm_stream(made[i])) == -1, "priority");
    data[i] = float_on_device((float)i);
  }
  for (int k = 0; k < MOST; k++) {
    const int i = rank ? MOST - 1 - k : k;
    works[i] = submit_to(made[i], data[i]);
  }
  for (int i = 0; i < MOST; i++) finish(works[i]);
  for (int i = 0; i < MOST; i++) CHECK(float_at(data[i]) == (float)(2 * i), "group %d", i);
  const hal_stream_t *const first = hal_comm_stream(made[0]);
  for (int i = 0; i < MOST; i++) hal_comm_destroy(made[i], 10 * (int64_t)SECOND);
  hal_comm_t *const next = new_group("next", rank, size);
  CHECK_OK(hal_comm_connect_library(next, 0, 0));
  CHECK(hal_comm_stream(next) == first, "streams of communicators that ended are not used again");
  hal_comm_destroy(next, 10 * (int64_t)SECOND);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_derive, many_groups_have_streams_of_their_own) { run_ranks(2, use_many, NULL); }
