/* comm_copy.c: collectives that copy: every block is at its position, and nothing else is written. */
#include <stdio.h>

#include "crew.h"

enum { BLOCK = 100003, ROOM = BLOCK * CTS_CREW_MOST + 4096, EACH = 7, GAP = 3, MESSAGE = 1 << 20 };

/* Of the rank, allocated by make_memory: as arrays they would take more than the small stack of a plugin's thread. */
static _Thread_local uint8_t *buffer, *expected, *got;

typedef struct memory_s {
  hal_plugin_stream_t *stream;
  uint8_t *send, *recv;
} memory_t;

static memory_t make_memory(cts_crew_t *crew) {
  buffer = cts_host(crew->t, ROOM), expected = cts_host(crew->t, ROOM), got = cts_host(crew->t, ROOM);
  return (memory_t){cts_stream(crew->t), cts_alloc(crew->t, ROOM), cts_alloc(crew->t, ROOM)};
}

/* The beginning of the bytes that a rank sends; those of successive turns differ. */
static const uint8_t *bytes_of(int rank, int turn) {
  cts_noise(buffer, ROOM, (uint64_t)(turn * CTS_CREW_MOST + rank + 1));
  return buffer;
}

static void prepare(cts_crew_t *crew, const memory_t *memory, int turn) {
  cts_put(crew->t, NULL, memory->send, bytes_of(crew->rank, turn), ROOM);
  cts_crew_fill(crew, memory->recv, 0xA5, ROOM);
  memset(expected, 0xA5, ROOM);
}

static void check(cts_crew_t *crew, const memory_t *memory, const char *what) {
  cts_get(crew->t, NULL, got, memory->recv, ROOM);
  cts_same(crew->t, got, expected, ROOM, what);
}

/* ---- equal blocks ---- */

static void expect_block(int from, int turn, size_t from_block, size_t to_block, size_t bytes) {
  memcpy(expected + to_block * bytes, bytes_of(from, turn) + from_block * bytes, bytes);
}

/* The result of an operator in `recv`, of blocks of `bytes` bytes. */
static void expect_op(const cts_crew_t *crew, uint32_t op, int root, int turn, size_t bytes) {
  const size_t own = (size_t)crew->rank;
  for (int i = 0; i < crew->size; i++) {
    const size_t other = (size_t)i;
    if (op == HAL_COMM_ALL_GATHER || (op == HAL_COMM_GATHER && crew->rank == root))
      expect_block(i, turn, 0, other, bytes);
    if (op == HAL_COMM_ALL_TO_ALL) expect_block(i, turn, own, other, bytes);
  }
  if (op == HAL_COMM_BROADCAST) expect_block(root, turn, 0, 0, bytes);
  if (op == HAL_COMM_SCATTER) expect_block(root, turn, own, 0, bytes);
}

static const struct {
  hal_dtype_t dtype;
  size_t size;
} widths[] = {{HAL_UINT8, 1},         {HAL_BFLOAT16, 2},  {HAL_INT32, 4},    {HAL_FLOAT64, 8},
              {HAL_COMPLEX128, 16},   {HAL_UINT16, 2},    {HAL_UINT32, 4},   {HAL_UINT64, 8},
              {HAL_FLOAT8_E4M3FN, 1}, {HAL_COMPLEX32, 4}, {HAL_COMPLEX64, 8}};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void copy_one(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, uint32_t op, int width,
                     uint64_t count, int turn) {
  static const char *const names[] = {[HAL_COMM_BROADCAST] = "BROADCAST",
                                      [HAL_COMM_ALL_GATHER] = "ALL_GATHER",
                                      [HAL_COMM_ALL_TO_ALL] = "ALL_TO_ALL",
                                      [HAL_COMM_GATHER] = "GATHER",
                                      [HAL_COMM_SCATTER] = "SCATTER"};
  const int root = turn % crew->size, is_root = crew->rank == root;
  const int sends = (op != HAL_COMM_BROADCAST && op != HAL_COMM_SCATTER) || is_root;
  char what[96];
  prepare(crew, memory, turn);
  expect_op(crew, op, root, turn, (size_t)count * widths[width].size);
  cts_comm_queue(crew, comm, memory->stream,
                 (hal_collective_t){.op = op,
                                    .dtype = widths[width].dtype,
                                    .peer = root,
                                    .count = count,
                                    .send = sends ? memory->send : NULL,
                                    .recv = op == HAL_COMM_GATHER && !is_root ? NULL : memory->recv});
  cts_sync(crew->t, memory->stream);
  snprintf(what, sizeof what, "%s of %llu elements of %zu bytes, rank %d of %d", names[op], (unsigned long long)count,
           widths[width].size, (int)crew->rank, (int)crew->size);
  check(crew, memory, what);
}

static void copy_in_place(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory) {
  const size_t own = (size_t)crew->rank * BLOCK;
  hal_collective_t call = {.op = HAL_COMM_ALL_GATHER, .dtype = HAL_UINT8, .count = BLOCK};
  prepare(crew, memory, 0);
  expect_op(crew, call.op, 0, 0, BLOCK);
  cts_put(crew->t, NULL, memory->recv + own, bytes_of(crew->rank, 0), BLOCK);
  call.send = memory->recv + own, call.recv = memory->recv;
  if (cts_crew_has_op(crew, call.op)) {
    cts_comm_queue(crew, comm, NULL, call);
    check(crew, memory, "ALL_GATHER in place");
  }
  prepare(crew, memory, 0);
  expect_op(crew, HAL_COMM_BROADCAST, crew->size - 1, 0, BLOCK);
  cts_put(crew->t, NULL, memory->recv, bytes_of(crew->rank, 0), BLOCK);
  call.op = HAL_COMM_BROADCAST, call.peer = crew->size - 1, call.send = call.recv = memory->recv;
  if (!cts_crew_has_op(crew, call.op)) return;
  cts_comm_queue(crew, comm, NULL, call);
  check(crew, memory, "BROADCAST in place");
}

static void copy_all(cts_crew_t *crew) {
  static const uint32_t ops[] = {HAL_COMM_BROADCAST, HAL_COMM_ALL_GATHER, HAL_COMM_ALL_TO_ALL, HAL_COMM_GATHER,
                                 HAL_COMM_SCATTER};
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  int turn = 0;
  for (int i = 0; i < 5; i++) {
    if (!cts_crew_has_op(crew, ops[i])) continue;
    for (int width = 0; width < WIDTHS; width++)
      if (crew->info.copy_dtypes >> widths[width].dtype & 1)
        copy_one(crew, comm, &memory, ops[i], width, width ? 1001 : BLOCK, turn++);
    copy_one(crew, comm, &memory, ops[i], 0, 0, turn++);
    copy_one(crew, comm, &memory, ops[i], 0, 1, turn++);
  }
  copy_in_place(crew, comm, &memory);
  if (cts_crew_has_op(crew, HAL_COMM_BARRIER)) {
    cts_comm_queue(crew, comm, memory.stream, (hal_collective_t){.op = HAL_COMM_BARRIER});
    cts_sync(crew->t, memory.stream);
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_copies(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, copy_all); }

/* ---- blocks of different sizes ---- */

/* Elements that rank `from` sends to rank `to`: some are 0, and they are not symmetric. */
static uint64_t given(int from, int to) { return (uint64_t)(from * 5 + to * 3 + from * to) % EACH * 131; }
static uint64_t part(int rank) { return rank == 1 ? 0 : (uint64_t)(rank + 1) * 1009; } /* of a rank, to all alike */

typedef struct uneven_s {
  uint64_t send_counts[CTS_CREW_MOST], send_displs[CTS_CREW_MOST];
  uint64_t recv_counts[CTS_CREW_MOST], recv_displs[CTS_CREW_MOST];
} uneven_t;

/* Blocks in an order that is not that of the ranks, with gaps between them; or contiguous. */
static void place(const uint64_t *counts, uint64_t *displs, int size, int gaps) {
  uint64_t at = gaps ? GAP : 0;
  for (int i = 0; i < size; i++) {
    const int rank = gaps ? size - 1 - i : i;
    displs[rank] = at, at += counts[rank] + (gaps ? GAP : 0);
  }
}

static uneven_t arrays_of(const cts_crew_t *crew, uint32_t op, int rank, int gaps) {
  uneven_t arrays;
  memset(&arrays, 0, sizeof arrays);
  for (int i = 0; i < crew->size; i++) {
    arrays.send_counts[i] = op == HAL_COMM_ALL_TO_ALL ? given(rank, i) : part(i);
    arrays.recv_counts[i] = op == HAL_COMM_ALL_TO_ALL ? given(i, rank) : part(i);
  }
  place(arrays.send_counts, arrays.send_displs, crew->size, gaps);
  place(arrays.recv_counts, arrays.recv_displs, crew->size, gaps);
  return arrays;
}

static void expect_uneven(const cts_crew_t *crew, uint32_t op, int root, int gaps, int turn, size_t size) {
  const uneven_t own = arrays_of(crew, op, crew->rank, gaps);
  for (int i = 0; i < crew->size; i++) {
    const uneven_t theirs = arrays_of(crew, op, i, gaps);
    const uint8_t *const bytes = bytes_of(i, turn);
    uint8_t *const to = expected + own.recv_displs[i] * size;
    if (op == HAL_COMM_ALL_TO_ALL)
      memcpy(to, bytes + theirs.send_displs[crew->rank] * size, given(i, crew->rank) * size);
    else if (op == HAL_COMM_ALL_GATHER || (op == HAL_COMM_GATHER && crew->rank == root))
      memcpy(to, bytes, part(i) * size);
    else if (op == HAL_COMM_SCATTER && i == root)
      memcpy(expected, bytes + own.send_displs[crew->rank] * size, part(crew->rank) * size);
  }
}

/* `hold`: a stream that waits for its gate while the caller's memory changes. */
static void uneven_one(cts_crew_t *crew, hal_plugin_comm_t *comm, const memory_t *memory, uint32_t op, int gaps,
                       int turn, int hold) {
  static _Thread_local cts_gate_t gate;
  const int root = turn % crew->size, is_root = crew->rank == root;
  const int gives = (op != HAL_COMM_SCATTER && op != HAL_COMM_BROADCAST) || is_root;
  uneven_t arrays = arrays_of(crew, op, crew->rank, gaps);
  char what[96];
  prepare(crew, memory, turn);
  expect_uneven(crew, op, root, gaps, turn, 4);
  hal_collective_t call = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint),
                           .op = op,
                           .dtype = HAL_INT32,
                           .peer = root,
                           .count = part(crew->rank),
                           .send = gives ? memory->send : NULL,
                           .recv = op == HAL_COMM_GATHER && !is_root ? NULL : memory->recv,
                           .send_counts = arrays.send_counts,
                           .recv_counts = arrays.recv_counts};
  if (gaps) call.send_displs = arrays.send_displs, call.recv_displs = arrays.recv_displs;
  hal_comm_call_t one = {comm, memory->stream, &call};
  if (hold) cts_gate_close(crew->t, &gate, memory->stream);
  CTS_OK(crew->t, comm_submit, &one, 1, sizeof one);
  if (hold) {
    memset(&arrays, 0, sizeof arrays), memset(&call, 0, sizeof call), memset(&one, 0, sizeof one);
    cts_gate_open(&gate);
  }
  cts_sync(crew->t, memory->stream);
  snprintf(what, sizeof what, "uneven operator %u, %s gaps, rank %d of %d", (unsigned)op, gaps ? "with" : "without",
           (int)crew->rank, (int)crew->size);
  check(crew, memory, what);
}

static void uneven(cts_crew_t *crew, int hold) {
  static const uint32_t ops[] = {HAL_COMM_ALL_TO_ALL, HAL_COMM_ALL_GATHER, HAL_COMM_GATHER, HAL_COMM_SCATTER};
  cts_crew_needs(crew, HAL_COMM_CAN_UNEVEN, "HAL_COMM_CAN_UNEVEN");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  int turn = 0;
  for (int i = 0; i < 4; i++)
    for (int gaps = 0; gaps < 2; gaps++)
      if (cts_crew_has_op(crew, ops[i])) uneven_one(crew, comm, &memory, ops[i], gaps, turn++, hold);
  cts_comm_end(crew, comm);
}

/* Sums of blocks of different sizes: element k of block i of rank r is r + i + k % 5. */
static void uneven_sums(cts_crew_t *crew) {
  if (!(crew->info.flags & HAL_COMM_CAN_UNEVEN) || !cts_crew_has_op(crew, HAL_COMM_REDUCE_SCATTER)) return;
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  int32_t *const in = (int32_t *)(void *)buffer, *const out = (int32_t *)(void *)expected;
  const uneven_t arrays = arrays_of(crew, HAL_COMM_REDUCE_SCATTER, crew->rank, 1);
  for (int i = 0; i < crew->size; i++)
    for (uint64_t k = 0; k < part(i); k++) in[arrays.send_displs[i] + k] = crew->rank + i + (int32_t)(k % 5);
  cts_put(crew->t, NULL, memory.send, buffer, ROOM);
  cts_crew_fill(crew, memory.recv, 0xA5, ROOM);
  memset(expected, 0xA5, ROOM);
  for (uint64_t k = 0; k < part(crew->rank); k++)
    out[k] = crew->size * (crew->rank + (int32_t)(k % 5)) + crew->size * (crew->size - 1) / 2;
  cts_comm_queue(crew, comm, memory.stream,
                 (hal_collective_t){.op = HAL_COMM_REDUCE_SCATTER,
                                    .dtype = HAL_INT32,
                                    .count = part(crew->rank),
                                    .send = memory.send,
                                    .recv = memory.recv,
                                    .send_counts = arrays.send_counts,
                                    .send_displs = arrays.send_displs});
  cts_sync(crew->t, memory.stream);
  check(crew, &memory, "REDUCE_SCATTER of blocks of different sizes");
  cts_comm_end(crew, comm);
}

static void uneven_all(cts_crew_t *crew) {
  uneven(crew, 0);
  uneven_sums(crew);
}
void cts_case_comm_uneven(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, uneven_all); }

static void descriptors(cts_crew_t *crew) {
  if (!cts_is_async(crew->t)) cts_skip(crew->t, "the device is not asynchronous, or has no stream_host_call");
  uneven(crew, 1);
}
void cts_case_comm_descriptors(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_submit, descriptors); }

/* ---- messages ---- */

/* Calls that are further apart than a host of this version would put them. */
typedef struct far_s {
  hal_comm_call_t call;
  uint64_t later[3];
} far_t;

/* Each rank sends two messages to the next and receives two from the previous one. All ranks list their sends first, or
 * their receives, or in different orders. */
static void together(cts_crew_t *crew) {
  if (!cts_crew_has_op(crew, HAL_COMM_SEND) || !cts_crew_has_op(crew, HAL_COMM_RECV))
    cts_skip(crew->t, "the library has no SEND and RECV");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  hal_plugin_stream_t *const stream = cts_stream(crew->t);
  uint8_t *const send = cts_alloc(crew->t, 2 * MESSAGE), *const recv = cts_alloc(crew->t, 2 * MESSAGE),
                 *const out = cts_host(crew->t, 2 * MESSAGE), *const in = cts_host(crew->t, 2 * MESSAGE);
  const int next = (crew->rank + 1) % crew->size, before = (crew->rank + crew->size - 1) % crew->size;
  hal_collective_t calls[4];
  far_t list[4];
  memset(list, 0x5A, sizeof list);
  for (int turn = 0; turn < 3; turn++) {
    cts_noise(out, 2 * MESSAGE, (uint64_t)(100 * turn + crew->rank));
    cts_put(crew->t, NULL, send, out, 2 * MESSAGE);
    cts_crew_fill(crew, recv, 0xA5, 2 * MESSAGE);
    const int sends_first = turn == 2 ? crew->rank % 2 : !turn;
    for (int i = 0; i < 4; i++) {
      const int sends = i / 2 ? !sends_first : sends_first, second = i % 2;
      calls[i] = (hal_collective_t){.struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint),
                                    .op = sends ? HAL_COMM_SEND : HAL_COMM_RECV,
                                    .dtype = HAL_UINT8,
                                    .peer = sends ? next : before,
                                    .count = second ? MESSAGE - 5 : MESSAGE,
                                    .send = sends ? send + second * MESSAGE : NULL,
                                    .recv = sends ? NULL : recv + second * MESSAGE};
      list[i].call = (hal_comm_call_t){comm, stream, &calls[i]};
    }
    cts_crew_limit(crew, 20 * CTS_SECOND, "SEND and RECV of one comm_submit wait for each other");
    CTS_OK(crew->t, comm_submit, &list[0].call, 4, sizeof list[0]);
    cts_sync(crew->t, stream);
    cts_crew_no_limit(crew);
    cts_noise(out, 2 * MESSAGE, (uint64_t)(100 * turn + before));
    memset(out + 2 * MESSAGE - 5, 0xA5, 5);
    cts_get(crew->t, NULL, in, recv, 2 * MESSAGE);
    cts_same(crew->t, in, out, 2 * MESSAGE, "two messages of 1 MiB that cross two others");
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_together(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, together); }

/* Four messages to the next rank, whose RECVs come in another order. Two have one tag, and stay in theirs. */
static void tags(cts_crew_t *crew) {
  static const uint32_t sent[] = {7, 0x7fffffff, 7, 0}, received[] = {0, 7, 0x7fffffff, 7};
  static const int from[] = {3, 0, 1, 2}; /* which of `sent` a RECV gets */
  enum { COUNT = 4, SHORT = 3001 };
  cts_crew_needs(crew, HAL_COMM_CAN_TAG, "HAL_COMM_CAN_TAG");
  if (!cts_crew_has_op(crew, HAL_COMM_SEND) || !cts_crew_has_op(crew, HAL_COMM_RECV))
    cts_skip(crew->t, "the library has no SEND and RECV");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  const memory_t memory = make_memory(crew);
  const int next = (crew->rank + 1) % crew->size, before = (crew->rank + crew->size - 1) % crew->size;
  hal_collective_t descs[2 * COUNT];
  hal_comm_call_t calls[2 * COUNT];
  for (int turn = 0; turn < 3; turn++) {
    prepare(crew, &memory, turn);
    for (int i = 0; i < 2 * COUNT; i++) {
      const int number = i % COUNT, sends = i < COUNT;
      descs[i] = (hal_collective_t){.struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint),
                                    .op = sends ? HAL_COMM_SEND : HAL_COMM_RECV,
                                    .dtype = HAL_UINT8,
                                    .peer = sends ? next : before,
                                    .tag = sends ? sent[number] : received[number],
                                    .count = SHORT,
                                    .send = sends ? memory.send + number * SHORT : NULL,
                                    .recv = sends ? NULL : memory.recv + number * SHORT};
      calls[i] = (hal_comm_call_t){comm, memory.stream, &descs[i]};
    }
    const uint8_t *const bytes = bytes_of(before, turn);
    for (int i = 0; i < COUNT; i++) memcpy(expected + i * SHORT, bytes + from[i] * SHORT, SHORT);
    cts_crew_limit(crew, 20 * CTS_SECOND, "messages of one comm_submit do not match by their tags");
    CTS_OK(crew->t, comm_submit, calls, 2 * COUNT, sizeof *calls);
    cts_sync(crew->t, memory.stream);
    cts_crew_no_limit(crew);
    check(crew, &memory, "messages that are received in another order, by their tags");
  }
  cts_comm_end(crew, comm);
}
void cts_case_comm_tags(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, tags); }
