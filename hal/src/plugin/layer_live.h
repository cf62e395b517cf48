/* layer_live.h: what is alive in a plugin, as the validate layer saw it made: ranges of addresses and handles. Private to
 * hal/src. All functions want the lock of the hal_lives_t held, but create and destroy. */
#ifndef HAL_SRC_LAYER_LIVE_H_
#define HAL_SRC_LAYER_LIVE_H_

#include <pthread.h>

#include "plugin/plugin.h"

/* What a plugin makes, with the words for it and the op that ends it. */
#define HAL_LIVE_KINDS(X)                                                      \
  X(MEMORY, "device memory", "memory_free")                                    \
  X(IMPORTED, "memory of another process", "ipc_close")                        \
  X(MAPPED, "mapped memory", "virtual_unmap")                                  \
  X(RESERVED, "reserved address range", "virtual_unreserve")                   \
  X(HOST, "host memory of host_alloc", "host_free")                            \
  X(REGISTERED, "registered host memory", "host_unregister")                   \
  X(STREAM, "stream", "stream_destroy")                                        \
  X(EVENT, "event", "event_destroy")                                           \
  X(MODULE, "module", "module_unload")                                         \
  X(KERNEL, "kernel", "module_unload")                                         \
  X(GRAPH, "graph", "graph_destroy")                                           \
  X(GRAPH_EXEC, "graph instance", "graph_exec_destroy")                        \
  X(PHYSICAL, "memory without an address (virtual_create)", "virtual_release") \
  X(COMM, "communicator", "comm_destroy")                                      \
  X(COMM_MEMORY, "registered memory of a communicator", "comm_deregister")     \
  X(SEMAPHORE, "semaphore", "semaphore_destroy")

typedef enum hal_live_kind_e {
#define HAL_LIVE_NUMBER(name, text, end) HAL_LIVE_##name,
  HAL_LIVE_KINDS(HAL_LIVE_NUMBER) HAL_LIVE_KIND_COUNT
#undef HAL_LIVE_NUMBER
} hal_live_kind_t;

typedef struct hal_live_s {
  struct hal_live_s *next; /* of the same bucket */
  hal_live_kind_t kind;
  int32_t device;
  uintptr_t address; /* or handle */
  size_t size;       /* ranges; 0 = not known. Communicator: number of ranks */
  uint64_t number;   /* the n-th thing that the plugin made */
  uint32_t count;    /* handles: how often it was given */
  uint32_t flags;    /* event: HAL_EVENT_*; stream: 1 = capturing; physical memory: 1 = mapped;
                        communicator: 1 = comm_destroy was called */
  uintptr_t owner;   /* kernel: its module; mapped memory: its physical memory; event: the stream it recorded */
  uint64_t recorded; /* event: when, as a count of records */
} hal_live_t;

enum { HAL_LIVE_BUCKETS = 1024, HAL_LIVE_DEAD = 256 };

typedef struct hal_lives_s {
  pthread_mutex_t lock;
  hal_live_t *buckets[HAL_LIVE_BUCKETS];
  hal_live_t **ranges; /* device memory of all kinds, by address */
  size_t range_count, range_room;
  uint64_t made;
  struct {
    hal_live_kind_t kind;
    uintptr_t address;
    size_t size;
  } dead[HAL_LIVE_DEAD]; /* the last ones that ended, for the message */
  uint32_t dead_count;
  size_t counts[HAL_LIVE_KIND_COUNT];
} hal_lives_t;

const char *hal_live_text(hal_live_kind_t kind);
const char *hal_live_end_op(hal_live_kind_t kind);
int hal_live_is_device_memory(hal_live_kind_t kind);

/* Makes room for one more range, so that hal_live_add cannot fail. Returns 0 without host memory. */
int hal_live_reserve(hal_lives_t *lives);

/* Takes over a record whose kind, device, address and size are set. */
void hal_live_add(hal_lives_t *lives, hal_live_t *live);

/* Finds what begins at the address, or has the handle; NULL when nothing does. */
hal_live_t *hal_live_find(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address);

/* The same among those of a device: a plugin may give one handle on several. */
hal_live_t *hal_live_find_on(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address, int32_t device);

/* Finds the device memory that holds the address, NULL when none does. */
hal_live_t *hal_live_find_range(hal_lives_t *lives, uintptr_t address);

/* Finds device memory that shares a byte with the range, NULL when none does. */
hal_live_t *hal_live_find_overlap(hal_lives_t *lives, uintptr_t address, size_t size);

/* Takes a record out, remembers that it ended, and hands it to the caller. */
void hal_live_remove(hal_lives_t *lives, hal_live_t *live);

/* Calls `visit` for every record, in no order; it may remove the record. */
void hal_live_each(hal_lives_t *lives, void (*visit)(hal_lives_t *lives, hal_live_t *live, void *data), void *data);

/* Tells whether something of this kind lately ended there. */
int hal_live_is_dead(const hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address);

/* Finds freed device memory that held the address; its base, or 0. */
uintptr_t hal_live_dead_range(const hal_lives_t *lives, uintptr_t address);

/* Frees all records. */
void hal_live_clear(hal_lives_t *lives);

#endif /* HAL_SRC_LAYER_LIVE_H_ */
