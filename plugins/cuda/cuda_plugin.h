/* cuda_plugin.h: declarations shared by the files of the CUDA plugin. The driver is called through `drv`, a table of
 * functions that loader.c fills at run time: the plugin is not linked with a library of NVIDIA. */
#ifndef CUDA_PLUGIN_H_
#define CUDA_PLUGIN_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <hal/plugin_records.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "driver_api.h"

#define CUDA_LIKELY(x) __builtin_expect(!!(x), 1)
#define CUDA_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { CUDA_MAX_DEVICES = 64, CUDA_MAX_ARGS = 64 };

/* For the initializer of a hal_library_t (hal/plugin_library.h): the functions to look up in it, a list of
 * hal_library_symbol_t, and the table for them. */
#define CUDA_LIBRARY_CALLS(list, calls) \
  .symbols = (list), .symbol_count = sizeof(list) / sizeof *(list), .table = &(calls), .lock = PTHREAD_MUTEX_INITIALIZER

/* ---- functions of the driver (loader.c) ------------------------------------------------------------------------- */

#define CUDA_DECLARE_CALL(name, version, parameters) CUresult(*name) parameters;
typedef struct cuda_table_s {
  CUDA_CALLS(CUDA_DECLARE_CALL)
  CUDA_LATER_CALLS(CUDA_DECLARE_CALL)
} cuda_table_t;
extern cuda_table_t drv;

/* Opens the driver's library and fills `drv`; starts no driver. Thread-safe; a second call returns immediately.
 * Errors: HAL_UNAVAILABLE = there is no driver, or it is too old; the message names what to install. */
hal_status_t cuda_loader_open(void);

/* Returns the CUDA version of the driver, as 12040; 0 before cuda_loader_open. */
int cuda_loader_cuda_version(void);

/* Returns the plugin's version with the driver's and its file, to distinguish the driver from a mock driver. Starts no
 * driver. */
const char *cuda_loader_version(void);

/* Returns the file of a library that contains a function; "none" if there is none. */
const char *cuda_file_of(const void *function);

/* Finds a library of the toolkit, whose folder the loader does not search: that of CUDA_HOME, CUDA_PATH, or
 * /usr/local/cuda. Returns whether there is one. */
int cuda_find_in_toolkit(const char *name, char *path, size_t room);

/* Finds a file of a Python package in a folder that contains this plugin, at any depth. Returns whether there is one.
 * */
int cuda_find_in_packages(const char *name, char *path, size_t room);

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* Returns the name of a driver's error, such as "CUDA_ERROR_ILLEGAL_ADDRESS". */
const char *cuda_error_name(CUresult code);

/* Converts a driver's error to the host's status. */
hal_status_t cuda_error_status(CUresult code);

/* Returns whether an error ends the context, so that every later call of the process returns it. */
int cuda_error_is_fatal(CUresult code);

/* Sets the thread's message. */
hal_status_t cuda_error(hal_status_t status, int64_t native_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of the driver: appends the name and number of its error to the message. */
hal_status_t cuda_driver_error(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- devices (plugin.c, device.c) ------------------------------------------------------------------------------- */

/* The name of a command in failures, and its data for profiles. */
typedef struct cuda_work_s {
  const char *op;     /* the slot that queued it; never freed */
  const char *kernel; /* or NULL; valid as long as its module */
  uint64_t bytes, correlation;
  uint32_t kind, direction; /* HAL_PROFILE_*, HAL_COPY_* */
  uint32_t noted;           /* the number of the profile that records it; 0 = none */
} cuda_work_t;

typedef struct cuda_failure_s {
  hal_status_t status;
  CUresult code;
  char op[64], kernel[96];
} cuda_failure_t;

/* A stream of the driver that is not synchronized with the driver's default stream. */
struct hal_plugin_stream_s {
  CUstream handle;
  int32_t device;
  _Atomic(const char *) op,
      kernel;                   /* of the last command; NULL: no command was queued since the last synchronization */
  _Atomic(uint64_t) capture_id; /* the number of its last capture */
  atomic_int aborted;           /* a collective on it was aborted, which its next wait reports */
  pthread_mutex_t lock;         /* guards the members below */
  cuda_failure_t told;          /* reported last */
  struct cuda_span_s *spans;    /* commands that profiles record, oldest first, in a ring (profile.c) */
  uint32_t first, room;         /* capacity: a power of two, or 0 */
  _Atomic(uint32_t) count;      /* also read without the lock, to check whether there are any */
  hal_plugin_stream_t *next, *previous; /* in the device's list; guarded by the device's lock */
};

typedef struct cuda_device_s {
  CUdevice handle;
  _Atomic(CUcontext) context; /* the primary context, retained at the first use; NULL before */
  char name[64];
  uint8_t uuid[16];
  size_t memory_bytes, granularity; /* granularity: of virtual memory; 0 = unsupported */
  int shares_files;                 /* virtual memory can be shared with other processes as a file descriptor */
  int has_pools, pooled;            /* pooled: the host's allocator uses the driver's pools: HAL_CUDA_POOLED */
  int moves_managed, moves_host;    /* managed memory, and any host memory, migrates between the device and the host */
  CUmemoryPool pool;                /* guarded by the lock; NULL before its first use */
  int most_threads, most_block[3], most_grid[3], shared_bytes, most_shared_bytes, warp, units, pci[3], capability;
  int most_pitch, cache_bytes, copy_engines, numa_node; /* numa_node: -1 = unknown */
  atomic_int lost;                                      /* the CUresult that ended the context; 0: it is usable */
  hal_plugin_stream_t *own;                             /* the NULL stream's */
  int least, greatest;                                  /* priorities of streams */
  pthread_mutex_t lock;                                 /* guards the list, and the creation of the context */
  hal_plugin_stream_t *streams;
  hal_records_t profile;
  struct cuda_clock_s *clock; /* of profiles (profile.c) */
} cuda_device_t;

typedef struct cuda_state_s {
  atomic_int ready, forked;
  int32_t device_count;
  atomic_int keep_names; /* there has been a profile, whose records may name kernels of unloaded modules */
  cuda_device_t devices[CUDA_MAX_DEVICES];
} cuda_state_t;
extern cuda_state_t cuda;

/* Returns whether calls may use the device: HAL_INVALID_ARGUMENT, or HAL_FAILED_PRECONDITION before init and in a
 * forked child. */
hal_status_t cuda_check_device(int32_t device);

/* The same, and HAL_UNAVAILABLE if it is lost: for functions that queue work or allocate memory. */
hal_status_t cuda_check_alive(int32_t device);

/* Records that a call found the context ended, if `code` is such an error. */
void cuda_device_noticed(int32_t device, CUresult code);

/* Reads the properties of a device. */
hal_status_t cuda_device_read(cuda_device_t *device, int32_t ordinal);

/* The state that is restored when a call ends. The thread's current context belongs to the caller, which may use CUDA
 * in other ways, too. */
typedef struct cuda_scope_s {
  CUcontext before;
  int restore;
} cuda_scope_t;

/* Makes the device's context current; ended by cuda_leave. The first call retains the context. Errors: those of
 * cuda_check_device, and of the driver. */
hal_status_t cuda_enter(int32_t device, cuda_scope_t *scope);
static inline void cuda_leave(const cuda_scope_t *scope) {
  if (CUDA_UNLIKELY(scope->restore)) drv.cuCtxSetCurrent(scope->before);
}

/* Creates a stream that is not in a list. The context is current. */
hal_status_t cuda_stream_make(int32_t device, int32_t priority, hal_plugin_stream_t **out_stream);
void cuda_stream_unmake(hal_plugin_stream_t *stream);

/* Removes a kernel's name, which will be freed, from the last commands of the streams. */
void cuda_streams_forget(int32_t device, const char *kernel);

/* ---- queued work (work.c) --------------------------------------------------------------------------------------- */

/* A command between cuda_submit_begin and cuda_submit_end. */
typedef struct cuda_submit_s {
  hal_plugin_stream_t *stream; /* never NULL: the device's own stream for the synchronous one */
  int synchronous;
  CUstream handle;
  cuda_scope_t scope;
  struct cuda_span_s *span; /* of a profile, or NULL; the stream is then locked */
  cuda_work_t work;
} cuda_submit_t;

/* Makes the context current. `device` is used for the NULL stream only. Errors: those of cuda_enter, and a lost device.
 * */
hal_status_t cuda_submit_begin(cuda_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op);

/* `code` is the driver's result for the command; on the NULL stream this waits for the command. */
hal_status_t cuda_submit_end(cuda_submit_t *submit, CUresult code);

/* Ends a wait or a query for which the driver returned `code`: reports the failure of the stream's last command once,
 * or that the device is lost. */
hal_status_t cuda_work_failed(hal_plugin_stream_t *stream, CUresult code);

/* ---- libraries of operators (libraries/op.c) -------------------------------------------------------------------- */

/* Destroys the objects that NVIDIA's libraries have created on a device, whose context is current and will end. `lost`:
 * the context has failed, and the libraries are not called. */
void cuda_libraries_forget(int32_t device, int lost);

/* ---- graphs (graph.c) ------------------------------------------------------------------------------------------- */

/* Returns whether the stream is captured. */
int cuda_stream_is_captured(const hal_plugin_stream_t *stream);

/* ---- events of devices (watch.c) -------------------------------------------------------------------------------- */

/* Reports that the context has ended with this error. The caller may hold locks of the plugin. */
void cuda_watch_lost(int32_t device, CUresult code);

/* ---- system management (nvml.c) --------------------------------------------------------------------------------- */

/* Writes the versions of driver and firmware, as far as NVML reports them. */
void cuda_read_versions(int32_t device, hal_device_info_t *inout_info);

/* ---- virtual memory (virtual.c) --------------------------------------------------------------------------------- */

/* Returns the granularity of sizes, in bytes; 0 = the device has no virtual memory. */
size_t cuda_virtual_granularity(const cuda_device_t *device);

/* ---- profiles (profile.c) --------------------------------------------------------------------------------------- */

/* Begins the recording of a marked command, and locks its stream. Without memory or events there is no record. */
void cuda_span_begin(cuda_submit_t *submit);
void cuda_span_end(cuda_submit_t *submit, int queued);

/* Creates records of the spans that have ended. */
void cuda_spans_reap(hal_plugin_stream_t *stream);
void cuda_spans_release(hal_plugin_stream_t *stream);

/* Releases the events with known times, if no stream has spans. The context is current, and the caller holds the
 * device's lock. */
void cuda_clock_release(cuda_device_t *device);

#endif /* CUDA_PLUGIN_H_ */
