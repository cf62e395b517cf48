/* message.c: SEND and RECV.
 *
 * Each ordered pair of ranks has a channel of a few chunks. One loop progresses all messages of a bracket. It waits
 * only when no channel has a free chunk to send or a filled one to receive, so crossed messages of any size need only
 * these buffers. A message that matches no RECV of the bracket is kept until a RECV matches it: RECVs of other tags may
 * be called first.
 *
 * The receiver compares each message with its RECV. The channel also describes the RECV that waits, so that the sender
 * detects a mismatch before it sends. A SEND that comes first, and fits into the chunks, does not wait: its rank gets
 * the receiver's failure at its next call. */
#include "base/dtype.h"
#include "base/host_malloc.h"
#include "comm/shm/device.h"
#include "comm/shm/internal.h"
#include "hal/memory.h"

struct hal_shm_early_s {
  struct hal_shm_early_s *next;
  int32_t dtype;
  uint32_t tag;
  uint64_t count;
  hal_block_t *block;  /* NULL: `data` follows this struct */
  unsigned char *data; /* host memory, or the block's memory */
};

/* One SEND or RECV of the bracket. */
typedef struct message_s {
  uint32_t op, tag;
  int32_t peer, dtype;
  uint64_t count, bytes, done; /* `done` bytes of `bytes` */
  unsigned char *data;         /* of the caller; SEND reads it */
  int finished, begun;
} message_t;

/* A message that is arriving from a rank: into a RECV, or into its own memory. */
typedef struct arrival_s {
  message_t *into;
  hal_shm_early_t *early;
  uint64_t done, bytes;
} arrival_t;

typedef struct bracket_s {
  message_t *messages;
  uint32_t count, left;
  arrival_t arrivals[HAL_SHM_RANKS];
} bracket_t;

static hal_status_t differ(hal_shm_t *shm, int32_t from, int32_t to, const message_t *send, const message_t *recv) {
  return hal_shm_fail(shm, HAL_INVALID_ARGUMENT,
                      "the messages do not match: rank %d sends (%s, %llu elements, tag %u) to rank %d, which receives "
                      "(%s, %llu elements)",
                      (int)from, hal_dtype_name(send->dtype), (unsigned long long)send->count, (unsigned)send->tag,
                      (int)to, hal_dtype_name(recv->dtype), (unsigned long long)recv->count);
}

static int are_alike(const message_t *send, const message_t *recv) {
  return send->dtype == recv->dtype && send->count == recv->count;
}

static message_t *first_unfinished(bracket_t *bracket, uint32_t op, int32_t peer) {
  for (uint32_t i = 0; i < bracket->count; i++) {
    message_t *const message = &bracket->messages[i];
    if (message->op == op && message->peer == peer && !message->finished) return message;
  }
  return NULL;
}

static void finish(bracket_t *bracket, message_t *message) {
  message->finished = 1;
  bracket->left--;
}

/* ---- sending ---- */

static int can_send(const hal_shm_t *shm, int32_t to) {
  hal_shm_channel_t *const channel = hal_shm_channel(shm, shm->rank, to);
  return atomic_load_explicit(&channel->sent, memory_order_relaxed) - atomic_load(&channel->taken) < HAL_SHM_CHUNKS;
}

/* Compares the beginning of a message with the RECV that waits for it, if there is one. */
static hal_status_t check_wanted(hal_shm_t *shm, const message_t *send) {
  const hal_shm_channel_t *const channel = hal_shm_channel(shm, shm->rank, send->peer);
  const uint64_t number = atomic_load_explicit(&channel->sent, memory_order_relaxed);
  if (send->begun || atomic_load_explicit(&channel->wanted, memory_order_acquire) != number + 1) return HAL_OK;
  const uint64_t what = atomic_load_explicit(&channel->wanted_what, memory_order_relaxed);
  const message_t recv = {.dtype = (int32_t)(uint32_t)what,
                          .count = atomic_load_explicit(&channel->wanted_count, memory_order_relaxed)};
  if (what >> 32 != send->tag || are_alike(send, &recv)) return HAL_OK;
  return differ(shm, shm->rank, send->peer, send, &recv);
}

static hal_status_t send_chunk(hal_shm_t *shm, bracket_t *bracket, message_t *message) {
  hal_shm_channel_t *const channel = hal_shm_channel(shm, shm->rank, message->peer);
  const uint64_t number = atomic_load_explicit(&channel->sent, memory_order_relaxed);
  const uint64_t most = hal_shm_chunk_bytes(shm->size), left = message->bytes - message->done;
  const uint64_t bytes = left < most ? left : most;
  channel->chunks[number % HAL_SHM_CHUNKS] = (hal_shm_chunk_t){
      .bytes = bytes, .count = message->count, .tag = message->tag, .dtype = message->dtype, .first = !message->begun};
  if (bytes)
    HAL_RETURN_IF_ERROR(
        hal_shm_copy(shm, hal_shm_chunk(shm, shm->rank, message->peer, number), message->data + message->done, bytes));
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  atomic_store(&channel->sent, number + 1);
  hal_shm_notify_message(shm, message->peer);
  message->begun = 1;
  message->done += bytes;
  if (message->done == message->bytes) finish(bracket, message);
  return HAL_OK;
}

/* ---- receiving ---- */

static int can_receive(const hal_shm_t *shm, int32_t from) {
  hal_shm_channel_t *const channel = hal_shm_channel(shm, from, shm->rank);
  return atomic_load(&channel->sent) != atomic_load_explicit(&channel->taken, memory_order_relaxed);
}

/* Publishes the RECV of the next message to the sender, unless the message has another tag. */
static void show_wanted(hal_shm_t *shm, const bracket_t *bracket, int32_t from) {
  hal_shm_channel_t *const channel = hal_shm_channel(shm, from, shm->rank);
  for (uint32_t i = 0; i < bracket->count; i++) {
    const message_t *const recv = &bracket->messages[i];
    if (recv->op != HAL_COMM_RECV || recv->peer != from || recv->begun) continue;
    const uint64_t number = atomic_load_explicit(&channel->taken, memory_order_relaxed);
    atomic_store_explicit(&channel->wanted_count, recv->count, memory_order_relaxed);
    atomic_store_explicit(&channel->wanted_what, (uint64_t)recv->tag << 32 | (uint32_t)recv->dtype,
                          memory_order_relaxed);
    atomic_store_explicit(&channel->wanted, number + 1, memory_order_release);
    return;
  }
}

static message_t *find_recv(bracket_t *bracket, int32_t from, uint32_t tag) {
  for (uint32_t i = 0; i < bracket->count; i++) {
    message_t *const message = &bracket->messages[i];
    if (message->op == HAL_COMM_RECV && message->peer == from && message->tag == tag && !message->begun) return message;
  }
  return NULL;
}

static hal_shm_early_t *allocate_early(const hal_shm_t *shm, uint64_t bytes) {
  hal_block_t *block = NULL;
  const uint64_t follows = shm->device ? 0 : bytes;
  hal_shm_early_t *const early =
      bytes < PTRDIFF_MAX - sizeof *early ? hal_malloc(sizeof *early + (size_t)follows) : NULL;
  if (early && shm->device && hal_shm_device_allocate(shm, bytes, &block)) {
    hal_free(early);
    return NULL;
  }
  if (early)
    *early = (hal_shm_early_t){.block = block,
                               .data = block ? hal_memory_block_address(block) : (unsigned char *)(early + 1)};
  return early;
}

static void free_early(hal_shm_early_t *early) {
  hal_memory_release(early->block);
  hal_free(early);
}

/* Allocates memory for a message that matches no RECV of this bracket, at the end of the list. */
static hal_status_t make_early(hal_shm_t *shm, int32_t from, const hal_shm_chunk_t *chunk, uint64_t bytes,
                               hal_shm_early_t **out) {
  hal_shm_early_t *const early = allocate_early(shm, bytes);
  if (!early)
    return hal_shm_fail(
        shm, HAL_RESOURCE_EXHAUSTED,
        "rank %d has no memory for %llu bytes of a message from rank %d with tag %u, which it has not received yet",
        (int)shm->rank, (unsigned long long)bytes, (int)from, (unsigned)chunk->tag);
  early->dtype = chunk->dtype, early->tag = chunk->tag, early->count = chunk->count;
  hal_shm_early_t **end = &shm->early[from];
  while (*end) end = &(*end)->next;
  *end = early;
  *out = early;
  return HAL_OK;
}

static hal_status_t damaged(hal_shm_t *shm, int32_t from) {
  return hal_shm_fail(shm, HAL_DATA_LOSS, "rank %d received a damaged message from rank %d", (int)shm->rank, (int)from);
}

static hal_status_t begin_arrival(hal_shm_t *shm, bracket_t *bracket, int32_t from, const hal_shm_chunk_t *chunk) {
  arrival_t *const arrival = &bracket->arrivals[from];
  message_t *const recv = find_recv(bracket, from, chunk->tag);
  const message_t sent = {.dtype = chunk->dtype, .count = chunk->count, .tag = chunk->tag};
  uint64_t bytes;
  if (__builtin_mul_overflow(chunk->count, hal_dtype_size(chunk->dtype), &bytes)) return damaged(shm, from);
  if (recv && !are_alike(&sent, recv)) return differ(shm, from, shm->rank, &sent, recv);
  *arrival = (arrival_t){.into = recv, .bytes = bytes};
  if (recv) recv->begun = 1;
  return recv ? HAL_OK : make_early(shm, from, chunk, arrival->bytes, &arrival->early);
}

static hal_status_t receive_chunk(hal_shm_t *shm, bracket_t *bracket, int32_t from) {
  hal_shm_channel_t *const channel = hal_shm_channel(shm, from, shm->rank);
  arrival_t *const arrival = &bracket->arrivals[from];
  const uint64_t number = atomic_load_explicit(&channel->taken, memory_order_relaxed);
  const hal_shm_chunk_t chunk = channel->chunks[number % HAL_SHM_CHUNKS]; /* the checked values are the used ones */
  const int begins = chunk.first != 0, continues = arrival->into || arrival->early;
  if (begins && !continues) HAL_RETURN_IF_ERROR(begin_arrival(shm, bracket, from, &chunk));
  if (begins == continues || chunk.bytes > arrival->bytes - arrival->done ||
      chunk.bytes > hal_shm_chunk_bytes(shm->size))
    return damaged(shm, from);
  unsigned char *const data = arrival->into ? arrival->into->data : arrival->early->data;
  if (chunk.bytes)
    HAL_RETURN_IF_ERROR(
        hal_shm_copy(shm, data + arrival->done, hal_shm_chunk(shm, from, shm->rank, number), chunk.bytes));
  HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
  arrival->done += chunk.bytes;
  atomic_store(&channel->taken, number + 1);
  hal_shm_notify_message(shm, from);
  if (arrival->done < arrival->bytes) return HAL_OK;
  if (arrival->into) finish(bracket, arrival->into);
  *arrival = (arrival_t){0};
  show_wanted(shm, bracket, from);
  return HAL_OK;
}

/* Completes a RECV with a message that arrived before it, if there is one. */
static hal_status_t take_early(hal_shm_t *shm, bracket_t *bracket, message_t *recv) {
  for (hal_shm_early_t **link = &shm->early[recv->peer]; *link; link = &(*link)->next) {
    hal_shm_early_t *const early = *link;
    if (early->tag != recv->tag) continue;
    const message_t sent = {.dtype = early->dtype, .count = early->count, .tag = early->tag};
    if (!are_alike(&sent, recv)) return differ(shm, recv->peer, shm->rank, &sent, recv);
    if (recv->bytes) HAL_RETURN_IF_ERROR(hal_shm_copy(shm, recv->data, early->data, recv->bytes));
    HAL_RETURN_IF_ERROR(hal_shm_finish(shm));
    *link = early->next;
    free_early(early);
    recv->begun = 1;
    finish(bracket, recv);
    return HAL_OK;
  }
  return HAL_OK;
}

void hal_shm_free_early(hal_shm_early_t *early) {
  while (early) {
    hal_shm_early_t *const next = early->next;
    free_early(early);
    early = next;
  }
}

/* ---- the bracket ---- */

/* Returns the ranks whose messages cannot progress, or the empty set if a message can. */
static hal_shm_set_t lacking(hal_shm_t *shm, void *context) {
  bracket_t *const bracket = context;
  hal_shm_set_t ranks = 0;
  for (uint32_t i = 0; i < bracket->count; i++) {
    const message_t *const message = &bracket->messages[i];
    if (message->finished) continue;
    const int goes_on = message->op == HAL_COMM_SEND ? can_send(shm, message->peer) : can_receive(shm, message->peer);
    if (goes_on) return 0;
    ranks |= HAL_SHM_BIT(message->peer);
  }
  return ranks;
}

/* Moves the data that can move without waiting. The bracket that begins to receive a message receives it to its end. */
static hal_status_t progress(hal_shm_t *shm, bracket_t *bracket) {
  for (int32_t peer = 0; peer < shm->size; peer++) {
    message_t *message = first_unfinished(bracket, HAL_COMM_SEND, peer);
    while (message && can_send(shm, peer)) {
      HAL_RETURN_IF_ERROR(check_wanted(shm, message));
      HAL_RETURN_IF_ERROR(send_chunk(shm, bracket, message));
      if (message->finished) message = first_unfinished(bracket, HAL_COMM_SEND, peer);
    }
    while (first_unfinished(bracket, HAL_COMM_RECV, peer) && can_receive(shm, peer))
      HAL_RETURN_IF_ERROR(receive_chunk(shm, bracket, peer));
  }
  return HAL_OK;
}

static hal_status_t run_bracket(hal_shm_t *shm, bracket_t *bracket) {
  for (uint32_t i = 0; i < bracket->count; i++)
    if (bracket->messages[i].op == HAL_COMM_RECV) HAL_RETURN_IF_ERROR(take_early(shm, bracket, &bracket->messages[i]));
  for (uint32_t i = 0; i < bracket->count; i++)
    if (bracket->messages[i].op == HAL_COMM_RECV) show_wanted(shm, bracket, bracket->messages[i].peer);
  while (bracket->left) {
    HAL_RETURN_IF_ERROR(hal_shm_wait_message(shm, lacking, bracket));
    HAL_RETURN_IF_ERROR(progress(shm, bracket));
  }
  return HAL_OK;
}

static void add(hal_shm_t *shm, bracket_t *bracket, const hal_collective_t *desc) {
  const size_t size = hal_dtype_size(desc->dtype);
  const int is_send = desc->op == HAL_COMM_SEND;
  hal_shm_rank_t *const page = hal_shm_page(shm, shm->rank);
  bracket->messages[bracket->count++] =
      (message_t){.op = desc->op,
                  .peer = desc->peer,
                  .dtype = desc->dtype,
                  .tag = desc->tag,
                  .count = desc->count,
                  .bytes = desc->count * size,
                  .data = is_send ? (unsigned char *)(uintptr_t)desc->send : desc->recv};
  bracket->left++;
  const uint64_t what = desc->op | (uint64_t)desc->dtype << 8 | (uint64_t)desc->peer << 16 | (uint64_t)desc->tag << 32;
  atomic_store_explicit(&page->message, what, memory_order_relaxed);
  atomic_store_explicit(&page->message_count, desc->count, memory_order_relaxed);
  atomic_fetch_add_explicit(&page->messages, 1, memory_order_release);
}

hal_status_t hal_shm_run_messages(hal_shm_t *shm, const hal_collective_t *calls, uint32_t count) {
  message_t few[8];
  uint32_t messages = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t op = hal_shm_call_at(calls, i)->op;
    messages += op == HAL_COMM_SEND || op == HAL_COMM_RECV;
  }
  if (!messages) return HAL_OK;
  bracket_t bracket = {.messages =
                           messages <= sizeof few / sizeof few[0] ? few : hal_malloc(messages * sizeof(message_t))};
  if (!bracket.messages)
    return hal_shm_fail(shm, HAL_RESOURCE_EXHAUSTED, "rank %d has no memory for a bracket of %u messages",
                        (int)shm->rank, messages);
  for (uint32_t i = 0; i < count; i++) {
    const hal_collective_t *const desc = hal_shm_call_at(calls, i);
    if (desc->op == HAL_COMM_SEND || desc->op == HAL_COMM_RECV) add(shm, &bracket, desc);
  }
  shm->activity = "send and recv";
  const hal_status_t status = run_bracket(shm, &bracket);
  if (bracket.messages != few) hal_free(bracket.messages);
  return status;
}
