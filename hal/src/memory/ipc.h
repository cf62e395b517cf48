/* ipc.h: memory shared between processes: declarations that the files ipc*.c share. Private to hal/src/memory.
 *
 * The sender has files of slots (ipc_file.c), one slot for each handle that it has created (ipc_send.c). The receiver
 * maps the file, claims the slot, and sets it to DROPPED when it no longer needs the memory (ipc_receive.c). The sender
 * then releases its block. A slot whose receiver has ended counts as dropped. Shared memory contains no lock, because a
 * process may end at any instruction. */
#ifndef HAL_SRC_MEMORY_IPC_H_
#define HAL_SRC_MEMORY_IPC_H_

#include "memory/internal.h"

enum { HAL_IPC_NONCE = 16, HAL_IPC_SLOTS = 1024 };

/* The state of a slot. */
enum {
  HAL_IPC_FREE = 0,
  HAL_IPC_SENT = 1,   /* no process has opened the handle yet */
  HAL_IPC_HELD = 2,   /* a process has opened it */
  HAL_IPC_DROPPED = 3 /* the process no longer needs it */
};

/* A slot's word: its number of uses, the receiver's process, and the state. */
#define HAL_IPC_WORD(use, process, state) \
  ((uint64_t)(use) << 34 | (uint64_t)(uint32_t)(process) << 2 | (uint64_t)(state))
#define HAL_IPC_WORD_STATE(word) ((uint32_t)((word)&3))
#define HAL_IPC_WORD_PROCESS(word) ((int32_t)(uint32_t)((word) >> 2))
#define HAL_IPC_WORD_USE(word) ((uint32_t)((word) >> 34))
#define HAL_IPC_USES (UINT32_C(1) << 30)

typedef struct hal_ipc_slot_s {
  _Atomic uint64_t word;
  _Atomic int64_t started; /* when the receiver's process has started; 0: unknown */
} hal_ipc_slot_t;

/* The content of a file. */
typedef struct hal_ipc_table_s {
  uint8_t nonce[HAL_IPC_NONCE]; /* of the file */
  _Atomic uint32_t drops;       /* incremented with each slot that is dropped */
  uint32_t reserved;
  hal_ipc_slot_t slots[HAL_IPC_SLOTS];
} hal_ipc_table_t;

/* The first bytes of a handle, which identify its memory. Equal in all handles of a block. */
typedef struct hal_ipc_key_s {
  char magic[8];
  uint8_t sender[HAL_IPC_NONCE]; /* of the sending process */
  int32_t process;
  int32_t reserved;
  uint64_t address; /* in the sender */
  uint64_t size;
} hal_ipc_key_t;
_Static_assert(sizeof(hal_ipc_key_t) == HAL_MEMORY_SHARE_KEY_BYTES, "the header has this number");

/* A handle. */
typedef struct hal_ipc_message_s {
  hal_ipc_key_t key;
  uint8_t table[HAL_IPC_NONCE]; /* nonce of the table */
  int32_t file;                 /* number of the table's file, in the sender */
  uint32_t slot, use;
  uint32_t memory_size, event_size; /* sizes of the bytes below; event_size 0: the work is done */
  uint32_t reserved;
  uint64_t offset; /* of the block in the segment */
  uint8_t handles[HAL_MEMORY_SHARE_BYTES - HAL_MEMORY_SHARE_KEY_BYTES -
                  48]; /* the plugin's bytes: of the segment, of the event */
} hal_ipc_message_t;
_Static_assert(sizeof(hal_ipc_message_t) == HAL_MEMORY_SHARE_BYTES, "the header has this number");

/* ---- ipc_file.c ---- */
extern const char hal_ipc_magic[8];
/* Fills with random bytes. Returns nonzero after a failure. */
int hal_ipc_random(void *out, size_t bytes);
/* Creates a table in a file without a name. Returns NULL and errno after a failure. */
hal_ipc_table_t *hal_ipc_table_create(int *out_file);
/* Maps the table of another process that a handle refers to. After a failure returns NULL with errno; errno 0 = the
 * file is another one. */
hal_ipc_table_t *hal_ipc_table_open(const hal_ipc_message_t *message);
void hal_ipc_table_close(hal_ipc_table_t *table);
/* Returns whether the receiver of a slot has ended. */
int hal_ipc_receiver_ended(const hal_ipc_slot_t *slot, uint64_t word);

/* ---- ipc_send.c ---- */
/* Releases blocks that receivers have dropped, unless this thread defers callbacks. The caller holds no lock. */
void hal_mem_ipc_collect(void);
/* Number of handles that were created and whose memory is not released. */
extern atomic_uint hal_ipc_sent;
/* Finds the slot of a handle that this process has created, takes it for a receiver in this process, and makes `stream`
 * wait for the event. Errors: HAL_NOT_FOUND = this process has not created it. */
hal_status_t hal_ipc_take_own(const hal_ipc_message_t *message, hal_stream_t *stream, hal_ipc_table_t **out_table);

/* ---- ipc_receive.c ---- */
/* Checks a handle and copies it. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_ipc_read(const void *handle, size_t size, hal_ipc_message_t *out_message);
/* Claims the slot of a handle. Errors: HAL_FAILED_PRECONDITION = it was opened before. */
hal_status_t hal_ipc_claim(hal_ipc_table_t *table, const hal_ipc_message_t *message);
/* Marks a claimed slot as dropped. */
void hal_ipc_drop(hal_ipc_table_t *table, const hal_ipc_message_t *message);
/* Returns whether a block is one of hal_memory_open. */
int hal_ipc_is_received(const hal_block_t *block);

/* Destroys the events of a device that are cached for later handles: ipc_send.c. */
void hal_ipc_forget_events(int32_t device);

#endif /* HAL_SRC_MEMORY_IPC_H_ */
