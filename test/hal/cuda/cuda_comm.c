/* Tests of collectives by NCCL: the plugin's functions on the mock of NCCL. Each rank is a process with its own
   device. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_plugin_testing.h"

enum { RANKS = 4, MOST = 20011, SECOND = 1000000000 };

typedef struct board_s {
  unsigned char id[128];
  _Atomic int has_id, stage;
  char text[RANKS][1024]; /* a rank's failure */
} board_t;
static board_t *board;
static int rank, size;
static hal_plugin_comm_t *comm;
static hal_plugin_stream_t *stream;

static void __attribute__((format(printf, 2, 3))) fail_rank(int line, const char *format, ...) {
  va_list arguments;
  const int length = snprintf(board->text[rank], sizeof board->text[rank], "line %d: ", line);
  va_start(arguments, format);
  vsnprintf(board->text[rank] + length, sizeof board->text[rank] - (size_t)length, format, arguments);
  va_end(arguments);
  _exit(1);
}
#define CHECK(condition, ...)                           \
  do {                                                  \
    if (!(condition)) fail_rank(__LINE__, __VA_ARGS__); \
  } while (0)
#define CHECK_OK(call) CHECK((call) == HAL_OK, "%s: %s", #call, message)
#define CHECK_FAILS(call, status, says)                                                              \
  do {                                                                                               \
    const hal_status_t status_ = (call);                                                             \
    CHECK(status_ == (status) && strstr(message, says), "%s: %d: %s", #call, (int)status_, message); \
  } while (0)

static void nap_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- ranks ---- */

static void open_rank(void) {
  static const hal_stream_desc_t desc = {.struct_size = sizeof desc};
  mock_devices = RANKS;
  setenv("HAL_CUDA_NCCL", NCCL, 0);
  open_plugin();
  CHECK_OK(api.stream_create(rank, &desc, &stream));
}

static hal_comm_desc_t describe(int64_t timeout_ns) {
  if (rank == 0 && !atomic_load(&board->has_id)) {
    size_t id_size = 0;
    CHECK_OK(api.comm_unique_id(0, 0, board->id, sizeof board->id, &id_size));
    CHECK(id_size == sizeof board->id, "%zu bytes", id_size);
    atomic_store(&board->has_id, 1);
  }
  while (!atomic_load(&board->has_id)) nap_ms(1);
  return (hal_comm_desc_t){.struct_size = sizeof(hal_comm_desc_t),
                           .id = board->id,
                           .id_size = sizeof board->id,
                           .rank = rank,
                           .size = size,
                           .timeout_ns = timeout_ns,
                           .name = "test"};
}

static void join(void) {
  open_rank();
  const hal_comm_desc_t desc = describe(60LL * SECOND);
  CHECK_OK(api.comm_create(rank, &desc, &comm));
}

static void run_ranks(int count, void (*body)(void)) {
  pid_t pids[RANKS];
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  size = count;
  fflush(NULL);
  for (rank = 0; rank < count; rank++) {
    pids[rank] = fork();
    cr_assert_geq(pids[rank], 0);
    if (pids[rank]) continue;
    alarm(100);
    body();
    _exit(0);
  }
  for (int i = 0; i < count; i++) {
    int status = 0;
    cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
    cr_assert(!status, "rank %d of %d ended with %x: %s", i, count, status, board->text[i]);
  }
}

static hal_status_t submit_on(hal_plugin_stream_t *on, hal_collective_t call) {
  call.struct_size = sizeof call;
  const hal_comm_call_t one = {comm, on, &call};
  return api.comm_submit(&one, 1, sizeof one);
}
static void run(hal_collective_t call) {
  CHECK_OK(submit_on(stream, call));
  CHECK_OK(api.stream_synchronize(stream));
}
static void end(void) { CHECK_OK(api.comm_destroy(comm, 30LL * SECOND)); }

static unsigned char *device_bytes(size_t bytes) {
  void *ptr = NULL;
  CHECK_OK(api.memory_alloc(rank, bytes, 0, &ptr));
  CHECK_OK(api.memory_fill(NULL, rank, ptr, &(char){0x55}, 1, bytes));
  return ptr;
}
static void to_device(void *to, const void *from, size_t bytes) {
  CHECK_OK(api.memory_copy(NULL, to, rank, from, HAL_HOST, bytes));
}
static void to_host(void *to, const void *from, size_t bytes) {
  CHECK_OK(api.memory_copy(NULL, to, HAL_HOST, from, rank, bytes));
}

/* ---- numbers: small integers, whose sums and products are exact in each type ---- */

typedef struct number_s {
  hal_dtype_t dtype;
  size_t bytes;
} number_t;
static const number_t numbers[] = {{HAL_INT8, 1},    {HAL_UINT8, 1},  {HAL_INT32, 4},   {HAL_UINT32, 4},
                                   {HAL_INT64, 8},   {HAL_UINT64, 8}, {HAL_FLOAT16, 2}, {HAL_BFLOAT16, 2},
                                   {HAL_FLOAT32, 4}, {HAL_FLOAT64, 8}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void store(hal_dtype_t dtype, void *at, double value) {
  const float single = (float)value;
  const _Float16 half = (_Float16)single;
  const int64_t whole = (int64_t)value;
  uint32_t bits = 0;
  memcpy(&bits, &single, sizeof bits);
  bits >>= 16; /* exact */
  if (dtype == HAL_FLOAT64)
    memcpy(at, &value, 8);
  else if (dtype == HAL_FLOAT32)
    memcpy(at, &single, 4);
  else if (dtype == HAL_FLOAT16)
    memcpy(at, &half, 2);
  else if (dtype == HAL_BFLOAT16)
    memcpy(at, &bits, 2);
  else
    memcpy(at, &whole, dtype == HAL_INT8 || dtype == HAL_UINT8 ? 1 : dtype == HAL_INT32 || dtype == HAL_UINT32 ? 4 : 8);
}

static double value_of(int of_rank, size_t index) { return (double)((index * 7 + (size_t)of_rank * 3) % 4 + 1); }

static double reduced(uint32_t reduce, size_t index) {
  double result = value_of(0, index);
  for (int i = 1; i < size; i++) {
    const double next = value_of(i, index);
    if (reduce == HAL_REDUCE_PROD)
      result *= next;
    else if (reduce == HAL_REDUCE_MIN)
      result = next < result ? next : result;
    else if (reduce == HAL_REDUCE_MAX)
      result = next > result ? next : result;
    else
      result += next;
  }
  if (reduce == HAL_REDUCE_PREMUL_SUM) result *= 2;
  return result;
}

static unsigned char host[MOST * 8 * RANKS], expected[MOST * 8 * RANKS];

static void check_equal(const void *from, size_t bytes, const char *what, hal_dtype_t dtype, size_t count) {
  to_host(host, from, bytes);
  CHECK(!memcmp(host, expected, bytes), "%s of dtype %d, %zu elements, rank %d of %d", what, (int)dtype, count, rank,
        size);
}

static void check_reduction(const number_t *number, uint32_t reduce, size_t count, unsigned char *send,
                            unsigned char *recv) {
  const size_t all = count * (size_t)size;
  unsigned char scale[8] = {0};
  store(number->bytes == 2 ? HAL_FLOAT32 : number->dtype, scale, 2);
  for (size_t i = 0; i < all; i++) store(number->dtype, host + i * number->bytes, value_of(rank, i));
  to_device(send, host, all * number->bytes);
  hal_collective_t call = {.op = HAL_COMM_ALL_REDUCE,
                           .reduce = reduce,
                           .dtype = number->dtype,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .scale = scale,
                           .peer = size - 1};
  for (size_t i = 0; i < all; i++) store(number->dtype, expected + i * number->bytes, reduced(reduce, i));
  run(call);
  check_equal(recv, count * number->bytes, "all_reduce", number->dtype, count);
  call.op = HAL_COMM_REDUCE;
  call.recv = rank == size - 1 ? recv : NULL;
  CHECK_OK(api.memory_fill(NULL, rank, recv, &(char){0}, 1, count * number->bytes + 1));
  run(call);
  if (rank == size - 1) check_equal(recv, count * number->bytes, "reduce", number->dtype, count);
  call.op = HAL_COMM_REDUCE_SCATTER;
  call.recv = recv;
  run(call);
  memmove(expected, expected + (size_t)rank * count * number->bytes, count * number->bytes);
  check_equal(recv, count * number->bytes, "reduce_scatter", number->dtype, count);
}

static void reduce_everything(void) {
  static const uint32_t reductions[] = {HAL_REDUCE_SUM, HAL_REDUCE_PROD, HAL_REDUCE_MIN, HAL_REDUCE_MAX,
                                        HAL_REDUCE_PREMUL_SUM};
  static const size_t counts[] = {0, 1, 7, 1000, MOST};
  hal_comm_info_t info = {.struct_size = sizeof info};
  int checked = 0;
  join();
  CHECK_OK(api.comm_info(rank, &info));
  unsigned char *const send = device_bytes(sizeof host), *const recv = device_bytes(sizeof host);
  for (int i = 0; i < NUMBERS; i++)
    for (int j = 0; j < 5; j++)
      for (int k = 0; k < 5; k++) {
        if (!(info.reduce_dtypes[reductions[j]] & HAL_DTYPE_BIT(numbers[i].dtype))) continue;
        check_reduction(&numbers[i], reductions[j], counts[k], send, recv);
        checked++;
      }
  CHECK(checked == (10 + 10 + 6 + 6 + 4) * 5, "%d cases", checked);
  end();
}

Test(cuda_comm, reductions_of_every_type_and_size_are_exact, .timeout = 120) {
  for (int n = 2; n <= RANKS; n++) run_ranks(n, reduce_everything);
}

/* ---- averages, bool, complex, scale on the device ---- */

static void reduce_special(void) {
  join();
  unsigned char *const send = device_bytes(64), *const recv = device_bytes(64);
  const float mine[4] = {(float)rank, 2, (float)(rank * 4), -1}, factor = 0.5f;
  float got[4];
  to_device(send, mine, sizeof mine);
  run((hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                         .reduce = HAL_REDUCE_AVG,
                         .dtype = HAL_COMPLEX64,
                         .send = send,
                         .recv = recv,
                         .count = 2});
  to_host(got, recv, sizeof got);
  CHECK(got[0] == 1 && got[1] == 2 && got[2] == 4 && got[3] == -1, "%g %g %g %g", got[0], got[1], got[2], got[3]);
  unsigned char *const scale = device_bytes(4);
  to_device(scale, &factor, sizeof factor);
  run((hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                         .reduce = HAL_REDUCE_PREMUL_SUM,
                         .dtype = HAL_FLOAT32,
                         .send = send,
                         .recv = recv,
                         .count = 4,
                         .flags = HAL_COLLECTIVE_SCALE_ON_DEVICE,
                         .scale = scale});
  to_host(got, recv, sizeof got);
  CHECK(got[0] == 1.5f && got[1] == 3 && got[2] == 6 && got[3] == -1.5f, "%g %g %g %g", got[0], got[1], got[2], got[3]);
  const unsigned char bits[4] = {rank == 1, 1, 0, rank != 2};
  unsigned char both[4];
  to_device(send, bits, sizeof bits);
  run((hal_collective_t){
      .op = HAL_COMM_ALL_REDUCE, .reduce = HAL_REDUCE_SUM, .dtype = HAL_BOOL, .send = send, .recv = recv, .count = 4});
  to_host(both, recv, sizeof both);
  CHECK(both[0] == 1 && both[1] == 1 && both[2] == 0 && both[3] == 1, "or");
  run((hal_collective_t){
      .op = HAL_COMM_ALL_REDUCE, .reduce = HAL_REDUCE_BAND, .dtype = HAL_BOOL, .send = send, .recv = recv, .count = 4});
  to_host(both, recv, sizeof both);
  CHECK(both[0] == 0 && both[1] == 1 && both[2] == 0 && both[3] == 0, "and");
  CHECK_FAILS(submit_on(stream, (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                                                   .reduce = HAL_REDUCE_BXOR,
                                                   .dtype = HAL_INT32,
                                                   .send = send,
                                                   .recv = recv,
                                                   .count = 4}),
              HAL_UNIMPLEMENTED, "all_reduce with reduction 7 of dtype 3 is not supported");
  CHECK_FAILS(submit_on(stream, (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                                                   .reduce = HAL_REDUCE_MAX,
                                                   .dtype = HAL_FLOAT32,
                                                   .send = send,
                                                   .recv = recv,
                                                   .count = 4}),
              HAL_UNIMPLEMENTED, "not supported by NCCL");
  CHECK_FAILS(submit_on(stream,
                        (hal_collective_t){
                            .op = HAL_COMM_ALL_REDUCE, .dtype = HAL_FLOAT32, .flags = HAL_COLLECTIVE_DETERMINISTIC}),
              HAL_UNIMPLEMENTED, "unsupported flags");
  CHECK_FAILS(submit_on(stream, (hal_collective_t){.op = HAL_COMM_BROADCAST, .dtype = HAL_FLOAT32, .peer = 9}),
              HAL_INVALID_ARGUMENT, "broadcast with rank 9 of 3");
  run((hal_collective_t){.op = HAL_COMM_BARRIER});
  CHECK_OK(submit_on(NULL, (hal_collective_t){.op = HAL_COMM_BARRIER}));
  end();
}
Test(cuda_comm, averages_bool_complex_and_what_is_refused, .timeout = 60) { run_ranks(3, reduce_special); }

/* ---- operators that copy ---- */

static unsigned char byte_of(int from, int to, size_t index) {
  return (unsigned char)(from * 71 + to * 13 + (int)(index % 251));
}

typedef struct side_s {
  uint64_t counts[RANKS], displs[RANKS];
} side_t;

/* Counts of 4-byte elements that differ for each pair of ranks, with a zero part and gaps. */
static uint64_t pair_count(int from, int to, size_t base) {
  return base ? base + (uint64_t)((from + 2 * to) % 3) * base - (uint64_t)(from == to) * base : 0;
}

static void exchange_uneven(size_t base, unsigned char *send, unsigned char *recv) {
  side_t out, in;
  uint64_t given = 0, taken = 0;
  for (int i = 0; i < size; i++) {
    out.displs[i] = given;
    in.displs[i] = taken;
    given += (out.counts[i] = pair_count(rank, i, base)) + 1;
    taken += (in.counts[i] = pair_count(i, rank, base)) + 1;
  }
  memset(host, 0, given * 4);
  memset(expected, 0x55, taken * 4);
  for (int i = 0; i < size; i++) {
    for (size_t j = 0; j < out.counts[i] * 4; j++) host[out.displs[i] * 4 + j] = byte_of(rank, i, j);
    for (size_t j = 0; j < in.counts[i] * 4; j++) expected[in.displs[i] * 4 + j] = byte_of(i, rank, j);
  }
  to_device(send, host, given * 4);
  CHECK_OK(api.memory_fill(NULL, rank, recv, &(char){0x55}, 1, taken * 4));
  run((hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                         .dtype = HAL_COMPLEX32,
                         .send = send,
                         .recv = recv,
                         .send_counts = out.counts,
                         .send_displs = out.displs,
                         .recv_counts = in.counts,
                         .recv_displs = in.displs});
  check_equal(recv, taken * 4, "uneven all_to_all", HAL_COMPLEX32, base);
}

static void copy_even(uint32_t op, const char *what, hal_dtype_t dtype, size_t bytes, size_t count, unsigned char *send,
                      unsigned char *recv) {
  const size_t block = count * bytes;
  const int root = size - 1, own_root = rank == root;
  const int splits = op == HAL_COMM_ALL_TO_ALL || op == HAL_COMM_SCATTER,
            joins = op == HAL_COMM_ALL_TO_ALL || op == HAL_COMM_ALL_GATHER || op == HAL_COMM_GATHER;
  const int sends = (op != HAL_COMM_BROADCAST && op != HAL_COMM_SCATTER) || own_root,
            receives = op != HAL_COMM_GATHER || own_root;
  for (int i = 0; i < size; i++)
    for (size_t j = 0; j < block; j++) {
      host[(size_t)i * block + j] = byte_of(rank, splits ? i : 0, j);
      expected[(size_t)i * block + j] = byte_of(joins ? i : root, splits ? rank : 0, j);
    }
  to_device(send, host, block * (size_t)size);
  run((hal_collective_t){.op = op,
                         .dtype = dtype,
                         .peer = root,
                         .send = sends ? send : NULL,
                         .recv = receives ? recv : NULL,
                         .count = count});
  if (receives) check_equal(recv, block * (size_t)(joins ? size : 1), what, dtype, count);
}

static void copy_everything(void) {
  static const struct {
    uint32_t op;
    const char *what;
  } ops[] = {{HAL_COMM_BROADCAST, "broadcast"},
             {HAL_COMM_ALL_GATHER, "all_gather"},
             {HAL_COMM_ALL_TO_ALL, "all_to_all"},
             {HAL_COMM_GATHER, "gather"},
             {HAL_COMM_SCATTER, "scatter"}};
  static const struct {
    hal_dtype_t dtype;
    size_t bytes;
  } types[] = {{HAL_BOOL, 1}, {HAL_FLOAT8_E4M3FN, 1}, {HAL_INT16, 2}, {HAL_FLOAT32, 4}, {HAL_COMPLEX64, 8}};
  static const size_t counts[] = {0, 1, 7, 1000, MOST};
  join();
  unsigned char *const send = device_bytes(sizeof host), *const recv = device_bytes(sizeof host);
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < 5; j++)
      for (int k = 0; k < 5; k++)
        copy_even(ops[i].op, ops[i].what, types[j].dtype, types[j].bytes, counts[k], send, recv);
  for (int k = 0; k < 4; k++) exchange_uneven(counts[k], send, recv);
  end();
}
Test(cuda_comm, operators_that_copy_bring_every_byte, .timeout = 120) {
  for (int n = 2; n <= RANKS; n++) run_ranks(n, copy_everything);
}

/* Crossed: with separate calls, each rank would block in its first one. */
static void exchange_neighbors(void) {
  join();
  const size_t bytes = 1 << 20;
  unsigned char *const send = device_bytes(bytes), *const recv = device_bytes(bytes);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  CHECK_OK(api.memory_fill(NULL, rank, send, &(char){(char)(rank + 1)}, 1, bytes));
  const hal_collective_t calls[] = {{.struct_size = sizeof *calls,
                                     .op = HAL_COMM_SEND,
                                     .dtype = HAL_UINT8,
                                     .peer = next,
                                     .send = send,
                                     .count = bytes},
                                    {.struct_size = sizeof *calls,
                                     .op = HAL_COMM_RECV,
                                     .dtype = HAL_UINT8,
                                     .peer = before,
                                     .recv = recv,
                                     .count = bytes}};
  const hal_comm_call_t both[] = {{comm, stream, &calls[0]}, {comm, stream, &calls[1]}};
  CHECK_OK(api.comm_submit(both, 2, sizeof *both));
  CHECK_OK(api.stream_synchronize(stream));
  memset(expected, before + 1, sizeof expected);
  to_host(host, recv, sizeof host / 2);
  CHECK(!memcmp(host, expected, sizeof host / 2), "from rank %d", before);
  end();
}
Test(cuda_comm, calls_of_one_submission_progress_together, .timeout = 60) { run_ranks(4, exchange_neighbors); }

/* ---- time and failure ---- */

static void create_alone(void) {
  open_rank();
  const int64_t begin = now_ms();
  size = 2;
  hal_comm_desc_t desc = describe(SECOND / 2);
  CHECK_FAILS(api.comm_create(rank, &desc, &comm), HAL_NOT_READY, "ranks of the 2 are missing");
  CHECK(now_ms() - begin < 5000, "late");
  desc.flags = HAL_COMM_NONBLOCKING;
  hal_comm_state_t state = {.struct_size = sizeof state};
  CHECK_OK(api.comm_create(rank, &desc, &comm));
  do {
    CHECK_OK(api.comm_query(comm, &state));
    nap_ms(5);
  } while (state.state == HAL_COMM_CREATING);
  CHECK(state.state == HAL_COMM_FAILED && state.error == HAL_NOT_READY, "%d", (int)state.state);
  end();
}
Test(cuda_comm, a_missing_rank_ends_creation_at_the_timeout, .timeout = 60) { run_ranks(1, create_alone); }

static void share_device(void) {
  const int own = rank;
  open_rank();
  const hal_comm_desc_t desc = describe(60LL * SECOND);
  CHECK_FAILS(api.comm_create(0, &desc, &comm), HAL_INVALID_ARGUMENT, "ranks 0 and 1 use one device");
  (void)own;
}
Test(cuda_comm, two_ranks_on_one_device_are_refused_by_name, .timeout = 60) { run_ranks(2, share_device); }

static void *abort_later(void *unused) {
  (void)unused;
  nap_ms(200);
  api.comm_abort(comm, "the test ends it");
  return NULL;
}

/* Rank 1 never calls the collective. */
static void abort_waiting(void) {
  pthread_t thread;
  hal_comm_state_t state = {.struct_size = sizeof state};
  join();
  if (rank == 0) {
    unsigned char *const data = device_bytes(64);
    const int64_t begin = now_ms();
    CHECK_OK(submit_on(
        stream,
        (hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .dtype = HAL_FLOAT32, .send = data, .recv = data, .count = 16}));
    CHECK(api.stream_query(stream) == HAL_NOT_READY, "a collective without its peer has ended");
    CHECK(api.comm_destroy(comm, SECOND / 20) == HAL_NOT_READY, "destroyed with a call that runs: %s", message);
    pthread_create(&thread, NULL, abort_later, NULL);
    CHECK_FAILS(api.stream_synchronize(stream), HAL_ABORTED, "was aborted");
    CHECK(now_ms() - begin < 2000, "late");
    pthread_join(thread, NULL);
    CHECK_OK(api.comm_query(comm, &state));
    CHECK(state.state == HAL_COMM_ABORTED && state.error == HAL_ABORTED && strstr(state.message, "the test ends it"),
          "%s", state.message);
    CHECK_FAILS(submit_on(stream, (hal_collective_t){.op = HAL_COMM_BARRIER}), HAL_ABORTED, "create a new one");
    CHECK_OK(api.stream_synchronize(stream));
    CHECK_OK(api.memory_fill(stream, rank, data, &(char){1}, 1, 64));
    CHECK_OK(api.stream_synchronize(stream));
    end();
    atomic_store(&board->stage, 1);
  } else {
    while (!atomic_load(&board->stage)) nap_ms(1);
    CHECK_OK(api.comm_abort(comm, NULL));
    CHECK_OK(api.comm_abort(comm, NULL));
    end();
  }
}
Test(cuda_comm, abort_ends_what_waits_and_leaves_the_device_usable, .timeout = 60) { run_ranks(2, abort_waiting); }

static void fail_later(void) {
  hal_comm_state_t state = {.struct_size = sizeof state};
  join();
  CHECK_OK(api.comm_query(comm, &state));
  CHECK(state.state == HAL_COMM_READY, "%d", (int)state.state);
  if (rank == 0) { /* rank 1 never comes */
    CHECK_OK(submit_on(stream, (hal_collective_t){.op = HAL_COMM_BARRIER}));
    setenv("NCCL_MOCK_ASYNC_ERROR", "6", 1);
    CHECK_OK(api.comm_query(comm, &state));
    CHECK(state.state == HAL_COMM_FAILED && state.error == HAL_UNAVAILABLE && state.native_code == 6, "%d",
          (int)state.state);
    CHECK(strstr(state.message, "peer closed the connection"), "%s", state.message);
    CHECK_FAILS(submit_on(stream, (hal_collective_t){.op = HAL_COMM_BARRIER}), HAL_UNAVAILABLE,
                "peer closed the connection");
    end();
    atomic_store(&board->stage, 1);
  } else {
    while (!atomic_load(&board->stage)) nap_ms(1);
  }
}
Test(cuda_comm, an_error_of_a_queued_call_is_reported, .timeout = 60) { run_ranks(2, fail_later); }

/* ---- split, shrink, registration, capture ---- */

static int sum_of_ranks(void) { /* of the communicator */
  unsigned char *const data = device_bytes(4);
  int32_t number = rank;
  to_device(data, &number, 4);
  run((hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .dtype = HAL_INT32, .send = data, .recv = data, .count = 1});
  to_host(&number, data, 4);
  return number;
}

static void divide(void) {
  join();
  hal_plugin_comm_t *const parent = comm;
  hal_plugin_comm_memory_t *memory = NULL;
  const hal_comm_desc_t desc = {.struct_size = sizeof desc, .timeout_ns = 60LL * SECOND, .name = "part"};
  CHECK_OK(api.comm_split(parent, rank == 3 ? -1 : rank % 2, -rank, &desc, &comm));
  CHECK((comm == NULL) == (rank == 3), "who has no color has no communicator");
  if (comm) {
    const int sum = sum_of_ranks();
    CHECK(sum == (rank == 1 ? 1 : 2), "%d", sum);
    end();
  }
  comm = parent;
  CHECK(sum_of_ranks() == 6, "the parent");
  unsigned char *const data = device_bytes(4096);
  CHECK_OK(api.comm_register(parent, data, 4096, 0, &memory));
  CHECK_OK(api.comm_deregister(parent, memory));
  if (rank != 2) {
    CHECK_OK(api.comm_shrink(parent, (const int32_t[]){2}, 1, 0, &desc, &comm));
    CHECK(sum_of_ranks() == 4, "without rank 2");
    end();
  }
  CHECK_OK(api.comm_abort(parent, "over"));
  comm = parent;
  end();
}
Test(cuda_comm, split_and_shrink_make_communicators_of_a_part, .timeout = 60) { run_ranks(4, divide); }

static void replay(void) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  int32_t number = rank + 1;
  join();
  unsigned char *const data = device_bytes(4);
  to_device(data, &number, 4);
  CHECK_OK(api.capture_begin(stream, HAL_CAPTURE_THREAD, 0));
  CHECK_OK(submit_on(
      stream,
      (hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .dtype = HAL_INT32, .send = data, .recv = data, .count = 1}));
  CHECK_OK(api.capture_end(stream, &graph));
  to_host(&number, data, 4);
  CHECK(number == rank + 1, "a captured collective ran");
  CHECK_OK(api.graph_instantiate(graph, &exec));
  for (int i = 0; i < 3; i++) CHECK_OK(api.graph_launch(exec, stream));
  CHECK_OK(api.stream_synchronize(stream));
  to_host(&number, data, 4);
  CHECK(number == 12, "%d", (int)number); /* 1 + 2, twice doubled */
  end();
}
Test(cuda_comm, a_captured_collective_runs_with_each_launch, .timeout = 60) { run_ranks(2, replay); }

/* ---- the library ---- */

static void use_none(void) {
  hal_comm_info_t info = {.struct_size = sizeof info};
  setenv("HAL_CUDA_NCCL", "/nowhere/libnccl.so.2", 1);
  open_rank();
  CHECK_FAILS(api.comm_info(0, &info), HAL_UNAVAILABLE, "/nowhere/libnccl.so.2");
  CHECK_FAILS(api.comm_info(0, &info), HAL_UNAVAILABLE, "HAL_CUDA_NCCL");
}
static void use_old(void) {
  hal_comm_info_t info = {.struct_size = sizeof info};
  setenv("NCCL_MOCK_VERSION", "21805", 1);
  open_rank();
  CHECK_FAILS(api.comm_info(0, &info), HAL_UNAVAILABLE, "NCCL 2.18, too old");
}
Test(cuda_comm, a_library_that_is_missing_or_too_old_is_named, .timeout = 60) {
  run_ranks(1, use_none);
  run_ranks(1, use_old);
}
