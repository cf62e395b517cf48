/* Tests of collectives that a plugin's library runs: results of all operators, which implementation runs each call,
 * and their order. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm/vendor/vendor.h"
#include "comm_vendor_testing.h"
#include "hal/program.h"

TestSuite(comm_vendor, .timeout = 120);

/* ---- numbers: small integers, which are exact in each type ---- */

static void store_number(hal_dtype_t dtype, void *at, double value) {
  const float single = (float)value, parts[2] = {(float)value, (float)-value};
  const int32_t whole = (int32_t)value;
  const int16_t half = (int16_t)value;
  const uint8_t bit = whole & 1;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  bits >>= 16; /* exact */
  if (dtype == HAL_FLOAT32) memcpy(at, &single, 4);
  if (dtype == HAL_BFLOAT16) memcpy(at, &bits, 2);
  if (dtype == HAL_COMPLEX64) memcpy(at, parts, 8);
  if (dtype == HAL_INT32) memcpy(at, &whole, 4);
  if (dtype == HAL_INT16) memcpy(at, &half, 2);
  if (dtype == HAL_BOOL) *(uint8_t *)at = bit;
}

static double value_of(int rank, size_t index) { return (double)((index * 5 + (size_t)rank * 3) % 4 + 1); }

static double reduced(uint32_t reduce, hal_dtype_t dtype, int size, size_t index) {
  double result = value_of(0, index);
  if (dtype == HAL_BOOL) result = (int)result & 1;
  for (int rank = 1; rank < size; rank++) {
    const double next = dtype == HAL_BOOL ? (int)value_of(rank, index) & 1 : value_of(rank, index);
    const int is_more = next > result;
    if (reduce == HAL_REDUCE_MAX || (dtype == HAL_BOOL && reduce == HAL_REDUCE_SUM))
      result = is_more ? next : result;
    else if (reduce == HAL_REDUCE_MIN || (dtype == HAL_BOOL && reduce == HAL_REDUCE_PROD))
      result = is_more ? result : next;
    else
      result = reduce == HAL_REDUCE_PROD ? result * next : result + next;
  }
  return reduce == HAL_REDUCE_PREMUL_SUM ? 2 * result : result;
}

typedef struct case_s {
  uint32_t op, reduce;
  hal_dtype_t dtype;
  int in_library;
} case_t;

enum { SUM = HAL_REDUCE_SUM };
static const case_t cases[] = {
    {HAL_COMM_ALL_REDUCE, SUM, HAL_FLOAT32, 1},
    {HAL_COMM_ALL_REDUCE, SUM, HAL_BFLOAT16, 1},
    {HAL_COMM_ALL_REDUCE, SUM, HAL_INT32, 1},
    {HAL_COMM_ALL_REDUCE, SUM, HAL_COMPLEX64, 1},
    {HAL_COMM_ALL_REDUCE, SUM, HAL_BOOL, 1},
    {HAL_COMM_ALL_REDUCE, HAL_REDUCE_PROD, HAL_BOOL, 1},
    {HAL_COMM_ALL_REDUCE, HAL_REDUCE_PROD, HAL_FLOAT32, 1},
    {HAL_COMM_ALL_REDUCE, HAL_REDUCE_MAX, HAL_INT32, 1},
    {HAL_COMM_ALL_REDUCE, HAL_REDUCE_PREMUL_SUM, HAL_FLOAT32, 1},
    {HAL_COMM_ALL_REDUCE, HAL_REDUCE_MAX, HAL_FLOAT32, 0}, /* NCCL's loses NaN */
    {HAL_COMM_ALL_REDUCE, SUM, HAL_INT16, 0},
    {HAL_COMM_REDUCE, SUM, HAL_FLOAT32, 1},
    {HAL_COMM_REDUCE, HAL_REDUCE_MIN, HAL_FLOAT32, 0},
    {HAL_COMM_REDUCE_SCATTER, SUM, HAL_BFLOAT16, 1},
    {HAL_COMM_REDUCE_SCATTER, SUM, HAL_INT16, 0},
    {HAL_COMM_BROADCAST, 0, HAL_INT16, 1},
    {HAL_COMM_ALL_GATHER, 0, HAL_COMPLEX64, 1},
    {HAL_COMM_ALL_TO_ALL, 0, HAL_BOOL, 1},
    {HAL_COMM_GATHER, 0, HAL_FLOAT32, 1},
    {HAL_COMM_SCATTER, 0, HAL_BFLOAT16, 1},
};
static const size_t counts[] = {0, 1, 7, 1001};

/* The expected result of a rank after a case. */
static double expected(const case_t *one, int rank, int size, size_t count, size_t index) {
  const int root = size - 1;
  const size_t block = count ? index / count : 0, place = count ? index % count : 0;
  switch (one->op) {
    case HAL_COMM_REDUCE_SCATTER:
      return reduced(one->reduce, one->dtype, size, (size_t)rank * count + index);
    case HAL_COMM_BROADCAST:
      return value_of(root, index);
    case HAL_COMM_ALL_GATHER:
    case HAL_COMM_GATHER:
      return value_of((int)block, place);
    case HAL_COMM_ALL_TO_ALL:
      return value_of((int)block, (size_t)rank * count + place);
    case HAL_COMM_SCATTER:
      return value_of(root, (size_t)rank * count + index);
    default:
      return reduced(one->reduce, one->dtype, size, index);
  }
}

static unsigned char sent[ROOM], wanted[ROOM], got[ROOM];

static void run_case(const case_t *one, int rank, int size, size_t count, unsigned char *send, unsigned char *recv) {
  const int root = size - 1, is_root = rank == root;
  const hal_comm_op_t *const op = &hal_comm_ops[one->op];
  const size_t bytes = hal_dtype_size(one->dtype), all = count * (size_t)size;
  const size_t results = (op->root_receives && !is_root) ? 0 : op->recv == HAL_COMM_EACH ? all : count;
  const float factor = 2;
  for (size_t i = 0; i < all; i++) store_number(one->dtype, sent + i * bytes, value_of(rank, i));
  for (size_t i = 0; i < results; i++)
    store_number(one->dtype, wanted + i * bytes, expected(one, rank, size, count, i));
  to_device(send, sent, all * bytes + 1);
  const int before = atomic_load(&carried);
  finish(submit((hal_collective_t){.op = one->op,
                                   .reduce = one->reduce,
                                   .dtype = one->dtype,
                                   .peer = root,
                                   .send = op->root_sends && !is_root ? NULL : send,
                                   .recv = op->root_receives && !is_root ? NULL : recv,
                                   .count = count,
                                   .scale = one->reduce == HAL_REDUCE_PREMUL_SUM ? &factor : NULL},
                0));
  to_host(got, recv, results * bytes + 1);
  const char *const name = hal_dtype_name(one->dtype);
  CHECK(!memcmp(got, wanted, results * bytes), "%s (reduction %u) of %s, %zu elements", op->name, one->reduce, name,
        count);
  CHECK((atomic_load(&carried) == before) == one->in_library, "%s (reduction %u) of %s went the other way", op->name,
        one->reduce, name);
}

static void run_all(int rank, int size, void *flags) {
  join_library(rank, size, *(const uint32_t *)flags);
  unsigned char *const send = device_memory(ROOM), *const recv = device_memory(ROOM);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t j = 0; j < sizeof counts / sizeof *counts; j++) {
      case_t one = cases[i];
      if (*(const uint32_t *)flags) one.in_library = 0; /* the result of the comparison is transferred */
      run_case(&one, rank, size, counts[j], send, recv);
    }
  finish(submit((hal_collective_t){.op = HAL_COMM_BARRIER}, 0));
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}

Test(comm_vendor, every_operator_equals_the_reference) {
  uint32_t flags = 0;
  for (int size = 2; size <= 3; size++) run_ranks(size, run_all, &flags), make_board();
}
Test(comm_vendor, the_same_with_compared_calls) {
  uint32_t flags = HAL_COMM_COMPARE_CALLS;
  run_ranks(2, run_all, &flags);
}

/* Unequal parts, in another order than the ranks. */
static void exchange_uneven(int rank, int size, void *unused) {
  (void)unused;
  uint64_t give[3], give_at[3], take[3], take_at[3], given = 0, taken = 0;
  int16_t out[64] = {0}, in[64], right[64];
  join_library(rank, size, 0);
  for (int i = size - 1; i >= 0; i--) {
    give[i] = (uint64_t)(rank + 2 * i), take[i] = (uint64_t)(i + 2 * rank);
    give_at[i] = given, take_at[i] = taken;
    for (uint64_t j = 0; j < give[i]; j++) out[given + j] = (int16_t)(rank * 100 + i * 10 + (int)j);
    for (uint64_t j = 0; j < take[i]; j++) right[taken + j] = (int16_t)(i * 100 + rank * 10 + (int)j);
    given += give[i], taken += take[i];
  }
  unsigned char *const send = device_memory(sizeof out), *const recv = device_memory(sizeof in);
  to_device(send, out, sizeof out);
  hal_comm_work_t *const work = submit((hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                                          .dtype = HAL_INT16,
                                                          .send = send,
                                                          .recv = recv,
                                                          .send_counts = give,
                                                          .send_displs = give_at,
                                                          .recv_counts = take,
                                                          .recv_displs = take_at},
                                       0);
  memset(give, 0x5a, sizeof give), memset(take, 0x5a, sizeof take); /* they were copied */
  finish(work);
  to_host(in, recv, sizeof in);
  CHECK(!memcmp(in, right, taken * sizeof *in), "rank %d of %d", rank, size);
  CHECK(!atomic_load(&carried), "the transport has carried it");
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, uneven_parts_arrive) { run_ranks(3, exchange_uneven, NULL); }

/* ---- a library that lists fewer operators ---- */

Test(comm_vendor, calls_are_put_in_the_words_that_a_library_has) {
  const hal_comm_t group = {.size = 2, .rank = 1};
  const hal_comm_info_t info = {.ops = (1u << HAL_COMM_ALL_REDUCE) | (1u << HAL_COMM_ALL_TO_ALL) |
                                       (1u << HAL_COMM_BROADCAST) | (1u << HAL_COMM_SEND) | (1u << HAL_COMM_RECV),
                                .copy_dtypes = HAL_DTYPE_BIT(HAL_UINT8),
                                .flags = HAL_COMM_CAN_UNEVEN,
                                .reduce_dtypes = {[HAL_REDUCE_SUM] = HAL_DTYPE_BIT(HAL_FLOAT32),
                                                  [HAL_REDUCE_MAX] = HAL_DTYPE_BIT(HAL_UINT8),
                                                  [HAL_REDUCE_BAND] = HAL_DTYPE_BIT(HAL_UINT8)}};
  const uint64_t give[2] = {3, 4}, give_at[2] = {0, 5};
  uint64_t room[8], *next = room;
  hal_comm_words_t words;
  hal_collective_t out;
  hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_ALL_REDUCE, .dtype = HAL_BOOL, .count = 6};
#define LISTS() hal_comm_vendor_lists(&info, &call, &words)
  cr_expect(LISTS() && words.dtype == HAL_UINT8 && words.reduce == HAL_REDUCE_MAX && words.factor == 1);
  call.reduce = HAL_REDUCE_PROD;
  cr_expect(LISTS() && words.dtype == HAL_UINT8 && words.reduce == HAL_REDUCE_BAND);
  call.reduce = HAL_REDUCE_BXOR;
  cr_expect(!LISTS());
  call.reduce = HAL_REDUCE_SUM, call.dtype = HAL_COMPLEX64;
  cr_expect(LISTS() && words.dtype == HAL_FLOAT32 && words.factor == 2);
  call.dtype = HAL_COMPLEX128;
  cr_expect(!LISTS());
  call.dtype = HAL_FLOAT32, call.flags = HAL_COLLECTIVE_DETERMINISTIC;
  cr_expect(!LISTS());
  call = (hal_collective_t){.struct_size = sizeof call, .op = HAL_COMM_GATHER, .dtype = HAL_FLOAT32};
  cr_expect(!LISTS(), "gather is not listed");
  call = (hal_collective_t){.struct_size = sizeof call, .op = HAL_COMM_SEND, .dtype = HAL_FLOAT32};
  cr_expect(LISTS());
  call.tag = 1;
  cr_expect(!LISTS(), "tags are not read");
  call = (hal_collective_t){.struct_size = sizeof call,
                            .op = HAL_COMM_ALL_TO_ALL,
                            .dtype = HAL_COMPLEX128,
                            .send = &call,
                            .recv = &out,
                            .count = 3,
                            .send_counts = give,
                            .send_displs = give_at,
                            .recv_counts = give};
  hal_comm_vendor_translate(&group, &info, &call, &out, &next);
  cr_expect(out.dtype == HAL_UINT8 && out.count == 48 && next == room + 6);
  cr_expect(out.send_counts[1] == 64 && out.send_displs[1] == 80 && out.recv_counts[0] == 48 && !out.recv_displs);
  call = (hal_collective_t){.struct_size = sizeof call, .op = HAL_COMM_BROADCAST, .peer = 1, .send = &call};
  hal_comm_vendor_translate(&group, &info, &call, &out, &next);
  cr_expect(out.recv == out.send && out.fingerprint);
}

/* ---- order ---- */

/* Maximum by the transport, sum by the library, each on the result of the previous one, without a wait. */
static void alternate(int rank, int size, void *unused) {
  (void)unused;
  hal_comm_work_t *works[6];
  join_library(rank, size, 0);
  float *const data = float_on_device((float)(rank + 1));
  for (int i = 0; i < 6; i++) {
    hal_collective_t call = sum_at(data);
    call.reduce = i % 2 ? HAL_REDUCE_SUM : HAL_REDUCE_MAX;
    works[i] = submit(call, 0);
  }
  for (int i = 5; i >= 0; i--) finish(works[i]);
  CHECK(atomic_load(&carried) == 3, "%d", atomic_load(&carried));
  CHECK(float_at(data) == 16, "%g", (double)float_at(data)); /* 2, then doubled three times */
  finish(submit(sum_at(data), 0));
  CHECK(float_at(data) == 32, "%g", (double)float_at(data));
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, both_ways_keep_the_order_of_the_calls) { run_ranks(2, alternate, NULL); }

static void count_done(void *count, hal_status_t status) { atomic_fetch_add((atomic_int *)count, status ? 100 : 1); }

/* Rank 1 comes late. */
static void do_not_wait(int rank, int size, void *unused) {
  (void)unused;
  atomic_int done = 0;
  hal_comm_work_t *work;
  join_library(rank, size, 0);
  float *const data = float_on_device(3);
  hal_collective_t call = sum_at(data);
  call.struct_size = sizeof call;
  if (rank == 1) sleep_ms(600);
  const int64_t start = hal_clock_ns();
  CHECK_OK(hal_comm_submit(comm, stream, &call, 1, 0, count_done, &done, &work));
  CHECK(atomic_load(&done) == 1, "done was called %d times", atomic_load(&done));
  CHECK_OK(hal_comm_work_wait(work, stream, 0));
  CHECK(milliseconds_since(start) < 300, "the host has waited %ld ms", (long)milliseconds_since(start));
  if (rank == 0) {
    CHECK(hal_comm_work_query(work) == HAL_NOT_READY, "done without rank 1");
    CHECK(hal_stream_query(stream) == HAL_NOT_READY, "the stream does not wait");
    CHECK_FAILS(hal_comm_work_synchronize(work, SECOND / 20), HAL_NOT_READY, "all_reduce #1 of group 'dp'", "0.050 s");
  }
  CHECK_OK(hal_comm_work_synchronize(work, 0));
  CHECK(float_at(data) == 6, "%g", (double)float_at(data));
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, neither_submission_nor_wait_blocks_the_host) { run_ranks(2, do_not_wait, NULL); }

/* ---- SEND and RECV ---- */

static hal_comm_work_t *submit_bracket(const hal_collective_t *calls, uint32_t count, uint32_t flags) {
  hal_comm_work_t *work;
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .sequence = 1, .name = "nccl:coalesced", .flags = flags};
  CHECK_OK(hal_comm_submit_logged(comm, stream, calls, count, 0, &entry, NULL, NULL, &work));
  return work;
}

static void exchange_messages(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  const int peer = 1 - rank;
  float *const own = float_on_device((float)(rank + 1)), *const other = float_on_device(0);
  float *const tagged = float_on_device(0), *const sum = float_on_device(1);
  hal_collective_t calls[4] = {
      {.op = HAL_COMM_SEND, .send = own}, {.op = HAL_COMM_RECV, .recv = other}, sum_at(sum), {.op = HAL_COMM_RECV}};
  for (int i = 0; i < 4; i++)
    calls[i].struct_size = sizeof *calls, calls[i].dtype = HAL_FLOAT32, calls[i].count = 1, calls[i].peer = peer;
  finish(submit_bracket(calls, 3, HAL_COMM_IS_ORDERED));
  CHECK(float_at(other) == (float)(peer + 1) && float_at(sum) == 2 && !atomic_load(&carried), "a bracket in order");
  finish(submit_bracket(calls, 2, 0));
  CHECK(atomic_load(&carried) == 2, "%d messages without an order", atomic_load(&carried));
  /* One tagged message, which the library cannot distinguish from others, together with ordered ones. */
  hal_collective_t mixed[4] = {calls[0], calls[0], calls[3], calls[1]};
  mixed[0].tag = mixed[2].tag = 7, mixed[2].recv = tagged;
  finish(submit_bracket(mixed, 4, HAL_COMM_IS_ORDERED));
  CHECK(float_at(tagged) == (float)(peer + 1) && atomic_load(&carried) == 4, "%d carried", atomic_load(&carried));
  /* Without an order, each rank may run the collective and the message in any order. */
  hal_collective_t message = calls[rank];
  message.peer = peer;
  hal_comm_work_t *const first = rank == 0 ? submit(calls[2], 0) : submit(message, 0);
  if (rank == 1) CHECK_OK(hal_comm_work_synchronize(first, 0));
  hal_comm_work_t *const second = rank == 0 ? submit(message, 0) : submit(calls[2], 0);
  finish(second), finish(first);
  CHECK(float_at(sum) == 4, "%g", (double)float_at(sum));
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, messages_go_where_both_ranks_look) { run_ranks(2, exchange_messages, NULL); }

/* ---- programs, threads, forks ---- */

static void run_program(int rank, int size, void *unused) {
  (void)unused;
  hal_program_t *program;
  hal_comm_work_t *work;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  CHECK_OK(hal_program_begin(stream, NULL, &program));
  work = submit(sum_at(data), 0);
  CHECK_OK(hal_comm_work_wait(work, stream, 0));
  hal_comm_work_release(work);
  CHECK_OK(hal_program_end(program));
  for (int i = 0; i < 3; i++) CHECK_OK(hal_program_run(program, stream));
  CHECK(float_at(data) == 8, "%g", (double)float_at(data));
  CHECK(!atomic_load(&carried), "the transport has carried it");
  hal_program_destroy(program);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, a_program_submits_with_each_run) { run_ranks(2, run_program, NULL); }

static void destroy_early(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  hal_comm_work_t *const work = submit(sum_at(data), 0);
  if (rank == 1) sleep_ms(300);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
  CHECK_OK(hal_comm_work_query(work));
  hal_comm_work_release(work);
  CHECK(float_at(data) == 2, "%g", (double)float_at(data));
}
Test(comm_vendor, destroy_waits_for_what_is_queued) { run_ranks(2, destroy_early, NULL); }

static int64_t processor_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* The thread that waits for works sleeps while there are none. */
static void be_idle(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  finish(submit((hal_collective_t){.op = HAL_COMM_BARRIER}, 0));
  sleep_ms(300);
  const int64_t start = processor_ns();
  sleep_ms(500);
  CHECK(processor_ns() - start < SECOND / 20, "an idle group has used %.3f s", (double)(processor_ns() - start) / 1e9);
  finish(submit((hal_collective_t){.op = HAL_COMM_BARRIER}, 0)); /* it wakes */
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, an_idle_group_uses_no_processor) { run_ranks(2, be_idle, NULL); }

static void use_in_child(int rank, int size, void *unused) {
  (void)unused;
  int status = 0;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  hal_comm_work_t *const work = submit(sum_at(data), 0);
  const pid_t child = fork();
  if (!child) {
    alarm(20);
    hal_collective_t call = sum_at(data);
    call.struct_size = sizeof call;
    const hal_status_t submitted = hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL);
    const hal_status_t waited = hal_comm_work_wait(work, stream, 0);
    hal_comm_work_release(work);
    hal_comm_abort(comm, "a child");
    hal_comm_destroy(comm, SECOND);
    _exit(submitted != HAL_FAILED_PRECONDITION || waited != HAL_FAILED_PRECONDITION);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && !status, "the child ended with %x", (unsigned)status);
  finish(work);
  CHECK(float_at(data) == 2, "%g", (double)float_at(data));
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor, a_forked_child_leaves_the_group_alone) { run_ranks(2, use_in_child, NULL); }
