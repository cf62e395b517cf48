/* comm.c: collectives of one rank, and of two in two processes on two devices. */
#include <math.h>
#include <stdio.h>

#include "hal/status.h"
#include "peer.h"

enum { RANKS = 2, GUARD = 64, AT = 3 /* elements before those that are sent */ };
static const uint64_t counts[] = {1, 7, 1000, 70001};
static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16,
                                     HAL_INT32,   HAL_INT64,   HAL_UINT8};
static const char *const op_names[] = {"all-reduce", "broadcast", "reduce", "all-gather", "reduce-scatter",
                                       "all-to-all", "send",      "recv",   "barrier"};

/* A rank: its communicator, and what it computes with. */
typedef struct rank_s {
  cts_t *t;
  cts_peer_t *peer; /* NULL: it is alone */
  hal_plugin_comm_t *comm;
  hal_plugin_stream_t *stream;
  int32_t rank, size;
} rank_t;

static rank_t join(cts_t *t, cts_peer_t *peer, int32_t rank, int32_t size, const hal_comm_id_t *id) {
  rank_t self = {.t = t, .peer = peer, .rank = rank, .size = size, .stream = cts_stream(t)};
  CTS_OK(t, comm_create, t->device, id, rank, size, &self.comm);
  CTS_CHECK(t, self.comm, "comm_create gave HAL_OK and no communicator");
  return self;
}

/* The second process is the second rank, on another device than the first. */
static rank_t join_second(cts_peer_t *peer) {
  hal_comm_id_t id;
  peer->t->device = peer->t->device ? 0 : 1;
  cts_peer_hear(peer, &id, sizeof id);
  return join(peer->t, peer, 1, RANKS, &id);
}

static void tell_id(cts_peer_t *peer, hal_comm_id_t *out_id) {
  CTS_OK(peer->t, comm_unique_id, out_id);
  cts_peer_say(peer, out_id, sizeof *out_id);
}

static rank_t join_first(cts_t *t, cts_peer_t *peer, void (*other)(cts_peer_t *peer), uint32_t slot) {
  hal_comm_id_t id = {{0}};
  cts_peer_both(t, peer, other, slot);
  if (t->page->device_count < RANKS) cts_skip(t, "there is one device only");
  tell_id(peer, &id);
  return join(t, peer, 0, RANKS, &id);
}

/* ---- values ---- */

/* Element `index` of what a rank sends: small, so that sums and products are exact in every dtype. */
static cts_number_t sent(int32_t rank, uint64_t index) {
  const int64_t value = (int64_t)((index * 7 + (uint64_t)rank * 5) % 11) + 1;
  return (cts_number_t){(double)value, value};
}

static cts_number_t reduced(const rank_t *self, uint32_t how, uint64_t index) {
  cts_number_t all = sent(0, index);
  for (int32_t rank = 1; rank < self->size; rank++) {
    const int64_t one = sent(rank, index).i;
    all.i = how == HAL_REDUCE_PROD  ? all.i * one
            : how == HAL_REDUCE_MIN ? (one < all.i ? one : all.i)
            : how == HAL_REDUCE_MAX ? (one > all.i ? one : all.i)
                                    : all.i + one;
  }
  all.d = how == HAL_REDUCE_AVG ? (double)all.i / self->size : (double)all.i;
  return all;
}

/* Element `index` of what a collective leaves in `recv`; 0: it stays as it was. */
static int received(const rank_t *self, uint32_t op, uint32_t how, int32_t root, uint64_t count, uint64_t index,
                    cts_number_t *out) {
  const int32_t from = (int32_t)(index / count);
  switch (op) {
    case HAL_COMM_ALL_REDUCE:
      return *out = reduced(self, how, index), 1;
    case HAL_COMM_REDUCE:
      return *out = reduced(self, how, index), self->rank == root;
    case HAL_COMM_BROADCAST:
      return *out = sent(root, index), 1;
    case HAL_COMM_ALL_GATHER:
      return *out = sent(from, index % count), 1;
    case HAL_COMM_REDUCE_SCATTER:
      return *out = reduced(self, how, (uint64_t)self->rank * count + index), 1;
    case HAL_COMM_ALL_TO_ALL:
      return *out = sent(from, (uint64_t)self->rank * count + index % count), 1;
    default: /* send and recv: from the root to the other */
      return *out = sent(root, index), self->rank != root;
  }
}

/* One collective, with memory on both sides of what is received. Returns 0 when the plugin does not have it. */
static int check(rank_t *self, uint32_t op, uint32_t how, hal_dtype_t dtype, int32_t root, uint64_t count,
                 int in_place) {
  cts_t *const t = self->t;
  const size_t size = cts_dtype_size(dtype);
  const uint64_t sends =
                     op == HAL_COMM_REDUCE_SCATTER || op == HAL_COMM_ALL_TO_ALL ? count * (uint64_t)self->size : count,
                 receives =
                     op == HAL_COMM_ALL_GATHER || op == HAL_COMM_ALL_TO_ALL ? count * (uint64_t)self->size : count;
  const size_t send_bytes = (sends + AT) * size, recv_bytes = (receives + AT) * size + GUARD;
  uint8_t *const send_host = cts_host(t, send_bytes + GUARD), *const recv_host = cts_host(t, recv_bytes),
                 *const got = cts_host(t, recv_bytes + send_bytes);
  uint8_t *const send = cts_alloc(t, send_bytes + GUARD), *const recv = in_place ? send : cts_alloc(t, recv_bytes);
  for (uint64_t i = 0; i < sends; i++) cts_number_write(dtype, sent(self->rank, i), send_host + (AT + i) * size);
  cts_noise(recv_host, recv_bytes, 5);
  if (in_place) memcpy(recv_host, send_host, recv_bytes);
  if (!in_place) cts_put(t, self->stream, recv, recv_host, recv_bytes);
  cts_put(t, self->stream, send, send_host, send_bytes + GUARD);
  const int is_pair = op == HAL_COMM_SEND;
  const hal_collective_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs),
                                 .op = is_pair && self->rank != root ? HAL_COMM_RECV : op,
                                 .reduce = how,
                                 .dtype = dtype,
                                 .peer = is_pair ? 1 - self->rank : root,
                                 .send = is_pair && self->rank != root ? NULL : send + AT * size,
                                 .recv = is_pair && self->rank == root ? NULL : recv + AT * size,
                                 .count = count};
  CTS_JUDGE(t, comm_collective, "Queues one collective");
  const hal_status_t status = cts_comm_collective(t, self->comm, self->stream, &desc);
  hal_status_t others = status;
  if (self->peer) cts_peer_say(self->peer, &status, sizeof status), cts_peer_hear(self->peer, &others, sizeof others);
  CTS_CHECK(t, status == others, "%s of dtype %s: comm_collective gave %s to rank %d, %s to the other", op_names[op],
            cts_dtype_name(dtype), hal_status_name(status), self->rank, hal_status_name(others));
  if (status != HAL_UNIMPLEMENTED) {
    cts_expect_ok(t, HAL_SLOT_comm_collective, status);
    cts_sync(t, self->stream);
    cts_get(t, NULL, got, recv, recv_bytes);
    for (uint64_t i = 0; i < receives; i++) {
      cts_number_t expected;
      uint8_t bytes[8], *const place = got + (AT + i) * size;
      if (!received(self, op, how, root, count, i, &expected)) continue;
      cts_number_write(dtype, expected, bytes);
      CTS_CHECK(
          t, memcmp(place, bytes, size) == 0,
          "%s of %llu elements of dtype %s (reduction %u, root %d%s): element %llu of rank %d is %.9g instead of %.9g",
          op_names[op], (unsigned long long)count, cts_dtype_name(dtype), how, root, in_place ? ", in place" : "",
          (unsigned long long)i, self->rank,
          cts_is_float(dtype) ? cts_number_read(dtype, place).d : (double)cts_number_read(dtype, place).i,
          cts_is_float(dtype) ? expected.d : (double)expected.i);
      memcpy(place, recv_host + (AT + i) * size, size);
    }
    cts_same(t, got, recv_host, recv_bytes,
             "memory beside what a collective receives, or of a rank that receives nothing");
    if (!in_place) {
      cts_get(t, NULL, got, send, send_bytes);
      cts_same(t, got, send_host, send_bytes, "memory that a collective sends");
    }
  }
  cts_free(t, send);
  if (!in_place) cts_free(t, recv);
  free(send_host), free(recv_host), free(got);
  return status != HAL_UNIMPLEMENTED;
}

static int check_dtypes(rank_t *self, uint32_t op, uint32_t how, int32_t root, int in_place) {
  int checked = 0;
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
    for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
      if (how != HAL_REDUCE_AVG || cts_is_float(dtypes[i]))
        checked += check(self, op, how, dtypes[i], root, counts[j], in_place);
  return checked;
}

/* Everything that two ranks, or one, can do. Ranks make the same calls. */
static void check_all(rank_t *self) {
  int checked = 0;
  for (uint32_t how = HAL_REDUCE_SUM; how <= HAL_REDUCE_AVG; how++) {
    checked += check_dtypes(self, HAL_COMM_ALL_REDUCE, how, 0, 0);
    checked += check_dtypes(self, HAL_COMM_ALL_REDUCE, how, 0, 1);
    checked += check_dtypes(self, HAL_COMM_REDUCE_SCATTER, how, 0, 0);
    for (int32_t root = 0; root < self->size; root++) checked += check_dtypes(self, HAL_COMM_REDUCE, how, root, 0);
  }
  checked += check_dtypes(self, HAL_COMM_ALL_GATHER, 0, 0, 0);
  checked += check_dtypes(self, HAL_COMM_ALL_TO_ALL, 0, 0, 0);
  for (int32_t root = 0; root < self->size; root++) {
    checked += check_dtypes(self, HAL_COMM_BROADCAST, 0, root, 0);
    if (self->size == RANKS) checked += check_dtypes(self, HAL_COMM_SEND, 0, root, 0);
  }
  CTS_CHECK(self->t, checked, "comm_collective gave HAL_UNIMPLEMENTED for every collective in every dtype");
}

/* Words that no collective has. */
static void check_refused(rank_t *self) {
  cts_t *const t = self->t;
  float *const memory = cts_alloc(t, GUARD);
  const hal_collective_t good = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs),
                                 .op = HAL_COMM_ALL_REDUCE,
                                 .dtype = HAL_FLOAT32,
                                 .send = memory,
                                 .recv = memory,
                                 .count = 1};
  hal_collective_t op = good, dtype = good;
  op.op = 4711, dtype.dtype = (hal_dtype_t)4711;
  CTS_JUDGE(t, comm_collective, "HAL_UNIMPLEMENTED for an op or dtype");
  CTS_STATUS(t, HAL_UNIMPLEMENTED, comm_collective, self->comm, self->stream, &op);
  CTS_STATUS(t, HAL_UNIMPLEMENTED, comm_collective, self->comm, self->stream, &dtype);
  cts_sync(t, self->stream);
}

/* ---- all-to-all whose parts differ in size: rank r sends counts[p] elements at displs[p] to p, and receives as many there ---- */
enum { PART = 700, ROOM = 4 * PART /* elements */ };

/* Where a rank has the part of another: in another order in each. */
static uint64_t place_of_part(const rank_t *self, int32_t of_rank, int32_t part) {
  return (uint64_t)(of_rank ? 2 * (self->size - 1 - part) : 2 * part) * PART + 5;
}

static void check_uneven(rank_t *self, hal_dtype_t dtype) {
  cts_t *const t = self->t;
  const size_t size = cts_dtype_size(dtype);
  const uint64_t between = 321; /* elements that two ranks exchange: each sends as many as it receives */
  uint64_t sizes[RANKS], places[RANKS];
  uint8_t *const sends = cts_host(t, ROOM * size), *const expected = cts_host(t, ROOM * size),
                 *const got = cts_host(t, ROOM * size);
  uint8_t *const send = cts_alloc(t, ROOM * size), *const recv = cts_alloc(t, ROOM * size);
  for (int32_t rank = 0; rank < self->size; rank++) {
    sizes[rank] = rank != self->rank ? between : rank ? 0 : PART; /* the second keeps nothing for itself */
    places[rank] = place_of_part(self, self->rank, rank);
  }
  for (uint64_t i = 0; i < ROOM; i++) cts_number_write(dtype, sent(self->rank, i), sends + i * size);
  cts_noise(expected, ROOM * size, 6);
  cts_put(t, self->stream, send, sends, ROOM * size);
  cts_put(t, self->stream, recv, expected, ROOM * size);
  for (int32_t rank = 0; rank < self->size; rank++) {
    const uint64_t their_place = place_of_part(self, rank, self->rank);
    for (uint64_t i = 0; i < sizes[rank]; i++)
      cts_number_write(dtype, sent(rank, their_place + i), expected + (places[rank] + i) * size);
  }
  hal_collective_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs),
                           .op = HAL_COMM_ALL_TO_ALL,
                           .dtype = dtype,
                           .send = send,
                           .recv = recv,
                           .counts = sizes,
                           .displs = places};
  const hal_status_t status = cts_comm_collective(t, self->comm, self->stream, &desc);
  hal_status_t others = status;
  if (self->peer) cts_peer_say(self->peer, &status, sizeof status), cts_peer_hear(self->peer, &others, sizeof others);
  CTS_CHECK(t, status == others,
            "all-to-all of parts of several sizes: comm_collective gave %s to rank %d, %s to the other",
            hal_status_name(status), self->rank, hal_status_name(others));
  memset(sizes, 0xff, sizeof sizes), memset(places, 0xff, sizeof places),
      memset(&desc, 0xff, sizeof desc); /* copied by now */
  if (status != HAL_UNIMPLEMENTED) {
    cts_expect_ok(t, HAL_SLOT_comm_collective, status);
    cts_sync(t, self->stream);
    cts_get(t, NULL, got, recv, ROOM * size);
    cts_same(t, got, expected, ROOM * size, "what all-to-all brings whose parts have several sizes and places");
  }
  cts_free(t, send), cts_free(t, recv);
  free(sends), free(expected), free(got);
}

static void check_uneven_all(rank_t *self) {
  CTS_JUDGE(self->t, comm_collective, "Queues one collective");
  check_uneven(self, HAL_FLOAT32);
  check_uneven(self, HAL_UINT8);
  CTS_OK(self->t, comm_destroy, self->comm, 0);
}

static void uneven_second(cts_peer_t *peer) {
  rank_t self = join_second(peer);
  check_uneven_all(&self);
}

void cts_case_comm_uneven(cts_t *t) {
  static cts_peer_t peer;
  rank_t self = join_first(t, &peer, uneven_second, HAL_SLOT_comm_collective);
  check_uneven_all(&self);
  cts_peer_end(&peer);
}

void cts_case_comm_alone(cts_t *t) {
  hal_comm_id_t id = {{0}};
  CTS_OK(t, comm_unique_id, &id);
  rank_t self = join(t, NULL, 0, 1, &id);
  check_all(&self);
  check_uneven(&self, HAL_FLOAT32);
  check_refused(&self);
  CTS_JUDGE(t, comm_destroy, "Leaves a communicator");
  CTS_OK(t, comm_destroy, self.comm, 0);
  CTS_JUDGE(t, comm_create, "Destroyed by comm_destroy");
}

static void values_second(cts_peer_t *peer) {
  rank_t self = join_second(peer);
  check_all(&self);
  CTS_OK(self.t, comm_destroy, self.comm, 0);
}

void cts_case_comm_values(cts_t *t) {
  static cts_peer_t peer;
  rank_t self = join_first(t, &peer, values_second, HAL_SLOT_comm_collective);
  check_all(&self);
  CTS_JUDGE(t, comm_destroy, "Leaves a communicator");
  CTS_OK(t, comm_destroy, self.comm, 0);
  cts_peer_end(&peer);
}

/* ---- order ---- */
enum { SIZE = 10000 };

static hal_collective_t barrier(void) {
  return (hal_collective_t){
      .struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs), .op = HAL_COMM_BARRIER, .dtype = HAL_FLOAT32};
}

/* Broadcasts from the first rank what `device` holds when its stream comes there. The descriptor is the caller's again at once. */
static void broadcast(rank_t *self, void *device) {
  hal_collective_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs),
                           .op = HAL_COMM_BROADCAST,
                           .dtype = HAL_FLOAT32,
                           .send = device,
                           .recv = device,
                           .count = SIZE / 4};
  const hal_status_t status = cts_comm_collective(self->t, self->comm, self->stream, &desc);
  if (status == HAL_UNIMPLEMENTED) cts_skip(self->t, "the plugin does not broadcast float32");
  cts_expect_ok(self->t, HAL_SLOT_comm_collective, status);
  memset(&desc, 0xff, sizeof desc);
}

static void order_second(cts_peer_t *peer) {
  rank_t self = join_second(peer);
  cts_t *const t = self.t;
  uint8_t *const device = cts_alloc(t, SIZE), *const got = cts_pinned(t, SIZE), *const bytes = cts_pinned(t, SIZE);
  for (uint64_t round = 0; round < 3; round++) {
    const hal_collective_t meeting = barrier();
    CTS_OK(t, memory_fill, self.stream, t->device, device, "", 1, SIZE);
    broadcast(&self, device);
    cts_get(t, self.stream, got, device, SIZE);
    if (cts_is_async(t)) CTS_STATUS(t, HAL_NOT_READY, stream_query, self.stream);
    cts_peer_meet(peer); /* the first rank lets its stream go */
    cts_sync(t, self.stream);
    cts_noise(bytes, SIZE, round);
    cts_same(t, got, bytes, SIZE,
             "what a stream reads behind a broadcast, that the first rank's stream wrote before it");
    if (cts_comm_collective(t, self.comm, self.stream, &meeting) == HAL_OK) {
      if (cts_is_async(t)) CTS_STATUS(t, HAL_NOT_READY, stream_query, self.stream);
      cts_peer_meet(peer);
      cts_sync(t, self.stream);
    } else {
      cts_peer_meet(peer);
    }
  }
  CTS_OK(t, comm_destroy, self.comm, 0);
}

void cts_case_comm_order(cts_t *t) {
  static cts_peer_t peer;
  static cts_gate_t gate;
  rank_t self = join_first(t, &peer, order_second, HAL_SLOT_comm_collective);
  const int held = cts_is_async(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE);
  for (uint64_t round = 0; round < 3; round++) {
    const hal_collective_t meeting = barrier();
    cts_noise(bytes, SIZE, round);
    if (held) cts_gate_close(t, &gate, self.stream);
    cts_put(t, self.stream, device, bytes, SIZE);
    broadcast(&self, device);
    CTS_OK(t, memory_fill, self.stream, t->device, device, "", 1, SIZE);
    cts_peer_meet(&peer);
    if (held) cts_gate_open(&gate);
    cts_sync(t, self.stream);
    if (held) cts_gate_close(t, &gate, self.stream);
    const hal_status_t status = cts_comm_collective(t, self.comm, self.stream, &meeting);
    CTS_CHECK(t, status == HAL_OK || status == HAL_UNIMPLEMENTED, "comm_collective gave %s for a barrier",
              hal_status_name(status));
    cts_peer_meet(&peer);
    if (held) cts_gate_open(&gate);
    cts_sync(t, self.stream);
  }
  CTS_OK(t, comm_destroy, self.comm, 0);
  cts_peer_end(&peer);
}

/* ---- two communicators at once, in which the ranks change places ---- */
static void use_several(rank_t *first, rank_t *second) {
  for (int i = 0; i < 3; i++) {
    check(first, HAL_COMM_ALL_GATHER, 0, HAL_FLOAT32, 0, 1000, 0);
    check(second, HAL_COMM_ALL_GATHER, 0, HAL_FLOAT32, 0, 1000, 0);
    check(second, HAL_COMM_BROADCAST, 0, HAL_FLOAT32, 1, 777, 0);
  }
  CTS_OK(first->t, comm_destroy, first->comm, 0);
  check(second, HAL_COMM_ALL_REDUCE, HAL_REDUCE_SUM, HAL_FLOAT32, 0, 1000, 0); /* the other one is left */
  CTS_OK(second->t, comm_destroy, second->comm, 0);
}

/* The second rank is late, and both look at the clock of the machine. */
static void late_second(cts_peer_t *peer) {
  for (int naps = 0; naps < 100; naps++) cts_nap();
  const int64_t begin = cts_now_ns();
  rank_t self = join_second(peer);
  cts_peer_say(peer, &begin, sizeof begin);
  CTS_OK(self.t, comm_destroy, self.comm, 0);
}

void cts_case_comm_waits(cts_t *t) {
  static cts_peer_t peer;
  int64_t theirs = 0;
  rank_t self = join_first(t, &peer, late_second, HAL_SLOT_comm_create);
  const int64_t here = cts_now_ns();
  cts_peer_hear(&peer, &theirs, sizeof theirs);
  CTS_CHECK(t, here >= theirs, "comm_create came back to the first of two ranks %lld ns before the second called it",
            (long long)(theirs - here));
  CTS_OK(t, comm_destroy, self.comm, 0);
  cts_peer_end(&peer);
}

static void several_second(cts_peer_t *peer) {
  hal_comm_id_t id;
  rank_t first = join_second(peer);
  cts_peer_hear(peer, &id, sizeof id);
  rank_t second = join(peer->t, peer, 0, RANKS, &id);
  use_several(&first, &second);
}

void cts_case_comm_several(cts_t *t) {
  static cts_peer_t peer;
  hal_comm_id_t id = {{0}}, other = {{0}};
  rank_t first = join_first(t, &peer, several_second, HAL_SLOT_comm_unique_id);
  tell_id(&peer, &id);
  CTS_OK(t, comm_unique_id, &other);
  CTS_CHECK(t, memcmp(&id, &other, sizeof id), "comm_unique_id gave one id twice");
  rank_t second = join(t, &peer, 1, RANKS, &id);
  use_several(&first, &second);
  cts_peer_end(&peer);
}

/* ---- a bracket: each rank sends to the other and receives from it ---- */
static void exchange(rank_t *self) {
  cts_t *const t = self->t;
  for (uint64_t round = 0; round < 3; round++) {
    uint8_t *const send = cts_alloc(t, SIZE), *const recv = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE),
                   *const got = cts_pinned(t, SIZE);
    hal_collective_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_collective_t, displs),
                             .op = HAL_COMM_SEND,
                             .dtype = HAL_UINT8,
                             .peer = 1 - self->rank,
                             .send = send,
                             .count = SIZE};
    cts_noise(bytes, SIZE, 2 * round + (uint64_t)self->rank);
    cts_put(t, self->stream, send, bytes, SIZE);
    CTS_OK(t, comm_group, 1);
    const hal_status_t status = cts_comm_collective(t, self->comm, self->stream, &desc);
    if (status == HAL_UNIMPLEMENTED) cts_skip(t, "the plugin does not send uint8");
    cts_expect_ok(t, HAL_SLOT_comm_collective, status);
    desc.op = HAL_COMM_RECV, desc.send = NULL, desc.recv = recv;
    CTS_OK(t, comm_collective, self->comm, self->stream, &desc);
    CTS_OK(t, comm_group, 0);
    cts_get(t, self->stream, got, recv, SIZE);
    cts_sync(t, self->stream);
    cts_noise(bytes, SIZE, 2 * round + (uint64_t)(1 - self->rank));
    cts_same(t, got, bytes, SIZE, "what a rank received that sent to the same rank in one bracket of comm_group");
    cts_free(t, send), cts_free(t, recv);
  }
  CTS_OK(t, comm_destroy, self->comm, 0);
}

static void group_second(cts_peer_t *peer) {
  rank_t self = join_second(peer);
  exchange(&self);
}

void cts_case_comm_group(cts_t *t) {
  static cts_peer_t peer;
  rank_t self = join_first(t, &peer, group_second, HAL_SLOT_comm_group);
  exchange(&self);
  cts_peer_end(&peer);
}

/* ---- a collective that the other rank never comes to ---- */
static void aborts_second(cts_peer_t *peer) {
  rank_t self = join_second(peer);
  cts_peer_meet(peer); /* the first rank waits for this one, and has given up */
  CTS_OK(self.t, comm_destroy, self.comm, 1);
}

void cts_case_comm_aborts(cts_t *t) {
  static cts_peer_t peer;
  static cts_gate_t gate;
  rank_t self = join_first(t, &peer, aborts_second, HAL_SLOT_comm_destroy);
  if (!cts_is_async(t)) cts_skip(t, "the device does not say HAL_DEVICE_ASYNC: the collective itself would wait");
  void *const device = cts_alloc(t, SIZE);
  hal_plugin_stream_t *const other = cts_stream(t);
  broadcast(&self, device);
  hal_collective_t desc = barrier();
  (void)cts_comm_collective(t, self.comm, self.stream, &desc);
  CTS_STATUS(t, HAL_NOT_READY, stream_query, self.stream);
  cts_gate_close(t, &gate, other); /* the watch of a gate sees a call that does not come back */
  CTS_OK(t, comm_destroy, self.comm, 1);
  (void)cts_stream_synchronize(t, self.stream); /* the collective's failure, or nothing */
  cts_gate_open(&gate);
  cts_peer_meet(&peer);
  cts_peer_end(&peer);
  cts_sync(t, cts_stream(t)); /* the device goes on */
}
