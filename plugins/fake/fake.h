/* fake.h: declarations shared by the files of the fake plugin: settings, devices, streams, the queue, the worker pool.
 * Private.
 *
 * A stream is an in-order queue of items. The thread that has *claimed* it (state RUNNING) runs its items: a worker of
 * the pool, or a thread that waits for the stream (schedule.h). Item number n of a stream is done when stream->done >=
 * n. An event is a pair (stream, number), so events need no objects in the queue and remain valid after they are
 * destroyed.
 *
 * Locks: a stream's lock, an event's lock, a device's list lock, the pool's lock and the segment map's lock are leaves:
 * no thread acquires one of them while it holds another. (With HAL_FAKE_ASYNC=0 the stream's lock is held while an item
 * runs, and the pool's lock may then be acquired inside it.) */
#ifndef HAL_FAKE_H_
#define HAL_FAKE_H_

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "hal/plugin.h"
#include "hal/plugin_flags.h"
#include "hal/plugin_kernels.h"
#include "hal/plugin_shared_event.h"
#include "sanitize/clock.h"
#include "sync.h"

#define FAKE_LIKELY(x) __builtin_expect(!!(x), 1)
#define FAKE_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define FAKE_MAX_DEVICES 64               /* the maximum of the host */
#define FAKE_MAX_THREADS 1024             /* of the pool */
#define FAKE_MAX_ARGS 16                  /* arguments of a portable kernel, hal/kernels/pk.h */
#define FAKE_MAX_ARG_BYTES 1024           /* of one argument: the minimum that OpenCL guarantees for all together */
#define FAKE_MAX_BLOCK_THREADS (1u << 20) /* only a plausible limit */
#define FAKE_CACHE_LINE 64
#define FAKE_NAME_BYTES 48 /* of a stream's name in messages; longer ones are truncated */

/* The reason why a stream that waited reports HAL_ABORTED. */
#define FAKE_POISONED "the semaphore is poisoned: the work that signals it failed"
#define FAKE_EVENT_LOST "the process that recorded the event has ended before its work was done"

/* ---- settings.c ------------------------------------------------------------------------------------------------- */
typedef struct fake_settings_s {
  uint64_t memory;    /* HAL_FAKE_MEMORY: bytes per device */
  uint64_t fault;     /* HAL_FAKE_FAULT: which launch fails, 0 = none */
  uint64_t profile;   /* HAL_FAKE_PROFILE: capacity of a device's profile in records */
  uint32_t async;     /* HAL_FAKE_ASYNC */
  uint32_t delay_us;  /* HAL_FAKE_DELAY: longest pause before an item */
  uint32_t threads;   /* HAL_FAKE_THREADS: size of the pool */
  uint32_t protect;   /* HAL_FAKE_PROTECT */
  uint32_t sanitize;  /* HAL_FAKE_SANITIZE: classes, sanitize/sanitize.h */
  uint32_t watched;   /* 1: kernels run under one of the two */
  uint32_t grid;      /* HAL_FAKE_GRID: most blocks of a launch, 0 = no limit */
  uint32_t first;     /* HAL_FAKE_FIRST_BLOCK: launches may begin at a block */
  uint64_t numbered;  /* HAL_FAKE_MAX_THREADS: most threads that kernels number, 0 = no limit */
  uint64_t binding;   /* HAL_FAKE_MAX_BINDING: bytes that a kernel accesses from an address, 0 = no limit */
  uint32_t limited;   /* 1: launches are compared with these limits */
  uint32_t alignment; /* HAL_FAKE_BINDING_ALIGNMENT: of addresses in launches */
  char compiler[512]; /* HAL_FAKE_CC: with the words before its options; "": none */
} fake_settings_t;

/* Reads HAL_FAKE_DEVICES; later calls return the first result. */
hal_status_t fake_settings_devices(int32_t *out_count);
typedef struct fake_sanitize_settings_s fake_sanitize_settings_t;
/* Reads the other settings. */
hal_status_t fake_settings_read(fake_settings_t *out_settings, fake_sanitize_settings_t *out_sanitize);

/* ---- plugin.c --------------------------------------------------------------------------------------------------- */
typedef struct fake_profile_s {
  fake_lock_t lock;
  atomic_uint on;
  hal_profile_record_t *records; /* settings.profile entries; NULL: none were ever collected, or all are read */
  uint64_t count, lost;
} fake_profile_t;

typedef struct fake_device_s {
  fake_lock_t lock; /* guards the list of streams */
  hal_plugin_stream_t *streams;
  _Atomic uint64_t allocated; /* bytes, memory.c */
  _Atomic(const char *) last; /* the kernel launched last; static text; only with HAL_FAKE_PROTECT */
  fake_profile_t profile;
} fake_device_t;

typedef struct fake_state_s {
  fake_settings_t settings;
  int32_t device_count; /* 0 before init */
  fake_device_t devices[FAKE_MAX_DEVICES];
  _Atomic uint64_t launches; /* counted only when settings.fault */
  atomic_uint profiled;      /* devices that collect records */
  atomic_uint captures;      /* number of captures that have begun and not ended */
  atomic_uint keep_names;    /* records may name kernels, so the names must outlive their modules */
} fake_state_t;

extern fake_state_t fake;

/* Formats a message and passes it to the host; returns `code`. */
hal_status_t fake_error(hal_status_t code, int64_t native_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns HAL_OK, or the reason why `device` cannot be used. */
hal_status_t fake_check_device(int32_t device);

/* ---- memory.c --------------------------------------------------------------------------------------------------- */
typedef struct fake_segment_s {
  char *base;     /* the device address */
  char *work;     /* the address for workers: `base`, or the second mapping of protected memory */
  char *reserved; /* all reserved addresses, including guard pages */
  size_t reserved_size;
  size_t size;       /* as requested */
  size_t mapped;     /* whole pages */
  int32_t device;    /* HAL_HOST for pinned memory */
  int is_virtual;    /* mapped by virtual_map: unknown to memory_free */
  int is_opened;     /* mapped by ipc_open: also unknown to it */
  int is_registered; /* host memory of the caller: host_register */
  int is_shared; /* its memory is in a file, or is being moved to one: a thread that writes meanwhile waits (ipc.c) */
  int file;      /* of ipc_export: owned; -1: none */
  hal_shared_handle_t handle; /* of the file */
} fake_segment_t;

/* Finds the segment that contains an address, also in its guard pages; returns whether there is one. */
int fake_memory_find(const void *address, fake_segment_t *out_segment);
/* The same in a signal handler; -1 = the table remains locked. */
int fake_memory_find_in_handler(const void *address, fake_segment_t *out_segment);
/* Adds memory that was mapped elsewhere to the table, or removes it; the segment at `base` must have the size. */
hal_status_t fake_memory_add(int32_t device, char *base, size_t size);
hal_status_t fake_memory_remove(int32_t device, char *base, size_t size);
/* Adds reserved addresses, or memory of ipc_open, with all members of the segment. */
hal_status_t fake_memory_add_segment(const fake_segment_t *segment);
hal_status_t fake_memory_remove_opened(int32_t device, void *base, fake_segment_t *out_segment);
/* Returns the segment of memory_alloc that begins at `base`, and marks it as shared. Errors: HAL_INVALID_ARGUMENT =
 * there is none. */
hal_status_t fake_memory_mark_shared(int32_t device, const void *base, fake_segment_t *out_segment);
/* Stores the file of that segment, which takes ownership of it. */
void fake_memory_set_file(const void *base, int file, const hal_shared_handle_t *handle);
/* Maps whole pages of a file, or without one (-1) of new memory, as the device's memory; `base` is NULL after a
 * failure. */
void fake_memory_map(fake_segment_t *inout_segment, int file);
/* Counts `bytes` against the device's limit; returns 0 if they exceed it. */
int fake_memory_charge(int32_t device, uint64_t bytes);
void fake_memory_refund(int32_t device, uint64_t bytes);
/* Rounds up to whole pages; 0 = overflow. */
size_t fake_whole_pages(size_t size);
/* Closes the file of virtual memory, at the end. */
void fake_virtual_close(void);
void fake_memory_fork_prepare(void);
void fake_memory_fork_parent(void);
void fake_memory_fork_child(void);

/* ---- ipc.c: memory that other processes open -------------------------------------------------------------------- */
/* In the handler of SIGSEGV: waits while the memory at an address is moved to a file. Returns whether the access is to
 * be repeated. */
int fake_ipc_wait_in_handler(const void *address);
void fake_ipc_fork_prepare(void);
void fake_ipc_fork_parent(void);
void fake_ipc_fork_child(void);

/* ---- shared.c: events between processes ------------------------------------------------------------------------- */
typedef struct hal_shared_event_s hal_shared_event_t;
hal_status_t fake_shared_record(hal_shared_event_t *event, hal_plugin_stream_t *stream);
hal_status_t fake_shared_wait(hal_shared_event_t *event, hal_plugin_stream_t *stream);

/* ---- semaphore.c: timeline semaphores --------------------------------------------------------------------------- */
/* The SIGNAL item: raises the value, and releases the item's references. */
void fake_semaphore_signal(hal_plugin_semaphore_t *semaphore, uint64_t value, fake_clock_t *clock);
void fake_semaphore_fork_prepare(void);
void fake_semaphore_fork_parent(void);
void fake_semaphore_fork_child(void);

/* ---- fault.c: the report of an access to protected memory ------------------------------------------------------- */
/* Installs the handler of SIGSEGV and SIGBUS, once; the previous handler runs after it. */
hal_status_t fake_fault_install(void);
void fake_fault_uninstall(void);

/* ---- watch.c: events of devices --------------------------------------------------------------------------------- */
/* Reports that a launch failed; the caller holds no lock. */
void fake_watch_failure(int32_t device, const char *kernel);
void fake_watch_fork_child(void);

/* ---- queue.c: the items of one stream --------------------------------------------------------------------------- */
enum {
  FAKE_ITEM_NEXT_CHUNK = 0, /* the queue continues in the next chunk; not counted */
  FAKE_ITEM_LAUNCH = 1,
  FAKE_ITEM_RECORD = 2,
  FAKE_ITEM_WAIT = 3,
  FAKE_ITEM_HOST_CALL = 4,
  FAKE_ITEM_GRAPH = 5,
  FAKE_ITEM_SIGNAL = 6
};

enum {
  FAKE_ITEM_FAULT = 1,   /* fails instead of running */
  FAKE_ITEM_NOTED = 2,   /* followed by a note */
  FAKE_ITEM_COUNTED = 4, /* of a recording: HAL_FAKE_FAULT counts it each time that it runs */
  FAKE_ITEM_TRACED = 8   /* followed by a trace of the sanitizer, after the note */
};

typedef struct fake_recording_s fake_recording_t;
typedef struct fake_capture_s fake_capture_t;

typedef struct fake_item_s {
  uint32_t size; /* bytes to the next item, a multiple of 16 */
  uint16_t kind;
  uint16_t flags; /* of a launch */
  union {
    struct {
      const hal_host_kernel_t *kernel;
      hal_host_range_t range; /* as HAL_LAUNCH_FIRST_BLOCK and grid specify */
    } launch;
    struct {
      hal_plugin_event_t *event; /* a reference */
      uint64_t generation;
    } record;
    struct {
      hal_plugin_stream_t *stream; /* a reference */
      uint64_t number;
      fake_promise_t *promise; /* owned */
    } wait;
    struct {
      hal_plugin_semaphore_t *semaphore; /* a reference */
      uint64_t value;
      fake_clock_t *clock; /* a reference */
    } signal;
    struct {
      hal_host_fn_t fn;
      void *user_data;
    } host;
    fake_recording_t *graph; /* a reference */
  } u;
  void *args[]; /* of a launch: addresses of the values, which follow */
} fake_item_t;

typedef struct fake_chunk_s fake_chunk_t;

/* ---- stream.c --------------------------------------------------------------------------------------------------- */
enum {
  FAKE_STREAM_IDLE = 0,    /* nothing queued */
  FAKE_STREAM_READY = 1,   /* has items and is in the pool's list, to be claimed */
  FAKE_STREAM_RUNNING = 2, /* claimed */
  FAKE_STREAM_BLOCKED = 3  /* its next item waits for another stream, and it is in that stream's list of waiters */
};

struct hal_plugin_stream_s {
  /* Written by threads that enqueue, with the lock held. */
  alignas(FAKE_CACHE_LINE) fake_lock_t lock;
  uint32_t state;
  uint32_t listed; /* in the pool's list (which has a reference), possibly without work */
  uint32_t write_offset;
  atomic_uint backlog; /* items enqueued since a thread last waited for the stream: FAKE_BACKLOG */
  fake_chunk_t *write_chunk;
  int32_t device, priority;
  uint32_t sleepers; /* number of threads that sleep on `signal` */
  hal_status_t error;
  /* The kernel that failed, or the reason why the work was aborted; static text; NULL: aborted by a fork */
  const char *error_kernel;
  hal_status_t told; /* the failure that was reported last, for stream_error */
  const char *told_kernel;

  /* Written by threads that enqueue, read by threads that run items. */
  alignas(FAKE_CACHE_LINE) _Atomic uint64_t tail; /* items enqueued */

  /* Written by the thread that has claimed the stream. */
  alignas(FAKE_CACHE_LINE) _Atomic uint64_t done; /* items done */
  _Atomic uint64_t wake_at;                       /* lowest number that a thread waits for */
  fake_chunk_t *read_chunk;
  uint32_t read_offset;
  atomic_uint signal;
  _Atomic(fake_chunk_t *) spare; /* a used chunk, so that a queue in steady state allocates nothing */

  alignas(FAKE_CACHE_LINE) atomic_uint refs;
  atomic_uint failed;               /* `error` is set */
  hal_plugin_stream_t *waiters;     /* BLOCKED on this stream; guarded by the lock */
  hal_plugin_stream_t *wait_next;   /* in the list of waiters of wait_stream, guarded by that stream's lock */
  hal_plugin_stream_t *wait_stream; /* the stream that a BLOCKED stream waits for; guarded by the lock */
  uint64_t wait_number;
  hal_plugin_stream_t *ready_next;                /* in the pool's list, guarded by the pool's lock */
  hal_plugin_stream_t *list_next, *list_previous; /* of the device, guarded by its lock */

  _Atomic(fake_capture_t *) capture; /* graph.c; changes with the lock held */
  hal_plugin_stream_t *capture_next; /* of the capture, like the members below, guarded by the lock of the captures */
  uint64_t capture_number;           /* nodes of the recording up to the stream's last one */
  uint32_t capture_merged;           /* another stream of the capture has waited for those */

  char name[FAKE_NAME_BYTES]; /* of object_name_set; guarded by the lock */

  const fake_trace_t *trace; /* of the running item, with HAL_FAKE_SANITIZE */
  fake_timeline_t timeline;  /* of its work */
  fake_timeline_t branch;    /* in its capture; guarded by the lock of the captures */
};

static inline int fake_is_captured(const hal_plugin_stream_t *stream) {
  return FAKE_UNLIKELY(atomic_load_explicit(&stream->capture, memory_order_relaxed) != NULL);
}
/* Returns whether work for the stream is queued or recorded; otherwise it runs during the call. */
static inline int fake_queues(const hal_plugin_stream_t *stream) {
  return stream && (fake.settings.async || fake_is_captured(stream));
}

/* Reserves memory for an item of `size` bytes (header, arguments, values) at the end of the stream's queue, and locks
 * the stream. Returns NULL, not locked, if there is no memory, or if such an item cannot be captured; the message is
 * set. */
fake_item_t *fake_queue_reserve(hal_plugin_stream_t *stream, uint32_t size, uint32_t kind);
/* Returns the status of that. */
static inline hal_status_t fake_queue_refused(const hal_plugin_stream_t *stream) {
  return fake_is_captured(stream) ? HAL_FAILED_PRECONDITION : HAL_RESOURCE_EXHAUSTED;
}
/* Publishes the reserved item, unlocks, and ensures that a thread runs it. Returns the item's number. */
uint64_t fake_queue_commit(hal_plugin_stream_t *stream, fake_item_t *item);
/* For the thread that has claimed the stream: returns the first item (there is one), and removes it. */
fake_item_t *fake_queue_front(hal_plugin_stream_t *stream);
void fake_queue_pop(hal_plugin_stream_t *stream, const fake_item_t *item);
/* With the lock held and an empty queue: restarts at the chunk's beginning, which is in the cache. */
void fake_queue_rewind(hal_plugin_stream_t *stream);
/* Frees the chunks, or leaks them if `leak` (after fork, because they may be half written). */
void fake_queue_clear(hal_plugin_stream_t *stream, int leak);

static inline uint64_t fake_stream_done(hal_plugin_stream_t *stream) {
  return atomic_load_explicit(&stream->done, memory_order_acquire);
}
static inline uint64_t fake_stream_tail(hal_plugin_stream_t *stream) {
  return atomic_load_explicit(&stream->tail, memory_order_acquire);
}
static inline void fake_stream_ref(hal_plugin_stream_t *stream) {
  atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
}
void fake_stream_unref(hal_plugin_stream_t *stream);
/* Stores the first failure for the next synchronization or query. `kernel`, or for HAL_ABORTED the cause, must remain
 * valid. */
void fake_stream_fail(hal_plugin_stream_t *stream, hal_status_t status, const char *kernel);
/* As stream_host_call. The trace, of which this takes ownership, is NULL for functions of the plugin. */
hal_status_t fake_stream_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data,
                              const fake_trace_t *trace);
void fake_stream_fork_child(void);

/* ---- run.c, wait.c: running a stream's items, waiting for them -------------------------------------------------- */
/* Waits until item `number` of the stream is done; the calling thread runs items itself if no other thread does. */
void fake_stream_wait(hal_plugin_stream_t *stream, uint64_t number);
/* Waits at most `timeout_ns` and runs no items. Returns whether the item is done. */
int fake_stream_wait_timeout(hal_plugin_stream_t *stream, uint64_t number, int64_t timeout_ns);
/* Runs an item. */
void fake_run_item(hal_plugin_stream_t *stream, const fake_item_t *item);

/* ---- event.c ---------------------------------------------------------------------------------------------------- */
/* The RECORD item: stores the time if this is still the event's last record, and releases the item's reference. */
void fake_event_stamp(hal_plugin_event_t *event, uint64_t generation);
void fake_event_fork_child(void);
/* Queues a wait of the stream until item `number` of another one is done; takes ownership of the promise. */
hal_status_t fake_stream_wait_number(hal_plugin_stream_t *stream, hal_plugin_stream_t *other, uint64_t number,
                                     fake_promise_t *promise);

/* ---- graph.c: capture and graphs -------------------------------------------------------------------------------- */
/* The mark of an event that was recorded on a captured stream. */
typedef struct fake_mark_s {
  uint64_t capture;                  /* 0: the record does not belong to a capture */
  const hal_plugin_stream_t *stream; /* only compared */
  uint64_t number;
} fake_mark_t;

/* As fake_queue_reserve and fake_queue_commit: an item becomes a node of the recording. The lock that is held is that
 * of the captures. */
fake_item_t *fake_capture_reserve(hal_plugin_stream_t *stream, uint32_t size, uint32_t kind);
void fake_capture_commit(hal_plugin_stream_t *stream, fake_item_t *item);
/* Returns the number of the stream's capture, 0 = it has ended, and of its last node. */
uint64_t fake_capture_mark(const hal_plugin_stream_t *stream, uint64_t *out_number);
/* Makes a stream wait for a mark and join the capture, or makes a captured stream wait for outside work. */
hal_status_t fake_capture_wait(hal_plugin_stream_t *stream, const fake_mark_t *mark);
/* For calls that cannot be part of a graph: invalidates the captures whose mode forbids such a call of this thread, and
 * returns the error. */
hal_status_t fake_captures_forbid(const char *call);
static inline hal_status_t fake_captures_check(const char *call) {
  const int any = atomic_load_explicit(&fake.captures, memory_order_relaxed) != 0;
  return FAKE_UNLIKELY(any) ? fake_captures_forbid(call) : HAL_OK;
}
/* Invalidates the stream's capture because of a call that waits for it. */
hal_status_t fake_capture_refuses(hal_plugin_stream_t *stream, const char *call);
/* To be called when a captured stream is destroyed. */
void fake_capture_forget(hal_plugin_stream_t *stream);
void fake_capture_fork_child(void);
/* Runs the nodes in order on the calling thread. Returns the kernel that HAL_FAKE_FAULT made fail, if one did.
 * `launch`: with the class race of HAL_FAKE_SANITIZE; else NULL. */
const hal_host_kernel_t *fake_recording_run(hal_plugin_stream_t *stream, const fake_recording_t *recording,
                                            const fake_trace_t *launch);
void fake_recording_unref(fake_recording_t *recording);

/* ---- copy.c ----------------------------------------------------------------------------------------------------- */
/* Minimum number of bytes for a separate thread: 1 MiB takes about 100 us from memory, waking a worker 5 to 50 us. */
#define FAKE_COPY_GRAIN (1u << 20)
/* Returns HAL_OK, or an error about the sides of a copy of at least one byte. */
hal_status_t fake_copy_check(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t size);

/* ---- profile.c: records of what ran ----------------------------------------------------------------------------- */
/* The content of a record without its times. Written when work is submitted. */
typedef struct fake_note_s {
  uint64_t correlation, bytes;
  hal_plugin_stream_t *stream; /* only compared */
  int32_t device;
  uint16_t kind, direction; /* HAL_PROFILE_*, HAL_COPY_* */
} fake_note_t;

/* A note and what the sanitizer stores with it. */
typedef struct fake_noted_s {
  fake_note_t note;
  fake_trace_t trace; /* only with HAL_FAKE_SANITIZE */
} fake_noted_t;

static inline uint32_t fake_note_bytes(void) {
  return (uint32_t)(fake.settings.sanitize ? sizeof(fake_noted_t) : sizeof(fake_note_t));
}
/* Returns the trace of a note; NULL without HAL_FAKE_SANITIZE. */
static inline fake_trace_t *fake_note_trace(const fake_note_t *note) {
  return fake.settings.sanitize ? &((fake_noted_t *)(uintptr_t)note)->trace : NULL;
}

/* Returns whether any device collects records; every submission checks this first. */
static inline int fake_profile_any(void) {
  return FAKE_UNLIKELY(atomic_load_explicit(&fake.profiled, memory_order_relaxed) != 0);
}
/* Returns whether submitted work may need a note: captured work runs later, when a profile may be active. */
static inline int fake_takes_notes(const hal_plugin_stream_t *stream) {
  return fake_profile_any() || (stream && fake_is_captured(stream));
}
int fake_profile_is_on(int32_t device);
/* Write a note and return it; NULL, not written: the device of the work collects none. */
const fake_note_t *fake_note_launch(fake_noted_t *out_note, hal_plugin_stream_t *stream, const hal_arg_t *args,
                                    uint32_t arg_count);
const fake_note_t *fake_note_copy(fake_noted_t *out_note, hal_plugin_stream_t *stream, int32_t dst_device,
                                  int32_t src_device, uint64_t size);
/* The same for a captured note, whose work is launched again; without a trace. */
const fake_note_t *fake_note_again(fake_noted_t *out_note, const fake_note_t *captured, hal_plugin_stream_t *stream);
const fake_note_t *fake_note_fill(fake_noted_t *out_note, hal_plugin_stream_t *stream, int32_t device, uint64_t size);
/* The work of a note has run: releases what its trace refers to. NULL is accepted. */
void fake_note_end(const fake_note_t *note);
/* Calls fake_run, and adds a record of it. */
void fake_run_noted(const fake_note_t *note, hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel,
                    const hal_host_range_t *range, void *const *args);
void fake_profile_fork_child(void);
/* Ends the device's profile and discards its records. */
void fake_profile_forget(int32_t device);

static inline const fake_note_t *fake_item_note(const fake_item_t *item) {
  return (const fake_note_t *)(const void *)((const char *)item + item->size - fake_note_bytes());
}
static inline fake_trace_t *fake_item_trace(const fake_item_t *item) {
  return (fake_trace_t *)(uintptr_t)((const char *)item + item->size - sizeof(fake_trace_t));
}

/* ---- module.c --------------------------------------------------------------------------------------------------- */
/* Runs a launch, or queues it with copies of the arguments and of the note (NULL: none). */
hal_status_t fake_submit(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel, uint64_t units,
                         const hal_arg_t *args, uint32_t arg_count, const fake_note_t *note);
/* Counts a launch that runs, with HAL_FAKE_FAULT; returns whether it is the one that fails. */
int fake_launch_fails(void);
/* Makes a launch fail: the stream stores the failure; without a stream it is returned. */
hal_status_t fake_launch_inject(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel);

/* ---- pool.c, parallel.c: the worker threads of the process ------------------------------------------------------ */
/* Computes a launch on the calling thread and on idle workers. `owner` may be NULL. Launches of the same `code` and
 * number of units are expected to take as long as the last one. */
void fake_run_parallel(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                       void *const *args, uintptr_t code);
/* Prepares the plugin's extensions (host_parallel.c), after the settings. */
void fake_host_parallel_init(void);
/* Ends the workers; waits at most one second for them. */
void fake_pool_stop(void);
void fake_pool_fork_prepare(void);
void fake_pool_fork_parent(void);
void fake_pool_fork_child(void);

/* Computes a part of a launch on the calling thread, with HAL_FAKE_PROTECT or HAL_FAKE_SANITIZE. */
void fake_compute_watched(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                          void *const *args);
/* Computes a part of a launch on the calling thread. */
static inline void fake_compute(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel,
                                const hal_host_range_t *range, void *const *args) {
  if (FAKE_UNLIKELY(fake.settings.watched))
    fake_compute_watched(owner, kernel, range, args);
  else
    kernel->fn(range, args);
}

/* Runs a launch on the calling thread, or in parts on the pool if that is faster. */
static inline void fake_run(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                            void *const *args) {
  const uint64_t units = range->end - range->begin;
  if (FAKE_LIKELY(units < 2 * (uint64_t)kernel->grain || fake.settings.threads == 1))
    fake_compute(owner, kernel, range, args);
  else
    fake_run_parallel(owner, kernel, range, args, (uintptr_t)kernel);
}

#endif /* HAL_FAKE_H_ */
