/* memory.h: the stream-ordered caching allocator, copies and fills.
 *
 * A block belongs to the stream for which it was allocated. After its release, later work of that stream may reuse it
 * immediately. Call hal_memory_record_stream for every other stream that uses the block; it is then reused only after
 * that work is done. */
#ifndef HAL_MEMORY_H_
#define HAL_MEMORY_H_

#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_block_s hal_block_t;

/* Allocates `size` bytes for work of `stream` (NULL: current stream), aligned to 512 bytes. Size 0 returns a block
 * whose address is NULL. Released by hal_memory_release. Errors: HAL_RESOURCE_EXHAUSTED, with the sizes tried, total,
 * free, allocated and reserved, the largest free block and the setting to change; HAL_OUT_OF_RANGE; those of
 * hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_memory_allocate(int32_t device, hal_stream_t *stream, size_t size, hal_block_t **out_block);

/* Releases a block; NULL is allowed. Work queued on its stream may still use it. Does nothing after hal_registry_close
 * and in a forked child. Since 0.1. */
HAL_API void hal_memory_release(hal_block_t *block);

/* Returns the device address of a block. Since 0.1. */
HAL_API void *hal_memory_block_address(const hal_block_t *block);

/* Returns the requested size of a block in bytes. Since 0.1. */
HAL_API size_t hal_memory_block_size(const hal_block_t *block);

/* Returns the device of a block. Since 0.1. */
HAL_API int32_t hal_memory_block_device(const hal_block_t *block);

/* Records that the work queued so far on `stream` uses the block. Since 0.1. */
HAL_API hal_status_t hal_memory_record_stream(hal_block_t *block, hal_stream_t *stream);

/* Creates a block for memory that the caller has allocated, so that statistics and the device's limit include it. After
 * the release of the block, and once the work queued by then on its stream and recorded streams is done, a later HAL
 * call runs `free_fn(user_data)` on its thread. Errors: HAL_RESOURCE_EXHAUSTED = over the limit; the caller still owns
 * the memory. Since 0.1. */
HAL_API hal_status_t hal_memory_adopt(int32_t device, hal_stream_t *stream, void *address, size_t size,
                                      hal_host_fn_t free_fn, void *user_data, hal_block_t **out_block);

/* Runs `free_fn(user_data)` once the work queued so far on the stream (NULL: current) is done: immediately if the
 * stream is idle, else on the thread of a later HAL call. Since 0.1. */
HAL_API hal_status_t hal_memory_defer(int32_t device, hal_stream_t *stream, hal_host_fn_t free_fn, void *user_data);

/* Frees unused segments of the device (-1 = all devices); waits for pending uses by other streams. Since 0.1. */
HAL_API hal_status_t hal_memory_empty_cache(int32_t device);

/* Copies `size` bytes between device or host (HAL_HOST) addresses on a stream. NULL: the current stream of the
 * destination's device, or of the source's device if the destination is the host. Returns when the copy is queued; the
 * buffers must stay valid until it is done. Copies between plugins stage through the host and are done on return.
 * Errors: HAL_OUT_OF_RANGE, HAL_INVALID_ARGUMENT. Since 0.1. */
HAL_API hal_status_t hal_memory_copy(hal_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                     int32_t src_device, size_t size);

/* Copies a rectangle of bytes: `height` rows of `width` bytes that begin `dst_pitch` and `src_pitch` bytes apart, such
 * as columns of a matrix. It is one call of the driver if the driver has such a call. The caller sets
 * `desc->struct_size`; `desc` is borrowed for the call. Devices, stream and buffers are as in hal_memory_copy; the two
 * rectangles must not overlap. A width or height of 0 copies nothing. Errors: HAL_OUT_OF_RANGE, HAL_INVALID_ARGUMENT =
 * a pitch is less than the width, a rectangle ends beyond the address space, or as hal_memory_copy. Since 0.3. */
HAL_API hal_status_t hal_memory_copy_2d(hal_stream_t *stream, const hal_copy_2d_t *desc);

/* Queues `count` copies in one call. `copies` is borrowed for the call; its elements are `stride` bytes apart:
 * sizeof(hal_copy_t). Each copy is as in hal_memory_copy, but the copies run in any order: none may write bytes that
 * another one reads or writes. After a failure it is unspecified which copies were queued. Errors: as hal_memory_copy,
 * with the number of the copy. Since 0.3. */
HAL_API hal_status_t hal_memory_copy_batch(hal_stream_t *stream, const hal_copy_t *copies, size_t count, size_t stride);

/* Fills memory with a pattern of 1, 2, 4, 8 or 16 bytes on a stream (NULL: current); `size` is a multiple of the
 * pattern's size. Errors: HAL_INVALID_ARGUMENT. Since 0.1. */
HAL_API hal_status_t hal_memory_fill(hal_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                     size_t pattern_size, size_t size);

/* Hints that work queued later uses `size` bytes from `ptr` on at `dst_device`: `device`, another device of its plugin,
 * or HAL_HOST. Memory that the driver migrates, such as CUDA's managed memory, is moved there in the order of the
 * stream (NULL: current); other memory is not moved. The bytes keep their values. HAL_OK does not mean that they were
 * moved. On a recorded stream the hint takes effect now, not when the recording runs. Errors: HAL_OUT_OF_RANGE,
 * HAL_INVALID_ARGUMENT, the plugin's. Since 0.4. */
HAL_API hal_status_t hal_memory_prefetch(int32_t device, hal_stream_t *stream, const void *ptr, size_t size,
                                         int32_t dst_device);

/* Hints how `size` bytes from `ptr` on are used: `advice` is HAL_ADVICE_* of plugin.h. PREFERRED, ACCESSED and their
 * opposites refer to `place`: a device of the same plugin, or HAL_HOST. The bytes keep their values, and any use
 * remains valid. Errors: as hal_memory_prefetch. Since 0.4. */
HAL_API hal_status_t hal_memory_advise(int32_t device, const void *ptr, size_t size, uint32_t advice, int32_t place);

/* Returns free and total bytes of the device, as the plugin reports them. If it does not, the total is device_info's
 * total_memory (or the limit that was set), and the bytes that this process has allocated are not free. If total_memory
 * is also unknown, `*out_total` is the number of bytes that this process has allocated on the device, and `*out_free`
 * the number of those that no block uses. Since 0.1. */
HAL_API hal_status_t hal_memory_info(int32_t device, size_t *out_free, size_t *out_total);

/* Returns the block that contains an address; the block may be adopted. It is valid until its owner releases it.
 * Errors: HAL_NOT_FOUND. Since 0.1. */
HAL_API hal_status_t hal_memory_find_block(const void *address, hal_block_t **out_block);

/* Returns the bytes of memory of the device, regardless of the limit, from memory_info or else from device_info.
 * Errors: HAL_NOT_FOUND = the plugin does not report it. Since 0.2. */
HAL_API hal_status_t hal_memory_capacity(int32_t device, size_t *out_bytes);

/* Returns the device of an address in a block, an adopted block, or other memory that a plugin reports as its own.
 * Errors: HAL_NOT_FOUND. Since 0.1. */
HAL_API hal_status_t hal_memory_find(const void *address, int32_t *out_device);

/* Limits the total size of the device's segments, in bytes; 0 = no limit except the device's memory. Since 0.1. */
HAL_API hal_status_t hal_memory_set_limit(int32_t device, size_t bytes);

/* ---- a program's own allocator ----------------------------------------------------------------------------------- */

/* Functions that allocate device memory in place of the plugin. They run on the thread that allocates or releases, and
 * may call hal_memory_raw_allocate and hal_memory_raw_free, and no other function of the HAL. The struct is copied. */
typedef struct hal_memory_allocator_s {
  size_t struct_size;
  /* Returns `size` bytes of the device, aligned to at least 512 bytes, for work of a stream, which is the driver's
   * handle (hal_stream_native) or NULL; NULL = out of memory. */
  void *(*allocate)(void *user_data, size_t size, int32_t device, void *stream);
  /* Releases memory of `allocate`, which no queued work uses. */
  void (*release)(void *user_data, void *address, size_t size, int32_t device, void *stream);
  void *user_data; /* must stay valid until hal_registry_close */
} hal_memory_allocator_t;

/* Replaces the caching allocator of all devices: each later allocation of more than 0 bytes outside of private pools is
 * one call of `allocator` (NULL: the caching allocator again). No other thread may use a device meanwhile. Errors:
 * HAL_FAILED_PRECONDITION = a device has allocated memory; HAL_INVALID_ARGUMENT = an incomplete struct. Since 0.5. */
HAL_API hal_status_t hal_memory_set_allocator(const hal_memory_allocator_t *allocator);

/* Allocates memory of the plugin that the caching allocator does not manage, for allocators of programs. Released by
 * hal_memory_raw_free. Any thread. Errors: HAL_INVALID_ARGUMENT, HAL_RESOURCE_EXHAUSTED, the plugin's. Since 0.5. */
HAL_API hal_status_t hal_memory_raw_allocate(int32_t device, size_t size, void **out_address);

/* Frees memory of hal_memory_raw_allocate, which no queued work uses. Any thread. Errors: the plugin's. Since 0.5. */
HAL_API hal_status_t hal_memory_raw_free(int32_t device, void *address);

/* ---- private pools ----------------------------------------------------------------------------------------------- */

/* A private pool: memory for work that is recorded and run again. While streams are routed to the pool
 * (hal_memory_pool_begin), they allocate from segments that no other allocation uses, even after the blocks are
 * released, until the last reference to the pool is released. */
typedef struct hal_memory_pool_s hal_memory_pool_t;

/* Creates a private pool of a device, with one reference. Any thread. Errors: HAL_RESOURCE_EXHAUSTED; as
 * hal_device_ensure. Since 0.2. */
HAL_API hal_status_t hal_memory_pool_create(int32_t device, hal_memory_pool_t **out_pool);

/* Flags of hal_memory_pool_create_with. NO_SPLIT: an allocation of the pool is a whole segment; no other one shares
 * it. */
#define HAL_MEMORY_POOL_NO_SPLIT UINT32_C(1)

/* Creates a private pool with flags, otherwise as hal_memory_pool_create. Errors: HAL_UNIMPLEMENTED = an unknown flag.
 * Since 0.3. */
HAL_API hal_status_t hal_memory_pool_create_with(int32_t device, uint32_t flags, hal_memory_pool_t **out_pool);

/* Creates a private pool whose segments `allocator` allocates (NULL: the plugin), otherwise as
 * hal_memory_pool_create_with. When the pool ends, segments without blocks in use are released; the others are released
 * with cached memory, once their blocks are. Errors: HAL_INVALID_ARGUMENT = an incomplete struct. Since 0.5. */
HAL_API hal_status_t hal_memory_pool_create_from(int32_t device, uint32_t flags,
                                                 const hal_memory_allocator_t *allocator, hal_memory_pool_t **out_pool);

/* Adds a reference, which hal_memory_pool_release removes. Any thread. Since 0.2. */
HAL_API void hal_memory_pool_retain(hal_memory_pool_t *pool);

/* Releases a reference; NULL is allowed. After the last one the memory joins the pools of the streams: blocks that are
 * still held remain valid, and work queued later may allocate the free ones. The caller must order recorded work that
 * still runs on other streams. Does nothing after hal_registry_close and in a forked child. Any thread. Since 0.2. */
HAL_API void hal_memory_pool_release(hal_memory_pool_t *pool);

/* Returns an id that no other pool of this process has; never 0. Since 0.2. */
HAL_API uint64_t hal_memory_pool_id(const hal_memory_pool_t *pool);

/* Routes allocations for a stream (NULL: current), by any thread, to the pool. Several streams may use one pool; each
 * has its own blocks. This also works on devices whose plugin pools memory. Errors: HAL_FAILED_PRECONDITION = the
 * stream is already routed to a private pool; HAL_INVALID_ARGUMENT = a stream of another device;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_memory_pool_begin(hal_memory_pool_t *pool, hal_stream_t *stream);

/* Ends hal_memory_pool_begin for a stream. Errors: HAL_FAILED_PRECONDITION = the stream is not routed to this pool;
 * HAL_INVALID_ARGUMENT. Since 0.2. */
HAL_API hal_status_t hal_memory_pool_end(hal_memory_pool_t *pool, hal_stream_t *stream);

/* ---- memory shared between processes ----------------------------------------------------------------------------- */

/* The size in bytes of the longest handle of hal_memory_share, and of its key: the first bytes, which are equal in all
 * handles of a block while it is shared. */
#define HAL_MEMORY_SHARE_BYTES 1024
#define HAL_MEMORY_SHARE_KEY_BYTES 48

/* Creates a handle with which one process of this user opens the block's memory, once, while this process runs. The
 * caller keeps the block until `release_fn(user_data)` has run. That happens after the receiver has released its
 * block or has ended, on the thread of a later call of hal_memory_share, hal_memory_collect_shared or
 * hal_memory_allocate. A handle that no process opens keeps the block. Work queued so far on the stream (NULL:
 * current) is done before work that the receiver queues. `capacity`: the size of `handle`, at least
 * HAL_MEMORY_SHARE_BYTES; `*out_size` is the number of bytes that were written to it. Errors: HAL_UNIMPLEMENTED =
 * the plugin does not share memory between processes, or not memory that it pools or that was adopted;
 * HAL_FAILED_PRECONDITION = a received block (copy it first), or one of a private pool; HAL_INVALID_ARGUMENT;
 * HAL_RESOURCE_EXHAUSTED; those of hal_stream_query. Since 0.3. */
HAL_API hal_status_t hal_memory_share(hal_block_t *block, hal_stream_t *stream, hal_host_fn_t release_fn,
                                      void *user_data, void *handle, size_t capacity, size_t *out_size);

/* Checks whether hal_memory_share may share a block, without a call of the plugin. Errors: HAL_UNIMPLEMENTED and
 * HAL_FAILED_PRECONDITION as hal_memory_share. Since 0.3. */
HAL_API hal_status_t hal_memory_check_share(hal_block_t *block);

/* Opens the memory of a handle of hal_memory_share on the same device, for work of `stream` (NULL: current), which
 * waits for the sender's work. The block counts as adopted memory (hal_memory_adopt). The sender may release its memory
 * after hal_memory_release of this block, once the work that uses it is done. If the device's driver keeps it, the
 * memory remains valid after the sender has ended. Errors: HAL_INVALID_ARGUMENT = invalid handle; HAL_NOT_FOUND = the
 * sender has ended, or is a process of another user; HAL_FAILED_PRECONDITION = the handle was opened before;
 * HAL_RESOURCE_EXHAUSTED; the plugin's. Since 0.3. */
HAL_API hal_status_t hal_memory_open(int32_t device, hal_stream_t *stream, const void *handle, size_t handle_size,
                                     hal_block_t **out_block);

/* Releases a handle of hal_memory_share that the receiver does not open because it already has the memory through
 * another handle with the same key. Errors: as hal_memory_open. Since 0.3. */
HAL_API hal_status_t hal_memory_decline(const void *handle, size_t handle_size);

/* Runs the `release_fn` of each handle whose receiver has released its block or has ended. Returns the number of
 * handles that remain. Any thread. Does nothing in a forked child. Since 0.3. */
HAL_API uint32_t hal_memory_collect_shared(void);

/* ---- snapshots and statistics ------------------------------------------------------------------------------------ */

/* The state of a block in a snapshot: free; allocated; released, but work of other streams that uses it is still
 * queued. */
#define HAL_MEMORY_BLOCK_FREE UINT32_C(0)
#define HAL_MEMORY_BLOCK_ALLOCATED UINT32_C(1)
#define HAL_MEMORY_BLOCK_PENDING UINT32_C(2)

/* A flag of a block: its segment is expandable. Each part of such a segment that has memory is listed as a segment. */
#define HAL_MEMORY_BLOCK_EXPANDABLE UINT32_C(1)

/* One block of a snapshot. The blocks of a segment are consecutive and have the segment's address and size. */
typedef struct hal_memory_block_info_s {
  void *address, *segment;
  size_t size, requested, segment_size; /* bytes; requested: by the caller, 0 for a free block */
  int64_t stream;                       /* id of the stream to which the block belongs */
  uint64_t pool;                        /* hal_memory_pool_id of a private pool, 0 = the stream's own pool */
  uint32_t state;                       /* HAL_MEMORY_BLOCK_* */
  uint32_t kind;                        /* HAL_POOL_SMALL or HAL_POOL_LARGE */
  /* Since 0.5: the recorded stacks of the allocations of the block and of its segment, valid until the history is
   * released; NULL except in blocks of hal_memory_history_block. */
  void *stack, *segment_stack;
  uint32_t flags, reserved; /* HAL_MEMORY_BLOCK_EXPANDABLE; since 0.5 */
} hal_memory_block_info_t;

/* Lists the blocks of a device's segments and its adopted memory, ordered by the address of the segment. Writes at most
 * `capacity` entries, each `stride` bytes long (sizeof(hal_memory_block_info_t)), and the number of all blocks to
 * `*out_count`; a `capacity` of 0 only counts. A device that was not used has none and is not initialized. Errors:
 * HAL_OUT_OF_RANGE, HAL_INVALID_ARGUMENT. Since 0.3. */
HAL_API hal_status_t hal_memory_blocks(int32_t device, hal_memory_block_info_t *blocks, size_t stride, size_t capacity,
                                       size_t *out_count);

/* ---- history: recorded events of the allocator ------------------------------------------------------------------- */

/* The action of an event; PyTorch's names. FREE_COMPLETED: the memory may be allocated again. OOM: an allocation failed
 * with HAL_RESOURCE_EXHAUSTED. SNAPSHOT: the history was read. SEGMENT_MAP, SEGMENT_UNMAP: memory of an expandable
 * segment. */
#define HAL_MEMORY_EVENT_ALLOC UINT32_C(0)
#define HAL_MEMORY_EVENT_FREE_REQUESTED UINT32_C(1)
#define HAL_MEMORY_EVENT_FREE_COMPLETED UINT32_C(2)
#define HAL_MEMORY_EVENT_SEGMENT_ALLOC UINT32_C(3)
#define HAL_MEMORY_EVENT_SEGMENT_FREE UINT32_C(4)
#define HAL_MEMORY_EVENT_SNAPSHOT UINT32_C(5)
#define HAL_MEMORY_EVENT_OOM UINT32_C(6)
#define HAL_MEMORY_EVENT_SEGMENT_MAP UINT32_C(7)
#define HAL_MEMORY_EVENT_SEGMENT_UNMAP UINT32_C(8)

/* One event. */
typedef struct hal_memory_event_s {
  void *address;     /* of the block or segment */
  size_t size;       /* bytes: of a block, as requested; SNAPSHOT: allocated bytes */
  size_t free_bytes; /* OOM: free memory of the device */
  int64_t stream;    /* id of the stream to which the block belongs */
  uint64_t pool;     /* hal_memory_pool_id of a private pool, else 0 */
  int64_t time_ns;   /* since the Unix epoch */
  void *stack;       /* recorded stack, valid until the history is released; or NULL */
  uint32_t action;   /* HAL_MEMORY_EVENT_* */
  uint32_t reserved;
} hal_memory_event_t;

/* Which stacks are recorded: none; of blocks in use and of segments; also in ALLOC events, and in events of the release
 * of such a block; also of the calls that release memory. */
#define HAL_MEMORY_STACKS_NONE UINT32_C(0)
#define HAL_MEMORY_STACKS_LIVE UINT32_C(1)
#define HAL_MEMORY_STACKS_ALLOC UINT32_C(2)
#define HAL_MEMORY_STACKS_ALL UINT32_C(3)

#define HAL_MEMORY_HISTORY_CLEAR UINT32_C(1) /* flag of hal_memory_history_desc_t: removes the events recorded so far */

/* What is recorded. */
typedef struct hal_memory_history_desc_s {
  size_t struct_size;
  uint32_t stacks;     /* HAL_MEMORY_STACKS_* */
  uint32_t skip;       /* actions that are not recorded: bits 1 << HAL_MEMORY_EVENT_* */
  uint64_t max_events; /* the last ones are kept */
  uint32_t flags, reserved;
  /* Returns the calling thread's stack, as an address of the program, or NULL. Not called while the thread holds a lock
   * of the HAL: such events have no stack. Must not allocate or release device memory. */
  void *(*capture)(void *user_data);
  /* Releases a stack that `capture` has returned, once, when no event, block or copy refers to it. Any thread; NULL is
   * allowed. */
  void (*release)(void *stack, void *user_data);
  void *user_data; /* must stay valid until the last stack was released */
} hal_memory_history_desc_t;

/* Starts to record the allocations of a device, or changes what is recorded. Blocks that are in use have no stack.
 * While a device is not recorded, the history costs nothing. Errors: HAL_INVALID_ARGUMENT, HAL_UNIMPLEMENTED = unknown
 * flags, HAL_RESOURCE_EXHAUSTED, those of hal_device_ensure. Since 0.5. */
HAL_API hal_status_t hal_memory_history_start(int32_t device, const hal_memory_history_desc_t *desc);

/* Ends the recording, and removes all events and stacks. Errors: HAL_OUT_OF_RANGE. Since 0.5. */
HAL_API hal_status_t hal_memory_history_stop(int32_t device);

/* A copy of the recorded events, oldest first, and of the blocks as hal_memory_blocks lists them, of one moment. */
typedef struct hal_memory_history_s hal_memory_history_t;

/* Copies the history of a device; without a recording it has blocks and no events. Released by
 * hal_memory_history_release. Errors: HAL_OUT_OF_RANGE, HAL_RESOURCE_EXHAUSTED. Since 0.5. */
HAL_API hal_status_t hal_memory_history_read(int32_t device, hal_memory_history_t **out_history);

/* Releases a copy and its stacks; NULL is allowed. Since 0.5. */
HAL_API void hal_memory_history_release(hal_memory_history_t *history);

/* Returns the number of events. Since 0.5. */
HAL_API size_t hal_memory_history_events(const hal_memory_history_t *history);

/* Returns the number of blocks. Since 0.5. */
HAL_API size_t hal_memory_history_blocks(const hal_memory_history_t *history);

/* Returns the number of events that were lost because the host had no memory for them. Since 0.5. */
HAL_API uint64_t hal_memory_history_lost(const hal_memory_history_t *history);

/* Copies an event to a struct of `size` bytes: sizeof(hal_memory_event_t). Errors: HAL_OUT_OF_RANGE. Since 0.5. */
HAL_API hal_status_t hal_memory_history_event(const hal_memory_history_t *history, size_t index,
                                              hal_memory_event_t *out_event, size_t size);

/* Copies a block to a struct of `size` bytes: sizeof(hal_memory_block_info_t). Errors: HAL_OUT_OF_RANGE. Since 0.5. */
HAL_API hal_status_t hal_memory_history_block(const hal_memory_history_t *history, size_t index,
                                              hal_memory_block_info_t *out_block, size_t size);

/* Observes an out-of-memory error: `size` bytes could not be allocated. `total` is the limit or the total memory of the
 * device, `free_bytes` its free memory; 0 = unknown. */
typedef void (*hal_memory_oom_fn_t)(void *user_data, int32_t device, size_t size, size_t total, size_t free_bytes);

/* Calls a function for each later out-of-memory error of a device, after the memory that was cached has been freed. It
 * runs on the thread that allocates, before the error is returned, while the thread holds no lock of the HAL, until the
 * registry is closed. Errors: HAL_INVALID_ARGUMENT, HAL_RESOURCE_EXHAUSTED, those of hal_device_ensure. Since 0.5. */
HAL_API hal_status_t hal_memory_oom_observe(int32_t device, hal_memory_oom_fn_t fn, void *user_data);

/* One counter of torch's memory statistics. */
typedef struct hal_stat_s {
  int64_t current, peak, allocated, freed;
} hal_stat_t;

enum { HAL_POOL_ALL = 0, HAL_POOL_SMALL = 1, HAL_POOL_LARGE = 2, HAL_POOL_COUNT = 3 };

/* The statistics under torch's names (torch.cuda.memory_stats), each by pool. */
typedef struct hal_memory_stats_s {
  size_t struct_size;
  hal_stat_t allocation[HAL_POOL_COUNT], segment[HAL_POOL_COUNT], active[HAL_POOL_COUNT],
      inactive_split[HAL_POOL_COUNT];
  hal_stat_t allocated_bytes[HAL_POOL_COUNT], reserved_bytes[HAL_POOL_COUNT], active_bytes[HAL_POOL_COUNT],
      inactive_split_bytes[HAL_POOL_COUNT], requested_bytes[HAL_POOL_COUNT];
  hal_stat_t oversize_allocations, oversize_segments;
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free, max_split_size;
} hal_memory_stats_t;

/* Returns the statistics of a device. They are zero for a device that was not used, which is not initialized. The
 * caller sets `out_stats->struct_size`. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_memory_stats(int32_t device, hal_memory_stats_t *out_stats);

/* Sets every peak to the current value. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_memory_reset_peak_stats(int32_t device);

/* Sets every total to zero. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_memory_reset_accumulated_stats(int32_t device);

/* ---- settings: those of PYTORCH_ALLOC_CONF, as `key:value,key:[value,...],...` ----------------------------------- */

/* Changes settings of all devices, also of those that are used later. Settings that are not named stay, and so do
 * blocks and segments that exist. Either all settings are changed, or none. Any thread. Errors: HAL_INVALID_ARGUMENT =
 * NULL, an unknown key, or an invalid value; HAL_UNIMPLEMENTED = a setting that cannot be changed: expandable_segments
 * once a device was used, per_process_memory_fraction (hal_memory_set_limit), and those of other allocators.
 * Since 0.5. */
HAL_API hal_status_t hal_memory_configure(const char *settings);

/* Writes the settings that differ from the defaults as text for hal_memory_configure, of at most `size` - 1 characters
 * and a 0; all of them have less than 1024. Any thread. Errors: HAL_OUT_OF_RANGE = the text is longer. Since 0.5. */
HAL_API hal_status_t hal_memory_settings(char *out_text, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* HAL_MEMORY_H_ */
