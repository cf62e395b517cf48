/* Tests of collectives on shared device memory: ranks that cannot share it, failures, lifetime of the memory. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/clock.h"
#include "comm_device_testing.h"

enum { COUNT = 200000 };

/* ---- one group ---- */

typedef struct group_s {
  on_device_t on;
  mirror_t data;
  int rank, size;
} group_t;

static float host[COUNT];

static void fill_group(group_t *group, float first) {
  for (int i = 0; i < COUNT; i++) host[i] = first + (float)(i % 1000) + (float)group->rank;
  CHECK_OK(hal_memory_copy(group->on.stream, group->data.device, 0, host, HAL_HOST, sizeof host));
  CHECK_OK(hal_stream_synchronize(group->on.stream));
}

static void open_group(group_t *group, const char *name, int rank, int size) {
  *group = (group_t){.rank = rank, .size = size, .on.comm = create_group(name, rank, size)};
  CHECK_OK(hal_stream_acquire(0, 0, &group->on.stream));
  upload(&group->on, &group->data, host, sizeof host);
}

static void close_group(group_t *group) {
  hal_comm_destroy(group->on.comm, 20 * (int64_t)SECOND);
  hal_memory_release(group->data.block);
}

static int is_on_device(const group_t *group) {
  const hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_ALL_REDUCE, .dtype = HAL_FLOAT32};
  return hal_comm_shm_takes_device_memory(&group->on.comm->transport, &call, 1);
}

static hal_status_t submit(group_t *group, hal_comm_work_t **out_work) {
  const hal_collective_t call = {.struct_size = sizeof call,
                                 .op = HAL_COMM_ALL_REDUCE,
                                 .dtype = HAL_FLOAT32,
                                 .send = group->data.device,
                                 .recv = group->data.device,
                                 .count = COUNT};
  return hal_comm_submit(group->on.comm, group->on.stream, &call, 1, 20 * (int64_t)SECOND, NULL, NULL, out_work);
}

static hal_status_t reduce(group_t *group) {
  hal_comm_work_t *work;
  HAL_RETURN_IF_ERROR(submit(group, &work));
  const hal_status_t status = hal_comm_work_synchronize(work, 20 * (int64_t)SECOND);
  hal_comm_work_release(work);
  return status;
}

static void check_sum(group_t *group, float first) {
  CHECK_OK(hal_memory_copy(group->on.stream, host, HAL_HOST, group->data.device, 0, sizeof host));
  CHECK_OK(hal_stream_synchronize(group->on.stream));
  for (int i = 0; i < COUNT; i++) {
    const float sum = (float)group->size * (first + (float)(i % 1000)) + (float)(group->size * (group->size - 1) / 2);
    CHECK(host[i] == sum, "element %d is %g instead of %g", i, (double)host[i], (double)sum);
  }
}

static void check_no_shared_memory(void) {
  for (int i = 0; hal_memory_collect_shared() && i < 20000; i++) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  CHECK(!hal_memory_collect_shared(), "%u handles of memory remain", hal_memory_collect_shared());
}

/* ---- ranks that cannot share memory ---- */

/* `argument`: HAL_FAULT of rank 1. */
static void host_memory(int rank, int size, void *argument) {
  group_t group;
  if (rank == 1) setenv("HAL_LAYERS", "fault", 1), setenv("HAL_FAULT", argument, 1);
  open_protected();
  open_group(&group, "host_memory", rank, size);
  CHECK(!is_on_device(&group), "rank 1 has no memory, but the ranks use it");
  fill_group(&group, 1);
  CHECK_OK(reduce(&group));
  check_sum(&group, 1);
  check_no_shared_memory();
  close_group(&group);
}
Test(comm_device_failure, a_rank_cannot_export) { run_ranks(3, host_memory, "ipc_export:1"); }
Test(comm_device_failure, a_rank_cannot_export_again) { run_ranks(3, host_memory, "ipc_export:2"); }
Test(comm_device_failure, a_rank_cannot_open) { run_ranks(3, host_memory, "ipc_open:1"); }
Test(comm_device_failure, a_rank_cannot_open_another) { run_ranks(3, host_memory, "ipc_open:2"); }

/* The ranks share memory after collectives, whose slots the last rank still reads. */
static void after_collectives(int rank, int size, void *argument) {
  enum { NUMBERS = 1000 };
  static int32_t in[NUMBERS], out[NUMBERS];
  hal_comm_config_t config = {
      .struct_size = sizeof config, .rank = rank, .size = size, .timeout_ns = 20 * (int64_t)SECOND, .name = "after"};
  group_t group = {.rank = rank, .size = size};
  (void)argument;
  open_protected();
  create("after", rank, size, &config.transport);
  for (int i = 0; i < 8; i++) {
    for (int n = 0; n < NUMBERS; n++) in[n] = i + n + rank;
    CHECK_OK(run_one(
        &config.transport,
        (hal_collective_t){
            .op = HAL_COMM_ALL_REDUCE, .dtype = HAL_INT32, .send = in, .recv = out, .count = (uint64_t)(NUMBERS - i)},
        20 * (int64_t)SECOND));
    for (int n = 0; n < NUMBERS - i; n++)
      CHECK(out[n] == size * (i + n) + size * (size - 1) / 2, "element %d is %d", n, (int)out[n]);
  }
  CHECK_OK(hal_comm_create(&config, &group.on.comm));
  CHECK(is_on_device(&group), "the ranks do not share memory");
  CHECK_OK(hal_stream_acquire(0, 0, &group.on.stream));
  upload(&group.on, &group.data, host, sizeof host);
  fill_group(&group, 1);
  CHECK_OK(reduce(&group));
  check_sum(&group, 1);
  close_group(&group);
  check_no_shared_memory();
}
Test(comm_device_failure, memory_is_shared_after_collectives) { run_ranks(4, after_collectives, NULL); }

/* ---- failures ---- */

/* A rank that ends while the others use its memory. */
static void killed(int rank, int size, void *argument) {
  group_t group;
  (void)argument;
  open_protected();
  open_group(&group, "killed", rank, size);
  CHECK(is_on_device(&group), "the ranks do not share memory");
  fill_group(&group, 1);
  CHECK_OK(reduce(&group));
  if (rank == 1) raise(SIGKILL);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(reduce(&group), HAL_UNAVAILABLE, "rank 1", "has ended");
  CHECK(hal_clock_ns() - start < SECOND, "the end of rank 1 was detected after %.1f s",
        (double)(hal_clock_ns() - start) / 1e9);
  close_group(&group);
  check_no_shared_memory();
}
Test(comm_device_failure, a_rank_is_killed) {
  make_board();
  const pid_t first = start_rank(0, 2, killed, NULL), second = start_rank(1, 2, killed, NULL);
  join_rank(1, second, SIGKILL);
  join_rank(0, first, 0);
}

static void aborted(int rank, int size, void *argument) {
  group_t group;
  (void)argument;
  open_protected();
  open_group(&group, "aborted", rank, size);
  fill_group(&group, 1);
  CHECK_OK(reduce(&group));
  if (rank == 0) {
    atomic_store(&board->stage, 1);
    CHECK_FAILS(reduce(&group), HAL_ABORTED, "out of luck");
  } else {
    wait_stage(1); /* rank 0 has ended the first collective */
    hal_comm_abort(group.on.comm, "out of luck");
  }
  close_group(&group);
  check_no_shared_memory();
  open_group(&group, "after", rank, size); /* the device works */
  fill_group(&group, 2);
  CHECK_OK(reduce(&group));
  check_sum(&group, 2);
  close_group(&group);
}
Test(comm_device_failure, abort) { run_ranks(2, aborted, NULL); }

/* A rank whose plugin fails in call n: a rank has the right result or an error, and does not hang. */
static void one_fault(int rank, int size, uint64_t n) {
  char fault[32], name[32];
  group_t group = {.rank = rank, .size = size};
  snprintf(fault, sizeof fault, "*:%llu", (unsigned long long)n);
  snprintf(name, sizeof name, "fault%llu", (unsigned long long)n);
  if (rank == 1) setenv("HAL_LAYERS", "fault", 1), setenv("HAL_FAULT", fault, 1);
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 0), setenv("HAL_FAKE_PROTECT", "1", 1);
  hal_status_t status = hal_registry_open("fake");
  if (!status) status = hal_stream_acquire(0, 0, &group.on.stream);
  hal_comm_config_t config = {
      .struct_size = sizeof config, .rank = rank, .size = size, .timeout_ns = 20 * (int64_t)SECOND, .name = name};
  create(name, rank, size, &config.transport);
  if (!status) status = hal_comm_create(&config, &group.on.comm);
  if (status) {
    config.transport.destroy(config.transport.context); /* the other rank gets an error */
    return;
  }
  status = hal_memory_allocate(0, group.on.stream, sizeof host, &group.data.block);
  group.data.device = status ? NULL : hal_memory_block_address(group.data.block);
  for (int i = 0; i < COUNT; i++) host[i] = 1 + (float)(i % 1000) + (float)rank;
  if (!status) status = hal_memory_copy(group.on.stream, group.data.device, 0, host, HAL_HOST, sizeof host);
  if (!status) status = reduce(&group);
  if (!status) status = hal_memory_copy(group.on.stream, host, HAL_HOST, group.data.device, 0, sizeof host);
  if (!status) status = hal_stream_synchronize(group.on.stream);
  for (int i = 0; i < COUNT && !status; i++)
    CHECK(host[i] == 3 + 2 * (float)(i % 1000), "fault %llu: element %d is %g", (unsigned long long)n, i,
          (double)host[i]);
  close_group(&group);
}

static void sweep(int rank, int size, void *argument) { one_fault(rank, size, *(const uint64_t *)argument); }
Test(comm_device_failure, a_plugin_call_fails, .timeout = 600) {
  const char *const wanted = getenv("HAL_TEST_FAULTS");
  const uint64_t last = wanted ? strtoull(wanted, NULL, 10) : 40;
  for (uint64_t n = 1; n <= last; n += wanted ? 1 : 3) run_ranks(2, sweep, &n);
}

/* ---- the lifetime of the memory ---- */

/* A rank that destroys its group keeps the memory until the other rank has closed it. */
static void kept(int rank, int size, void *argument) {
  group_t group;
  (void)argument;
  open_protected();
  open_group(&group, "kept", rank, size);
  fill_group(&group, 1);
  CHECK_OK(reduce(&group));
  check_sum(&group, 1);
  if (rank == 0) {
    close_group(&group);
    CHECK(hal_memory_collect_shared() == 1, "%u handles", hal_memory_collect_shared());
    atomic_store(&board->stage, 1);
  } else {
    wait_stage(1);
    close_group(&group);
  }
  check_no_shared_memory();
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  CHECK_OK(hal_memory_stats(0, &stats));
  const long long left = (long long)stats.allocated_bytes[HAL_POOL_ALL].current;
  CHECK(!left, "%lld bytes remain allocated", left);
}
Test(comm_device_failure, memory_is_kept_until_the_other_rank_has_closed_it) { run_ranks(2, kept, NULL); }

/* Groups that run at a time, and that are destroyed in another order. */
static void several(int rank, int size, void *argument) {
  enum { GROUPS = 4 };
  group_t groups[GROUPS];
  hal_comm_work_t *works[GROUPS];
  char name[16];
  (void)argument;
  open_protected();
  for (int g = 0; g < GROUPS; g++) {
    snprintf(name, sizeof name, "group %d", g);
    open_group(&groups[g], name, rank, size);
    fill_group(&groups[g], (float)g);
  }
  for (int i = 0; i < GROUPS; i++) { /* in another order on each rank */
    const int g = rank ? GROUPS - 1 - i : i;
    CHECK_OK(submit(&groups[g], &works[g]));
  }
  for (int g = 0; g < GROUPS; g++) {
    CHECK_OK(hal_comm_work_synchronize(works[g], 20 * (int64_t)SECOND));
    hal_comm_work_release(works[g]);
    check_sum(&groups[g], (float)g);
  }
  for (int i = 0; i < GROUPS; i++) close_group(&groups[rank ? GROUPS - 1 - i : i]);
  check_no_shared_memory();
}
Test(comm_device_failure, several_groups) { run_ranks(3, several, NULL); }

/* A forked child neither uses nor releases the parent's memory. */
static void forked(int rank, int size, void *argument) {
  group_t group;
  (void)argument;
  open_protected();
  open_group(&group, "forked", rank, size);
  fill_group(&group, 1);
  const pid_t child = fork();
  if (!child) {
    const hal_status_t status = reduce(&group);
    close_group(&group);
    _exit(status == HAL_FAILED_PRECONDITION ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && !status, "the child ended with %x", status);
  CHECK_OK(reduce(&group));
  check_sum(&group, 1);
  close_group(&group);
  check_no_shared_memory();
}
Test(comm_device_failure, fork) { run_ranks(2, forked, NULL); }
