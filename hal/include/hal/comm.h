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

/* Moves host memory between the ranks of one communicator. */
typedef struct hal_comm_transport_s {
  size_t struct_size;
  void *context;    /* first argument of the functions */
  const char *name; /* for messages, as "gloo"; valid as long as the transport */
  /* Runs collectives whose pointers are host memory, and returns when this rank's part is done. The calls progress together: a SEND and a
   * RECV of one bracket never wait for each other. One thread at a time; all ranks bring the same brackets in the same order.
   * Errors: HAL_INVALID_ARGUMENT = the ranks' calls do not match; HAL_NOT_READY = not done within `timeout_ns`; HAL_UNAVAILABLE = a rank has
   * ended; HAL_ABORTED; HAL_UNIMPLEMENTED = an op, reduction or type, before anything moved. After the others the transport is unusable. */
  hal_status_t (*run)(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);
  /* Makes `run` return HAL_ABORTED, now and later, on this rank, and tells the others why. Any thread, also during `run`; never waits. */
  void (*abort)(void *context, const char *reason);
  /* Frees the transport. No other call is running. */
  void (*destroy)(void *context);
} hal_comm_transport_t;

#ifdef __cplusplus
}
#endif
#endif /* HAL_COMM_H_ */
