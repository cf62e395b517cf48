/* device.h: a device and its streams, shared by the HAL's components. Private to hal/src.
 *
 * Ownership: a device owns its streams, its generator and its slots, until hal_registry_close. Streams, and objects
 * that the application reaches through them, are never freed, so borrowed pointers never dangle. */
#ifndef HAL_SRC_DEVICE_H_
#define HAL_SRC_DEVICE_H_

#include "device/slot.h"
#include "hal/device.h"
#include "hal/event.h"
#include "hal/generator.h"
#include "hal/log.h"
#include "hal/stream.h"
#include "plugin/plugin.h"
#include "queue/queue.h"

typedef struct hal_device_s hal_device_t;

/* Two pools whose streams are shared, normal and high, then the pools of streams that have one owner
 * (hal_stream_take): one normal, the others high, for communicators. */
#define HAL_STREAM_SHARED_POOLS 2
#define HAL_STREAM_OWNED_POOLS 5
#define HAL_STREAM_POOLS (HAL_STREAM_SHARED_POOLS + HAL_STREAM_OWNED_POOLS)
/* The default stream and the streams of the pools, by id. */
#define HAL_STREAMS_OF_DEVICE (1 + HAL_STREAM_POOLS * HAL_STREAMS_PER_POOL)
_Static_assert(HAL_STREAMS_OF_DEVICE == HAL_MAX_STREAM_ID + 1, "hal/stream.h has the highest id");

#define HAL_FAILURE_BYTES 1024 /* the size of a thread's message */

/* A record of an asynchronous failure: failure.h. Zeroed memory is an empty record. */
typedef struct hal_failure_s {
  hal_lock_t lock;
  atomic_int set;
  hal_status_t status;
  char message[HAL_FAILURE_BYTES]; /* with operator, kernel, plugin and native code */
} hal_failure_t;

/* The streams whose work a stream has waited for since its last query, with the marks and positions: failure.h. */
#define HAL_FOLLOWS (2 * HAL_STREAMS_OF_DEVICE)
typedef struct hal_followed_s {
  hal_stream_t *stream;
  uint64_t mark, position;
  uint64_t waits; /* how often the entry was written */
} hal_followed_t;
typedef struct hal_follow_s {
  hal_lock_t lock;
  atomic_uint count;
  hal_followed_t of[HAL_FOLLOWS];
} hal_follow_t;

struct hal_stream_s {
  _Atomic(hal_queue_t *) queue; /* receives the work; never NULL (queue/queue.h) */
  hal_direct_t direct;          /* the queue while nothing records the stream; its handle is the stream's handle */
  hal_device_t *device;
  int64_t id; /* 0 = default stream; else 1 + pool * HAL_STREAMS_PER_POOL + slot, pool 0 = normal, 1 = high, others =
           * owned */
  int32_t priority;
  /* Kernels launched that may report an error, and how many of them were checked (kernel_error.h). */
  _Atomic uint64_t reporters, checked;
  _Atomic(void *) slots[HAL_COMPONENTS]; /* slot.h: queues that recorded the stream, for its next recordings */
  hal_failure_t failure;
  hal_follow_t follows;
  atomic_int hides_aborts;       /* its owner reports aborted work (failure.h) */
  _Atomic uint64_t position;     /* number of works that its owner has queued and may abort (failure.h) */
  _Atomic uint64_t aborted_from; /* the position of the first work that was aborted; 0 = none */
  hal_failure_t aborted;         /* its failure */
};

struct hal_device_s {
  hal_plugin_t *plugin;
  int32_t index;    /* over all plugins */
  int32_t ordinal;  /* within the plugin */
  char label[64];   /* for messages: "fake:0", or "five:1 (index 3)" after another plugin's devices */
  atomic_int ready; /* 1 if all of the following may be used without a lock */
  hal_lock_t lock;  /* for the creation of the following, and of pool streams */
  hal_device_info_t info;
  uint32_t few_blocks; /* a launch of at most so many is within the limits of `info` (op/grid.h) */
  int plans_first;     /* 1: whether launches are within the limits is checked before an operator's first one */
  hal_failure_t lost;  /* set if the device is lost, until it is reset */
  atomic_uint
      objects; /* number of objects with handles of the plugin or memory pools; hal_device_reset fails while there are
                * any */
  atomic_int watched; /* 1: the plugin delivers its events (watch.h) */
  hal_stream_t default_stream;
  _Atomic(hal_stream_t *) streams[HAL_STREAM_POOLS][HAL_STREAMS_PER_POOL]; /* created on demand */
  atomic_uint next_stream[HAL_STREAM_SHARED_POOLS];
  uint32_t owned[HAL_STREAM_OWNED_POOLS]; /* a bit for each stream that has an owner; under `lock` */
  void *slots[HAL_COMPONENTS];            /* slot.h; hal_device_slot, hal_device_slot_peek */
  _Atomic(char *) kernel_errors; /* in device memory: a record per stream, created at the first use (kernel_error.h) */
  _Atomic(hal_generator_t *) generator;
};

/* In the order of their indices; hal_registry.device_count of them. */
extern hal_device_t hal_devices[HAL_MAX_DEVICES];

/* The calling thread's current device and streams; plain thread-local data without destructors. */
typedef struct hal_thread_s {
  int32_t device;
  hal_recorded_op_t *recorded_op; /* the operator that runs on a stream whose queue records; NULL = none */
} hal_thread_t;
extern _Thread_local hal_thread_t hal_thread;
extern _Thread_local hal_stream_t *hal_thread_streams[HAL_MAX_DEVICES]; /* NULL = the default stream */

/* 1 = a thread has set a stream other than a default one; until then no thread reads its thread-local data. */
extern atomic_int hal_streams_set;

static inline void hal_thread_set_stream(int32_t device, hal_stream_t *stream) {
  if (stream->id != 0) atomic_store_explicit(&hal_streams_set, 1, memory_order_relaxed);
  hal_thread_streams[device] = stream;
}

/* Returns the name of a device for messages; for an invalid index, the number. Valid until the thread's next such
 * call. */
const char *hal_device_label(int32_t device);

/* Passes the name of an object, of HAL_OBJECT_*, to the plugin. Does nothing if `object` is NULL, as handles of a
 * plugin without streams are. `call`: the public function. Errors: HAL_INVALID_ARGUMENT = no name; the plugin's. */
hal_status_t hal_device_name_object(const char *call, hal_device_t *device, uint32_t kind, const void *object,
                                    const char *name);

/* Checks the index and initializes the plugin, but not the device: for queries that need no stream and no memory. */
hal_status_t hal_device_start(int32_t device, hal_device_t **out_device);

/* Slow path of hal_device_get: checks the index, initializes the plugin and the device. */
hal_status_t hal_device_prepare(int32_t device, hal_device_t **out_device);

/* Returns a device that was used before; NULL: there is none, or it was not used. */
static inline hal_device_t *hal_device_find_ready(int32_t device) {
  /* Devices past the count are never ready, so the constant bound is sufficient, and the count is not read while a
   * thread may open plugins. */
  const int is_ready =
      (uint32_t)device < HAL_MAX_DEVICES && atomic_load_explicit(&hal_devices[device].ready, memory_order_acquire);
  return HAL_LIKELY(is_ready) ? &hal_devices[device] : NULL;
}

/* Returns a ready device. */
static inline hal_status_t hal_device_get(int32_t device, hal_device_t **out_device) {
  hal_device_t *const found = hal_device_find_ready(device);
  if (HAL_UNLIKELY(!found)) return hal_device_prepare(device, out_device);
  *out_device = found;
  return HAL_OK;
}

/* Returns the data of a component for a ready device. */
static inline void *hal_device_slot(const hal_device_t *device, int component) { return device->slots[component]; }

/* Returns the data of an on-demand slot; NULL = it was not created. */
static inline void *hal_device_slot_peek(hal_device_t *device, int component) {
  return __atomic_load_n(&device->slots[component], __ATOMIC_ACQUIRE);
}

/* Returns the stream itself, or the thread's current stream of a ready device when `stream` is NULL. */
static inline hal_stream_t *hal_stream_or_current(hal_device_t *device, hal_stream_t *stream) {
  if (stream) return stream;
  if (HAL_LIKELY(!atomic_load_explicit(&hal_streams_set, memory_order_relaxed))) return &device->default_stream;
  stream = hal_thread_streams[device->index];
  return stream ? stream : &device->default_stream;
}

/* Returns the stream with an id from 0 to HAL_STREAMS_OF_DEVICE - 1; NULL if its slot of the pool is empty. */
static inline hal_stream_t *hal_stream_at(hal_device_t *device, int64_t id) {
  if (id == 0) return &device->default_stream;
  const int64_t place = id - 1;
  return atomic_load_explicit(&device->streams[place / HAL_STREAMS_PER_POOL][place % HAL_STREAMS_PER_POOL],
                              memory_order_acquire);
}

/* Initializes a stream whose queue calls the plugin; the memory need not be zeroed. */
void hal_stream_initialize(hal_stream_t *stream, hal_device_t *device, hal_plugin_stream_t *handle);

/* Returns the stream's queue, for one call of the HAL. */
static inline hal_queue_t *hal_stream_queue(const hal_stream_t *stream) {
  return atomic_load_explicit(&stream->queue, memory_order_acquire);
}

/* Launches the stream's deferred work; a failure is recorded for the stream. */
void hal_stream_flush(hal_stream_t *stream, const char *reason);

/* The same for all streams of a device. */
void hal_stream_flush_all(hal_device_t *device, const char *reason);

/* Adds a reference to a generator; hal_generator_destroy releases it. */
void hal_generator_retain(hal_generator_t *generator);

/* Waits for the work queued on a stream; a failure is recorded for the stream. */
void hal_stream_drain(hal_stream_t *stream);

/* The same for all streams of a device. */
void hal_stream_drain_all(hal_device_t *device);

/* Counts an object of the device that the application or a component has created, or one that was destroyed. */
static inline void hal_device_add_object(hal_device_t *device) {
  atomic_fetch_add_explicit(&device->objects, 1, memory_order_relaxed);
}
static inline void hal_device_remove_object(hal_device_t *device) {
  atomic_fetch_sub_explicit(&device->objects, 1, memory_order_relaxed);
}

/* ---- lifetime ---- */

/* Creates the records of a plugin's devices; initializes no driver. */
void hal_device_add(hal_plugin_t *plugin);

/* In the child of a fork: a device that the parent used cannot be used here. */
void hal_device_after_fork(void);

/* Returns whether objects of the device may still reach its plugin (the lifetime rule, base/life.h): 0 before its
 * first use, after hal_registry_close and in a forked child. */
static inline int hal_device_is_alive(const hal_device_t *device) {
  return HAL_LIKELY(atomic_load_explicit(&device->ready, memory_order_acquire));
}

/* Fails with the cause when the device is not alive. */
static inline hal_status_t hal_device_check_alive(hal_device_t *device) {
  return hal_device_is_alive(device) ? HAL_OK : hal_device_prepare(device->index, &device);
}

/* Waits for the work of a device that was used, and frees the memory that waited for it. Logs failures, with the text
 * `doing` ("closing") and the public function `call`. */
void hal_device_drain(hal_device_t *device, const char *call, const char *doing);

/* Destroys everything that a device owns. hal_registry_close calls it once per device when all devices are drained,
 * because memory of one may wait for streams of another. */
void hal_device_close(hal_device_t *device);

/* Fails with HAL_OUT_OF_RANGE; the message has the index and the number of devices. */
hal_status_t hal_device_out_of_range(int32_t device);

/* Returns the device if it was used, else NULL; initializes no driver. For queries whose result is known only for a
 * used device. Errors: HAL_OUT_OF_RANGE. */
hal_status_t hal_device_used(int32_t device, hal_device_t **out_device);

/* Destroys the handles of the device's streams; the streams remain, since they are valid until the process ends:
 * stream.c. */
void hal_stream_destroy_all(hal_device_t *device);

/* Creates the device's default stream, and the handles of the streams that it had before a reset: stream.c. */
hal_status_t hal_stream_create_all(hal_device_t *device);

#endif /* HAL_SRC_DEVICE_H_ */
