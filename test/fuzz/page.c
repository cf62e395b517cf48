/* page.c: the shared memory of a communicator of two ranks, in which rank 1 has written what it should not have. Both
 * ranks are in this process. Rank 0 calls a collective, once without the other rank, so that its description is that of
 * an equal call; rank 1 then gets the same description, counters that keep rank 0 from waiting, and the changes of the
 * input. The second call returns a result or an error, in time. A message that is received has the bytes that were
 * sent.
 *
 * Input: up to four calls: operator, dtype, reduction and tag, root, 2 bytes for the number of elements, the number of
 * changes. Then come the changes of 4 bytes: place (2 bytes: a word of 4 bytes), byte of the word, bits. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "comm/shm/internal.h"
#include "comm_store.h"

enum { HEAD = 7, CHANGE = 4, CHANGES = 8, CALLS = 4, RANKS = 2, DTYPES = 48, MOST = 3000, SENT = 0x5a };
static const int64_t second = 1000000000;
static const uint64_t far = UINT64_C(1) << 40; /* a counter that satisfies every wait */

static hal_comm_transport_t ranks[RANKS];
static store_t *store;
static unsigned char fresh[sizeof(hal_shm_rank_t)]; /* the page of rank 1 after the join */
static int is_joined;

static void require(int holds) {
  if (!holds) abort();
}

/* ---- the communicator -------------------------------------------------------------------------------------------- */

/* The first member of the transport's own struct. */
static const hal_shm_t *base(void) { return ranks[0].context; }

static void *join_other(void *name) {
  const hal_comm_store_t by = store_of(store);
  require(hal_comm_shm_create(&by, name, 1, RANKS, 20 * second, &ranks[1]) == HAL_OK);
  return NULL;
}

static void join(void) {
  pthread_t other;
  store = calloc(1, sizeof *store);
  require(store != NULL);
  const hal_comm_store_t by = store_of(store);
  require(!pthread_create(&other, NULL, join_other, "fuzz"));
  require(hal_comm_shm_create(&by, "fuzz", 0, RANKS, 20 * second, &ranks[0]) == HAL_OK);
  require(!pthread_join(other, NULL));
  memcpy(fresh, hal_shm_page(base(), 1), sizeof fresh);
  memset(hal_shm_chunk(base(), 1, 0, 0), SENT, HAL_SHM_CHUNKS * hal_shm_chunk_bytes(RANKS));
  is_joined = 1;
}

static void leave(void) {
  for (int rank = 0; rank < RANKS; rank++) ranks[rank].destroy(ranks[rank].context);
  free(store);
  is_joined = 0;
}

/* ---- what rank 1 writes ------------------------------------------------------------------------------------------ */

/* Removes the changes of earlier inputs. */
static void restore(void) {
  hal_shm_channel_t *const to_us = hal_shm_channel(base(), 1, 0), *const from_us = hal_shm_channel(base(), 0, 1);
  memcpy(hal_shm_page(base(), 1), fresh, sizeof fresh);
  memset(&base()->header->failure, 0, sizeof base()->header->failure);
  memset(to_us->chunks, 0, sizeof to_us->chunks);
  atomic_store(&to_us->sent, atomic_load(&to_us->taken));
  atomic_store(&from_us->taken, atomic_load(&from_us->sent));
  atomic_store(&from_us->wanted, 0);
}

static void forget_failure(void) { atomic_store(&base()->header->failure.state, 0); }

/* Rank 1 has called the same, and has done its part. */
static void agree(const hal_collective_t *call) {
  const hal_shm_rank_t *const own = hal_shm_page(base(), 0);
  hal_shm_rank_t *const page = hal_shm_page(base(), 1);
  for (int i = 0; i < 2; i++) page->entries[i] = own->entries[i];
  const uint64_t called = atomic_load(&own->counters[HAL_SHM_CALLED]);
  page->entries[(called + 1) & 1] = own->entries[called & 1];
  for (int i = 0; i < HAL_SHM_COUNTERS; i++) atomic_store(&page->counters[i], far);
  if (call->op == HAL_COMM_SEND)
    atomic_store(&hal_shm_channel(base(), 0, 1)->taken, atomic_load(&hal_shm_channel(base(), 0, 1)->sent));
  if (call->op != HAL_COMM_RECV) return;
  hal_shm_channel_t *const channel = hal_shm_channel(base(), 1, 0);
  const uint64_t taken = atomic_load(&channel->taken), bytes = call->count * hal_dtype_size(call->dtype);
  channel->chunks[taken % HAL_SHM_CHUNKS] =
      (hal_shm_chunk_t){.bytes = bytes, .count = call->count, .tag = call->tag, .dtype = call->dtype, .first = 1};
  atomic_store(&channel->sent, taken + 1);
}

/* Returns the word with a number, among those that rank 1 writes; NULL = there are fewer. */
static uint8_t *word(uint32_t number) {
  const hal_shm_t *const shm = base();
  hal_shm_channel_t *const to_us = hal_shm_channel(shm, 1, 0), *const from_us = hal_shm_channel(shm, 0, 1);
  const struct {
    void *at;
    size_t bytes;
  } parts[] = {{hal_shm_page(shm, 1), sizeof(hal_shm_rank_t)},
               {&shm->header->failure, sizeof(hal_shm_failure_t)},
               {&to_us->sent, sizeof to_us->sent},
               {to_us->chunks, sizeof to_us->chunks},
               {&from_us->taken, 4 * sizeof from_us->taken}};
  size_t at = (size_t)number * 4;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (at < parts[i].bytes) return (uint8_t *)parts[i].at + at;
    at -= parts[i].bytes;
  }
  return NULL;
}

static void change(const uint8_t *data, size_t size) {
  for (; size >= CHANGE; data += CHANGE, size -= CHANGE) {
    uint8_t *const at = word((uint32_t)data[0] | (uint32_t)data[1] << 8);
    if (at) at[data[2] & 3] ^= data[3];
  }
}

/* ---- the call of rank 0 ------------------------------------------------------------------------------------------ */

static hal_status_t run(const hal_collective_t *call, int64_t timeout_ns) {
  const int64_t start = hal_clock_ns();
  const hal_status_t status = ranks[0].run(ranks[0].context, call, 1, timeout_ns);
  require(hal_clock_ns() - start < 10 * second);
  return status;
}

/* Runs one call; returns the bytes of the input that it has used. `*out_keeps`: it may have left a message that no call
 * has received. */
static size_t run_next(const uint8_t *data, size_t size, int *out_keeps) {
  hal_collective_t call = {.struct_size = sizeof call,
                           .op = data[0] % 11,
                           .dtype = data[1] % DTYPES,
                           .reduce = data[2] % 9,
                           .tag = data[2] / 9 % 2,
                           .count = ((uint64_t)data[4] | (uint64_t)data[5] << 8) % MOST,
                           .peer = data[3] & 1};
  if (hal_comm_op_is_message(call.op)) call.peer = 1;
  const size_t bytes = call.count * hal_dtype_size(call.dtype), left = (size - HEAD) / CHANGE;
  const size_t changes = data[6] % CHANGES < left ? data[6] % CHANGES : left;
  double scale[2] = {1, 0};
  uint8_t *const send = calloc(RANKS, bytes + 1), *const recv = calloc(RANKS, bytes + 1);
  require(send && recv);
  call.send = send, call.recv = recv, call.scale = scale;
  if (!hal_comm_op_is_message(call.op)) (void)run(&call, 0);
  forget_failure();
  agree(&call);
  change(data + HEAD, changes * CHANGE);
  const hal_status_t status = run(&call, second / 200);
  for (size_t i = 0; call.op == HAL_COMM_RECV && !status && i < bytes; i++) require(recv[i] == SENT);
  forget_failure();
  free(send), free(recv);
  if (call.op == HAL_COMM_RECV && changes) *out_keeps = 1;
  if (call.op == HAL_COMM_RECV && status) return size; /* of a message that failed, a part is kept */
  return HEAD + changes * CHANGE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int keeps = 0;
  if (!is_joined) join();
  restore();
  for (int calls = 0; calls < CALLS && size >= HEAD; calls++) {
    const size_t used = run_next(data, size, &keeps);
    data += used, size -= used;
  }
  if (keeps) leave();
  return 0;
}
