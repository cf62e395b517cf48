/* comm_reduce.c: the results of collectives that reduce. Operands are small integers, so that every order of summation
 * has the same result. */
#include <math.h>

#include "crew.h"
#include "hal/status.h"

enum { MOST = 1025, GUARD = 64, BYTES = MOST * 16 * CTS_CREW_MOST + GUARD, RUNS = 5, NOISY = 20011 };

static const hal_dtype_t dtypes[] = {
    HAL_BOOL,       HAL_UINT8,       HAL_INT8,          HAL_INT16,           HAL_INT32,
    HAL_INT64,      HAL_FLOAT16,     HAL_BFLOAT16,      HAL_FLOAT32,         HAL_FLOAT64,
    HAL_UINT16,     HAL_UINT32,      HAL_UINT64,        HAL_COMPLEX32,       HAL_COMPLEX64,
    HAL_COMPLEX128, HAL_FLOAT8_E5M2, HAL_FLOAT8_E4M3FN, HAL_FLOAT8_E5M2FNUZ, HAL_FLOAT8_E4M3FNUZ};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };
static const char *const names[] = {"SUM", "PROD", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
enum { REDUCTIONS = sizeof names / sizeof *names };

static _Thread_local uint8_t *operands, *got, *expected; /* BYTES each, of the rank */

static int is_listed(const cts_crew_t *crew, uint32_t reduce, hal_dtype_t dtype) {
  return (int)(crew->info.reduce_dtypes[reduce] >> dtype & 1);
}

/* ---- the reference ---- */

/* A number, of complex ones both parts. int64 has numbers that double has not. */
typedef struct value_s {
  int64_t re, im;
} value_t;

static int is_unsigned(hal_dtype_t dtype) {
  return dtype == HAL_UINT8 || dtype == HAL_UINT16 || dtype == HAL_UINT32 || dtype == HAL_UINT64;
}

static int64_t real_of(hal_dtype_t dtype, int rank, size_t index) {
  const int64_t value = 1 + (int64_t)((index * 7 + (size_t)rank * 5) % 3);
  const size_t turn = index + (size_t)rank;
  if (dtype == HAL_BOOL) return value != 2;
  /* Every second one is negative where it is taken for a number with a sign. */
  if (is_unsigned(dtype)) return value + (turn % 2 ? 0 : (int64_t)(UINT64_C(1) << (8 * cts_dtype_size(dtype) - 1)));
  /* Sums of 8 ranks have no more digits than the type. */
  const int64_t with_sign = turn % 4 ? value : -value, sign = turn % 4 ? 1 : -1;
  if (cts_is_float8(dtype)) return sign;
  return dtype == HAL_INT64 ? with_sign + (INT64_C(1) << 60) : with_sign;
}

static value_t value_of(hal_dtype_t dtype, int rank, size_t index) {
  return (value_t){real_of(dtype, rank, index), cts_is_complex(dtype) ? real_of(dtype, rank, index + 1) : 0};
}

static int is_less(hal_dtype_t dtype, int64_t a, int64_t b) {
  return is_unsigned(dtype) ? (uint64_t)a < (uint64_t)b : a < b;
}

static int64_t join_reals(hal_dtype_t dtype, uint32_t reduce, int64_t a, int64_t b) {
  switch (reduce) {
    case HAL_REDUCE_PROD:
      return dtype == HAL_BOOL ? a && b : (int64_t)((uint64_t)a * (uint64_t)b);
    case HAL_REDUCE_MIN:
      return is_less(dtype, a, b) ? a : b;
    case HAL_REDUCE_MAX:
      return is_less(dtype, a, b) ? b : a;
    case HAL_REDUCE_BAND:
      return a & b;
    case HAL_REDUCE_BOR:
      return a | b;
    case HAL_REDUCE_BXOR:
      return a ^ b;
    default:
      return dtype == HAL_BOOL ? a || b : (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

static value_t join(hal_dtype_t dtype, uint32_t reduce, value_t a, value_t b) {
  if (cts_is_complex(dtype) && reduce == HAL_REDUCE_PROD)
    return (value_t){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  return (value_t){join_reals(dtype, reduce, a.re, b.re), join_reals(dtype, reduce, a.im, b.im)};
}

static cts_number_t number_of(value_t value, double divisor) {
  return (cts_number_t){.i = value.re, .d = (double)value.re / divisor, .im = (double)value.im / divisor};
}

static cts_number_t reduced(const cts_crew_t *crew, hal_dtype_t dtype, uint32_t reduce, size_t index) {
  value_t sum = value_of(dtype, 0, index);
  for (int i = 1; i < crew->size; i++) sum = join(dtype, reduce, sum, value_of(dtype, i, index));
  if (reduce == HAL_REDUCE_PREMUL_SUM) sum.re *= 2;
  return number_of(sum, reduce == HAL_REDUCE_AVG ? crew->size : 1);
}

/* Averages may be rounded twice: the sum, or the operands' parts. */
static int is_right(hal_dtype_t dtype, uint32_t reduce, const uint8_t *one, const uint8_t *other) {
  if (reduce != HAL_REDUCE_AVG) return memcmp(one, other, cts_dtype_size(dtype)) == 0;
  const cts_number_t a = cts_number_read(dtype, one), b = cts_number_read(dtype, other);
  return fabs(a.d - b.d) <= 8 * cts_dtype_step(dtype) && fabs(a.im - b.im) <= 8 * cts_dtype_step(dtype);
}

/* `count` elements at `device`, of which the first is number `first` of the reduction, and GUARD bytes that must not be
 * written. */
static void check(cts_crew_t *crew, hal_dtype_t dtype, uint32_t reduce, const void *device, size_t first, size_t count,
                  const char *op) {
  const size_t size = cts_dtype_size(dtype);
  cts_get(crew->t, NULL, got, device, count * size + GUARD);
  for (size_t i = 0; i < count; i++) {
    cts_number_write(dtype, reduced(crew, dtype, reduce, first + i), expected + i * size);
    if (is_right(dtype, reduce, got + i * size, expected + i * size)) continue;
    const cts_number_t is = cts_number_read(dtype, got + i * size), be = cts_number_read(dtype, expected + i * size);
    cts_fail(crew->t, "%s with %s of %s, %zu elements, %d ranks: element %zu of rank %d is %.17g instead of %.17g", op,
             names[reduce], cts_dtype_name(dtype), count, (int)crew->size, i, (int)crew->rank, is.d, be.d);
  }
  for (size_t i = count * size; i < count * size + GUARD; i++)
    CTS_CHECK(crew->t, got[i] == 0xA5, "%s with %s of %s, %zu elements: memory after the result was written", op,
              names[reduce], cts_dtype_name(dtype), count);
}

/* ---- every reduction ---- */

typedef struct memory_s {
  hal_plugin_stream_t *stream;
  uint8_t *send, *recv;
} memory_t;

static memory_t make_memory(cts_crew_t *crew) {
  operands = cts_host(crew->t, BYTES), got = cts_host(crew->t, BYTES), expected = cts_host(crew->t, BYTES);
  return (memory_t){cts_stream(crew->t), cts_alloc(crew->t, BYTES), cts_alloc(crew->t, BYTES)};
}

static void write_operands(cts_crew_t *crew, hal_dtype_t dtype, size_t count, void *to) {
  for (size_t i = 0; i < count; i++)
    cts_number_write(dtype, number_of(value_of(dtype, crew->rank, i), 1), operands + i * cts_dtype_size(dtype));
  cts_put(crew->t, NULL, to, operands, count * cts_dtype_size(dtype));
}

static void write_scale(hal_dtype_t dtype, double value, uint8_t to[8]) {
  cts_number_write(cts_dtype_size(dtype) == 2 ? HAL_FLOAT32 : dtype, (cts_number_t){.d = value}, to);
}

static void run(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, hal_collective_t call,
                size_t recv_bytes) {
  cts_crew_fill(crew, memory->recv, 0xA5, recv_bytes + GUARD);
  cts_comm_queue(crew, comm, memory->stream, call);
  cts_sync(crew->t, memory->stream);
}

static void check_one(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, hal_dtype_t dtype,
                      uint32_t reduce, size_t count) {
  const size_t size = cts_dtype_size(dtype), all = count * (size_t)crew->size;
  uint8_t scale[8] = {0};
  write_scale(dtype, 2, scale);
  write_operands(crew, dtype, all, memory->send);
  hal_collective_t call = {.op = HAL_COMM_ALL_REDUCE,
                           .reduce = reduce,
                           .dtype = dtype,
                           .send = memory->send,
                           .recv = memory->recv,
                           .count = count,
                           .scale = scale,
                           .peer = crew->size - 1};
  if (cts_crew_has_op(crew, HAL_COMM_ALL_REDUCE)) {
    run(crew, comm, memory, call, count * size);
    check(crew, dtype, reduce, memory->recv, 0, count, "ALL_REDUCE");
  }
  if (count == 1) return;
  call.op = HAL_COMM_REDUCE;
  call.recv = crew->rank == call.peer ? memory->recv : NULL;
  if (cts_crew_has_op(crew, HAL_COMM_REDUCE)) {
    run(crew, comm, memory, call, count * size);
    if (crew->rank == call.peer) check(crew, dtype, reduce, memory->recv, 0, count, "REDUCE");
  }
  call.op = HAL_COMM_REDUCE_SCATTER;
  call.recv = memory->recv;
  if (!cts_crew_has_op(crew, HAL_COMM_REDUCE_SCATTER)) return;
  run(crew, comm, memory, call, count * size);
  check(crew, dtype, reduce, memory->recv, (size_t)crew->rank * count, count, "REDUCE_SCATTER");
}

static void check_in_place(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory) {
  const size_t part = MOST * sizeof(float) * (size_t)crew->rank;
  hal_collective_t call = {.op = HAL_COMM_ALL_REDUCE, .dtype = HAL_FLOAT32, .send = memory->recv, .recv = memory->recv};
  call.count = MOST;
  cts_crew_fill(crew, memory->recv, 0xA5, BYTES);
  write_operands(crew, HAL_FLOAT32, MOST, memory->recv);
  if (cts_crew_has_op(crew, call.op)) {
    cts_comm_queue(crew, comm, NULL, call); /* done when it returns */
    check(crew, HAL_FLOAT32, HAL_REDUCE_SUM, memory->recv, 0, MOST, "ALL_REDUCE in place");
  }
  call.op = HAL_COMM_REDUCE_SCATTER;
  call.recv = memory->recv + part;
  write_operands(crew, HAL_FLOAT32, (size_t)crew->size * MOST, memory->recv);
  if (!cts_crew_has_op(crew, call.op)) return;
  cts_comm_queue(crew, comm, NULL, call);
  if (crew->rank < crew->size - 1) cts_crew_fill(crew, memory->recv + part + MOST * sizeof(float), 0xA5, GUARD);
  check(crew, HAL_FLOAT32, HAL_REDUCE_SUM, memory->recv + part, (size_t)crew->rank * MOST, MOST,
        "REDUCE_SCATTER in place");
}

static void check_nan(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory) {
  for (int i = 0; i < DTYPES * 2; i++) {
    const hal_dtype_t dtype = dtypes[i / 2];
    const uint32_t reduce = i % 2 ? HAL_REDUCE_MIN : HAL_REDUCE_MAX;
    const size_t size = cts_dtype_size(dtype);
    if (!cts_is_float(dtype) || !is_listed(crew, reduce, dtype)) continue;
    for (size_t j = 0; j < (size_t)crew->size; j++) /* element j is not a number on rank j */
      cts_number_write(dtype, (cts_number_t){.d = (int)j == crew->rank ? (double)NAN : 1}, operands + j * size);
    cts_put(crew->t, NULL, memory->send, operands, (size_t)crew->size * size);
    run(crew, comm, memory,
        (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                           .reduce = reduce,
                           .dtype = dtype,
                           .send = memory->send,
                           .recv = memory->recv,
                           .count = (uint64_t)crew->size},
        (size_t)crew->size * size);
    cts_get(crew->t, NULL, got, memory->recv, (size_t)crew->size * size);
    for (size_t j = 0; j < (size_t)crew->size; j++)
      CTS_CHECK(crew->t, isnan(cts_number_read(dtype, got + j * size).d),
                "ALL_REDUCE with %s of %s: the NaN of rank %zu is lost", names[reduce], cts_dtype_name(dtype), j);
  }
}

static void reduce_all(cts_crew_t *crew) {
  static const size_t counts[] = {0, 1, MOST};
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  for (uint32_t reduce = 0; reduce < REDUCTIONS; reduce++)
    for (int i = 0; i < DTYPES; i++)
      for (int j = 0; j < 3; j++)
        if (is_listed(crew, reduce, dtypes[i])) check_one(crew, comm, &memory, dtypes[i], reduce, counts[j]);
  check_in_place(crew, comm, &memory);
  if (cts_crew_has_op(crew, HAL_COMM_ALL_REDUCE)) check_nan(crew, comm, &memory);
  cts_comm_end(crew, comm);
}
void cts_case_comm_reduce(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, reduce_all); }

static void reduce_of_many(cts_crew_t *crew) {
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  for (int i = 0; i < DTYPES; i++)
    if (is_listed(crew, HAL_REDUCE_SUM, dtypes[i])) check_one(crew, comm, &memory, dtypes[i], HAL_REDUCE_SUM, MOST);
  cts_comm_end(crew, comm);
}
void cts_case_comm_many_ranks(cts_t *t) { cts_crew(t, 3, CTS_CREW_MOST, HAL_SLOT_comm_submit, reduce_of_many); }

/* ---- PREMUL_SUM ---- */

static void scale_on_device(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, hal_dtype_t dtype,
                            uint8_t *scale) {
  static _Thread_local cts_gate_t gate;
  const int held = cts_is_async(crew->t);
  uint8_t two[8] = {0};
  write_scale(dtype, 2, two);
  cts_crew_fill(crew, scale, 0, sizeof two);
  uint8_t *const pinned = cts_pinned(crew->t, sizeof two);
  memcpy(pinned, two, sizeof two);
  write_operands(crew, dtype, MOST, memory->send);
  cts_crew_fill(crew, memory->recv, 0xA5, MOST * cts_dtype_size(dtype) + GUARD);
  if (held) cts_gate_close(crew->t, &gate, memory->stream);
  cts_put(crew->t, memory->stream, scale, pinned, sizeof two); /* the stream's earlier work writes the number */
  const hal_status_t status = cts_comm_try(crew, comm, memory->stream,
                                           (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                                                              .reduce = HAL_REDUCE_PREMUL_SUM,
                                                              .dtype = dtype,
                                                              .flags = HAL_COLLECTIVE_SCALE_ON_DEVICE,
                                                              .send = memory->send,
                                                              .recv = memory->recv,
                                                              .count = MOST,
                                                              .scale = scale});
  if (held) cts_gate_open(&gate);
  if (status == HAL_UNIMPLEMENTED && cts_dtype_size(dtype) == 2)
    return cts_sync(crew->t, memory->stream); /* a library that reads no float there */
  cts_expect_ok(crew->t, HAL_SLOT_comm_submit, status);
  cts_sync(crew->t, memory->stream);
  check(crew, dtype, HAL_REDUCE_PREMUL_SUM, memory->recv, 0, MOST, "ALL_REDUCE with a scale on the device");
}

static void scale(cts_crew_t *crew) {
  if (!crew->info.reduce_dtypes[HAL_REDUCE_PREMUL_SUM] || !cts_crew_has_op(crew, HAL_COMM_ALL_REDUCE))
    cts_skip(crew->t, "the library has no PREMUL_SUM");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  uint8_t *const number = cts_alloc(crew->t, 256);
  for (int i = 0; i < DTYPES; i++) {
    if (!is_listed(crew, HAL_REDUCE_PREMUL_SUM, dtypes[i])) continue;
    check_one(crew, comm, &memory, dtypes[i], HAL_REDUCE_PREMUL_SUM, MOST);
    if (crew->info.flags & HAL_COMM_CAN_SCALE_ON_DEVICE) scale_on_device(crew, comm, &memory, dtypes[i], number);
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_scale(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, scale); }

/* ---- rounding ---- */

/* 1 and twice half a step: rounding each partial sum results in 1. */
static void accumulate(cts_crew_t *crew) {
  cts_crew_needs(crew, HAL_COMM_CAN_FLOAT32_SUM, "HAL_COMM_CAN_FLOAT32_SUM");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  for (int i = 0; i < 2 * 3; i++) { /* the large number on each of the ranks */
    const hal_dtype_t dtype = i % 2 ? HAL_FLOAT16 : HAL_BFLOAT16;
    const double half = cts_dtype_step(dtype) / 2;
    if (!is_listed(crew, HAL_REDUCE_SUM, dtype)) continue;
    cts_number_write(dtype, (cts_number_t){.d = crew->rank == i / 2 ? 1 : half}, operands);
    cts_put(crew->t, NULL, memory.send, operands, 2);
    run(crew, comm, &memory,
        (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                           .reduce = HAL_REDUCE_SUM,
                           .dtype = dtype,
                           .flags = HAL_COLLECTIVE_FLOAT32_SUM,
                           .send = memory.send,
                           .recv = memory.recv,
                           .count = 1},
        2);
    cts_get(crew->t, NULL, got, memory.recv, 2);
    const double sum = cts_number_read(dtype, got).d;
    CTS_CHECK(crew->t, sum == 1 + 2 * half,
              "the sum of 1 and twice %g in %s with HAL_COLLECTIVE_FLOAT32_SUM is %.9g instead of %.9g", half,
              cts_dtype_name(dtype), sum, 1 + 2 * half);
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_accumulates(cts_t *t) { cts_crew(t, 3, 3, HAL_SLOT_comm_submit, accumulate); }

static void repeat(cts_crew_t *crew) {
  cts_crew_needs(crew, HAL_COMM_CAN_DETERMINISTIC, "HAL_COMM_CAN_DETERMINISTIC");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  float *const values = (float *)(void *)operands;
  for (size_t i = 0; i < BYTES / 2 / sizeof(float); i++)
    values[i] = (float)sin((double)(i + 1) * (crew->rank + 1)) * (float)(1 << (i + (size_t)crew->rank) % 20);
  cts_put(crew->t, NULL, memory.send, operands, BYTES / 2);
  for (int i = 0; i < RUNS; i++) {
    run(crew, comm, &memory,
        (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                           .dtype = HAL_FLOAT32,
                           .flags = HAL_COLLECTIVE_DETERMINISTIC,
                           .send = memory.send,
                           .recv = memory.recv,
                           .count = BYTES / 2 / sizeof(float)},
        BYTES / 2);
    cts_get(crew->t, NULL, i ? got : expected, memory.recv, BYTES / 2);
    if (i) cts_same(crew->t, got, expected, BYTES / 2, "a second run of a collective that is deterministic");
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_deterministic(cts_t *t) { cts_crew(t, 3, 3, HAL_SLOT_comm_submit, repeat); }

/* ---- what comm_info does not list ---- */

static void check_untouched(cts_crew_t *crew, const memory_t *memory, const char *what) {
  cts_sync(crew->t, memory->stream);
  cts_get(crew->t, NULL, got, memory->recv, GUARD);
  for (int i = 0; i < GUARD; i++) CTS_CHECK(crew->t, got[i] == 0xA5, "%s was refused, and memory was written", what);
}

static void refuse_one(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, hal_collective_t call,
                       const char *what) {
  call.send = memory->send, call.recv = memory->recv;
  const hal_status_t status = cts_comm_try(crew, comm, memory->stream, call);
  CTS_CHECK(crew->t, status == HAL_UNIMPLEMENTED,
            "%s, operator %u, reduction %u, dtype %d, flags 0x%x returned %s, not UNIMPLEMENTED", what,
            (unsigned)call.op, (unsigned)call.reduce, (int)call.dtype, (unsigned)call.flags, hal_status_name(status));
}

static void refuse_flags(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory) {
  const uint32_t can = crew->info.flags;
  const uint32_t known = (can & HAL_COMM_CAN_SCALE_ON_DEVICE ? HAL_COLLECTIVE_SCALE_ON_DEVICE : 0) |
                         (can & HAL_COMM_CAN_FLOAT32_SUM ? HAL_COLLECTIVE_FLOAT32_SUM : 0) |
                         (can & HAL_COMM_CAN_DETERMINISTIC ? HAL_COLLECTIVE_DETERMINISTIC : 0);
  for (uint32_t i = 0; i < 32; i++)
    if (!(known >> i & 1))
      refuse_one(crew, comm, memory,
                 (hal_collective_t){.dtype = HAL_FLOAT32, .count = 4, .flags = UINT32_C(1) << i, .scale = memory->send},
                 "a flag that comm_info does not list");
}

/* The first of two calls is valid: all or none. */
static void refuse_second(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory) {
  const hal_collective_t good = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint),
                                 .op = HAL_COMM_ALL_REDUCE,
                                 .dtype = HAL_FLOAT32,
                                 .count = 16,
                                 .send = memory->send,
                                 .recv = memory->recv};
  hal_collective_t bad = good;
  bad.op = 63, bad.recv = memory->recv + 4096;
  const hal_comm_call_t calls[2] = {{comm, memory->stream, &good}, {comm, memory->stream, &bad}};
  const hal_comm_state_t before = cts_comm_state(crew, comm);
  CTS_STATUS(crew->t, HAL_UNIMPLEMENTED, comm_submit, calls, 2, sizeof *calls);
  cts_crew_meet(crew);
  for (int i = 0; i < 20; i++) cts_nap();
  check_untouched(crew, memory, "the second call of a comm_submit");
  const hal_comm_state_t after = cts_comm_state(crew, comm);
  CTS_CHECK(crew->t, before.queued == after.queued, "a comm_submit that was refused counts: %llu calls, then %llu",
            (unsigned long long)before.queued, (unsigned long long)after.queued);
  CTS_STATUS(crew->t, HAL_OK, comm_submit, calls, 0, sizeof *calls);
}

static void refuse_all(cts_crew_t *crew) {
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  CTS_JUDGE(crew->t, comm_submit, "HAL_UNIMPLEMENTED = an operator");
  cts_crew_fill(crew, memory.recv, 0xA5, BYTES);
  write_operands(crew, HAL_FLOAT32, MOST, memory.send);
  for (uint32_t reduce = 0; reduce < 20; reduce++)
    for (hal_dtype_t dtype = 0; dtype < 46; dtype++)
      if (reduce >= 16 || !is_listed(crew, reduce, dtype))
        refuse_one(crew, comm, &memory,
                   (hal_collective_t){.reduce = reduce, .dtype = dtype, .count = 2, .scale = operands},
                   "a reduction that comm_info does not list");
  for (uint32_t op = 0; op < 64; op++)
    if (!cts_crew_has_op(crew, op))
      refuse_one(crew, comm, &memory, (hal_collective_t){.op = op, .dtype = HAL_UINT8, .count = 4},
                 "an operator that comm_info does not list");
  refuse_flags(crew, comm, &memory);
  check_untouched(crew, &memory, "a call that comm_info does not list");
  CTS_JUDGE(crew->t, comm_submit, "all or none");
  refuse_second(crew, comm, &memory);
  CTS_JUDGE(crew->t, comm_submit, "HAL_UNIMPLEMENTED = an operator");
  check_one(crew, comm, &memory, HAL_FLOAT32, HAL_REDUCE_SUM, MOST); /* it works as before */
  cts_comm_end(crew, comm);
}
void cts_case_comm_refuses(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_submit, refuse_all); }
