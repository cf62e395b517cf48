/* ipc_file.c: tables of slots in files without a name (hal/plugin_shared_event.h), and the processes that use them. */
#define _GNU_SOURCE
#include <errno.h>
#include <hal/plugin_shared_event.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/process.h"
#include "memory/ipc.h"

#define KIND "table"

const char hal_ipc_magic[8] = "halshar1";

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share the words without a lock");
_Static_assert((int)HAL_IPC_NONCE == (int)HAL_SHARED_NONCE, "the nonce of a table is that of its file");

int hal_ipc_random(void *out, size_t bytes) { return getrandom(out, bytes, 0) != (ssize_t)bytes; }

hal_ipc_table_t *hal_ipc_table_create(int *out_file) {
  hal_shared_handle_t handle;
  int file = -1;
  if (hal_shared_file_create(KIND, sizeof(hal_ipc_table_t), &file, &handle)) return NULL;
  hal_ipc_table_t *const table = hal_shared_file_map(file, sizeof *table);
  if (table) {
    memcpy(table->nonce, handle.nonce, sizeof table->nonce);
    *out_file = file;
    return table;
  }
  const int cause = errno;
  close(file);
  errno = cause;
  return NULL;
}

hal_ipc_table_t *hal_ipc_table_open(const hal_ipc_message_t *message) {
  hal_shared_handle_t handle = {.kind = KIND, .process = message->key.process, .file = message->file};
  size_t size = 0;
  int file = -1;
  memcpy(handle.nonce, message->table, sizeof handle.nonce);
  if (hal_shared_file_open(KIND, &handle, &file, &size)) return NULL;
  errno = 0;
  hal_ipc_table_t *const table = size == sizeof *table ? hal_shared_file_map(file, size) : NULL;
  const int cause = errno;
  close(file);
  errno = cause;
  return table;
}

void hal_ipc_table_close(hal_ipc_table_t *table) { hal_shared_file_unmap(table, sizeof *table); }

/* ---- processes ---- */

int hal_ipc_receiver_ended(const hal_ipc_slot_t *slot, uint64_t word) {
  const int64_t now = hal_process_start(HAL_IPC_WORD_PROCESS(word));
  const int64_t then = atomic_load(&slot->started);
  return now >= 0 && (!now || (then && then != now)); /* another start: another process with the same number */
}
