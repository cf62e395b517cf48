/* Tests of groups of one rank without a transport: each collective is a copy on the device, or a product with a
 * factor. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "hal/comm.h"
#include "hal/program.h"
#include "support.h"

enum { COUNT = 5, ROOM = 256 };
static const int64_t second = 1000000000;

static hal_comm_t *comm;
static hal_stream_t *stream;
static hal_block_t *memory;
static char *send, *recv; /* on the device */

static void begin(void) {
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 0);
  assert_ok(hal_registry_open("fake"));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_allocate(0, stream, (size_t)2 * ROOM, &memory));
  send = hal_memory_block_address(memory), recv = send + ROOM;
  const hal_comm_config_t config = {.struct_size = sizeof config, .size = 1, .name = "one"};
  assert_ok(hal_comm_create(&config, &comm));
}
static void begin_protected(void) {
  setenv("HAL_FAKE_PROTECT", "1", 1); /* the host cannot read device memory */
  begin();
}
static void end(void) {
  hal_comm_destroy(comm, 10 * second);
  hal_memory_release(memory);
  hal_registry_close();
}

TestSuite(comm_alone, .init = begin, .fini = end, .timeout = 60);
TestSuite(comm_alone_protected, .init = begin_protected, .fini = end, .timeout = 60);

static void write_device(void *to, const void *from, size_t size) {
  assert_ok(hal_memory_copy(stream, to, 0, from, HAL_HOST, size));
  assert_ok(hal_stream_synchronize(stream));
}
static void read_device(void *to, const void *from, size_t size) {
  assert_ok(hal_memory_copy(stream, to, HAL_HOST, from, 0, size));
  assert_ok(hal_stream_synchronize(stream));
}

static void count_done(void *count, hal_status_t status) { atomic_fetch_add((atomic_int *)count, status ? 100 : 1); }

static void run(hal_collective_t call) {
  atomic_int done = 0;
  hal_comm_work_t *work;
  call.struct_size = sizeof call;
  assert_ok(hal_comm_submit(comm, stream, &call, 1, 0, count_done, &done, &work));
  assert_ok(hal_comm_work_wait(work, stream, 0));
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(hal_comm_work_query(work));
  hal_comm_work_release(work);
  for (int i = 0; i < 20000 && !atomic_load(&done); i++) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  cr_assert_eq(atomic_load(&done), 1);
}

/* Runs a call from `send` to `recv`, whose memory has other contents, and compares `bytes` of the result. */
static void check_copy(hal_collective_t call, size_t from, size_t to, size_t bytes) {
  unsigned char given[ROOM], got[ROOM];
  for (int i = 0; i < ROOM; i++) given[i] = (unsigned char)(i * 7 + 1);
  memset(got, 0x5a, sizeof got);
  write_device(send, given, sizeof given), write_device(recv, got, sizeof got);
  call.send = send, call.recv = recv;
  run(call);
  read_device(got, recv, sizeof got);
  for (size_t i = 0; i < sizeof got; i++) {
    const unsigned char right = i >= to && i < to + bytes ? given[from + i - to] : 0x5a;
    cr_assert_eq(got[i], right, "operator %u, reduction %u, dtype %d: byte %zu is %x, not %x", call.op, call.reduce,
                 (int)call.dtype, i, got[i], right);
  }
}

static const uint32_t ops[] = {HAL_COMM_ALL_REDUCE,     HAL_COMM_BROADCAST,  HAL_COMM_REDUCE, HAL_COMM_ALL_GATHER,
                               HAL_COMM_REDUCE_SCATTER, HAL_COMM_ALL_TO_ALL, HAL_COMM_GATHER, HAL_COMM_SCATTER};
static const struct {
  hal_dtype_t dtype;
  size_t size;
  uint32_t reduce; /* that the type has */
} types[] = {
    {HAL_FLOAT32, 4, HAL_REDUCE_AVG},  {HAL_BFLOAT16, 2, HAL_REDUCE_SUM},  {HAL_FLOAT16, 2, HAL_REDUCE_MAX},
    {HAL_FLOAT64, 8, HAL_REDUCE_PROD}, {HAL_INT8, 1, HAL_REDUCE_MIN},      {HAL_INT16, 2, HAL_REDUCE_SUM},
    {HAL_INT64, 8, HAL_REDUCE_BAND},   {HAL_COMPLEX64, 8, HAL_REDUCE_SUM}, {HAL_BOOL, 1, HAL_REDUCE_BOR},
    {HAL_INT32, 4, HAL_REDUCE_BXOR},   {HAL_UINT8, 1, HAL_REDUCE_PROD},    {HAL_COMPLEX128, 16, HAL_REDUCE_AVG}};

static void check_all(void) {
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    for (size_t j = 0; j < sizeof types / sizeof *types; j++)
      for (uint64_t count = 0; count <= COUNT; count += COUNT)
        check_copy((hal_collective_t){.op = ops[i], .reduce = types[j].reduce, .dtype = types[j].dtype, .count = count},
                   0, 0, count * types[j].size);
  run((hal_collective_t){.op = HAL_COMM_BARRIER});
}
Test(comm_alone, every_collective_is_a_copy) { check_all(); }
Test(comm_alone_protected, every_collective_is_a_copy) { check_all(); }

static void check_factors(void) {
  const float factor = 0.5F;
  const double wide = 0.5;
  float singles[3] = {3, -8, 1}, got[3];
  double doubles[2] = {3, -8}, more[2];
  const uint16_t halves[2] = {0x4040, 0xc100}, right[2] = {0x3fc0, 0xc080}; /* bfloat16: 3, -8; 1.5, -4 */
  uint16_t few[2];
  hal_collective_t call = {.op = HAL_COMM_ALL_REDUCE, .reduce = HAL_REDUCE_PREMUL_SUM, .dtype = HAL_FLOAT32};
  write_device(send, singles, sizeof singles);
  call.send = send, call.recv = recv, call.count = 3, call.scale = &factor;
  run(call);
  read_device(got, recv, sizeof got);
  cr_expect(got[0] == 1.5F && got[1] == -4 && got[2] == 0.5F);
  call.recv = send; /* in place */
  run(call);
  read_device(got, send, sizeof got);
  cr_expect(got[0] == 1.5F && got[1] == -4 && got[2] == 0.5F);
  write_device(send, halves, sizeof halves);
  call.dtype = HAL_BFLOAT16, call.count = 2, call.recv = recv, call.op = HAL_COMM_REDUCE_SCATTER;
  run(call);
  read_device(few, recv, sizeof few);
  cr_expect(few[0] == right[0] && few[1] == right[1]);
  write_device(send, doubles, sizeof doubles);
  call.dtype = HAL_FLOAT64, call.scale = &wide, call.op = HAL_COMM_REDUCE;
  run(call);
  read_device(more, recv, sizeof more);
  cr_expect(more[0] == 1.5 && more[1] == -4);
}
Test(comm_alone, factors_multiply) { check_factors(); }
Test(comm_alone_protected, factors_multiply) { check_factors(); }

Test(comm_alone, counts_and_displacements_are_read) {
  const uint64_t three = 3, one = 1, two = 2, four = 4;
  hal_collective_t call = {.op = HAL_COMM_ALL_TO_ALL, .dtype = HAL_INT32};
  call.send_counts = call.recv_counts = &three, call.send_displs = &one, call.recv_displs = &two;
  check_copy(call, 4, 8, 12);
  call = (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .dtype = HAL_INT32, .count = 3};
  call.recv_counts = &three, call.recv_displs = &four;
  check_copy(call, 0, 16, 12);
  call = (hal_collective_t){.op = HAL_COMM_REDUCE_SCATTER, .dtype = HAL_INT32, .count = 3};
  call.send_counts = &three, call.send_displs = &two;
  check_copy(call, 8, 0, 12);
}

Test(comm_alone, calls_that_do_not_fit_are_errors) {
  const uint64_t three = 3, two = 2;
  hal_collective_t call = {
      .struct_size = sizeof call, .op = HAL_COMM_SEND, .dtype = HAL_INT32, .send = send, .count = 1};
  assert_fails(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_INVALID_ARGUMENT,
               "rank 0 is this rank");
  call = (hal_collective_t){.struct_size = sizeof call, .op = HAL_COMM_ALL_TO_ALL, .dtype = HAL_INT32};
  call.send = send, call.recv = recv, call.send_counts = &three, call.recv_counts = &two;
  assert_fails(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_INVALID_ARGUMENT,
               "sends 3 elements and receives 2");
  const hal_comm_config_t config = {.struct_size = sizeof config, .size = 2};
  hal_comm_t *none;
  assert_fails(hal_comm_create(&config, &none), HAL_INVALID_ARGUMENT, "2 ranks needs a transport");
}

/* Several calls of one work, queued after the stream's work; later work reads their results. */
Test(comm_alone, copies_have_their_place_in_the_order) {
  const int32_t first[4] = {1, 2, 3, 4};
  int32_t got[4];
  hal_comm_work_t *work;
  hal_collective_t calls[2] = {{.op = HAL_COMM_ALL_GATHER}, {.op = HAL_COMM_BROADCAST}};
  write_device(send, first, sizeof first);
  for (int i = 0; i < 2; i++) {
    calls[i].struct_size = sizeof *calls, calls[i].dtype = HAL_INT32, calls[i].count = 2;
    calls[i].send = send + 8 * i, calls[i].recv = recv + 8 * (1 - i);
  }
  assert_ok(hal_comm_submit(comm, stream, calls, 2, 0, NULL, NULL, &work));
  assert_ok(hal_comm_work_wait(work, stream, 0));
  assert_ok(hal_memory_copy(stream, got, HAL_HOST, recv, 0, sizeof got));
  assert_ok(hal_stream_synchronize(stream));
  cr_expect(got[0] == 3 && got[1] == 4 && got[2] == 1 && got[3] == 2);
  hal_comm_work_release(work);
  cr_expect_eq(hal_comm_sequence(comm), 1);
  hal_comm_abort(comm, "the test ends it");
  assert_fails(hal_comm_submit(comm, stream, calls, 2, 0, NULL, NULL, NULL), HAL_ABORTED, "the test ends it");
}

Test(comm_alone, a_program_runs_the_copies) {
  const int32_t first[2] = {1, 2}, second_values[2] = {5, 6};
  int32_t got[2];
  hal_program_t *program;
  hal_comm_work_t *work;
  hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_ALL_GATHER, .dtype = HAL_INT32, .count = 2};
  call.send = send, call.recv = recv;
  write_device(send, first, sizeof first);
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, &work));
  assert_ok(hal_comm_work_wait(work, stream, 0));
  hal_comm_work_release(work);
  assert_ok(hal_program_end(program));
  write_device(send, second_values, sizeof second_values);
  assert_ok(hal_program_run(program, stream));
  read_device(got, recv, sizeof got);
  cr_expect(got[0] == 5 && got[1] == 6);
  hal_program_destroy(program);
}
