/* ipc_receive.c: the receiver of shared memory. Segments of other processes are opened once and closed with their last
 * block. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/life.h"
#include "base/process.h"
#include "memory/ipc.h"

enum { UNUSED_TABLES = 8 };

/* A table of another process. */
typedef struct table_s {
  struct table_s *next;
  hal_ipc_table_t *shared;
  uint32_t users;
} table_t;

/* An open segment of another process. */
typedef struct segment_s {
  struct segment_s *next;
  hal_device_t *device;
  char *address;
  uint32_t users;
  uint32_t handle_size;
  uint8_t handle[sizeof((hal_ipc_message_t *)NULL)->handles];
} segment_t;

/* The user data of a block of hal_memory_open. */
typedef struct received_s {
  hal_ipc_message_t message;
  hal_ipc_table_t *shared;
  table_t *table;     /* NULL: of this process */
  segment_t *segment; /* NULL: of this process */
} received_t;

static struct {
  hal_lock_t lock; /* held while a segment is opened or closed, because a driver may refuse to open one twice */
  table_t *tables;
  segment_t *segments;
} state;

/* ---- handles and slots ---- */

hal_status_t hal_ipc_read(const void *handle, size_t size, hal_ipc_message_t *out_message) {
  const size_t fixed = offsetof(hal_ipc_message_t, handles);
  memset(out_message, 0, sizeof *out_message);
  if (handle && size >= fixed && size <= sizeof *out_message) memcpy(out_message, handle, size);
  const uint64_t bytes = (uint64_t)out_message->memory_size + out_message->event_size;
  if (!memcmp(out_message->key.magic, hal_ipc_magic, sizeof hal_ipc_magic) && bytes == size - fixed &&
      out_message->slot < HAL_IPC_SLOTS && out_message->key.process > 0 && out_message->file >= 0)
    return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "invalid handle of memory, %zu bytes; pass one of hal_memory_share", size);
}

hal_status_t hal_ipc_claim(hal_ipc_table_t *table, const hal_ipc_message_t *message) {
  hal_ipc_slot_t *const slot = &table->slots[message->slot];
  uint64_t word = HAL_IPC_WORD(message->use, 0, HAL_IPC_SENT);
  const int32_t process = (int32_t)getpid();
  if (!atomic_compare_exchange_strong(&slot->word, &word, HAL_IPC_WORD(message->use, process, HAL_IPC_HELD)))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "a handle of memory of process %d was opened before: each handle is for one receiver, once; "
                         "send the tensor again",
                         (int)message->key.process);
  const int64_t started = hal_process_start(process);
  if (started > 0) atomic_store(&slot->started, started);
  return HAL_OK;
}

void hal_ipc_drop(hal_ipc_table_t *table, const hal_ipc_message_t *message) {
  hal_ipc_slot_t *const slot = &table->slots[message->slot];
  uint64_t word = HAL_IPC_WORD(message->use, getpid(), HAL_IPC_HELD);
  if (!atomic_compare_exchange_strong(&slot->word, &word, HAL_IPC_WORD(message->use, 0, HAL_IPC_DROPPED))) return;
  atomic_fetch_add(&table->drops, 1);
}

/* ---- tables and segments of other processes; the caller holds the lock ---- */

/* Closes unused tables, except for the latest one. */
static void trim_tables(void) {
  uint32_t unused = 0;
  for (table_t **link = &state.tables; *link;) {
    table_t *const table = *link;
    if (table->users || ++unused <= UNUSED_TABLES) {
      link = &table->next;
      continue;
    }
    *link = table->next;
    hal_ipc_table_close(table->shared);
    hal_free(table);
  }
}

static hal_status_t open_table(const hal_ipc_message_t *message, table_t **out_table) {
  table_t *table = state.tables;
  while (table && memcmp(table->shared->nonce, message->table, sizeof message->table) != 0) table = table->next;
  if (!table) {
    table = hal_calloc(1, sizeof *table);
    if (!table) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a handle of memory");
    table->shared = hal_ipc_table_open(message);
    if (!table->shared) {
      const int code = errno;
      hal_free(table);
      return hal_error_set(
          HAL_NOT_FOUND,
          "memory of process %d cannot be opened%s%s: that process has ended, or is of another user or "
          "container. It must run until its tensors have been received",
          (int)message->key.process, code ? ": " : "", code ? strerror(code) : "");
    }
    table->next = state.tables;
    state.tables = table;
    trim_tables();
  }
  table->users++;
  *out_table = table;
  return HAL_OK;
}

static hal_status_t open_segment(hal_device_t *device, const hal_ipc_message_t *message, segment_t **out_segment) {
  segment_t *segment = state.segments;
  while (segment && (segment->device != device || segment->handle_size != message->memory_size ||
                     memcmp(segment->handle, message->handles, segment->handle_size) != 0))
    segment = segment->next;
  if (!segment) {
    void *address = NULL;
    segment = hal_calloc(1, sizeof *segment);
    if (!segment) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a segment's record");
    hal_status_t status =
        hal_call_ipc_open(device->plugin, device->ordinal, message->handles, message->memory_size, 0, &address);
    status = hal_error_plugin_made(device->plugin, HAL_SLOT_ipc_open, status, address);
    if (status) {
      hal_free(segment);
      return status;
    }
    *segment =
        (segment_t){.next = state.segments, .device = device, .address = address, .handle_size = message->memory_size};
    memcpy(segment->handle, message->handles, message->memory_size);
    state.segments = segment;
  }
  segment->users++;
  *out_segment = segment;
  return HAL_OK;
}

static void close_segment(segment_t *segment) {
  if (--segment->users) return;
  segment_t **link = &state.segments;
  while (*link != segment) link = &(*link)->next;
  *link = segment->next;
  if (hal_device_is_alive(segment->device))
    HAL_CALL_QUIETLY(segment->device->plugin, ipc_close, segment->device->ordinal, segment->address);
  hal_free(segment);
}

/* ---- blocks ---- */

/* Ends a received block whose work is done, even one that was not completed. */
static void drop(void *user_data) {
  received_t *const received = user_data;
  if (received->segment || received->table) {
    hal_lock_and_defer(&state.lock);
    if (received->segment) close_segment(received->segment);
    hal_ipc_drop(received->shared, &received->message);
    if (received->table) received->table->users--;
    hal_unlock_and_run(&state.lock);
  } else if (received->shared) {
    hal_ipc_drop(received->shared, &received->message);
  }
  hal_free(received);
}

int hal_ipc_is_received(const hal_block_t *block) {
  return block->state == HAL_MEM_SPECIAL && block->pool->source == HAL_MEM_ADOPTED && block->u.free.fn == drop;
}

static hal_status_t wait_for_sender(const hal_ipc_message_t *message, hal_stream_t *stream) {
  hal_event_t *event = NULL;
  if (!message->event_size) return HAL_OK;
  HAL_RETURN_IF_ERROR(
      hal_event_ipc_open(stream->device->index, message->handles + message->memory_size, message->event_size, &event));
  const hal_status_t status = hal_stream_wait_event(stream, event);
  hal_event_destroy(event);
  return status;
}

/* Claims the slot and, unless `stream` is NULL, opens the memory of another process. */
static hal_status_t take_other(received_t *received, hal_stream_t *stream) {
  const hal_ipc_message_t *const message = &received->message;
  table_t *table = NULL;
  hal_lock_and_defer(&state.lock);
  hal_status_t status = open_table(message, &table);
  if (!status) status = hal_ipc_claim(table->shared, message);
  if (!status) {
    received->table = table;
    received->shared = table->shared;
    if (stream) status = open_segment(stream->device, message, &received->segment);
  } else if (table) {
    table->users--;
  }
  hal_unlock_and_run(&state.lock);
  if (!status && stream) status = wait_for_sender(message, stream);
  return status;
}

/* Finds the memory of a handle and claims it. */
static hal_status_t take(received_t *received, hal_stream_t *stream) {
  const int is_own = received->message.key.process == (int32_t)getpid();
  const hal_status_t status =
      is_own ? hal_ipc_take_own(&received->message, stream, &received->shared) : take_other(received, stream);
  if (is_own && status == HAL_NOT_FOUND)
    return hal_error_set(status,
                         "a handle of memory names this process, which did not create it: its sender has ended");
  return status;
}

static hal_status_t make_received(const void *handle, size_t handle_size, received_t **out_received) {
  received_t *const received = hal_calloc(1, sizeof *received);
  if (!received) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a received block");
  const hal_status_t status = hal_ipc_read(handle, handle_size, &received->message);
  if (status)
    hal_free(received);
  else
    *out_received = received;
  return status;
}

/* Returns the address of received memory, which is inside the segment if the plugin reports the segment's extent. */
static hal_status_t locate(const received_t *received, const hal_device_t *device, void **out_address) {
  const hal_ipc_key_t *const key = &received->message.key;
  const uint64_t offset = received->message.offset;
  hal_pointer_info_t info = {.struct_size = sizeof info};
  *out_address = (void *)(uintptr_t)key->address;
  if (!received->segment) return HAL_OK;
  *out_address = received->segment->address + offset;
  if (hal_call_memory_pointer_info(device->plugin, received->segment->address, &info) || !info.size) return HAL_OK;
  if (offset <= info.size && key->size <= info.size - offset) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "invalid handle of memory: %llu bytes at offset %llu of a segment of %llu; pass one of "
                       "hal_memory_share",
                       (unsigned long long)key->size, (unsigned long long)offset, (unsigned long long)info.size);
}

hal_status_t hal_memory_open(int32_t index, hal_stream_t *stream, const void *handle, size_t handle_size,
                             hal_block_t **out_block) {
  hal_device_t *device;
  received_t *received = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_open: the stream of device %s cannot be used for device %s",
                         stream->device->label, device->label);
  HAL_RETURN_IF_ERROR(make_received(handle, handle_size, &received));
  void *address = NULL;
  hal_status_t status = take(received, stream);
  if (!status) status = locate(received, device, &address);
  if (!status)
    status = hal_memory_adopt(index, stream, address, (size_t)received->message.key.size, drop, received, out_block);
  if (!status) return HAL_OK;
  hal_error_saved_t saved;
  hal_error_save(&saved);
  drop(received);
  hal_error_restore(&saved);
  return status;
}

hal_status_t hal_memory_decline(const void *handle, size_t handle_size) {
  received_t *received = NULL;
  HAL_RETURN_IF_ERROR(make_received(handle, handle_size, &received));
  const hal_status_t status = hal_life_ended() ? HAL_OK : take(received, NULL);
  drop(received);
  return status;
}
