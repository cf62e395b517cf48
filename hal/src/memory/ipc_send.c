/* ipc_send.c: the sender of shared memory: handles, and the blocks that wait for their receivers. */
#define _GNU_SOURCE /* clock_gettime */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/life.h"
#include "memory/expand/expand.h"
#include "memory/ipc.h"

enum { EVENTS = 64, LOOK_MS = 100 };

typedef struct table_s {
  struct table_s *next;
  hal_ipc_table_t *shared;
  int file;
  uint32_t used; /* number of slots in use */
  uint32_t at;   /* the slot that was taken last */
  uint32_t seen; /* number of drops */
} table_t;

/* A handle that was created, until its block is released. */
typedef struct sent_s {
  struct sent_s *next;
  table_t *table;
  uint32_t slot, use;
  uint64_t address, size;
  hal_event_t *event; /* NULL: the work was done */
  hal_host_fn_t release_fn;
  void *user_data;
} sent_t;

static struct {
  hal_lock_t lock;
  uint8_t nonce[HAL_IPC_NONCE];
  int has_nonce;
  table_t *tables;
  sent_t *sent;
  int64_t looked_ns; /* when the receivers' processes were last checked */
  uint32_t event_count;
  hal_event_t *events[EVENTS]; /* events of released handles, for reuse */
} state;

atomic_uint hal_ipc_sent;

/* ---- slots; the caller holds the lock ---- */

static hal_ipc_slot_t *slot_of(const sent_t *sent) { return &sent->table->shared->slots[sent->slot]; }

static table_t *add_table(void) {
  table_t *const table = hal_calloc(1, sizeof *table);
  if (!table) return NULL;
  table->shared = hal_ipc_table_create(&table->file);
  if (!table->shared) {
    hal_free(table);
    return NULL;
  }
  table->next = state.tables;
  state.tables = table;
  return table;
}

/* Takes a free slot, from a new table if all are used. */
static hal_status_t take_slot(sent_t *sent) {
  table_t *table = state.tables;
  errno = 0;
  if (!state.has_nonce && hal_ipc_random(state.nonce, sizeof state.nonce))
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the system has no random numbers for a handle of memory");
  state.has_nonce = 1;
  while (table && table->used == HAL_IPC_SLOTS) table = table->next;
  if (!table) table = add_table();
  if (!table)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                         "the system cannot create a file for handles of memory: %s; close some files",
                         errno ? strerror(errno) : "no host memory");
  uint64_t word;
  do {
    table->at = (table->at + 1) % HAL_IPC_SLOTS;
    word = atomic_load(&table->shared->slots[table->at].word);
  } while (HAL_IPC_WORD_STATE(word) != HAL_IPC_FREE);
  table->used++;
  sent->table = table;
  sent->slot = table->at;
  sent->use = (HAL_IPC_WORD_USE(word) + 1) % HAL_IPC_USES;
  atomic_store(&slot_of(sent)->started, 0);
  atomic_store(&slot_of(sent)->word, HAL_IPC_WORD(sent->use, 0, HAL_IPC_SENT));
  return HAL_OK;
}

static void give_slot(sent_t *sent) {
  atomic_store(&slot_of(sent)->word, HAL_IPC_WORD(sent->use, 0, HAL_IPC_FREE));
  sent->table->used--;
}

/* ---- release ---- */

/* Returns whether a receiver has dropped anything since the last call; the caller holds the lock. */
static int has_drops(void) {
  int found = 0;
  for (table_t *table = state.tables; table; table = table->next) {
    const uint32_t drops = atomic_load(&table->shared->drops);
    found |= drops != table->seen;
    table->seen = drops;
  }
  return found;
}

/* Removes the handles whose receivers no longer need them from the list; `look`: also those whose receivers have ended.
 * The caller holds the lock. */
static sent_t *take_dropped(int look) {
  sent_t *dropped = NULL;
  for (sent_t **link = &state.sent; *link;) {
    sent_t *const sent = *link;
    const uint64_t word = atomic_load(&slot_of(sent)->word);
    const uint32_t now = HAL_IPC_WORD_STATE(word);
    if (now != HAL_IPC_DROPPED && !(now == HAL_IPC_HELD && look && hal_ipc_receiver_ended(slot_of(sent), word))) {
      link = &sent->next;
      continue;
    }
    *link = sent->next;
    sent->next = dropped;
    dropped = sent;
    give_slot(sent);
  }
  return dropped;
}

static void give_event(hal_event_t *event) {
  if (!event) return;
  hal_lock(&state.lock);
  const int kept = state.event_count < EVENTS;
  if (kept) state.events[state.event_count++] = event;
  hal_unlock(&state.lock);
  if (!kept) hal_event_destroy(event);
}

static void release(sent_t *list) {
  while (list) {
    sent_t *const sent = list;
    list = sent->next;
    atomic_fetch_sub(&hal_ipc_sent, 1);
    give_event(sent->event);
    hal_callback_check();
    sent->release_fn(sent->user_data);
    hal_free(sent);
  }
}

void hal_mem_ipc_collect(void) {
  if (hal_callbacks_are_deferred() || hal_life_ended()) return;
  const int64_t now = hal_clock_ns();
  sent_t *dropped = NULL;
  hal_lock(&state.lock);
  const int look = now - state.looked_ns > LOOK_MS * INT64_C(1000000);
  if (look) state.looked_ns = now;
  if (has_drops() || look) dropped = take_dropped(look);
  hal_unlock(&state.lock);
  release(dropped);
}

uint32_t hal_memory_collect_shared(void) {
  if (hal_life_ended()) return 0;
  hal_lock(&state.lock);
  state.looked_ns = hal_clock_ns();
  has_drops();
  sent_t *const dropped = take_dropped(1);
  hal_unlock(&state.lock);
  release(dropped);
  return atomic_load(&hal_ipc_sent);
}

/* ---- events ---- */

static hal_event_t *take_event(int32_t device) {
  hal_event_t *event = NULL;
  hal_lock(&state.lock);
  for (uint32_t i = 0; i < state.event_count && !event; i++) {
    if (hal_event_device(state.events[i]) != device) continue;
    event = state.events[i];
    state.events[i] = state.events[--state.event_count];
  }
  hal_unlock(&state.lock);
  return event;
}

void hal_ipc_forget_events(int32_t device) {
  for (hal_event_t *event = take_event(device); event; event = take_event(device)) hal_event_destroy(event);
}

/* Records an event after the work that is queued on a stream, and adds its handle; if the plugin does not share events,
 * waits for that work. */
static hal_status_t add_event(hal_stream_t *stream, hal_ipc_message_t *message, sent_t *sent) {
  const size_t room = sizeof message->handles - message->memory_size;
  size_t size = 0;
  hal_status_t status = hal_stream_query(stream);
  if (status != HAL_NOT_READY) return status;
  hal_event_t *event = take_event(stream->device->index);
  status = event ? HAL_OK : hal_event_create(stream->device->index, HAL_EVENT_INTERPROCESS, &event);
  if (!status) status = hal_event_record(event, stream);
  if (!status) status = hal_event_ipc_export(event, message->handles + message->memory_size, room, &size);
  if (!status && size <= room) {
    message->event_size = (uint32_t)size;
    sent->event = event;
    return HAL_OK;
  }
  hal_event_destroy(event);
  return hal_stream_synchronize(stream);
}

/* ---- handles ---- */

static hal_status_t refused(const hal_block_t *block, const char *why, hal_status_t status) {
  return hal_error_set(status, "memory of device %s at %p cannot be sent to another process: %s",
                       block->stream->device->label, block->address, why);
}

/* Returns whether the block may be shared, and its segment. */
static hal_status_t find_segment(hal_block_t *block, void **out_segment) {
  hal_allocator_t *const allocator = hal_mem_block_allocator(block);
  if (hal_ipc_is_received(block))
    return refused(block, "this process has received it from another one; copy it first, and send the copy (clone)",
                   HAL_FAILED_PRECONDITION);
  hal_lock(&allocator->lock);
  const uint32_t source = block->pool->source;
  const int is_private = block->pool->owner != NULL;
  const hal_block_t *const first = hal_mem_map_find(allocator->map, (uintptr_t)block->address);
  const int is_expandable = first && hal_mem_range_of(allocator, first) != NULL;
  *out_segment = first ? first->address : NULL;
  hal_unlock(&allocator->lock);
  if (is_private)
    return refused(block,
                   "it belongs to a private memory pool, as of a graph; copy it first, and send the copy (clone)",
                   HAL_FAILED_PRECONDITION);
  if (is_expandable)
    return refused(block,
                   "it is in an expandable segment; set PYTORCH_ALLOC_CONF=expandable_segments:False to share it",
                   HAL_UNIMPLEMENTED);
  if (source != HAL_MEM_CACHED || !*out_segment)
    return refused(block, "it is not memory of the caching allocator", HAL_UNIMPLEMENTED);
  return HAL_OK;
}

hal_status_t hal_memory_check_share(hal_block_t *block) {
  void *segment = NULL;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(block->stream->device));
  return find_segment(block, &segment);
}

static hal_status_t export_segment(hal_block_t *block, void *segment, hal_ipc_message_t *message) {
  hal_device_t *const device = block->stream->device;
  size_t size = 0;
  const hal_status_t status = hal_call_ipc_export(device->plugin, device->ordinal, segment, 0, message->handles,
                                                  sizeof message->handles, &size);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_ipc_export, status);
  if (size > sizeof message->handles) return refused(block, "the plugin's handle is too long", HAL_UNIMPLEMENTED);
  message->memory_size = (uint32_t)size;
  message->offset = (uint64_t)((char *)block->address - (char *)segment);
  return HAL_OK;
}

/* Fills the plugin's parts of a handle. */
static hal_status_t describe(hal_block_t *block, hal_stream_t *stream, hal_ipc_message_t *message, sent_t *sent) {
  void *segment = NULL;
  HAL_RETURN_IF_ERROR(find_segment(block, &segment));
  HAL_RETURN_IF_ERROR(export_segment(block, segment, message));
  return add_event(stream, message, sent);
}

static void publish(const hal_block_t *block, sent_t *sent, hal_ipc_message_t *message) {
  memcpy(message->key.magic, hal_ipc_magic, sizeof hal_ipc_magic);
  memcpy(message->key.sender, state.nonce, sizeof state.nonce);
  message->key.process = (int32_t)getpid();
  message->key.address = (uint64_t)(uintptr_t)block->address;
  message->key.size = block->requested;
  memcpy(message->table, sent->table->shared->nonce, sizeof message->table);
  message->file = sent->table->file;
  message->slot = sent->slot;
  message->use = sent->use;
  sent->address = message->key.address;
  sent->size = message->key.size;
  sent->next = state.sent;
  state.sent = sent;
  atomic_fetch_add(&hal_ipc_sent, 1);
}

hal_status_t hal_memory_share(hal_block_t *block, hal_stream_t *stream, hal_host_fn_t release_fn, void *user_data,
                              void *handle, size_t room, size_t *out_size) {
  hal_ipc_message_t message = {.reserved = 0};
  hal_device_t *const device = block->stream->device;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(device));
  stream = hal_stream_or_current(device, stream);
  if (room < HAL_MEMORY_SHARE_BYTES || !block->address || stream->device != device)
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "hal_memory_share: expected a block that is not empty, a stream of its device and a handle of at least %d "
        "bytes, got %zu",
        HAL_MEMORY_SHARE_BYTES, room);
  hal_mem_ipc_collect();
  sent_t *const sent = hal_calloc(1, sizeof *sent);
  if (!sent) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a handle of memory");
  sent->release_fn = release_fn;
  sent->user_data = user_data;
  hal_status_t status = describe(block, stream, &message, sent);
  if (!status) {
    hal_lock(&state.lock);
    status = take_slot(sent);
    if (!status) publish(block, sent, &message);
    hal_unlock(&state.lock);
  }
  if (status) {
    give_event(sent->event);
    hal_free(sent);
    return status;
  }
  const size_t size = offsetof(hal_ipc_message_t, handles) + message.memory_size + message.event_size;
  memcpy(handle, &message, size);
  *out_size = size;
  return HAL_OK;
}

/* Returns the record of a handle of this process, NULL if there is none; the caller holds the lock. */
static sent_t *find_sent(const hal_ipc_message_t *message) {
  sent_t *sent = state.sent;
  while (sent && (sent->table->file != message->file || sent->slot != message->slot || sent->use != message->use))
    sent = sent->next;
  return sent && sent->address == message->key.address && sent->size == message->key.size ? sent : NULL;
}

hal_status_t hal_ipc_take_own(const hal_ipc_message_t *message, hal_stream_t *stream, hal_ipc_table_t **out_table) {
  hal_event_t *event = NULL;
  hal_lock(&state.lock);
  const int is_own = state.has_nonce && !memcmp(message->key.sender, state.nonce, sizeof state.nonce);
  const sent_t *const sent = is_own ? find_sent(message) : NULL;
  hal_status_t status = sent ? hal_ipc_claim(sent->table->shared, message) : HAL_NOT_FOUND;
  if (!status) {
    event = sent->event; /* the claim prevents its destruction */
    *out_table = sent->table->shared;
  }
  hal_unlock(&state.lock);
  if (!sent && is_own)
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "a handle of memory was opened before, and its memory is released: send the tensor again");
  if (!status && event && stream) status = hal_stream_wait_event(stream, event);
  return status;
}
