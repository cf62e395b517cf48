/* layer_live.h: the live objects of a plugin, as recorded by the validate layer: ranges of addresses and handles.
 * Private to hal/src. All functions except create and destroy are called with the lock of the hal_lives_t held. */
#ifndef HAL_SRC_LAYER_LIVE_H_
#define HAL_SRC_LAYER_LIVE_H_

#include <pthread.h>

#include "plugin/plugin.h"

/* The kinds of objects of a plugin, with their names and the op that ends them. */
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
  uint64_t number;   /* the object is the n-th that the plugin has created */
  uint32_t count;    /* handles: how many times the plugin returned it */
  uint32_t flags;    /* event: HAL_EVENT_*; stream: 1 = capturing; physical memory: 1 = mapped;
                        communicator: 1 = comm_destroy was called */
  uintptr_t owner;   /* kernel: its module; mapped memory: its physical memory; event: the stream that it recorded */
  uint64_t recorded; /* event: the count of records at its last record */
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
  } dead[HAL_LIVE_DEAD]; /* the last ones that ended, for messages */
  uint32_t dead_count;
  size_t counts[HAL_LIVE_KIND_COUNT];
} hal_lives_t;

const char *hal_live_text(hal_live_kind_t kind);
const char *hal_live_end_op(hal_live_kind_t kind);
int hal_live_is_device_memory(hal_live_kind_t kind);

/* Reserves memory for one more range, so that hal_live_add cannot fail. Returns 0 if the host has no memory. */
int hal_live_reserve(hal_lives_t *lives);

/* Adds a record whose kind, device, address and size are set, and owns it. */
void hal_live_add(hal_lives_t *lives, hal_live_t *live);

/* Finds the object that begins at the address, or has the handle; NULL if there is none. */
hal_live_t *hal_live_find(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address);

/* Finds such an object of a device, because a plugin may return one handle on several devices. */
hal_live_t *hal_live_find_on(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address, int32_t device);

/* Finds the device memory that contains the address, NULL if there is none. */
hal_live_t *hal_live_find_range(hal_lives_t *lives, uintptr_t address);

/* Finds device memory that shares a byte with the range, NULL if there is none. */
hal_live_t *hal_live_find_overlap(hal_lives_t *lives, uintptr_t address, size_t size);

/* Removes a record, remembers that it ended, and returns it to the caller. */
void hal_live_remove(hal_lives_t *lives, hal_live_t *live);

/* Calls `visit` for every record, in no order; it may remove the record. */
void hal_live_each(hal_lives_t *lives, void (*visit)(hal_lives_t *lives, hal_live_t *live, void *data), void *data);

/* Returns whether an object of this kind has recently ended there. */
int hal_live_is_dead(const hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address);

/* Finds freed device memory that contained the address; returns its base, or 0. */
uintptr_t hal_live_dead_range(const hal_lives_t *lives, uintptr_t address);

/* Frees all records. */
void hal_live_clear(hal_lives_t *lives);

#endif /* HAL_SRC_LAYER_LIVE_H_ */
