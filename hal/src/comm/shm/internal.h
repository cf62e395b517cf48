/* internal.h: the transport of one rank, and the declarations that its files share. Private to hal/src/comm/shm. */
#ifndef HAL_SRC_COMM_SHM_INTERNAL_H_
#define HAL_SRC_COMM_SHM_INTERNAL_H_

#include <string.h>

#include "base/text.h"
#include "comm/collective.h"
#include "comm/shm/arithmetic.h"
#include "comm/shm/layout.h"
#include "hal/status.h"

/* A set of ranks: bit r = rank r. */
typedef uint64_t hal_shm_set_t;
#define HAL_SHM_BIT(rank) (UINT64_C(1) << (rank))

enum { HAL_SHM_NAME = 128, HAL_SHM_WHAT = 192 };

/* The join precedes all collectives. */
enum { HAL_SHM_JOIN = 1 };

/* A message that was received before its RECV was called, because it precedes a message whose RECV was called. */
typedef struct hal_shm_early_s hal_shm_early_t;

/* The device memory of the ranks (device.c). */
typedef struct hal_shm_device_s hal_shm_device_t;

/* A collective of this rank, checked, with its counts for each rank. */
typedef struct hal_shm_call_s {
  uint32_t op, reduce;
  hal_dtype_t dtype;
  int32_t root;
  size_t size; /* bytes of an element */
  uint64_t count;
  const unsigned char *send;
  unsigned char *recv;
  const void *scale;
  int refused; /* no implementation of this operator, reduction or type */
  int uneven;  /* an array has the counts of some rank */
  uint64_t sequence;
  uint64_t most; /* elements of the largest block that any rank sends to any other; known after all ranks have called */
  hal_shm_reducer_t reducer;
  /* Elements that this rank sends to and receives from each rank, and where they start, for the operators with
   * blocks. */
  uint64_t give[HAL_SHM_RANKS], give_at[HAL_SHM_RANKS], take[HAL_SHM_RANKS], take_at[HAL_SHM_RANKS];
} hal_shm_call_t;

/* One rank as one call of `run` sees it. Data that several calls share does not change after the join, or is in the
 * segment. */
typedef struct hal_shm_s {
  hal_shm_header_t *header; /* of the segment; NULL before the join */
  size_t bytes;
  int32_t rank, size;
  int32_t pid;             /* getpid of the process that joined */
  int may_spin;            /* each rank can have a processor */
  hal_shm_set_t unseen;    /* ranks whose processes this one cannot see */
  char name[HAL_SHM_NAME]; /* of the communicator; truncated */

  /* For this call. */
  hal_shm_device_t *device;      /* NULL: the pointers of the calls, the slots and the chunks are host memory */
  unsigned char *const *regions; /* with a device: the device memory of each rank, with its slots and chunks */
  const hal_shm_call_t *call;    /* the collective that runs, or NULL; for messages */
  const char *activity;          /* what runs if `call` is NULL, for messages */
  uint32_t length;               /* collectives that this call runs */
  uint64_t sequence, round;      /* collectives and rounds so far */
  uint64_t running; /* HAL_SHM_JOIN; the collective that runs or is checked, + HAL_SHM_JOIN; 0: something else */
  int64_t deadline_ns;
  int64_t timeout_ns;      /* for messages */
  int64_t looked_ns;       /* time of the last check of the other ranks' processes */
  hal_shm_early_t **early; /* of the transport, a list for each rank in the order of arrival */
} hal_shm_t;

/* ---- segment.c: the shared memory ---- */
hal_status_t hal_shm_segment_create(hal_shm_t *shm, const uint8_t *nonce, int *out_file);
hal_status_t hal_shm_segment_open(hal_shm_t *shm, int32_t pid, int32_t file, const uint8_t *nonce);
void hal_shm_segment_release(hal_shm_t *shm);

static inline hal_shm_rank_t *hal_shm_page(const hal_shm_t *shm, int32_t rank) {
  return (hal_shm_rank_t *)((unsigned char *)shm->header + (size_t)HAL_SHM_PAGE * ((size_t)rank + 1));
}

/* Returns the slot of a rank in a round. */
static inline unsigned char *hal_shm_slot(const hal_shm_t *shm, int32_t rank, uint64_t round) {
  const size_t offset = (size_t)(round % HAL_SHM_SLOTS) * HAL_SHM_SLOT;
  if (shm->device) return shm->regions[rank] + offset;
  return (unsigned char *)shm->header + hal_shm_slots_offset(shm->size) + (size_t)rank * HAL_SHM_SLOTS * HAL_SHM_SLOT +
         offset;
}

static inline hal_shm_channel_t *hal_shm_channel(const hal_shm_t *shm, int32_t from, int32_t to) {
  return (hal_shm_channel_t *)((unsigned char *)shm->header + hal_shm_channels_offset(shm->size) +
                               ((size_t)from * (size_t)shm->size + (size_t)to) * hal_shm_channel_bytes(shm->size));
}

static inline hal_shm_set_t hal_shm_others(const hal_shm_t *shm) {
  const hal_shm_set_t all = shm->size == 64 ? UINT64_MAX : HAL_SHM_BIT(shm->size) - 1;
  return all & ~HAL_SHM_BIT(shm->rank);
}

/* Returns the data of a chunk of a channel. */
static inline unsigned char *hal_shm_chunk(const hal_shm_t *shm, int32_t from, int32_t to, uint64_t number) {
  const size_t bytes = hal_shm_chunk_bytes(shm->size), at = (size_t)(number % HAL_SHM_CHUNKS) * bytes;
  if (!shm->device) return hal_shm_channel(shm, from, to)->data + at;
  return shm->regions[from] + hal_shm_region_channels_offset() + (size_t)to * HAL_SHM_CHUNKS * bytes + at;
}

/* ---- device.c, device_reduce.c: the data, in host memory or device memory ---- */

hal_status_t hal_shm_device_copy(hal_shm_t *shm, void *to, const void *from, size_t bytes);
hal_status_t hal_shm_device_finish(hal_shm_t *shm);
hal_status_t hal_shm_device_reduce(hal_shm_t *shm, const hal_shm_call_t *call, const void *const *in,
                                   const void *const *scales, size_t count, void *out, void *copy);

/* Copies data that this rank or another one has. On a device the copy is queued. */
static inline hal_status_t hal_shm_copy(hal_shm_t *shm, void *to, const void *from, size_t bytes) {
  if (shm->device) return hal_shm_device_copy(shm, to, from, bytes);
  memcpy(to, from, bytes);
  return HAL_OK;
}

/* Waits until the copies and reductions of this call are done. Precedes each counter that reports them. */
static inline hal_status_t hal_shm_finish(hal_shm_t *shm) { return shm->device ? hal_shm_device_finish(shm) : HAL_OK; }

/* Reduces elements of all ranks, as hal_shm_reduce does. On a device the work is queued. */
static inline hal_status_t hal_shm_combine(hal_shm_t *shm, const hal_shm_call_t *call, const void *const *in,
                                           const void *const *scales, size_t count, void *out, void *copy) {
  if (shm->device) return hal_shm_device_reduce(shm, call, in, scales, count, out, copy);
  hal_shm_reduce(&call->reducer, in, scales, shm->size, count, out, copy);
  return HAL_OK;
}

/* ---- failure.c: the first failure of a communicator ---- */

/* Stores a failure for all ranks, unless one is stored already, and wakes them. Returns the stored failure, as
 * hal_shm_failed does. */
hal_status_t hal_shm_fail(hal_shm_t *shm, hal_status_t code, const char *format, ...) HAL_PRINTF(3, 4);

/* Stores the calling thread's last failure in the same way. */
hal_status_t hal_shm_fail_by_last(hal_shm_t *shm, hal_status_t code);

/* Returns the stored failure and sets its message, or HAL_OK. */
hal_status_t hal_shm_failed(hal_shm_t *shm);

/* Returns the stored failure if it must end the running call, or HAL_OK. A rank that failed in a later collective has
 * completed its part of this one. */
hal_status_t hal_shm_stopped(hal_shm_t *shm);

/* Stores HAL_ABORTED, from any thread. */
void hal_shm_abort(hal_shm_t *shm, const char *reason);

/* ---- wait.c: counters ---- */

/* Waits until every rank of `ranks` has a counter of at least `target`. */
hal_status_t hal_shm_wait_counter(hal_shm_t *shm, hal_shm_set_t ranks, int counter, uint64_t target);

/* Waits until `lacking` returns the empty set. It returns the ranks that this rank waits for. It is called repeatedly,
 * and changes nothing. Messages wake the wait. */
hal_status_t hal_shm_wait_message(hal_shm_t *shm, hal_shm_set_t (*lacking)(hal_shm_t *, void *), void *context);

/* Sets a counter of this rank. A rank that reads the new value also sees everything written before. The access is
 * sequentially consistent, as every access that decides about sleeping or waking is (wait.c). */
static inline void hal_shm_set(hal_shm_t *shm, int counter, uint64_t value) {
  atomic_store(&hal_shm_page(shm, shm->rank)->counters[counter], value);
}
/* Wakes the ranks whose waits end with the counters of this rank. */
void hal_shm_notify(hal_shm_t *shm);
/* Wakes the threads of a rank that wait for messages. */
void hal_shm_notify_message(hal_shm_t *shm, int32_t rank);
/* Wakes all ranks. */
void hal_shm_notify_all(hal_shm_t *shm);

/* Returns HAL_OK while the process of a rank runs and has not left; else a failure that is not stored yet. */
hal_status_t hal_shm_check_process(hal_shm_t *shm, int32_t rank);

/* ---- describe.c: calls in words ---- */
void hal_shm_describe_entry(const hal_shm_entry_t *entry, char *out, size_t size);
void hal_shm_describe_call(const hal_shm_call_t *call, char *out, size_t size);
/* Describes what this rank is running. */
void hal_shm_describe_activity(const hal_shm_t *shm, char *out, size_t size);
/* Appends the last call of a rank. */
void hal_shm_append_last(const hal_shm_t *shm, int32_t rank, char *text, size_t size);

/* ---- check.c, call.c ---- */

/* Checks one collective, SEND or RECV, and fills in `out`. HAL_OK with `refused` if this transport does not implement
 * it. */
hal_status_t hal_shm_check(const hal_shm_t *shm, const hal_collective_t *desc, hal_shm_call_t *out);

/* Publishes a collective to the other ranks, waits for theirs and compares them. HAL_UNIMPLEMENTED if all ranks refuse
 * it. */
hal_status_t hal_shm_begin(hal_shm_t *shm, hal_shm_call_t *call);

/* ---- reduce.c, exchange.c, message.c ---- */
hal_status_t hal_shm_run_reduction(hal_shm_t *shm, hal_shm_call_t *call);
hal_status_t hal_shm_run_exchange(hal_shm_t *shm, hal_shm_call_t *call);
/* Runs the SEND and RECV calls among `calls`. */
hal_status_t hal_shm_run_messages(hal_shm_t *shm, const hal_collective_t *calls, uint32_t count);
void hal_shm_free_early(hal_shm_early_t *early);

/* Returns a call of a bracket. The caller's struct may be longer than the struct of this library. */
static inline const hal_collective_t *hal_shm_call_at(const hal_collective_t *calls, uint32_t index) {
  return (const hal_collective_t *)((const unsigned char *)calls + (size_t)index * calls->struct_size);
}

/* ---- join.c ---- */
hal_status_t hal_shm_join(hal_shm_t *shm, const hal_comm_store_t *store, const char *name);

#endif /* HAL_SRC_COMM_SHM_INTERNAL_H_ */
