/* vulkan_plugin.h: declarations shared by the files of the Vulkan plugin. The driver is called through `vk`, a table of
 * functions that loader.c fills at run time: the plugin is not linked with a Vulkan library. */
#ifndef VULKAN_PLUGIN_H_
#define VULKAN_PLUGIN_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <hal/plugin_records.h>
#include <hal/plugin_shared_event.h>
#include <hal/plugin_worker.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "vulkan_api.h"

#define VULKAN_LIKELY(x) __builtin_expect(!!(x), 1)
#define VULKAN_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
  VULKAN_MAX_DEVICES = 16,
  VULKAN_MAX_QUEUES = 8,
  VULKAN_FLIGHTS = 16,    /* submissions of a stream that the device has not completed */
  VULKAN_COMMANDS = 32,   /* commands of one submission */
  VULKAN_CHUNK = 1 << 20, /* bytes of staging memory */
  VULKAN_FOLD = 65535,    /* blocks along the first axis, in kernels that number them along two */
  VULKAN_ALIGNMENT = 256, /* of device memory */
  VULKAN_BUFFER_USAGE =   /* of all buffers, so that one probe shows the types of memory that they accept */
  VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
};

typedef struct vulkan_device_s vulkan_device_t;
typedef struct vulkan_lane_s vulkan_lane_t;
typedef struct vulkan_record_s vulkan_record_t;
typedef struct vulkan_measure_s vulkan_measure_t;
typedef struct vulkan_capture_s vulkan_capture_t;

/* ---- functions of the driver (loader.c) ------------------------------------------------------------------------- */

typedef struct vulkan_table_s {
#define VULKAN_POINTER(type, name, parameters) type(*name) parameters;
  VULKAN_FUNCTIONS(VULKAN_POINTER)
} vulkan_table_t;
extern vulkan_table_t vk;

/* Opens the loader and fills `vk`; starts no driver. Thread-safe; a second call returns immediately.
 * Errors: HAL_UNAVAILABLE = there is no loader, or it is too old; the message names what to install. */
hal_status_t vulkan_loader_open(void);

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* Returns the name of a driver's result, such as "VK_ERROR_DEVICE_LOST". */
const char *vulkan_result_name(VkResult code);

/* Converts a driver's result to the host's status. */
hal_status_t vulkan_status(VkResult code);

/* Sets the thread's message. */
hal_status_t vulkan_error(hal_status_t status, int64_t native_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of the driver: appends the name and number of its result to the message. */
hal_status_t vulkan_driver_error(VkResult code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- devices (select.c, device.c, plugin.c) --------------------------------------------------------------------- */

/* The devices that HAL_VULKAN_DEVICE selects. */
typedef struct vulkan_selection_s {
  VkInstance instance;
  VkPhysicalDevice devices[VULKAN_MAX_DEVICES];
  int32_t count;
} vulkan_selection_t;

/* Starts the drivers and selects devices; sets no message. The caller destroys the instance, if it is not NULL, also
 * after a failure. Errors: HAL_UNAVAILABLE, with what to install or to set in `why`, HAL_COUNT_WHY bytes. */
hal_status_t vulkan_select(vulkan_selection_t *out_selection, char *why);

/* Returns the index of a family of queues that compute; UINT32_MAX = there is none. */
uint32_t vulkan_queue_family(VkPhysicalDevice physical, VkQueueFamilyProperties *out_family);

typedef struct vulkan_queue_s {
  VkQueue queue;
  pthread_mutex_t lock; /* held during a submission */
} vulkan_queue_t;

/* A place for one time stamp of the device. */
typedef struct vulkan_slot_s {
  struct vulkan_slot_s *next;
  VkQueryPool pool;
  uint32_t index;
} vulkan_slot_t;

/* The kinds of segments; host memory is from VULKAN_PINNED on. */
enum {
  VULKAN_OWN = 0,       /* of memory_alloc */
  VULKAN_OPENED = 1,    /* of another process, of ipc_open */
  VULKAN_PINNED = 2,    /* of host_alloc, or staging memory */
  VULKAN_REGISTERED = 3 /* of the caller of host_register */
};

/* The files of an exported segment (ipc.c). */
typedef struct vulkan_export_s {
  int page, memory; /* the file that describes the segment, and the driver's file of its memory */
  hal_shared_handle_t handle;
} vulkan_export_t;

/* An allocation. */
typedef struct vulkan_segment_s {
  struct vulkan_segment_s *next; /* in a list of staging memory */
  char *base; /* the address that the host uses; of the plugin's memory, VULKAN_ALIGNMENT divides it */
  size_t size;
  char *mapped;       /* where the host accesses `base`; NULL: nowhere */
  VkDeviceSize shift; /* offset of `base` in the buffer */
  VkBuffer buffer;
  VkDeviceMemory memory;
  VkDeviceSize bytes; /* of `memory` */
  size_t reserved;    /* bytes of address space without permissions at `base` */
  int32_t device;     /* the owner */
  int32_t kind;       /* VULKAN_OWN ... */
  uint32_t type;      /* index of the type of `memory` */
  int32_t is_shareable;
  vulkan_export_t *exported; /* NULL: not exported; guarded by the lock of ipc.c */
} vulkan_segment_t;

/* vkGetMemoryHostPointerPropertiesEXT */
typedef VkResult (*vulkan_host_pointer_fn_t)(VkDevice, uint32_t, const void *, VkMemoryHostPointerPropertiesEXT *);

/* vkGetMemoryFdKHR */
typedef VkResult (*vulkan_memory_file_fn_t)(VkDevice, const VkMemoryGetFdInfoKHR *, int *);

struct vulkan_device_s {
  int32_t ordinal;
  VkPhysicalDevice physical;
  VkDevice handle;
  VkPhysicalDeviceProperties facts;
  VkPhysicalDeviceMemoryProperties memory;
  char driver[64], uuid[VK_UUID_SIZE];
  uint32_t pci[4]; /* domain, bus, device, function; zeros if unknown */
  uint64_t largest_allocation, heap_bytes;
  uint32_t heap, subgroup, family, timestamp_bits, queue_count;
  uint32_t device_type, host_type; /* indices of memory types */
  int32_t visible;                 /* device memory is mapped: its addresses are the host's */
  int32_t few_wide;                /* few wide cores: HAL_DEVICE_CPU */
  int32_t has_budget;              /* VK_EXT_memory_budget */
  int32_t has_fp64;
  uint32_t subgroup_operations;          /* of compute shaders: bits of subgroupSupportedOperations */
  uint32_t capabilities;                 /* what modules may require (capability.c) */
  vulkan_host_pointer_fn_t host_pointer; /* VK_EXT_external_memory_host; NULL: the driver has it not */
  VkDeviceSize host_alignment;           /* of memory that it imports */
  vulkan_memory_file_fn_t memory_file;   /* VK_KHR_external_memory_fd; NULL: memory is not shared between processes */
  int32_t shares_dedicated;              /* shared memory belongs to one buffer */
  unsigned char sharing_id[2 * VK_UUID_SIZE]; /* of the device and driver: equal where memory can be opened */
  vulkan_queue_t queues[VULKAN_MAX_QUEUES];
  atomic_uint next_queue; /* streams use the queues in turn */
  atomic_int lost;
  VkPipelineCache cache;      /* NULL: none */
  atomic_uint unsaved;        /* number of pipelines that are not in the file of the cache */
  _Atomic uint64_t used;      /* bytes of device memory that are allocated */
  _Atomic uint32_t shareable; /* segments that other processes can open, at most `most_shareable` */
  uint32_t most_shareable;
  pthread_mutex_t lock; /* guards the members below */
  hal_plugin_stream_t *streams;
  vulkan_segment_t *chunks; /* staging memory without a user */
  vulkan_lane_t *lanes;     /* of synchronous work, without a user */
  vulkan_slot_t *slots;     /* without a user */
  struct vulkan_pool_s *pools;
  vulkan_measure_t *measures, *last_measure; /* of profiles, whose work may not be done */
  uint32_t measure_count;
  pthread_mutex_t profile_lock; /* held while measurements become records */
  hal_records_t profile;
};

typedef struct vulkan_state_s {
  atomic_int ready, forked;
  atomic_int keep_names; /* there has been a profile, whose records may name kernels of unloaded modules */
  VkInstance instance;
  int32_t device_count;
  vulkan_device_t devices[VULKAN_MAX_DEVICES];
} vulkan_state_t;
extern vulkan_state_t vulkan;

/* Returns whether calls may use the device: HAL_INVALID_ARGUMENT, or HAL_FAILED_PRECONDITION before init and in a
 * forked child. */
hal_status_t vulkan_check_device(int32_t device);

/* The same, and HAL_UNAVAILABLE if it is lost: for functions that queue work or allocate memory. */
hal_status_t vulkan_check_alive(int32_t device);

/* Records that a call found the device lost, if `code` is that result. */
void vulkan_noticed(vulkan_device_t *device, VkResult code);

/* Reports that the device is lost (watch.c). The caller may hold locks of the plugin. */
void vulkan_watch_lost(int32_t device, VkResult code);

/* Opens a device and reads its properties. Closed by vulkan_device_close, also after a failure. */
hal_status_t vulkan_device_open(vulkan_device_t *device, VkPhysicalDevice physical, int32_t ordinal);
void vulkan_device_close(vulkan_device_t *device);

/* Returns the capabilities that these enabled features provide (capability.c). */
uint32_t vulkan_capabilities(const VkPhysicalDeviceFeatures *all, const VkPhysicalDeviceVulkan11Features *all11,
                             const VkPhysicalDeviceVulkan12Features *all12, uint32_t subgroup_operations);

/* Returns the largest number of blocks along the first axis. */
uint32_t vulkan_largest_grid(const vulkan_device_t *device);

/* Opens the cache of compiled pipelines with the content of its file; writes the file, if there are new ones; notes a
 * new one, and writes the file from time to time (pipeline_cache.c). */
void vulkan_cache_open(vulkan_device_t *device);
void vulkan_cache_save(vulkan_device_t *device);
void vulkan_cache_grew(vulkan_device_t *device);

/* ---- memory (map.c, memory.c) ----------------------------------------------------------------------------------- */

/* The table of segments by address. Errors of the first: HAL_RESOURCE_EXHAUSTED; HAL_INVALID_ARGUMENT = a part of the
 * segment is in another one. The others return NULL if there is
 * none: vulkan_map_take removes the segment of `device` and `kind` that begins at `base`. A segment remains valid until
 * its owner frees it, so the caller of vulkan_map_find needs no lock. */
hal_status_t vulkan_map_add(vulkan_segment_t *segment);
vulkan_segment_t *vulkan_map_take(int32_t device, int32_t kind, const void *base);
vulkan_segment_t *vulkan_map_find(const void *ptr);

/* What another process needs to open a segment: the members of that name. */
typedef struct vulkan_foreign_s {
  uint64_t size, shift, bytes;
  uint32_t type;
} vulkan_foreign_t;

/* Creates a segment from another process's memory in `file`, which the driver owns after success. The caller adds it to
 * the table. */
hal_status_t vulkan_segment_open(vulkan_device_t *device, const vulkan_foreign_t *foreign, int file,
                                 vulkan_segment_t **out_segment);

/* Closes the files of an exported segment; NULL is allowed (ipc.c). */
void vulkan_export_close(vulkan_export_t *exported);

/* Takes VULKAN_CHUNK bytes of staging memory, which the host accesses. Returned by vulkan_chunk_give. */
hal_status_t vulkan_chunk_take(vulkan_device_t *device, vulkan_segment_t **out_chunk);
void vulkan_chunk_give(vulkan_device_t *device, vulkan_segment_t *chunk);
void vulkan_segment_destroy(vulkan_segment_t *segment);

/* ---- submissions (submit.c) ------------------------------------------------------------------------------------- */

/* A semaphore with a value that grows; streams and events refer to it. */
typedef struct vulkan_timeline_s {
  vulkan_device_t *device;
  VkSemaphore semaphore;
  atomic_int users;
} vulkan_timeline_t;

/* Commands that are submitted together, and what they use until they are completed. */
typedef struct vulkan_flight_s {
  VkCommandBuffer commands;
  VkDescriptorPool sets;
  uint64_t value; /* of the timeline when the commands are completed */
  vulkan_segment_t *chunks;
  vulkan_segment_t *shared; /* one of `chunks`, which several commands use; NULL: none yet */
  size_t shared_used;       /* bytes of it */
  vulkan_record_t *records;
} vulkan_flight_t;

/* A sequence of commands on a queue. Used by one thread at a time, except for `submitted`. A reusable lane has one
 * command buffer, in flights[0], which other lanes submit. */
struct vulkan_lane_s {
  vulkan_lane_t *next;
  vulkan_device_t *device;
  vulkan_queue_t *queue;
  VkCommandPool pool;
  vulkan_timeline_t *timeline;
  _Atomic uint64_t submitted; /* value of the last submission */
  vulkan_flight_t flights[VULKAN_FLIGHTS];
  uint32_t first, count;  /* submitted flights; the one after them is being recorded if `open` is not 0 */
  uint32_t open;          /* number of commands that were recorded and not submitted */
  uint32_t sets, buffers; /* descriptor sets of a command buffer, and storage buffers of all of them */
  int32_t is_reusable;
  VkResult code; /* of the last call of the driver that failed */
};

hal_status_t vulkan_lane_create(vulkan_device_t *device, uint32_t queue, vulkan_lane_t **out_lane);

/* Creates a lane for one command buffer with that many descriptor sets and storage buffers. */
hal_status_t vulkan_lane_create_reusable(vulkan_device_t *device, uint32_t sets, uint32_t buffers,
                                         vulkan_lane_t **out_lane);

/* Ends the command buffer of a reusable lane, and submits it on another lane, any number of times. */
hal_status_t vulkan_lane_end(vulkan_lane_t *reusable);
hal_status_t vulkan_lane_replay(vulkan_lane_t *lane, const vulkan_lane_t *reusable);

void vulkan_lane_destroy(vulkan_lane_t *lane); /* waits */

/* Begins one command: returns the buffer to record it into, after a barrier that orders it after all earlier ones. */
hal_status_t vulkan_lane_begin(vulkan_lane_t *lane, VkCommandBuffer *out_commands);

/* Keeps staging memory, or a record, until the command that was begun is completed. */
void vulkan_lane_keep_chunk(vulkan_lane_t *lane, vulkan_segment_t *chunk);

/* Takes `size` bytes of staging memory for the command that was begun, at most VULKAN_CHUNK, at an offset of a chunk
 * that is a multiple of VULKAN_ALIGNMENT. */
hal_status_t vulkan_lane_share(vulkan_lane_t *lane, size_t size, vulkan_segment_t **out_chunk, size_t *out_offset);
void vulkan_lane_keep_record(vulkan_lane_t *lane, vulkan_record_t *record);

/* Submits what was recorded. */
hal_status_t vulkan_lane_flush(vulkan_lane_t *lane);

/* Submits, and waits until everything is completed. */
hal_status_t vulkan_lane_wait(vulkan_lane_t *lane);

/* Submits, and makes later commands wait for a value of another timeline, which must have been submitted. */
hal_status_t vulkan_lane_wait_for(vulkan_lane_t *lane, vulkan_timeline_t *timeline, uint64_t value);

/* A lane for synchronous work. */
hal_status_t vulkan_lane_borrow(vulkan_device_t *device, vulkan_lane_t **out_lane);
void vulkan_lane_return(vulkan_lane_t *lane);

/* Waits for a value of a timeline, or queries it: HAL_OK, HAL_NOT_READY, or HAL_UNAVAILABLE without a message. */
VkResult vulkan_timeline_wait(vulkan_timeline_t *timeline, uint64_t value, int64_t timeout_ns);
hal_status_t vulkan_timeline_query(vulkan_timeline_t *timeline, uint64_t value);
void vulkan_timeline_keep(vulkan_timeline_t *timeline);
void vulkan_timeline_drop(vulkan_timeline_t *timeline);

/* ---- streams (stream.c) ----------------------------------------------------------------------------------------- */

/* The first failure of a stream that was not reported, or the last one that was. */
typedef struct vulkan_failure_s {
  hal_status_t status;
  VkResult code;
  char op[64], kernel[96];
} vulkan_failure_t;

/* The state of a stream in a capture (capture.c), whose lock guards it. */
typedef struct vulkan_captured_s {
  _Atomic(vulkan_capture_t *) by; /* NULL: the stream is not captured */
  hal_plugin_stream_t *next;      /* of the same capture */
  uint64_t count;                 /* nodes of the capture when the stream's last work was recorded */
  int is_joined;                  /* another stream of the capture has waited for all of its work */
} vulkan_captured_t;

/* A worker thread keeps the order of host and device work: it records commands and submits them when no work is
 * queued after them. So nothing is submitted that waits for something that is not submitted yet, and streams that share
 * a queue cannot block each other. On CPUs, the calling thread takes the place of an idle stream's worker for a
 * launch. */
struct hal_plugin_stream_s {
  hal_plugin_stream_t *next, *previous; /* in the device's list */
  vulkan_device_t *device;
  hal_worker_t *worker;
  vulkan_lane_t *lane;
  _Atomic uint64_t flushed; /* number of the last work item whose commands are all submitted */
  vulkan_captured_t captured;
  pthread_mutex_t lock; /* guards the members below */
  vulkan_failure_t failure, reported;
};

/* What queued work is called in failures and profiles. */
typedef struct vulkan_label_s {
  const char *op;           /* the slot that queued it; never freed */
  const char *kernel;       /* or NULL; valid as long as its module */
  uint32_t buffers;         /* storage buffers of a kernel */
  int32_t is_recordable;    /* a graph can contain it */
  int32_t is_short;         /* recording it waits for nothing and copies nothing */
  int32_t measured;         /* profiles record it, with the members below */
  uint32_t kind, direction; /* HAL_PROFILE_*, HAL_COPY_* */
  uint64_t bytes;
} vulkan_label_t;

/* Work of a lane; `arguments` is the copy that was queued. */
typedef hal_status_t (*vulkan_run_fn_t)(vulkan_lane_t *lane, void *arguments);

/* Queues work after the stream's work, with a copy of `size` bytes at `arguments`; with a NULL stream it runs
 * immediately on a lane of `device` and is completed on return. The first function records the work of a captured
 * stream in its capture. */
hal_status_t vulkan_submit(hal_plugin_stream_t *stream, vulkan_device_t *device, vulkan_label_t label,
                           vulkan_run_fn_t run, const void *arguments, size_t size);
hal_status_t vulkan_enqueue(hal_plugin_stream_t *stream, vulkan_device_t *device, vulkan_label_t label,
                            vulkan_run_fn_t run, const void *arguments, size_t size);

/* Stores a failure of a stream, unless there was an earlier one. */
void vulkan_stream_fail(hal_plugin_stream_t *stream, vulkan_label_t label, hal_status_t status, VkResult code);

/* ---- events (event.c) ------------------------------------------------------------------------------------------- */

/* Records the work queued so far on a stream, without a time stamp; released by vulkan_record_drop, which NULL is
 * passed to, too. */
hal_status_t vulkan_record_make(hal_plugin_stream_t *stream, vulkan_record_t **out_record);
void vulkan_record_keep(vulkan_record_t *record);
void vulkan_record_drop(vulkan_record_t *record);

/* Creates a record of later work of a device; records that a lane has submitted that work; returns whether it was. */
hal_status_t vulkan_record_create(vulkan_device_t *device, vulkan_record_t **out_record);
void vulkan_record_reach(vulkan_record_t *record, const vulkan_lane_t *lane);
int vulkan_record_is_reached(vulkan_record_t *record);

/* Events that processes share (shared.c). A record is completed by the worker of the stream when the work before it is
 * done, and a stream that waits for one blocks in its worker. */
hal_status_t vulkan_shared_record(hal_shared_event_t *event, hal_plugin_stream_t *stream);
hal_status_t vulkan_shared_wait(hal_shared_event_t *event, hal_plugin_stream_t *stream);

/* Makes later commands of a lane wait for a record; called by the lane's worker. */
hal_status_t vulkan_record_await(vulkan_record_t *record, vulkan_lane_t *lane);
vulkan_record_t **vulkan_record_link(vulkan_record_t *record); /* for the list of a flight */

/* Waits until the work of a record is done. */
VkResult vulkan_record_wait(vulkan_record_t *record);

/* Places for time stamps; NULL may be given back. */
hal_status_t vulkan_slot_take(vulkan_device_t *device, vulkan_slot_t **out_slot);
void vulkan_slot_give(vulkan_device_t *device, vulkan_slot_t *slot);

/* ---- profiles (profile.c) --------------------------------------------------------------------------------------- */

/* Measures the work that is recorded on a lane between the two calls, for the collection `noted`. The first returns
 * NULL if the work will have no record. */
vulkan_measure_t *vulkan_measure_begin(vulkan_lane_t *lane, hal_plugin_stream_t *stream, const vulkan_label_t *label,
                                       uint32_t noted, uint64_t correlation);
void vulkan_measure_end(vulkan_lane_t *lane, vulkan_measure_t *measure);

/* Converts completed measurements to records. */
void vulkan_measures_collect(vulkan_device_t *device);

#endif /* VULKAN_PLUGIN_H_ */
