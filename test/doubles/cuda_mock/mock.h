/* mock.h: shared by the files of the mock libcuda.so.1: a library with the name of the CUDA driver, whose
 * devices are this machine's processors. See README.md. */
#ifndef CUDA_MOCK_H_
#define CUDA_MOCK_H_

#include <pthread.h>
#include <stdatomic.h>

#include "cubin.h"
#include "driver_api.h"
#include "module_image.h"

#define API __attribute__((visibility("default")))
enum {
  MAX_DEVICES = 8,
  MAX_ARGUMENTS = 4096 / 4,
  ARGUMENT_BYTES = 4096,
  MOST_PITCH = 1 << 20
}; /* less than hardware has: tests exceed it */

/* ---- the exported functions (entry.c and others) ---- */

/* Exported under the names of the versions that driver_api.h lists; a plain name is the first version. */
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2
#define cuMemHostRegister cuMemHostRegister_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpy2DAsync cuMemcpy2DAsync_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuIpcOpenMemHandle cuIpcOpenMemHandle_v2

#define DECLARE_(name, parameters) API CUresult name parameters;
#define DECLARE(name, version, parameters) DECLARE_(name, parameters)
CUDA_CALLS(DECLARE)
CUDA_LATER_CALLS(DECLARE)

/* ---- devices and contexts (context.c) ---- */

/* A device's primary context; there are no others. */
struct CUctx_st {
  CUdevice device;
  atomic_int error; /* CUresult that each call returns from now on; 0 = none */
  int retained;     /* the rest under `lock` */
  unsigned peers;   /* bit d: access to device d is enabled */
  struct CUstream_st *streams, *legacy;
  size_t used; /* bytes of memory */
};

extern struct CUctx_st contexts[MAX_DEVICES];
extern int device_count;
extern pthread_mutex_t lock; /* of lists: contexts, streams, memory */

/* The checks at the beginning of a call: the library is initialized, and a context without an error is current. */
CUresult enter(CUcontext *out_context);
CUresult check_initialised(void);
CUresult check_device(CUdevice device);
CUcontext current_context(void);

/* A number of the environment, or `otherwise`. */
long long setting(const char *name, long long otherwise);
size_t memory_of_device(void);
uint64_t clock_now(void); /* nanoseconds */

/* ---- faults (fault.c) ---- */

/* The number of failing calls. FAULT_LOST: the number of commands that still run before the context fails.
 * FAULT_CODE: the CUresult of the failure. FAULT_DELAY: microseconds by which each command is delayed. */
typedef enum fault_e {
  FAULT_ALLOC,
  FAULT_HOST,
  FAULT_MODULE,
  FAULT_LAUNCH,
  FAULT_COPY,
  FAULT_STREAM,
  FAULT_EVENT,
  FAULT_CONTEXT,
  FAULT_RESET,
  FAULT_LOST,
  FAULT_DELAY,
  FAULT_CODE,
  FAULT_KINDS
} fault_e;

void fault_read(void);
int fault_takes(fault_e kind);
/* The delay of each command, and whether it is the one at which its context fails. */
void fault_command(CUcontext context);

/* ---- memory (memory.c) ---- */

/* Returns whether the `bytes` bytes there are memory of a device (1) or of the host (0). */
int is_device_range(CUdeviceptr address, size_t bytes);
/* Returns whether they are memory of the driver, for example page-locked memory. */
int is_locked_range(const void *begin, size_t bytes);
/* Memory that virtual.c maps counts as device memory. Returns whether it succeeded, or it was such a range. */
int memory_add_mapped(CUcontext context, void *base, size_t size);
int memory_take_mapped(void *base, size_t size);
/* The size of the device's range that begins there, 0 = there is none. */
size_t memory_size_of(CUdeviceptr address);
/* The memory file of an allocation that begins there, -1 = there is none. */
int memory_file_of(CUdeviceptr address, size_t *out_size);
/* cuMemFree of memory of a pool (pool.c), after all queued work is done. Returns whether it was memory of a pool. */
int pool_free_now(CUdeviceptr address);
/* After a synchronization, pools return the memory above their thresholds. */
void pools_synchronised(CUcontext context);
/* Frees a context's memory. The caller holds `lock`. */
void pools_release(CUcontext context);
/* The handle by which another process opens a memory file of this one (virtual.c), of memory or of an event. */
void process_handle_write(void *handle, int file, size_t size);
CUresult process_handle_open(const void *handle, int *out_file, size_t *out_size);
/* Frees the objects that a context still has. The caller holds `lock`. */
void memory_release_all(CUcontext context);

/* ---- streams and commands (stream.c) ---- */

typedef struct place_s { /* in a stream's order */
  CUstream stream;
  uint64_t ticket;
} place_t;

/* A command: the first member of the callers' structs. `run` releases nothing; `drop` releases the command's
   objects, except the command itself. */
typedef struct command_s {
  struct command_s *next;
  void (*run)(struct command_s *command, CUcontext context);
  void (*drop)(struct command_s *command);
  int always; /* 1: also runs in a context that has failed */
  size_t wait_count;
  place_t *waits;
} command_t;

struct CUstream_st {
  CUcontext context;
  unsigned flags;
  int priority;
  atomic_int users;
  pthread_t thread;
  pthread_mutex_t lock; /* of the rest */
  pthread_cond_t wake, ended;
  command_t *first, **last;
  uint64_t queued, done;
  int stop;
  CUstream next; /* in the context's list; under the global lock, like the next members */
  struct capture_s *capture;
  uint64_t captured; /* commands since the capture began */
  int unjoined;      /* the captured work has not been waited for */
};

/* Memory for a command, zeroed; NULL = none. */
void *command_new(size_t bytes, void (*run)(command_t *, CUcontext));
/* Releases a command and its objects. */
void command_drop(command_t *command);
/* Queues it; handles 0, 1 and 2 are the default streams. Takes ownership, also on failure. */
CUresult command_push(CUstream stream, CUcontext context, command_t *command);
/* The stream of a handle. NULL = out of memory. */
CUstream stream_resolve(CUstream stream, CUcontext context);
void stream_wait(place_t place);
/* Waits for all current work of a stream, unless it is captured. */
void stream_finish(CUstream stream, CUcontext context);
/* Waits for all streams of a context. */
void context_drain(CUcontext context);
void streams_release(CUcontext context);

/* ---- captures (graph.c) ---- */

/* The position of a captured event. All zeros: none. */
typedef struct capture_mark_s {
  uint64_t id;
  CUstream stream;
  uint64_t captured;
} capture_mark_t;

/* Takes ownership of a command if its stream is captured: CUDA_SUCCESS; CUDA_ERROR_NOT_FOUND = it is not. The caller
   holds `lock`. */
CUresult capture_take(CUstream stream, command_t *command);
/* A record and a wait, in a stream that is captured, or for a captured event. CUDA_ERROR_NOT_FOUND = no capture is
   involved. */
CUresult capture_record(CUstream stream, capture_mark_t *mark);
CUresult capture_wait(CUstream stream, const capture_mark_t *mark);
/* For a call that cannot be captured: invalidates the capture. CUDA_SUCCESS = there is no capture. */
CUresult capture_forbids_stream(CUstream stream);
CUresult capture_forbids(void);

/* ---- kernels (launch.c, fibre.c) ---- */

struct CUmod_st {
  void *library; /* or NULL, and `cubin` */
  cubin_t *cubin;
  const module_image_t *image;
  CUcontext context;
  atomic_int users;
  CUfunction functions;
  pthread_mutex_t lock; /* of the list */
};

struct CUfunc_st {
  CUmodule module;
  const module_kernel_t *kernel;
  atomic_int most_shared; /* maximum bytes that a launch may request */
  CUfunction next;
};

void module_release(CUmodule module);

/* Calls body(data, 0) to body(data, count - 1), each as a fiber of this thread; fibre_yield in one of them runs the
   others up to the same point. */
void fibres_run(unsigned count, void (*body)(void *data, unsigned index), void *data);
void fibre_yield(void);
void fibres_release(void); /* before the thread ends */

#endif /* CUDA_MOCK_H_ */
