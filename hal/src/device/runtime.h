/* runtime.h: the registry's state and the structs that the HAL's parts share. Private to hal/src.
 *
 * Ownership: `hal_runtime` is the one global of the HAL; it owns plugins and devices, a device owns its streams,
 * allocator, operator table and generator. All of them live until hal_registry_close, so borrowed pointers never
 * dangle. */
#ifndef HAL_SRC_RUNTIME_H_
#define HAL_SRC_RUNTIME_H_

#include <pthread.h>
#include <stdatomic.h>

#include "hal/hal.h"

#define HAL_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAL_UNLIKELY(x) __builtin_expect(!!(x), 0)

typedef struct hal_plugin_s hal_plugin_t;
typedef struct hal_device_s hal_device_t;
typedef struct hal_allocator_s hal_allocator_t; /* memory_*.c */
typedef struct hal_op_table_s hal_op_table_t;   /* op.c */

/* Slot numbers, in the order of plugin_ops.def. */
enum {
#define HAL_OP(since, kind, group, need, name, params, args) HAL_SLOT_##name,
#include "hal/plugin_ops.def"
#undef HAL_OP
  HAL_SLOT_COUNT
};

enum { HAL_PLUGIN_COLD = 0, HAL_PLUGIN_READY = 1, HAL_PLUGIN_FAILED = 2 };

struct hal_plugin_s {
  hal_plugin_api_t api;            /* called through call.h only: slots that an older plugin does not have are NULL */
  uint32_t layers;                 /* HAL_LAYER_* bits; 0 = every slot is there and calls go straight to the table */
  struct hal_validate_s *validate; /* of the validate layer */
  int32_t index;                   /* in hal_runtime.plugins */
  int32_t first_device, device_count;
  atomic_int state;   /* HAL_PLUGIN_*; COLD until the first call that needs a device */
  int32_t init_begun; /* init was called in this process; a child forked meanwhile must not use it either */
  hal_status_t init_status;
  char init_message[512]; /* cause when FAILED */
  pthread_mutex_t lock;   /* serialises init */
  hal_plugin_info_t info;
  char *path;
};

struct hal_stream_s {
  hal_plugin_stream_t *handle; /* NULL where the plugin has no streams */
  hal_device_t *device;
  int64_t id; /* 0 = default stream; else 1 + pool * HAL_STREAMS_PER_POOL + slot, pool 0 = normal, 1 = high */
  int32_t priority;
  /* Kernels launched that may report an error, and how many of them were looked after (kernel_error.h). */
  _Atomic uint64_t reporters, looked;
};

#define HAL_STREAM_POOLS 2
/* The default stream and the pools', by id. */
#define HAL_STREAMS_OF_DEVICE (1 + HAL_STREAM_POOLS * HAL_STREAMS_PER_POOL)

struct hal_device_s {
  hal_plugin_t *plugin;
  int32_t index;        /* over all plugins */
  int32_t ordinal;      /* within the plugin */
  char label[64];       /* for messages: "fake:0", or "five:1 (index 3)" behind another plugin's devices */
  atomic_int ready;     /* 1 when everything below may be used without a lock */
  pthread_mutex_t lock; /* creation of what follows, and of pool streams */
  hal_device_info_t info;
  hal_stream_t default_stream;
  _Atomic(hal_stream_t *) streams[HAL_STREAM_POOLS][HAL_STREAMS_PER_POOL]; /* made on demand */
  atomic_uint next_stream[HAL_STREAM_POOLS];
  hal_allocator_t *allocator;
  hal_op_table_t *ops;
  _Atomic(char *) kernel_errors; /* in device memory: a record per stream, made at the first use (kernel_error.h) */
  _Atomic(hal_generator_t *) generator;
};

typedef struct hal_runtime_s {
  hal_plugin_t plugins[HAL_MAX_PLUGINS];
  int32_t plugin_count;
  hal_device_t devices[HAL_MAX_DEVICES];
  int32_t device_count; /* written once, before `open` */
  atomic_int open;
  atomic_int closed;   /* hal_registry_close has run: nothing may reach a plugin any more */
  atomic_int bad_fork; /* this process is a child of one that had initialised a plugin */
} hal_runtime_t;

extern hal_runtime_t hal_runtime;

/* The calling thread's current device and streams; plain thread-local data without destructors, NULL = default stream.
 */
typedef struct hal_thread_s {
  int32_t device;
  hal_stream_t *stream[HAL_MAX_DEVICES];
} hal_thread_t;
extern _Thread_local hal_thread_t hal_thread;

/* Gives the name of a device for messages; an index of none is itself. Valid until the thread's next such call. */
const char *hal_device_label(int32_t device);

/* Slow path of hal_device_get: checks the index, initialises the plugin and the device. */
hal_status_t hal_device_prepare(int32_t device, hal_device_t **out_device);

/* Gives a ready device. */
static inline hal_status_t hal_device_get(int32_t device, hal_device_t **out_device) {
  /* Devices past the count are never ready, so the constant bound does, and no count is read while a thread may open.
   */
  if (HAL_LIKELY((uint32_t)device < HAL_MAX_DEVICES &&
                 atomic_load_explicit(&hal_runtime.devices[device].ready, memory_order_acquire))) {
    *out_device = &hal_runtime.devices[device];
    return HAL_OK;
  }
  return hal_device_prepare(device, out_device);
}

/* Gives the stream itself, or the thread's current stream of a ready device when `stream` is NULL. */
static inline hal_stream_t *hal_stream_or_current(hal_device_t *device, hal_stream_t *stream) {
  if (stream) return stream;
  stream = hal_thread.stream[device->index];
  return stream ? stream : &device->default_stream;
}

/* Gives the stream with an id from 0 to HAL_STREAMS_OF_DEVICE - 1; NULL when its place in the pool is still empty. */
static inline hal_stream_t *hal_stream_at(hal_device_t *device, int64_t id) {
  if (id == 0) return &device->default_stream;
  const int64_t place = id - 1;
  return atomic_load_explicit(&device->streams[place / HAL_STREAMS_PER_POOL][place % HAL_STREAMS_PER_POOL],
                              memory_order_acquire);
}

/* Parts that a device owns; create is called once under device->lock, destroy by hal_registry_close. */
hal_status_t hal_allocator_create(hal_device_t *device, hal_allocator_t **out_allocator);
void hal_allocator_destroy(hal_allocator_t *allocator);
/* Waits for what queued work still uses of the memory that was released, and ends it. */
void hal_allocator_drain(hal_allocator_t *allocator);
hal_status_t hal_op_table_create(hal_device_t *device, hal_op_table_t **out_table);
void hal_op_table_destroy(hal_op_table_t *table);

/* Frees what the device's work has finished with, and hands over an asynchronous failure that the allocator met in the
 * user's place, once: functions that synchronise or query a device or stream return its status when their own is
 * HAL_OK. */
hal_status_t hal_memory_poll(hal_device_t *device);

/* Host memory that may fail under fault injection (HAL_FAULT=host_malloc:N); all of the HAL's own allocations use it.
 */
void *hal_malloc(size_t size);
void *hal_calloc(size_t count, size_t size);
void hal_free(void *ptr);

/* Completes the failure `status` of a call of a plugin's op: puts plugin and op before the plugin's message, or says
 * that it gave none. Returns `status`; HAL_OK passes. */
hal_status_t hal_error_plugin(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status);

#endif /* HAL_SRC_RUNTIME_H_ */
