/* opencl.h: declarations shared by the files of the OpenCL plugin. The driver is called through `icd`, a table of
 * functions that icd.c fills at run time: the plugin is not linked with an OpenCL library. */
#ifndef OPENCL_H_
#define OPENCL_H_

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <hal/plugin_records.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#if defined(__GNUC__)
#define OCL_LIKELY(x) __builtin_expect(!!(x), 1)
#define OCL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define OCL_LIKELY(x) (x)
#define OCL_UNLIKELY(x) (x)
#endif

enum { OCL_MAX_DEVICES = 64, OCL_MAX_ARGS = 64 };

/* ---- functions of the driver (icd.c) ---------------------------------------------------------------------------- */

/* Functions of OpenCL 1.2, which every loader has. */
#define OCL_CALLS(X)              \
  X(clGetPlatformIDs)             \
  X(clGetPlatformInfo)            \
  X(clGetDeviceIDs)               \
  X(clGetDeviceInfo)              \
  X(clCreateContext)              \
  X(clReleaseContext)             \
  X(clCreateCommandQueue)         \
  X(clReleaseCommandQueue)        \
  X(clCreateBuffer)               \
  X(clCreateSubBuffer)            \
  X(clEnqueueReadBuffer)          \
  X(clEnqueueWriteBuffer)         \
  X(clEnqueueCopyBuffer)          \
  X(clEnqueueReadBufferRect)      \
  X(clEnqueueWriteBufferRect)     \
  X(clEnqueueCopyBufferRect)      \
  X(clEnqueueFillBuffer)          \
  X(clEnqueueMigrateMemObjects)   \
  X(clReleaseMemObject)           \
  X(clEnqueueMapBuffer)           \
  X(clEnqueueUnmapMemObject)      \
  X(clFlush)                      \
  X(clFinish)                     \
  X(clRetainEvent)                \
  X(clReleaseEvent)               \
  X(clGetEventInfo)               \
  X(clGetEventProfilingInfo)      \
  X(clWaitForEvents)              \
  X(clCreateUserEvent)            \
  X(clSetUserEventStatus)         \
  X(clEnqueueMarkerWithWaitList)  \
  X(clEnqueueBarrierWithWaitList) \
  X(clCreateProgramWithSource)    \
  X(clCreateProgramWithBinary)    \
  X(clBuildProgram)               \
  X(clGetProgramInfo)             \
  X(clGetProgramBuildInfo)        \
  X(clReleaseProgram)             \
  X(clCreateKernel)               \
  X(clReleaseKernel)              \
  X(clGetKernelInfo)              \
  X(clGetKernelArgInfo)           \
  X(clGetKernelWorkGroupInfo)     \
  X(clSetKernelArg)               \
  X(clEnqueueNDRangeKernel)       \
  X(clGetExtensionFunctionAddressForPlatform)

/* Functions of OpenCL 2.0 and later: NULL if the loader is older. */
#define OCL_LATER_CALLS(X)              \
  X(clCreateCommandQueueWithProperties) \
  X(clCreateProgramWithIL)              \
  X(clGetDeviceAndHostTimer)            \
  X(clSVMAlloc)                         \
  X(clSVMFree)                          \
  X(clEnqueueSVMMemcpy)                 \
  X(clEnqueueSVMMemFill)                \
  X(clSetKernelArgSVMPointer)

#define OCL_DECLARE_CALL(name) __typeof__(name) *name;
typedef struct ocl_icd_s {
  OCL_CALLS(OCL_DECLARE_CALL)
  OCL_LATER_CALLS(OCL_DECLARE_CALL)
} ocl_icd_t;
extern ocl_icd_t icd;

/* Opens the loader and fills `icd`; starts no driver. Thread-safe; a second call returns immediately.
 * Errors: HAL_UNAVAILABLE = there is no loader; the message names what to install. */
hal_status_t ocl_icd_open(void);

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* Returns the name of a driver's error, such as "CL_OUT_OF_RESOURCES". */
const char *ocl_error_name(cl_int code);

/* Converts a driver's error to the host's status. */
hal_status_t ocl_error_status(cl_int code);

/* Sets the thread's message. */
hal_status_t ocl_error(hal_status_t status, int64_t native_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of the driver: appends the name and number of its error to the message. */
hal_status_t ocl_driver_error(cl_int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- devices (select.c, plugin.c, device.c) --------------------------------------------------------------------- */

/* The devices that HAL_OPENCL_DEVICE selects. */
typedef struct ocl_selection_s {
  cl_platform_id platform;
  cl_device_id devices[OCL_MAX_DEVICES];
  int32_t count;
} ocl_selection_t;

/* Selects devices; starts the driver, and sets no message. Errors: HAL_UNAVAILABLE, with what to install or to set in
 * `why`, HAL_COUNT_WHY bytes. */
hal_status_t ocl_select(ocl_selection_t *out_selection, char *why);

/* The name of a command in failures, and its data for profiles. */
typedef struct ocl_work_s {
  cl_event event;
  const char *op;     /* the slot that queued it; never freed */
  const char *kernel; /* or NULL; valid as long as its module */
  uint64_t bytes, correlation;
  uint32_t kind, direction; /* HAL_PROFILE_*, HAL_COPY_* */
  uint32_t noted;           /* the number of the profile that records it; 0 = none */
} ocl_work_t;

typedef struct ocl_failure_s {
  hal_status_t status;
  cl_int code;
  char op[64], kernel[96];
} ocl_failure_t;

/* The state of a stream in a capture (capture.c), whose lock guards it. */
typedef struct ocl_capture_s ocl_capture_t;
typedef struct ocl_captured_s {
  _Atomic(ocl_capture_t *) by; /* NULL: the stream is not captured */
  hal_plugin_stream_t *next;   /* next stream of the same capture */
  uint64_t at;                 /* when it last received work, on the capture's clock */
  int awaited;                 /* another stream of the capture has waited for all of its work */
} ocl_captured_t;

/* An in-order queue, and a ring of its commands that have not been seen complete, oldest first. */
struct hal_plugin_stream_s {
  cl_command_queue queue;
  int32_t device;
  pthread_mutex_t
      lock; /* guards the members below; held while a command is queued, so that the ring is in the queue's order */
  ocl_work_t *ring;
  uint32_t first, count, room; /* capacity: a power of two, or 0 */
  uint32_t unflushed;
  /* A user has the queue's handle, and may have queued commands that are not in the ring */
  atomic_int lent;
  int64_t patience;            /* of hal_marker_query */
  ocl_failure_t failure, told; /* not reported yet; reported last */
  struct hal_worker_s *host;   /* calls host functions; created for the first one */
  ocl_captured_t captured;
  hal_plugin_stream_t *next, *previous; /* in the device's list */
};

typedef struct ocl_device_s {
  cl_device_id id;
  cl_command_queue queue; /* the NULL stream's */
  cl_device_type type;
  cl_ulong global_bytes, most_bytes, local_bytes, cache_bytes; /* most_bytes: maximum of one allocation */
  size_t most_threads;                                         /* maximum of a work-group */
  cl_uint units, alignment, subgroup, copy_engines, pci[4];
  cl_device_svm_capabilities svm;
  char name[64], version[128], driver[64], architecture[32];
  uint8_t uuid[16];
  int has_il, fp64;
  pthread_mutex_t lock; /* guards the list */
  hal_plugin_stream_t *streams;
  hal_records_t profile;
  int few_wide;         /* few wide cores: HAL_DEVICE_CPU */
  int wants_buffers;    /* graphs are command buffers of the driver, if those work */
  int user_events_hang; /* PoCL's "basic", later "cpu-minimal", deadlocks on a command that waits for a user event */
} ocl_device_t;

/* The kinds of memory, the best first. */
typedef enum ocl_memory_e {
  OCL_MEMORY_USM,        /* cl_intel_unified_shared_memory: device memory with addresses */
  OCL_MEMORY_SVM_FINE,   /* fine-grained shared virtual memory: the host may access it */
  OCL_MEMORY_SVM_COARSE, /* coarse-grained: the host copies */
  OCL_MEMORY_BUFFER,     /* buffer objects; an address is in reserved address space and is looked up */
  OCL_MEMORY_KINDS
} ocl_memory_t;

/* Functions of cl_intel_unified_shared_memory. */
typedef struct ocl_usm_s {
  clDeviceMemAllocINTEL_fn alloc;
  clMemFreeINTEL_fn free;
  clSetKernelArgMemPointerINTEL_fn set_arg;
  clEnqueueMemcpyINTEL_fn copy;
  clEnqueueMemFillINTEL_fn fill;
} ocl_usm_t;

typedef struct ocl_state_s {
  atomic_int ready, forked;
  cl_platform_id platform;
  cl_context context; /* of all devices, so that they share events and memory */
  int32_t device_count;
  ocl_memory_t memory;
  ocl_usm_t usm;
  atomic_int keep_names; /* there has been a profile, whose records may name kernels of unloaded modules */
  ocl_device_t devices[OCL_MAX_DEVICES];
} ocl_state_t;
extern ocl_state_t ocl;

/* Returns whether calls may use the device: HAL_INVALID_ARGUMENT, or HAL_FAILED_PRECONDITION before init and in a
 * forked child. */
hal_status_t ocl_check_device(int32_t device);

/* Reads the properties of a device. */
hal_status_t ocl_device_read(ocl_device_t *device, cl_device_id id);

/* Returns whether the device has an extension. */
int ocl_device_has(cl_device_id id, const char *extension);

/* Creates an in-order queue. `priority` has an effect if the device supports priority hints. */
hal_status_t ocl_queue_create(const ocl_device_t *device, int32_t priority, cl_command_queue *out_queue);

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------ */

/* Returns the HAL_DEVICE_* flags of the kind of memory in use. */
uint64_t ocl_memory_flags(void);

/* Returns the alignment of the start of an allocation, in bytes. */
uint32_t ocl_memory_alignment(const ocl_device_t *device);

/* Chooses the kind of memory for the devices of the context. Errors: HAL_INVALID_ARGUMENT or HAL_UNAVAILABLE, naming
 * what they lack. */
hal_status_t ocl_memory_choose(void);

/* Implements memory_alloc; may be called while streams are captured. */
hal_status_t ocl_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr);

/* A range of addresses that the plugin has allocated. */
typedef struct ocl_segment_s {
  char *base;
  size_t size;
  int32_t device; /* HAL_HOST: page-locked host memory */
  cl_mem memory;  /* the buffer object; NULL: shared virtual memory */
} ocl_segment_t;

/* The table of segments (map.c). Thread-safe. */
hal_status_t ocl_map_add(const ocl_segment_t *segment);
/* Removes the segment of the device that begins at `base`. Returns whether there is one. */
int ocl_map_take(int32_t device, const void *base, ocl_segment_t *out_segment);
/* Finds the segment that contains an address, or ends at it. Returns whether there is one. */
int ocl_map_find(const void *ptr, ocl_segment_t *out_segment);

/* ---- profiles (profile.c) --------------------------------------------------------------------------------------- */

/* Appends a record of completed work. `stream` as in the record. */
void ocl_profile_append(int32_t device, hal_plugin_stream_t *stream, const ocl_work_t *work);

/* ---- queued work (work.c) --------------------------------------------------------------------------------------- */

/* A command between ocl_submit_begin and ocl_submit_end. */
typedef struct ocl_submit_s {
  hal_plugin_stream_t *stream; /* NULL: the synchronous stream */
  cl_command_queue queue;
  int32_t device;
  int flush;       /* 1: flush it now, because another queue or thread waits for it */
  ocl_work_t work; /* the driver writes work.event */
} ocl_submit_t;

/* Locks the stream, and reserves an entry for the command. `device` is used for the NULL stream only.
 * Errors: HAL_RESOURCE_EXHAUSTED; then nothing is locked. */
hal_status_t ocl_submit_begin(ocl_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op);

/* Returns the state of a command: CL_COMPLETE, a larger number while it runs or waits, negative if it failed. */
cl_int ocl_event_status(cl_event event);

/* Waits until a command of the queue has ended, successfully or not: CL_SUCCESS. Another code: the driver could not
 * wait, and the command has not ended. */
cl_int ocl_event_wait(cl_event event, cl_command_queue queue);

/* Unlocks. `code` is the driver's result for the command; on the NULL stream this waits for the command. */
hal_status_t ocl_submit_end(ocl_submit_t *submit, cl_int code);

/* Removes the completed commands at the front of the ring, and stores the first failure. The caller holds the lock. */
void ocl_work_reap(hal_plugin_stream_t *stream, uint32_t most);

/* Does that for all streams of a device, so that no ring refers to a kernel whose work has ended. */
void ocl_work_reap_all(int32_t device);

/* Flushes the commands that the driver still holds back. The caller holds the lock. */
void ocl_work_flush(hal_plugin_stream_t *stream);

/* Does that, and returns the event of the last command, with a reference; NULL if the stream is idle. The caller holds
 * the lock. */
cl_event ocl_work_last(hal_plugin_stream_t *stream);

/* On a stream whose queue handle was returned to a user, queues a marker, which represents the user's commands in the
 * ring. The caller holds no lock. */
hal_status_t ocl_work_mark(hal_plugin_stream_t *stream);

/* Waits for all commands queued so far. The stream stores the failure, also that of waiting. */
void ocl_work_drain(hal_plugin_stream_t *stream);

/* To be called after such a wait, which ended with `code` of ocl_event_wait. */
void ocl_work_waited(hal_plugin_stream_t *stream, cl_int code);

/* Discards commands that never ended, before the stream is destroyed. */
void ocl_work_discard(hal_plugin_stream_t *stream);

/* ---- transfers (transfer.c) ------------------------------------------------------------------------------------- */

/* One side of a copy, or a pointer argument. */
typedef struct ocl_place_s {
  void *ptr;
  cl_mem memory;       /* OCL_MEMORY_BUFFER: its buffer object; NULL for host memory */
  size_t offset, left; /* the offset in the buffer; the bytes from there to its end */
} ocl_place_t;

/* Resolves an address of `size` bytes. Addresses of the host, or of a kind of memory with real addresses, are used
 * unchanged. `near` is the segment of the previous address of the same command, zeros before the first, because
 * operands often share a segment.
 * Errors: HAL_INVALID_ARGUMENT = the range is not within an allocation. */
hal_status_t ocl_place(const char *op, int32_t device, const void *ptr, size_t size, ocl_segment_t *near,
                       ocl_place_t *out_place);

/* Call the driver's functions, by kind of memory. */
cl_int ocl_enqueue_copy(ocl_submit_t *submit, const ocl_place_t *to, const ocl_place_t *from, size_t size);
/* For buffers only; the other kinds have no function for rectangles. */
cl_int ocl_enqueue_copy_2d(ocl_submit_t *submit, const ocl_place_t *to, const ocl_place_t *from,
                           const hal_copy_2d_t *copy);
cl_int ocl_enqueue_fill(ocl_submit_t *submit, const ocl_place_t *to, const void *pattern, size_t pattern_size,
                        size_t size);

#endif /* OPENCL_H_ */
