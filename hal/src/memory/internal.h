/* internal.h: the structs that the allocator's files share. Private to hal/src.
 *
 * A device has one allocator. It divides segments (the results of memory_alloc) into blocks. Free blocks are in
 * the bins of their pool (pool.h); a pool belongs to one stream and one kind of sizes. All of it is protected by
 * the allocator's lock; functions of the application (free_fn) are never called with the lock held. */
#ifndef HAL_SRC_MEMORY_INTERNAL_H_
#define HAL_SRC_MEMORY_INTERNAL_H_

#include "base/callback.h"
#include "hal/host_memory.h"
#include "hal/memory.h"
#include "memory/allocator.h"
#include "memory/config.h"
#include "memory/host_memory_internal.h"
#include "memory/slab.h"
#include "memory/stats.h"
#include "plugin/call.h"

/* Where a block's memory comes from. */
enum {
  HAL_MEM_CACHED = 0,  /* cut from a segment */
  HAL_MEM_ADOPTED = 1, /* of another owner */
  HAL_MEM_POOLED = 2,  /* the plugin's memory_alloc_async, for a plugin that pools itself */
  HAL_MEM_EMPTY = 3,   /* no memory: size 0 */
  HAL_MEM_ACTION = 4,  /* not a block, only a deferred free_fn */
  HAL_MEM_HOST = 5,    /* page-locked host memory: host_memory*.c */
  HAL_MEM_SOURCES = 6
};

enum {
  HAL_MEM_FREE = 0,    /* in its pool */
  HAL_MEM_PLAIN = 1,   /* allocated, cached, never used by another stream: release is a few instructions */
  HAL_MEM_SPECIAL = 2, /* allocated; the release has more to do */
  HAL_MEM_PENDING = 3, /* released, waiting for events */
  HAL_MEM_LEAVING = 4, /* being freed, or returned to its owner; or a record that is not a block */
  HAL_MEM_HELD = 5,    /* released, for requests of the same size only (held.h) */
  /* of expandable segments (expand.h): addresses without memory; memory that is being mapped or unmapped */
  HAL_MEM_UNMAPPED = 6,
  HAL_MEM_MOVING = 7
};

/* How a pool cuts blocks from larger free ones: from the end, or as these flags specify. */
enum {
  HAL_MEM_CARVE_WHOLE = 1, /* not at all: HAL_MEMORY_POOL_NO_SPLIT */
  HAL_MEM_CARVE_LOW = 2    /* from the beginning, so that the end of an expandable segment remains free */
};

enum { HAL_MEM_HELD_BITS = 6 }; /* bits of the table of held blocks by size */

/* A pool of free blocks of one stream. The pools of the other sources have no bins; they only record the source of
 * a block. */
typedef struct hal_mem_pool_s {
  hal_allocator_t *allocator;
  hal_stream_t *stream;
  uint32_t source;  /* HAL_MEM_CACHED... */
  uint16_t kind;    /* HAL_MEM_SMALL, HAL_MEM_LARGE */
  uint16_t carving; /* HAL_MEM_CARVE_* */
  uint64_t rows;    /* bit r is set if bits[r] is not zero */
  uint64_t bits[64];
  hal_block_t *recent;              /* the free block that was released last; in no bin */
  hal_block_t **bins;               /* 64 * 64 lists */
  hal_memory_pool_t *owner;         /* the private pool (private.c); NULL = the stream's own */
  struct hal_mem_pool_s *displaced; /* the stream's own pool, while this private one replaces it */
  hal_memory_allocator_t custom;    /* allocates its segments; `allocate` NULL: the plugin */
  uint32_t pins;                    /* number of requests of this pool that have released the lock */
  /* for a private pool that ended while it was pinned: the pool that has its segments now */
  struct hal_mem_pool_s *heir;
  uint32_t held_count, holds; /* held.h; holds: the pool is in the allocator's list `holding` */
  struct hal_mem_pool_s *next_holding;
  hal_block_t *held[1 << HAL_MEM_HELD_BITS];
} hal_mem_pool_t;

/* A stream other than its own that uses a block; once the block is released, an entry of that stream's queue. */
typedef struct hal_mem_use_s {
  struct hal_mem_use_s *next;
  hal_block_t *block;
  hal_stream_t *stream;
  hal_plugin_event_t *event; /* of the stream's device; NULL until the block is released */
} hal_mem_use_t;

struct hal_block_s {
  /* First cache line: all that a cache hit accesses. */
  void *address;
  size_t size;      /* in the statistics: rounded for cached blocks */
  size_t requested; /* as requested */
  hal_mem_pool_t *pool;
  hal_block_t *prev, *next; /* neighbors in the segment, by address */
  union {
    struct {
      hal_block_t *prev, *next; /* free blocks: list of the bin */
    } bin;
    struct {
      hal_host_fn_t fn; /* adopted blocks and actions */
      void *data;
    } free;
  } u;
  /* Second line. */
  uint32_t state; /* HAL_MEM_FREE... */
  uint32_t waits; /* pending blocks: events that are not done yet */
  hal_stream_t *stream;
  hal_mem_use_t *uses;
  union {
    uint64_t stamp; /* free blocks: the number of allocations of the kind at the release; held ones: their size */
    struct hal_mem_stack_s *stack; /* blocks in use, while their memory is recorded (history.h) */
  };
  union {
    /* Node of the address map: first blocks of segments, and blocks of other sources. */
    struct {
      hal_block_t *left, *right;
    };
    hal_callback_t callback; /* for a block that ended, and so left the map: calls its free_fn */
  };
  size_t extent;   /* bytes of the whole segment or block; 0 = not in the map */
  uintptr_t reach; /* highest end of any range in this subtree */
};

/* Uses that wait for events of one stream, oldest first. */
typedef struct hal_mem_pending_s {
  hal_stream_t *stream;
  int polled; /* a thread has removed the first use to query its event */
  hal_mem_use_t *head, *tail;
  struct hal_mem_pending_s *next;
} hal_mem_pending_t;

#define HAL_MEM_EVENT_CACHE 32

/* In `pending`: device memory is recorded, page-locked host memory is. */
#define HAL_MEM_RECORDED (UINT32_C(1) << 31)
#define HAL_MEM_HOST_RECORDED (UINT32_C(1) << 30)

typedef struct hal_mem_range_s hal_mem_range_t;
typedef struct hal_mem_custom_s hal_mem_custom_t;

struct hal_allocator_s {
  hal_lock_t lock;
  int32_t pooled; /* the plugin pools memory itself */
  hal_device_t *device;
  hal_mem_pool_t
      *pools[HAL_STREAMS_OF_DEVICE][2]; /* by stream id and kind, created on demand: the current pools of the stream */
  hal_mem_pool_t *holding;              /* pools with held blocks, by `next_holding` */
  hal_block_t *leaving;                 /* blocks of a plugin that pools, held until deferred work is queued (held.h) */
  hal_mem_pool_t *retired;              /* private pools that ended when no allocation was possible, by `displaced` */
  hal_mem_slab_t blocks, uses;
  hal_mem_stats_t stats;
  hal_mem_config_t config;      /* may change (settings/settings.c), so it is read with the lock held */
  struct hal_allocator_s *next; /* settings/settings.c */
  hal_mem_pool_t foreign[HAL_MEM_SOURCES][2];
  hal_mem_host_t host;
  hal_block_t *map; /* root of the address map */
  size_t limit;     /* hal_memory_set_limit; 0 = none */
  /* Blocks and actions that wait for events, HAL_MEM_RECORDED and HAL_MEM_HOST_RECORDED: if it is not 0, allocation
   * and release take their slow paths. Read without the lock too. */
  atomic_uint pending;
  hal_mem_history_t *history; /* of device memory (history.h) */
  /* Stacks without a reference, by `callback.next`; to be released without the lock. */
  struct hal_mem_stack_s *_Atomic dead_stacks;
  struct hal_mem_observer_s *observers; /* of out-of-memory errors, first added first */
  hal_mem_pending_t *queues;
  hal_memory_allocator_t custom; /* of the process; `allocate` NULL: none (custom/custom.h) */
  hal_mem_custom_t *customs;     /* segments of private pools with an allocator of their own */
  hal_mem_pool_t *orphans;       /* such pools that have ended and have segments, by `displaced` */
  hal_mem_range_t *ranges;       /* expandable segments (expand.h) */
  size_t unit;                   /* their memory is a multiple of it */
  int expands;                   /* new segments are expandable */
  size_t in_flight;              /* bytes of segments that are being allocated now */
  uint32_t empty_count;          /* blocks of size 0, which are not in the statistics */
  uint32_t event_count;
  hal_plugin_event_t *events[HAL_MEM_EVENT_CACHE]; /* free events of this device */
};

/* Returns the allocator of a block that its owner has not released. A block's pool may change at any time (private.c),
 * so `block->pool` is read under the lock only; its stream never changes. */
static inline hal_allocator_t *hal_mem_block_allocator(const hal_block_t *block) {
  return hal_allocator_of(block->stream->device);
}

/* Protects a pool's record while the lock is released. The caller holds the lock, also for the next two functions. */
static inline void hal_mem_pool_pin(hal_mem_pool_t *pool) { pool->pins++; }

/* Returns the pool that has the segments of a pinned pool now. */
static inline hal_mem_pool_t *hal_mem_pool_current(hal_mem_pool_t *pool) { return pool->heir ? pool->heir : pool; }

/* Ends hal_mem_pool_pin. */
void hal_mem_pool_unpin(hal_mem_pool_t *pool);

/* Returns a block's record to the slab. A second release of the block is detected until the record is used again. */
static inline void hal_mem_block_forget(hal_allocator_t *allocator, hal_block_t *block) {
  block->state = HAL_MEM_LEAVING;
  hal_mem_slab_give(&allocator->blocks, block);
}

static inline int64_t hal_mem_reserved(const hal_allocator_t *allocator) {
  return hal_mem_stat_current(&allocator->stats, HAL_MEM_RESERVED_BYTES);
}

/* Returns a stream's own pool, NULL if it has none yet. */
static inline hal_mem_pool_t *hal_mem_own_pool(const hal_allocator_t *allocator, int id, int kind) {
  hal_mem_pool_t *pool = allocator->pools[id][kind];
  while (pool && pool->owner) pool = pool->displaced;
  return pool;
}

/* ---- map.c: address -> block ---- */
/* Adds a block with its `extent`; ranges may overlap, because several adopted blocks may be views of one memory. */
void hal_mem_map_insert(hal_block_t **root, hal_block_t *block, size_t extent);
void hal_mem_map_remove(hal_block_t **root, hal_block_t *block);
/* Finds a block whose extent contains the address, NULL if there is none. */
hal_block_t *hal_mem_map_find(hal_block_t *root, uintptr_t address);

/* ---- creation and destruction ---- */
/* Allocates from two pools by size, which are created if they are NULL (allocator.c); `alone`: no cached memory is
 * released for it. Errors: as of hal_memory_allocate. */
hal_status_t hal_mem_allocate(hal_allocator_t *allocator, hal_mem_pool_t **pools, hal_stream_t *stream, size_t size,
                              int alone, hal_block_t **out_block);

/* Creates a pool of a stream, which is not in the table yet. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_mem_pool_create(hal_allocator_t *allocator, hal_stream_t *stream, uint32_t kind,
                                 hal_mem_pool_t **out_pool);

/* ---- segment.c: segments, which the plugin allocates and frees ----
 *
 * All functions are called with the lock held, and release it while they call the plugin: waiting for a stream must not
 * block the threads whose work it waits for. */
/* Allocates a segment and returns its only block, not in the bins.
 * Errors: HAL_RESOURCE_EXHAUSTED (limit, plugin or host), the plugin's own. */
hal_status_t hal_mem_segment_create(hal_mem_pool_t *pool, size_t size, hal_block_t **out_block);
/* Frees free segments of `pool`, the smallest sufficient ones first, until `size` bytes are freed or none is left;
 * frees none of a private pool. Returns the number of bytes. */
size_t hal_mem_segment_trim(hal_mem_pool_t *pool, size_t size);
/* Frees all free segments of the device. */
size_t hal_mem_segment_trim_all(hal_allocator_t *allocator);
/* With garbage_collection_threshold, frees the segments that were unused longest, before `size` more bytes are
 * allocated. */
void hal_mem_segment_collect(hal_allocator_t *allocator, size_t size);
/* Returns the maximum total size of segments and adopted memory; SIZE_MAX = unknown. */
size_t hal_mem_capacity(const hal_allocator_t *allocator);
/* Returns whether `size` more bytes would exceed it. */
int hal_mem_over_capacity(const hal_allocator_t *allocator, size_t size);

/* ---- event.c: waiting for streams without consuming the user's asynchronous failures ---- */
/* Functions with an allocator are called with its lock held, and release it while they call the plugin. */
/* Returns a recorded event of a stream, NULL if the plugin could not record one; hal_mem_event_give returns it. The
 * caller holds the lock, which is released while the plugin is called; the plugin may wait for the stream instead. */
hal_plugin_event_t *hal_mem_event_record(hal_allocator_t *allocator, hal_stream_t *stream);
void hal_mem_event_give(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event);
/* Returns whether a recorded event is done: 1 or 0. The caller holds the lock, which is released while the plugin is
 * called. */
int hal_mem_event_done(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event);
/* Waits for a recorded event (NULL: for the stream) and returns it to the cache. The caller holds the lock, which is
 * released while waiting. */
void hal_mem_event_wait(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event);
/* Waits for the work queued on a stream. The caller holds the lock, which is released while waiting. */
void hal_mem_stream_wait(hal_allocator_t *allocator, hal_stream_t *stream);
/* Returns whether a stream has no work: 1 or 0. The caller holds the lock, which is released while the plugin is
 * called. */
int hal_mem_stream_idle(hal_allocator_t *allocator, hal_stream_t *stream);
/* Frees memory of the plugin. A failure, which may be that of earlier work, is recorded for the stream. Called without
 * the lock. */
void hal_mem_free(hal_stream_t *stream, void *address);
void hal_mem_free_async(hal_stream_t *stream, void *address);
/* As hal_mem_free_async, without a flush: the work that uses the memory is queued. */
void hal_mem_free_queued(hal_stream_t *stream, void *address);
void hal_mem_events_destroy(hal_allocator_t *allocator);

/* ---- pending.c: released blocks that wait for events, deferred frees ----
 *
 * All functions are called with the lock held, and release it while they call the plugin. */
/* Ends a released block, or makes it wait for every stream in its `uses` and, with `own`, for its own stream. A block
 * with a free_fn that ends is added to the list `*ready`. */
void hal_mem_block_end(hal_allocator_t *allocator, hal_block_t *block, int own, hal_block_t **ready);
/* Frees a released block of a plugin that pools, whose work is queued. */
void hal_mem_block_free_queued(hal_allocator_t *allocator, hal_block_t *block);
/* Records that work of `stream` uses the block. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_mem_block_use(hal_allocator_t *allocator, hal_block_t *block, hal_stream_t *stream);
/* Polls the queues and ends the uses that are done. */
void hal_mem_pending_poll(hal_allocator_t *allocator, hal_block_t **ready);
/* Waits for everything that is pending now and ends it; releases the lock while waiting. */
void hal_mem_pending_drain(hal_allocator_t *allocator, hal_block_t **ready);
void hal_mem_pending_destroy(hal_allocator_t *allocator);
/* Runs the free_fn of each block of a list, in the order in which the blocks ended, as callbacks (base/callback.h),
 * without the lock. A free_fn that releases another block is not nested, so chains of any length use no stack. */
void hal_mem_ready_run(hal_block_t *ready);

/* ---- info.c ---- */
/* Queries the plugins in use. Returns 1 if one of them reports the address as memory of a device or, with `pinned`, as
 * page-locked host memory. Not called in a forked child or after hal_registry_close. */
int hal_mem_ask_plugins(const void *address, int pinned, int32_t *out_device);

/* ---- error.c ---- */
/* Sets the error of a request that cannot be satisfied: sizes, statistics, and the setting to change. Takes the lock.
 * `what` = the operation, such as "allocate"; `cause` is the plugin's message, "" if there is none. */
hal_status_t hal_mem_error_exhausted(hal_allocator_t *allocator, const char *what, size_t size, const char *cause);

#endif /* HAL_SRC_MEMORY_INTERNAL_H_ */
