/* comm.h: collective operations between processes.
 *
 * A communicator connects `size` ranks, one process each, numbered from 0. All ranks call the same collectives of a
 * communicator in the same order, with the same operator, data type and counts. Each call has a fingerprint of them; a
 * mismatch is an error on every rank before data is moved.
 *
 * Sums of float16 and bfloat16 are computed in float32 and rounded once. Sums of all types are computed in the order of
 * the ranks: every rank gets the same bits, in every run and at every size. The transports of this header guarantee
 * both. A vendor's collectives library (hal_comm_connect_library) has its own order and rounding, and compares calls
 * only on request. */
#ifndef HAL_COMM_H_
#define HAL_COMM_H_

#include "hal/api.h"
#include "hal/plugin.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- store and transport ----------------------------------------------------------------------------------------- */

/* A store of small values that all ranks share, such as torch's TCPStore. The HAL uses it to create a communicator and
 * to report failures. */
typedef struct hal_comm_store_s {
  size_t struct_size;
  void *context; /* first argument of the functions */
  /* Stores a value under a key; replaces an existing value. */
  hal_status_t (*set)(void *context, const char *key, const void *value, size_t size);
  /* Waits until a key has a value, at most `timeout_ns`, and copies at most `capacity` bytes of it. `*out_size` is the
   * size of the value. Errors: HAL_NOT_READY = no value within the time; HAL_UNAVAILABLE = the store does not
   * respond. */
  hal_status_t (*get)(void *context, const char *key, int64_t timeout_ns, void *out, size_t capacity, size_t *out_size);
} hal_comm_store_t;

/* Flags of a transport. COMPARES_CALLS: `run` detects calls that do not match before data is moved. Without it the
 * communicator compares them: collectives by an ALL_GATHER before them, messages by a header before each one, which is
 * a SEND of uint8 with the same tag. The receiver detects a mismatch and fails the communicator. */
#define HAL_COMM_COMPARES_CALLS UINT32_C(1)

/* Moves host memory between the ranks of one communicator. */
typedef struct hal_comm_transport_s {
  size_t struct_size;
  void *context;    /* first argument of the functions */
  const char *name; /* for messages, such as "gloo"; valid as long as the transport */
  /* Runs collectives whose pointers are host memory, and returns when this rank's part is done. The calls of one
   * bracket progress together. One thread at a time runs brackets without SEND and RECV; all ranks run the same ones in
   * the same order. At the same time other threads may run single calls of SEND and RECV, at most one for each peer and
   * direction. `count` >= 1. Errors: HAL_INVALID_ARGUMENT = the ranks' calls do not match; HAL_NOT_READY = not done
   * within `timeout_ns`; HAL_UNAVAILABLE = a rank has ended; HAL_ABORTED; HAL_UNIMPLEMENTED = an op, reduction or type,
   * before any data was moved. After any error except HAL_UNIMPLEMENTED the transport is unusable. */
  hal_status_t (*run)(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);
  /* Makes `run` return HAL_ABORTED on this rank, now and later, and sends the reason to the other ranks. Any thread,
   * also during `run`; never waits. */
  void (*abort)(void *context, const char *reason);
  /* Frees the transport. No other call may be running. */
  void (*destroy)(void *context);
  uint32_t flags; /* HAL_COMM_COMPARES_CALLS */
  /* Returns the failure that another rank has reported, or HAL_UNAVAILABLE if a rank has ended without destroying its
   * side, with a message; else HAL_OK. Any thread; never waits. NULL is allowed. Since 0.4. */
  hal_status_t (*query)(void *context);
} hal_comm_transport_t;

/* Connects the ranks of a group on one host by shared memory; 2 to 64 ranks. All ranks call it with the same name and
 * size, and wait for each other. The store may have keys of an earlier attempt. Destroyed by its own `destroy`, or
 * owned by a communicator. Errors, the same on all ranks: HAL_UNIMPLEMENTED = one rank, or a rank that cannot open the
 * memory of rank 0 (another host, pid namespace or user): use another transport; HAL_NOT_READY = ranks are missing
 * after `timeout_ns`; HAL_INVALID_ARGUMENT = the ranks have different sizes, or two have one number; HAL_INCOMPATIBLE =
 * other versions of this library; HAL_UNAVAILABLE = the store does not respond, or a rank has ended. Since 0.3.
 *
 * Messages: if a RECV is waiting, a SEND that does not match it fails before data is moved, as the RECV does. A SEND
 * before its RECV that fits into the buffer (512 KiB; 64 KiB with more than 8 ranks) returns before it is compared:
 * the RECV reports a mismatch, and the next call of the sender does. */
HAL_API hal_status_t hal_comm_transport_shared_memory(const hal_comm_store_t *store, const char *name, int32_t rank,
                                                      int32_t size, int64_t timeout_ns,
                                                      hal_comm_transport_t *out_transport);

/* ---- ranks on several hosts -------------------------------------------------------------------------------------- */

/* Ranks that can open each other's memory are on one host. Within a host collectives use shared memory; between hosts
 * they use transports that the caller connects. Ranks with private pid namespaces count as different hosts. Network
 * namespaces and host names do not matter.
 *
 * Sums are computed in the order of the ranks within each host, then in the order of the hosts, which is that of their
 * lowest ranks. float16 and bfloat16 are summed and multiplied in float32, also between hosts, and rounded once;
 * averages are divided once. All ranks get the same bits, in every run and at every size, as long as the assignment of
 * ranks to hosts does not change. */

/* Flags of hal_comm_hosts_t. SHARED: HAL_UNIMPLEMENTED if no two ranks are on one host, where another transport needs
 * fewer steps. FLAT: every rank counts as a host, and the transport that `connect` creates for "column 0" runs whole
 * collectives, of all types and with its own order of summation. The result compares all calls and propagates failures
 * through the store. FLAT is known since 0.5. */
#define HAL_COMM_HOSTS_SHARED UINT32_C(1)
#define HAL_COMM_HOSTS_FLAT UINT32_C(2)

/* The configuration of a transport over several hosts. */
typedef struct hal_comm_hosts_s {
  size_t struct_size;
  /* Copied. A thread of the HAL may call its functions, also during other calls, until `release` is called. It has no
   * keys of an earlier attempt with this name. */
  const hal_comm_store_t *store;
  const char *name;   /* of the communicator; the same on all ranks; borrowed for the call */
  int32_t rank, size; /* of this process; the number of processes, at least 2 */
  int64_t timeout_ns; /* time limit for connecting the ranks */
  uint32_t flags;     /* HAL_COMM_HOSTS_* */
  uint32_t reserved;  /* 0 */
  void *context;      /* first argument of `connect` */
  /* Connects `size` of the ranks; this one has number `rank`. `use` names the set: "column 0" has the lowest rank of
   * each host, "column 1" the second one, and so on; "messages" has all ranks, for SEND and RECV. A rank is in at most
   * one column. `store` is the caller's, but its `get` fails as soon as another rank has failed; valid during the call.
   * The transport needs ALL_GATHER, ALL_TO_ALL, GATHER and BROADCAST of uint8, also with counts, and SEND and RECV for
   * "messages"; no reductions. It is destroyed with the result. */
  hal_status_t (*connect)(void *context, const char *use, int32_t rank, int32_t size, const hal_comm_store_t *store,
                          int64_t timeout_ns, hal_comm_transport_t *out_transport);
  /* NULL, or called once when `store` and `context` are not used any more, also if the call fails. It is called by the
   * call, by the transport's `destroy`, or later by a thread of the HAL whose call of the store does not return. */
  void (*release)(void *context);
} hal_comm_hosts_t;

/* Connects the ranks of a group on several hosts. All ranks call it and wait for each other. If all are on one host,
 * the result is the transport of hal_comm_transport_shared_memory. Destroyed by its own `destroy`, or owned by a
 * communicator. A bracket with SEND or RECV has one call. Errors, the same on all ranks: HAL_UNIMPLEMENTED = one rank,
 * or see HAL_COMM_HOSTS_SHARED; HAL_NOT_READY = ranks are missing after `timeout_ns`; HAL_INVALID_ARGUMENT = the ranks
 * have different sizes; HAL_INCOMPATIBLE = other versions of this library; the error of `connect` on one of the ranks;
 * HAL_RESOURCE_EXHAUSTED. Since 0.3. */
HAL_API hal_status_t hal_comm_transport_hierarchical(const hal_comm_hosts_t *hosts,
                                                     hal_comm_transport_t *out_transport);

/* ---- communicators ----------------------------------------------------------------------------------------------- */

typedef struct hal_comm_s hal_comm_t;

/* One submitted bracket of collectives. Several threads may use it at a time. */
typedef struct hal_comm_work_s hal_comm_work_t;

/* Called once when a work has ended: `status` is HAL_OK or its failure, whose message the calling thread has. */
typedef void (*hal_comm_done_fn_t)(void *user_data, hal_status_t status);

/* The configuration of a communicator. */
typedef struct hal_comm_config_s {
  size_t struct_size;
  int32_t device;     /* whose memory the collectives move */
  int32_t rank, size; /* the number of this process, and the number of processes */
  int32_t reserved;   /* 0 */
  int64_t timeout_ns; /* of collectives without their own timeout; 0 = 30 minutes */
  const char *name;   /* for messages; borrowed for the call; NULL = "" */
  /* Connects the ranks. The communicator owns it after a successful call, and destroys it. Zeroed for one rank, whose
   * results are copies on the device. */
  hal_comm_transport_t transport;
} hal_comm_config_t;

/* Creates a communicator. Destroyed by hal_comm_destroy. It waits for the other ranks, at most `timeout_ns`, if the
 * transport is that of shared memory, the plugin has no collectives library, and the host cannot access the memory of
 * the device. If the plugin has the group IPC, the ranks then share device memory, so that collectives do not pass
 * through the host. All ranks create such communicators in the same order. Errors: HAL_INVALID_ARGUMENT = an invalid
 * rank or size; as hal_device_ensure; HAL_RESOURCE_EXHAUSTED; HAL_NOT_READY, HAL_UNAVAILABLE = a rank is missing or has
 * ended. Since 0.3. */
HAL_API hal_status_t hal_comm_create(const hal_comm_config_t *config, hal_comm_t **out_comm);

/* Flags of hal_comm_connect_library. COMPARE_CALLS: the transport compares the ranks' calls before the library gets
 * them. A thread of the HAL waits for all ranks. SEND and RECV are compared by both ranks of each pair, with records
 * that the library exchanges first. Without it, calls that do not match hang until their timeout, or have the library's
 * undefined results. REGISTER_MEMORY: if the library can, each segment of the allocator is
 * registered with it at the first collective that uses the segment, until it is freed. */
#define HAL_COMM_COMPARE_CALLS UINT32_C(1)
#define HAL_COMM_REGISTER_MEMORY UINT32_C(2)

/* Connects the ranks by the collectives library of the device's plugin (group COMM), in addition to the transport. From
 * then on the library runs the collectives that it lists, on the device's streams; the transport runs the others, such
 * as a reduction that the library lacks. The call alone determines which of the two runs it. Collectives keep the order
 * of the calls in both. All ranks call it, with the same flags and plugin, before their first collective, and wait for
 * each other over the transport, at most `timeout_ns` (0: the communicator's timeout). Errors, the same on all ranks:
 * HAL_UNIMPLEMENTED = the plugin has no library, or a rank cannot use it (the message has the rank and the cause): the
 * transport runs all collectives, and the ranks share device memory as in hal_comm_create; HAL_FAILED_PRECONDITION =
 * collectives were submitted before; HAL_INVALID_ARGUMENT = unknown flags; those of the transport, after which the
 * communicator has failed. Since 0.4. */
HAL_API hal_status_t hal_comm_connect_library(hal_comm_t *comm, uint32_t flags, int64_t timeout_ns);

/* Connects a communicator of some ranks of `parent`, whose library creates the connection (comm_split of the plugin):
 * this is faster than hal_comm_connect_library and shares resources. All ranks of `parent` call it, at the same place
 * in the order of its collectives. Ranks of one `color` pass their new communicator `child`, on which they are numbered
 * by `key`, then by their rank in `parent`; a rank with the `color` -1 passes NULL. If the library of `parent` cannot
 * split, or fails on one rank, the ranks connect as by hal_comm_connect_library. Errors: as hal_comm_connect_library;
 * HAL_INVALID_ARGUMENT = the groups do not match the colors and keys; the failure of `parent`. `timeout_ns` 0: the
 * timeout of `parent`. Since 0.4. */
HAL_API hal_status_t hal_comm_split_library(hal_comm_t *parent, int32_t color, int32_t key, hal_comm_t *child,
                                            uint32_t flags, int64_t timeout_ns);

/* Connects a communicator without `count` ranks of `parent` (comm_shrink of the plugin), which do not call it; the
 * others keep their order. `shrink_flags`: HAL_COMM_SHRINK_ABORT ends the library's calls of `parent` first. Call
 * hal_comm_abort of `parent` after this call, since a library that was aborted creates no communicator. Otherwise as
 * hal_comm_split_library. Since 0.4. */
HAL_API hal_status_t hal_comm_shrink_library(hal_comm_t *parent, const int32_t *excluded, uint32_t count,
                                             uint32_t shrink_flags, hal_comm_t *child, uint32_t flags,
                                             int64_t timeout_ns);

/* Returns the name of the library that runs collectives, such as "nccl"; "" if the transport runs all. Valid as long as
 * the communicator. Since 0.4. */
HAL_API const char *hal_comm_library(const hal_comm_t *comm);

/* Waits at most `timeout_ns` for submitted collectives, aborts those that remain, and frees the communicator; NULL is
 * allowed. Works remain valid. Does nothing in a forked child. Since 0.3. */
HAL_API void hal_comm_destroy(hal_comm_t *comm, int64_t timeout_ns);

/* Queues collectives on device memory after the work that is queued on `stream` (NULL: the current stream of the
 * device), and returns without waiting. Later work of `stream` does not wait for the collectives: see
 * hal_comm_work_wait. Collectives of a communicator run in the order of the calls; those of one call run together. The
 * operands of one may be results of earlier ones, without a wait between them. SEND and RECV run concurrently with
 * collectives, in order for each peer and direction.
 *
 * `done` (NULL is allowed) runs when the copies of the results are queued on hal_comm_stream, or the work has failed;
 * it does not run if the call fails. It runs on a thread of the HAL that holds no lock, or one that waits:
 * HAL_COMM_WAITER_RUNS. Buffers stay valid until then. `done` may submit collectives and wait for them: they run on its
 * thread. `*out_work` is released by hal_comm_work_release; `out_work` may be NULL. Any thread.
 *
 * Collectives of the vendor's library are queued on hal_comm_stream before the call returns, unless earlier ones still
 * run through the transport. `done` may then run on the calling thread, and buffers must stay valid until the results
 * are available. hal_comm_work_wait, hal_comm_work_synchronize and hal_comm_work_query return a failure after that.
 *
 * While the stream records a program (hal/program.h), each run of the program submits the collectives, and its stream
 * waits for their results: `done` runs at once, on the calling thread, and waiting for the work returns at once. All
 * ranks run their programs in the same order.
 *
 * Errors: HAL_INVALID_ARGUMENT = an invalid call (nothing was queued); HAL_ABORTED, HAL_UNAVAILABLE, ... = the
 * communicator's first failure. Since 0.3. */
HAL_API hal_status_t hal_comm_submit(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls,
                                     uint32_t count, int64_t timeout_ns, hal_comm_done_fn_t done, void *user_data,
                                     hal_comm_work_t **out_work);

/* A tensor of a collective, for the log. */
typedef struct hal_comm_tensor_s {
  hal_dtype_t dtype;
  uint32_t dims;
  const int64_t *sizes; /* `dims` entries */
} hal_comm_tensor_t;

/* Flags of a work. WAITER_RUNS: a thread in hal_comm_work_wait or hal_comm_work_synchronize without a time (0) may run
 * the work, and works before it that have the flag. It then waits for their operands too, and `done` of these works may
 * run on it, while it holds no lock of the HAL. Only threads of the HAL run a work of several SEND and RECV.
 *
 * CALLER_WAITS implies WAITER_RUNS: no thread is woken for the work, since the caller calls hal_comm_work_wait,
 * _synchronize, _query or _release for it at once. Otherwise it runs with later works of its order at the latest.
 *
 * IS_ORDERED: the ranks of each SEND and RECV submit it at the same place in the order of their collectives, in calls
 * that also have this flag. The vendor's library then runs them together with the others of the call; without it they
 * go through the transport. */
#define HAL_COMM_WAITER_RUNS UINT32_C(1)
#define HAL_COMM_CALLER_WAITS UINT32_C(2)
#define HAL_COMM_IS_ORDERED UINT32_C(4)

/* What the caller adds to a work: its entry in the log, and flags. All of it is copied. */
typedef struct hal_comm_entry_s {
  size_t struct_size;
  uint32_t group;      /* of hal_comm_log_group */
  uint32_t is_message; /* 1: SEND or RECV, which have their own numbers */
  uint64_t sequence;   /* the work's number in its group: of collectives, or of messages */
  uint64_t operation;  /* number of the program's call in its group */
  const char *name;    /* "gloo:all_reduce"; NULL: the entry is made from the calls, as without this struct */
  const char *stack; /* where the program called it: lines "function\tfile\tline\n", innermost first; NULL = unknown */
  uint32_t input_count, output_count;
  const hal_comm_tensor_t *tensors; /* inputs, then outputs */
  uint32_t flags;                   /* HAL_COMM_WAITER_RUNS, HAL_COMM_CALLER_WAITS, HAL_COMM_IS_ORDERED; since 0.4 */
} hal_comm_entry_t;

/* Submits collectives as hal_comm_submit, with an entry in the log of collectives (`entry` NULL: one that is made from
 * `calls`) and flags. Errors also: HAL_INVALID_ARGUMENT = an unknown flag. Since 0.3. */
HAL_API hal_status_t hal_comm_submit_logged(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls,
                                            uint32_t count, int64_t timeout_ns, const hal_comm_entry_t *entry,
                                            hal_comm_done_fn_t done, void *user_data, hal_comm_work_t **out_work);

/* Ends every queued and running collective, on this rank with HAL_ABORTED; the other ranks get `reason` if the
 * transport can report it. The communicator accepts no more collectives. Any thread; does not wait, except for the
 * vendor's library, which takes at most a second. Does nothing in a forked child. Since 0.3. */
HAL_API void hal_comm_abort(hal_comm_t *comm, const char *reason);

/* Returns the communicator's first failure with its message, or HAL_OK. Does not wait. Since 0.3. */
HAL_API hal_status_t hal_comm_error(hal_comm_t *comm);

/* Returns the stream on which the results of collectives are copied and the vendor's library runs; borrowed. Connecting
 * a library replaces it by a stream of this communicator alone. Since 0.3. */
HAL_API hal_stream_t *hal_comm_stream(const hal_comm_t *comm);

/* Returns the number of calls of hal_comm_submit so far; all ranks have the same number. Since 0.3. */
HAL_API uint64_t hal_comm_sequence(const hal_comm_t *comm);

/* Makes later work of `stream` (NULL: the current stream of the device) wait for the results. The call returns when the
 * other ranks have done their part, which it waits for at most `timeout_ns` (0: until the work's own timeout ends it).
 * It returns at once if the vendor's library runs the collectives: a later failure is recorded for the stream, as by
 * hal_comm_work_wait_stream. Any thread. Errors: the work's failure; HAL_NOT_READY = the time is over, and the work
 * continues. Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_wait(hal_comm_work_t *work, hal_stream_t *stream, int64_t timeout_ns);

/* Makes later work of `stream` (NULL: the current stream of the device) wait for the results. If the plugin has its own
 * semaphores (group SEMAPHORE) and the device is asynchronous, the call returns at once, before the other ranks have
 * done their part; else it is hal_comm_work_wait with 0. A failure of the work after the call ends the wait. It is
 * recorded for the stream, and reported by its next synchronization or query (HAL_ABORTED in place of HAL_UNAVAILABLE
 * and HAL_NOT_READY, since the device is not lost and the stream does not wait any more). Any thread. Errors: the
 * work's failure before the call; HAL_FAILED_PRECONDITION = the stream is recorded. Since 0.4. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_wait_stream(hal_comm_work_t *work, hal_stream_t *stream);

/* Waits on the host until the results are in device memory, otherwise as hal_comm_work_wait. Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_synchronize(hal_comm_work_t *work, int64_t timeout_ns);

/* Returns HAL_OK if the results are in device memory, HAL_NOT_READY if not yet, or the work's failure. Does not wait.
 * Since 0.3. */
HAL_API HAL_MUST_USE hal_status_t hal_comm_work_query(hal_comm_work_t *work);

/* Releases a work, which may still be running; NULL is allowed. Since 0.3. */
HAL_API void hal_comm_work_release(hal_comm_work_t *work);

/* ---- the log of collectives -------------------------------------------------------------------------------------- */

/* A process has one log, of the last works of all its communicators. */

/* Sets the number of entries (0: no log; default: 2,000), which clears the log if the number changes, and the file that
 * is written when a communicator fails (NULL: none). Errors: HAL_RESOURCE_EXHAUSTED, HAL_INVALID_ARGUMENT = over 2^20
 * entries. Since 0.3. */
HAL_API hal_status_t hal_comm_log_configure(uint32_t entries, const char *file);

/* Describes a group of ranks, numbered as in the whole job, for the log. A known name replaces the description of that
 * group. Errors: HAL_RESOURCE_EXHAUSTED. Since 0.3. */
HAL_API hal_status_t hal_comm_log_group(const char *name, const char *description, const uint64_t *ranks,
                                        uint32_t count, uint32_t *out_group);

/* Makes a signal write the log to the file of hal_comm_log_configure, on a thread of the HAL, to diagnose a process
 * that hangs. 0 removes the signal handler. A forked child does not write. Errors: HAL_FAILED_PRECONDITION = no file,
 * or a signal that has another handler; HAL_INVALID_ARGUMENT = a signal that cannot be handled; HAL_RESOURCE_EXHAUSTED.
 * Any thread. Since 0.3. */
HAL_API hal_status_t hal_comm_log_write_on(int32_t signal);

/* Writes the log to a file, which it replaces: a pickle in the format of torch's flight recorder, version 2.10, oldest
 * entry first. An entry is "scheduled" from the call on, "started" when its operands are ready, and "completed" when
 * the copies of its results are queued. An entry that has failed keeps its state, and is "retired". With the vendor's
 * library an entry is "started" when it is queued, and "completed" once a thread of the HAL has detected its end, up to
 * 0.1 s later. Errors: HAL_UNAVAILABLE = the file cannot be written, with the cause; HAL_RESOURCE_EXHAUSTED. Any
 * thread. Since 0.3. */
HAL_API hal_status_t hal_comm_log_write(const char *file);

#ifdef __cplusplus
}
#endif
#endif /* HAL_COMM_H_ */
