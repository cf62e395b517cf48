/* layout.h: the shared memory of a communicator: a header, a page for each rank, slots for collectives, channels
 * for messages. Private to hal/src/comm/shm. */
#ifndef HAL_SRC_COMM_SHM_LAYOUT_H_
#define HAL_SRC_COMM_SHM_LAYOUT_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shm/shm.h"

/* Version of this layout and of the meaning of its words; incremented with every change of either. The join refuses
 * other versions. */
#define HAL_SHM_VERSION UINT32_C(6)

enum {
  HAL_SHM_RANKS = HAL_COMM_SHM_MAX_RANKS,
  HAL_SHM_NONCE = 16,
  HAL_SHM_LINE = 64,           /* bytes of a cache line */
  HAL_SHM_PAGE = 4096,         /* bytes of the header and of a rank's page */
  HAL_SHM_SLOT = 512 * 1024,   /* bytes of a slot */
  HAL_SHM_SLOTS = 3,           /* of a rank: one is filled while another is read, and one is for late ranks */
  HAL_SHM_SMALL = 256 * 1024,  /* bytes of all ranks up to which every rank reduces all elements */
  HAL_SHM_CHUNKS = 4,          /* of a channel */
  HAL_SHM_FAILURE_BYTES = 768, /* of a failure's text */
};

/* ---- failures: one record, written by the first rank that fails
 * ------------------------------------------------------- */

/* state: 0 = none; (rank + 1) << 8 | 1 = that rank is writing; (rank + 1) << 8 | 2 = written */
typedef struct hal_shm_failure_s {
  _Atomic uint32_t state;
  int32_t code; /* hal_status_t */
  /* The collective that failed, as `running` of a transport: other ranks can end an earlier collective; 0: all ranks
   * end what they run. */
  uint64_t running;
  char text[HAL_SHM_FAILURE_BYTES];
} hal_shm_failure_t;

enum { HAL_SHM_JOINING = 1, HAL_SHM_READY = 2 };

typedef struct hal_shm_header_s {
  uint32_t version; /* first field in every version */
  int32_t size;
  uint64_t bytes; /* of the file */
  uint8_t nonce[HAL_SHM_NONCE];
  _Atomic uint32_t state;
  _Alignas(HAL_SHM_LINE) hal_shm_failure_t failure;
} hal_shm_header_t;
_Static_assert(sizeof(hal_shm_header_t) <= HAL_SHM_PAGE, "the header fits into its page");

/* ---- ranks
 * -------------------------------------------------------------------------------------------------------------- */

/* Counters of a rank, which only grow. A round is one use of a slot; rounds are numbered from 1 over all
 * collectives. */
enum {
  HAL_SHM_CALLED,  /* the sequence of the last collective that the rank has called */
  HAL_SHM_FILLED,  /* rounds whose slot has the rank's elements */
  HAL_SHM_REDUCED, /* rounds whose slot has the rank's part of the result */
  HAL_SHM_DRAINED, /* rounds in which the rank has read all that it needs of the others' slots */
  HAL_SHM_JOINED,  /* 1: the rank has looked for all others' processes */
  HAL_SHM_DEVICE,  /* 1: the rank has described its device memory; 2: it has opened that of the others (device.c) */
  HAL_SHM_COUNTERS
};

/* A collective that a rank has called. Each rank has two entries, for odd and even sequences. A rank overwrites an
 * entry with its next collective but one. By then all ranks have called the next collective, and so have read the
 * entry. */
typedef struct hal_shm_entry_s {
  uint64_t sequence;
  uint64_t fingerprint; /* of all fields up to `count` */
  uint32_t op, reduce;
  int32_t dtype, root;
  uint32_t refused; /* 1: this rank does not implement the call */
  uint32_t uneven;  /* 1: the two arrays below have the counts, and `count` has not */
  uint32_t length;  /* collectives of the bracket, without its SEND and RECV */
  uint64_t count;
  uint8_t scale[8]; /* of PREMUL_SUM: each rank has its own */
  uint64_t give[HAL_SHM_RANKS], take[HAL_SHM_RANKS];
} hal_shm_entry_t;

enum { HAL_SHM_ABSENT = 0, HAL_SHM_PRESENT = 1, HAL_SHM_LEFT = 2 };

#define HAL_SHM_WAITS_FOR_ALL UINT64_C(0xff) /* greater than each rank + 1 */

typedef struct hal_shm_rank_s {
  _Alignas(HAL_SHM_LINE) _Atomic uint64_t counters[HAL_SHM_COUNTERS];
  /* What the rank sleeps for: 0 = it does not; target << 16 | counter << 8 | rank + 1, or HAL_SHM_WAITS_FOR_ALL = all
   * other ranks. The last rank that satisfies it increments `bell` and wakes the sleeper. Only one thread of a rank
   * waits for counters at a time. */
  _Alignas(HAL_SHM_LINE) _Atomic uint64_t waits;
  _Atomic uint32_t bell;
  /* The number of threads that sleep until messages can progress; too high after one was killed. */
  _Alignas(HAL_SHM_LINE) _Atomic uint32_t message_sleepers;
  _Atomic uint32_t message_bell;
  _Alignas(HAL_SHM_LINE) _Atomic uint64_t
      incarnation; /* random; claimed once: a second process of this rank finds it claimed */
  _Atomic uint32_t state;
  int32_t pid;     /* as /proc shows it */
  uint64_t start;  /* start of the process, in ticks since the system started: distinguishes processes of one pid */
  uint64_t pids;   /* the pid namespace, as a number; 0: unknown */
  uint64_t unseen; /* the ranks whose processes this one cannot see, after HAL_SHM_JOINED */
  _Atomic uint64_t messages, message, message_count; /* for error messages: SEND and RECV so far, and the last one */
  _Alignas(HAL_SHM_LINE) hal_shm_entry_t entries[2];
} hal_shm_rank_t;
_Static_assert(sizeof(hal_shm_rank_t) <= HAL_SHM_PAGE, "a rank fits into its page");

/* ---- messages: a channel for each ordered pair of ranks
 * ---------------------------------------------------------------- */

typedef struct hal_shm_chunk_s {
  uint64_t bytes; /* in this chunk */
  uint64_t count; /* elements of the message */
  uint32_t tag;
  int32_t dtype;
  uint32_t first; /* 1: the message begins here */
} hal_shm_chunk_t;

typedef struct hal_shm_channel_s {
  _Alignas(HAL_SHM_LINE) _Atomic uint64_t sent;  /* chunks; written by the sender */
  _Alignas(HAL_SHM_LINE) _Atomic uint64_t taken; /* written by the receiver, as the fields below */
  /* The RECV that waits for the message that begins with chunk `wanted` - 1: elements; tag << 32 | dtype. */
  _Atomic uint64_t wanted, wanted_count, wanted_what;
  _Alignas(HAL_SHM_LINE) hal_shm_chunk_t chunks[HAL_SHM_CHUNKS];
  _Alignas(HAL_SHM_LINE) unsigned char data[];
} hal_shm_channel_t;

/* Returns the bytes of a chunk: with many ranks there are many channels. */
static inline size_t hal_shm_chunk_bytes(int32_t size) { return size <= 8 ? 128 * 1024 : 16 * 1024; }

static inline size_t hal_shm_channel_bytes(int32_t size) {
  const size_t used = sizeof(hal_shm_channel_t) + HAL_SHM_CHUNKS * hal_shm_chunk_bytes(size);
  return (used + HAL_SHM_PAGE - 1) / HAL_SHM_PAGE * HAL_SHM_PAGE;
}

static inline size_t hal_shm_slots_offset(int32_t size) { return (size_t)HAL_SHM_PAGE * ((size_t)size + 1); }

static inline size_t hal_shm_channels_offset(int32_t size) {
  return hal_shm_slots_offset(size) + (size_t)size * HAL_SHM_SLOTS * HAL_SHM_SLOT;
}

/* The pages of a file that nothing has written cost no memory. */
static inline size_t hal_shm_segment_bytes(int32_t size) {
  return hal_shm_channels_offset(size) + (size_t)size * (size_t)size * hal_shm_channel_bytes(size);
}

/* ---- device memory of a rank: its slots, its channels' chunks, and memory for reductions
 * ---------------------------- */

static inline size_t hal_shm_region_channels_offset(void) { return (size_t)HAL_SHM_SLOTS * HAL_SHM_SLOT; }

static inline size_t hal_shm_region_scratch_offset(int32_t size) {
  return hal_shm_region_channels_offset() + (size_t)size * HAL_SHM_CHUNKS * hal_shm_chunk_bytes(size);
}

/* Two slots of elements that are twice as wide. */
static inline size_t hal_shm_region_bytes(int32_t size) {
  return hal_shm_region_scratch_offset(size) + (size_t)4 * HAL_SHM_SLOT;
}

#endif /* HAL_SRC_COMM_SHM_LAYOUT_H_ */
