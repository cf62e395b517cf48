/* comm.h: collective operations between processes.
 *
 * A communicator connects `size` ranks, one process each, numbered from 0. All ranks call the same collectives of a communicator in the
 * same order, with the same operator, data type and counts: each call carries a fingerprint of them, and a mismatch is an error on every
 * rank before data moves. Sums of float16 and bfloat16 are computed in float32, those of all types in the order of the ranks, and rounded
 * once: every rank gets the same bits, in every run and at every size. */
#ifndef HAL_COMM_H_
#define HAL_COMM_H_

#include "hal/api.h"
#include "hal/plugin.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- collectives ---------------------------------------------------------------------------------------------------- */

/* Operators: `op` of hal_collective_t. `n` is the number of ranks, `count` the elements that a rank gives to or takes from each rank.
 *                     send (elements)     recv (elements)
 *   ALL_REDUCE        count               count            the reduction over all ranks, on every rank
 *   REDUCE            count               count            the reduction, on rank `peer` only (recv NULL elsewhere)
 *   BROADCAST         count               count            what rank `peer` sends (send NULL elsewhere)
 *   ALL_GATHER        count               n * count        the ranks' elements in their order, on every rank
 *   REDUCE_SCATTER    n * count           count            the reduction of block `rank`
 *   ALL_TO_ALL        n * count           n * count        block i goes to rank i and comes from rank i
 *   GATHER            count               n * count        as ALL_GATHER, on rank `peer` only (recv NULL elsewhere)
 *   SCATTER           n * count           count            block `rank` of what rank `peer` sends (send NULL elsewhere)
 *   SEND, RECV        count or none       none or count    to or from rank `peer`; calls of one pair and tag match in their order
 *   BARRIER           none                none             returns when all ranks have called it
 * send == recv works in place for ALL_REDUCE, REDUCE and BROADCAST; so does send == recv + rank * count for ALL_GATHER, and
 * recv == send + rank * count for REDUCE_SCATTER. Other overlap is invalid. A count of 0 is valid. */
#define HAL_COMM_ALL_REDUCE UINT32_C(0)
#define HAL_COMM_BROADCAST UINT32_C(1)
#define HAL_COMM_REDUCE UINT32_C(2)
#define HAL_COMM_ALL_GATHER UINT32_C(3)
#define HAL_COMM_REDUCE_SCATTER UINT32_C(4)
#define HAL_COMM_ALL_TO_ALL UINT32_C(5)
#define HAL_COMM_SEND UINT32_C(6)
#define HAL_COMM_RECV UINT32_C(7)
#define HAL_COMM_BARRIER UINT32_C(8)
#define HAL_COMM_GATHER UINT32_C(9)
#define HAL_COMM_SCATTER UINT32_C(10)

/* Reductions: `reduce` of hal_collective_t. AVG divides the sum by the number of ranks before it is rounded; not for integers. The bitwise
 * ones are for integers and bool. PREMUL_SUM multiplies by `scale` before it adds; for floating-point types. Of bool, SUM is "or" and
 * PROD is "and". Complex types: SUM, PROD and AVG. MIN and MAX give NaN where an element is NaN. */
#define HAL_REDUCE_SUM UINT32_C(0)
#define HAL_REDUCE_PROD UINT32_C(1)
#define HAL_REDUCE_MIN UINT32_C(2)
#define HAL_REDUCE_MAX UINT32_C(3)
#define HAL_REDUCE_AVG UINT32_C(4)
#define HAL_REDUCE_BAND UINT32_C(5)
#define HAL_REDUCE_BOR UINT32_C(6)
#define HAL_REDUCE_BXOR UINT32_C(7)
#define HAL_REDUCE_PREMUL_SUM UINT32_C(8)

/* One collective. Pointers are borrowed until it is done; the struct itself and its arrays for the call. */
typedef struct hal_collective_s {
  size_t struct_size;
  uint32_t op;       /* HAL_COMM_* */
  uint32_t reduce;   /* HAL_REDUCE_*, where op reduces */
  hal_dtype_t dtype; /* of the elements; operators that only copy accept every type */
  int32_t peer;      /* root of BROADCAST, REDUCE, GATHER, SCATTER; the other rank of SEND and RECV */
  uint32_t tag;      /* of SEND and RECV */
  uint32_t reserved; /* 0 */
  const void *send;
  void *recv;
  uint64_t count; /* elements, as the table above says */
  /* For ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER and SCATTER: NULL, or an array with a number for each rank in place of `count`:
   * elements to give to and to take from it, and where its elements start. Where op gives or takes one block, only the arrays of the other
   * side are read, and `count` is the size of the one block. Without displacements, blocks are stored one after another. */
  const uint64_t *send_counts, *send_displs, *recv_counts, *recv_displs;
  const void *scale;    /* PREMUL_SUM: one number on the host: float for float16 and bfloat16, else of dtype */
  uint64_t sequence;    /* of the communicator's calls, from 1 on; set by the HAL */
  uint64_t fingerprint; /* of op, reduce, dtype, peer, counts that all ranks share; set by the HAL */
} hal_collective_t;

/* ---- what a communicator is built on -------------------------------------------------------------------------------- */

/* A store of small values that all ranks see, as torch's TCPStore is. Used while a communicator is created, and to report failures. */
typedef struct hal_comm_store_s {
  size_t struct_size;
  void *context; /* first argument of the functions */
  /* Stores a value under a key, in place of one that is there. */
  hal_status_t (*set)(void *context, const char *key, const void *value, size_t size);
  /* Waits until a key has a value, at most `timeout_ns`, and copies at most `room` bytes of it. `*out_size` is the size of the value.
   * Errors: HAL_NOT_READY = no value within the time; HAL_UNAVAILABLE = the store does not answer. */
  hal_status_t (*get)(void *context, const char *key, int64_t timeout_ns, void *out, size_t room, size_t *out_size);
} hal_comm_store_t;

/* Flags of a transport. COMPARES_CALLS: `run` finds calls of collectives that do not match before data moves. */
#define HAL_COMM_COMPARES_CALLS UINT32_C(1)

/* Moves host memory between the ranks of one communicator. */
typedef struct hal_comm_transport_s {
  size_t struct_size;
  void *context;    /* first argument of the functions */
  const char *name; /* for messages, as "gloo"; valid as long as the transport */
  /* Runs collectives whose pointers are host memory, and returns when this rank's part is done. The calls progress together. One thread
   * at a time brings brackets without SEND and RECV, all ranks the same ones in the same order; beside it, and beside each other, threads
   * bring single calls of SEND and RECV, at most one at a time for each peer and direction. `count` >= 1.
   * Errors: HAL_INVALID_ARGUMENT = the ranks' calls do not match; HAL_NOT_READY = not done within `timeout_ns`; HAL_UNAVAILABLE = a rank has
   * ended; HAL_ABORTED; HAL_UNIMPLEMENTED = an op, reduction or type, before anything moved. After the others the transport is unusable. */
  hal_status_t (*run)(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);
  /* Makes `run` return HAL_ABORTED, now and later, on this rank, and tells the others why. Any thread, also during `run`; never waits. */
  void (*abort)(void *context, const char *reason);
  /* Frees the transport. No other call is running. */
  void (*destroy)(void *context);
  uint32_t flags; /* HAL_COMM_COMPARES_CALLS */
} hal_comm_transport_t;

/* Connects the ranks of a group that run on one host by shared memory; 2 to 64 ranks. All ranks call it, with the same name and size, and wait
 * for each other. The store may have keys of an earlier attempt. Destroyed by its own `destroy`, or owned by a communicator. Errors, the same on
 * all ranks: HAL_UNIMPLEMENTED = one rank, or a rank that cannot open the memory of rank 0 (another host, pid namespace or user): use another
 * transport; HAL_NOT_READY = ranks are missing after `timeout_ns`; HAL_INVALID_ARGUMENT = the ranks differ in their size, or two have one
 * number; HAL_INCOMPATIBLE = other versions of this library; HAL_UNAVAILABLE = the store does not answer, or a rank has ended. Since 0.3. */
HAL_API hal_status_t hal_comm_transport_shared_memory(const hal_comm_store_t *store, const char *name, int32_t rank,
                                                      int32_t size, int64_t timeout_ns,
                                                      hal_comm_transport_t *out_transport);

/* ---- communicators -------------------------------------------------------------------------------------------------- */

typedef struct hal_comm_s hal_comm_t;

/* One bracket of collectives that was submitted. May be used by several threads at a time. */
typedef struct hal_comm_work_s hal_comm_work_t;

/* Called once when a work has ended: `status` is its failure, with the calling thread's message, or HAL_OK. */
typedef void (*hal_comm_done_fn_t)(void *user_data, hal_status_t status);

/* What a communicator is made of. */
typedef struct hal_comm_config_s {
  size_t struct_size;
  int32_t device;     /* whose memory the collectives move */
  int32_t rank, size; /* this process, and the number of processes */
  int32_t reserved;   /* 0 */
  int64_t timeout_ns; /* of collectives that name none; 0 = 30 minutes */
  const char *name;   /* for messages; borrowed for the call; NULL = "" */
  /* Connects the ranks. The communicator owns it from a successful call on, and destroys it. */
  hal_comm_transport_t transport;
} hal_comm_config_t;

/* Creates a communicator. No rank waits for another in it. Destroyed by hal_comm_destroy.
 * Errors: HAL_INVALID_ARGUMENT = a rank or size that does not fit; as hal_device_ensure; HAL_RESOURCE_EXHAUSTED. Since 0.3. */
HAL_API hal_status_t hal_comm_create(const hal_comm_config_t *config, hal_comm_t **out_comm);

/* Waits at most `timeout_ns` for submitted collectives, aborts what is left, and frees the communicator; NULL is allowed. Works stay valid.
 * In a forked child nothing happens. Since 0.3. */
HAL_API void hal_comm_destroy(hal_comm_t *comm, int64_t timeout_ns);

/* Queues collectives on device memory behind the work that is queued on `stream` (NULL: the current stream of the device), and returns
 * without waiting for it. Later work of `stream` does not wait for the collectives: see hal_comm_work_wait. Collectives of a
 * communicator run in the order of the calls, those of one call together; SEND and RECV run beside them, in order for each peer and
 * direction. `done` (NULL is allowed) runs when the copies of the results are queued on hal_comm_stream, or the work has failed, on a thread of
 * the HAL that holds no lock; not if the call fails. Buffers stay valid until then. Released by hal_comm_work_release (`out_work` NULL: not returned). Any thread.
 * Errors: HAL_INVALID_ARGUMENT = a call that is invalid by itself (nothing was queued); HAL_UNIMPLEMENTED = the stream records a
 * program; HAL_ABORTED, HAL_UNAVAILABLE, ... = the communicator's first failure. Since 0.3. */
HAL_API hal_status_t hal_comm_submit(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls,
                                     uint32_t count, int64_t timeout_ns, hal_comm_done_fn_t done, void *user_data,
                                     hal_comm_work_t **out_work);

/* Ends every collective that is queued or running, on this rank with HAL_ABORTED; the other ranks get `reason` where the transport can tell
 * them. The communicator accepts no more. Any thread; does not wait. Since 0.3. */
HAL_API void hal_comm_abort(hal_comm_t *comm, const char *reason);

/* Returns the communicator's first failure with its message, or HAL_OK. Does not wait. Since 0.3. */
HAL_API hal_status_t hal_comm_error(hal_comm_t *comm);

/* Returns the stream that the results of collectives are copied on; borrowed. Since 0.3. */
HAL_API hal_stream_t *hal_comm_stream(const hal_comm_t *comm);

/* Returns the number of calls of hal_comm_submit so far, which every rank counts alike. Since 0.3. */
HAL_API uint64_t hal_comm_sequence(const hal_comm_t *comm);

/* Makes later work of `stream` (NULL: the current stream of the device) wait for the results. Returns when the other ranks have done
 * their part, which the caller may have to wait for, at most `timeout_ns` (0: until the work's own timeout ends it). Any thread.
 * Errors: the work's failure; HAL_NOT_READY = the time is over, and the work goes on. Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_wait(hal_comm_work_t *work, hal_stream_t *stream, int64_t timeout_ns);

/* Waits on the host until the results are in device memory, otherwise as hal_comm_work_wait. Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_synchronize(hal_comm_work_t *work, int64_t timeout_ns);

/* Returns HAL_OK when the results are in device memory, HAL_NOT_READY before, or the work's failure. Does not wait. Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_query(hal_comm_work_t *work);

/* Releases a work, which may still be running; NULL is allowed. Since 0.3. */
HAL_API void hal_comm_work_release(hal_comm_work_t *work);

#ifdef __cplusplus
}
#endif
#endif /* HAL_COMM_H_ */
