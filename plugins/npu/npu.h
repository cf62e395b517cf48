/* npu.h: declarations shared by the files of the Level Zero plugin. The driver is called through `ze`, a table of
 * functions that loader.c fills at run time: the plugin is not linked with a Level Zero library. */
#ifndef NPU_H_
#define NPU_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <hal/plugin_records.h>
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#define NPU_LIKELY(x) __builtin_expect(!!(x), 1)
#define NPU_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { NPU_MAX_DEVICES = 64, NPU_MAX_ARGS = 64 };

/* ---- functions of the driver (loader.c) ------------------------------------------------------------------------- */

/* Functions of Level Zero 1.4, which Debian's loader has; later functions are looked up separately and may be missing.
 * */
#define NPU_CALLS(X)                         \
  X(zeInit)                                  \
  X(zeDriverGet)                             \
  X(zeDriverGetApiVersion)                   \
  X(zeDriverGetProperties)                   \
  X(zeDeviceGet)                             \
  X(zeDeviceGetProperties)                   \
  X(zeDeviceGetComputeProperties)            \
  X(zeDeviceGetModuleProperties)             \
  X(zeDeviceGetMemoryProperties)             \
  X(zeDeviceGetCommandQueueGroupProperties)  \
  X(zeDeviceCanAccessPeer)                   \
  X(zeDeviceGetGlobalTimestamps)             \
  X(zeContextCreate)                         \
  X(zeContextDestroy)                        \
  X(zeCommandListCreateImmediate)            \
  X(zeCommandListDestroy)                    \
  X(zeCommandListAppendBarrier)              \
  X(zeCommandListAppendMemoryCopy)           \
  X(zeCommandListAppendMemoryCopyRegion)     \
  X(zeCommandListAppendMemoryFill)           \
  X(zeCommandListAppendLaunchKernel)         \
  X(zeCommandListAppendWriteGlobalTimestamp) \
  X(zeEventPoolCreate)                       \
  X(zeEventPoolDestroy)                      \
  X(zeEventCreate)                           \
  X(zeEventDestroy)                          \
  X(zeEventHostSignal)                       \
  X(zeEventHostSynchronize)                  \
  X(zeEventHostReset)                        \
  X(zeEventQueryStatus)                      \
  X(zeEventQueryKernelTimestamp)             \
  X(zeMemAllocDevice)                        \
  X(zeMemAllocShared)                        \
  X(zeMemAllocHost)                          \
  X(zeMemFree)                               \
  X(zeMemGetAllocProperties)                 \
  X(zeMemGetAddressRange)                    \
  X(zeMemGetIpcHandle)                       \
  X(zeMemOpenIpcHandle)                      \
  X(zeMemCloseIpcHandle)                     \
  X(zeDriverGetIpcProperties)                \
  X(zeVirtualMemReserve)                     \
  X(zeVirtualMemFree)                        \
  X(zeVirtualMemQueryPageSize)               \
  X(zeVirtualMemMap)                         \
  X(zeVirtualMemUnmap)                       \
  X(zeVirtualMemSetAccessAttribute)          \
  X(zePhysicalMemCreate)                     \
  X(zePhysicalMemDestroy)                    \
  X(zeModuleCreate)                          \
  X(zeModuleDestroy)                         \
  X(zeModuleGetNativeBinary)                 \
  X(zeModuleBuildLogGetString)               \
  X(zeModuleBuildLogDestroy)                 \
  X(zeKernelCreate)                          \
  X(zeKernelDestroy)                         \
  X(zeKernelGetProperties)                   \
  X(zeKernelSetGroupSize)                    \
  X(zeKernelSetArgumentValue)

/* Optional functions of a driver; any may be missing. */
#define NPU_OPTIONAL_CALLS(X)          \
  X(zeCommandListAppendMemoryPrefetch) \
  X(zeCommandListAppendMemAdvise)      \
  X(zeDeviceGetCacheProperties)        \
  X(zeDevicePciGetPropertiesExt)

/* Functions of system management; any may be missing. */
#define NPU_SYSMAN_CALLS(X)          \
  X(zesDeviceEnumEngineGroups)       \
  X(zesDeviceEnumFans)               \
  X(zesDeviceEnumFirmwares)          \
  X(zesDeviceEnumFrequencyDomains)   \
  X(zesDeviceEnumMemoryModules)      \
  X(zesDeviceEnumPowerDomains)       \
  X(zesDeviceEnumTemperatureSensors) \
  X(zesDeviceProcessesGetState)      \
  X(zesDeviceEventRegister)          \
  X(zesDriverEventListen)            \
  X(zesEngineGetProperties)          \
  X(zesEngineGetActivity)            \
  X(zesFanGetState)                  \
  X(zesFirmwareGetProperties)        \
  X(zesFrequencyGetProperties)       \
  X(zesFrequencyGetState)            \
  X(zesMemoryGetState)               \
  X(zesPowerGetEnergyCounter)        \
  X(zesPowerGetLimits)               \
  X(zesTemperatureGetProperties)     \
  X(zesTemperatureGetState)

/* Of Level Zero 1.10, whose header is not needed to build this. */
typedef struct npu_init_desc_s {
  uint32_t stype;
  const void *next;
  uint32_t flags;
} npu_init_desc_t;
typedef ze_result_t (*npu_init_drivers_fn)(uint32_t *count, ze_driver_handle_t *drivers, npu_init_desc_t *desc);

#define NPU_DECLARE_CALL(name) __typeof__(name) *name;
typedef struct npu_table_s {
  NPU_CALLS(NPU_DECLARE_CALL)
  NPU_OPTIONAL_CALLS(NPU_DECLARE_CALL)
  NPU_SYSMAN_CALLS(NPU_DECLARE_CALL)
  npu_init_drivers_fn zeInitDrivers; /* NULL if the loader is older */
} npu_table_t;
extern npu_table_t ze;

/* Opens the loader and fills `ze`; starts no driver. Thread-safe; a second call returns immediately.
 * Errors: HAL_UNAVAILABLE = there is no loader, or it is too old; the message names what to install. */
hal_status_t npu_loader_open(void);

/* Checks, by files only, whether a driver is installed. Errors: HAL_UNAVAILABLE, with what to install. */
hal_status_t npu_loader_find_driver(void);

/* Returns the plugin's version with the files of loader and driver, to identify the driver. Starts no driver. */
const char *npu_loader_version(void);

/* Logs the files of the loader and its drivers. The drivers have been started. */
void npu_loader_tell(void);

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* Returns the name of a driver's error, such as "ZE_RESULT_ERROR_DEVICE_LOST". */
const char *npu_error_name(ze_result_t code);

/* Converts a driver's error to the host's status. */
hal_status_t npu_error_status(ze_result_t code);

/* Sets the thread's message. */
hal_status_t npu_error(hal_status_t status, int64_t native_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of the driver: appends the name and number of its error to the message. */
hal_status_t npu_driver_error(ze_result_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- events of the driver (pool.c) ------------------------------------------------------------------------------ */

/* An event of the driver, which is reused when it has no users. */
typedef struct npu_event_s {
  ze_event_handle_t handle;
  uint64_t *stamp; /* host memory that the device writes a time to */
  atomic_uint users;
  int32_t device;
  struct npu_event_s *next; /* next in the list of free events */
} npu_event_t;

/* Returns an event that is not set, with one user. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t npu_event_take(int32_t device, npu_event_t **out_event);
static inline void npu_event_keep(npu_event_t *event) {
  atomic_fetch_add_explicit(&event->users, 1, memory_order_relaxed);
}
void npu_event_release(npu_event_t *event);
/* Destroys a device's events. */
void npu_events_destroy(int32_t device);

/* ---- devices (select.c, plugin.c, device.c) --------------------------------------------------------------------- */

/* The devices that HAL_NPU_DEVICE selects. */
typedef struct npu_selection_s {
  ze_driver_handle_t driver;
  ze_device_handle_t devices[NPU_MAX_DEVICES];
  int32_t count;
  uint32_t drivers; /* the total number of devices */
} npu_selection_t;

/* Selects devices; starts the drivers, and sets no message. Errors: HAL_UNAVAILABLE, with what to install or to set in
 * `why`, HAL_COUNT_WHY bytes. */
hal_status_t npu_select(npu_selection_t *out_selection, char *why);

/* The name of a command in failures, and its data for profiles. */
typedef struct npu_work_s {
  npu_event_t *event;    /* set when it is done */
  npu_event_t *waits[2]; /* the events that it waits for, or NULL */
  const char *op;        /* the slot that queued it; never freed */
  const char *kernel;    /* or NULL; valid as long as its module */
  uint64_t bytes, correlation;
  uint32_t kind, direction; /* HAL_PROFILE_*, HAL_COPY_* */
  uint32_t noted;           /* the number of the profile that records it; 0 = none */
} npu_work_t;

typedef struct npu_failure_s {
  hal_status_t status;
  ze_result_t code;
  char op[64], kernel[96];
  const char *why; /* of a host function; NULL: the driver returned `code` */
} npu_failure_t;

/* An immediate command list. Each command waits for the previous one, because Level Zero specifies no order. Commands
 * that have not been seen complete are in a ring, oldest first. */
struct hal_plugin_stream_s {
  ze_command_list_handle_t list;
  int32_t device;
  atomic_int
      /* A user has the list's handle, and may have queued commands that are not in the ring; barriers then keep the
       * order */
      lent;
  int64_t patience;     /* of hal_marker_query */
  pthread_mutex_t lock; /* guards the members below; held while a command is appended */
  npu_work_t *ring;
  uint32_t first, count, room;          /* capacity: a power of two, or 0 */
  npu_failure_t failure, told;          /* not reported yet; reported last */
  struct hal_worker_s *host;            /* calls host functions; created for the first one */
  hal_plugin_stream_t *next, *previous; /* in the device's list */
};

/* The last value of a counter of the device, and the result for the time between two queries. */
typedef struct npu_counter_s {
  uint64_t value, time;
  int64_t rate;
  int known, has_rate;
} npu_counter_t;

typedef struct npu_device_s {
  ze_device_handle_t handle;
  ze_device_properties_t facts;
  ze_device_compute_properties_t compute;
  ze_device_module_properties_t modules;
  uint64_t memory_bytes, cache_bytes;
  uint32_t copy_engines;
  ze_pci_address_ext_t pci;          /* zeros if the driver does not report them */
  uint32_t queue_group, queue_count; /* of the group */
  uint32_t subgroup, pattern_bytes;  /* pattern_bytes: maximum of a fill */
  atomic_uint next_queue;            /* of the group: streams use them in turn */
  int few_wide;                      /* few wide cores: HAL_DEVICE_CPU */
  npu_counter_t active, energy;      /* sensor.c */
  size_t granularity;                /* of virtual memory */
  atomic_int lost;
  hal_plugin_stream_t *own; /* the NULL stream's */
  pthread_mutex_t lock;     /* guards the list */
  hal_plugin_stream_t *streams;
  pthread_mutex_t events_lock; /* guards the members below */
  npu_event_t *free_events;
  struct npu_pool_s *pools;
  hal_records_t profile;
} npu_device_t;

typedef struct npu_state_s {
  atomic_int ready, forked;
  ze_driver_handle_t driver;
  uint32_t driver_version;
  ze_api_version_t api;
  ze_context_handle_t context; /* of all devices, so that they share events and memory */
  int32_t device_count;
  int logs;              /* the loader supports queries for the log of a refused module */
  int shared;            /* device memory is shared memory, which the host may access */
  atomic_int keep_names; /* there has been a profile, whose records may name kernels of unloaded modules */
  npu_device_t devices[NPU_MAX_DEVICES];
} npu_state_t;
extern npu_state_t npu;

/* Returns whether calls may use the device: HAL_INVALID_ARGUMENT, or HAL_FAILED_PRECONDITION before init and in a
 * forked child. */
hal_status_t npu_check_device(int32_t device);

/* The same, and HAL_UNAVAILABLE if it is lost: for functions that queue work or allocate memory. */
hal_status_t npu_check_alive(int32_t device);

/* Records that a call found the device lost, if `code` is that error. */
void npu_device_noticed(int32_t device, ze_result_t code);

/* Reports that the device is lost (watch.c). The caller may hold locks of the plugin. */
void npu_watch_lost(int32_t device, ze_result_t code);

/* Reads the properties of a device. */
hal_status_t npu_device_read(npu_device_t *device, ze_device_handle_t handle);

/* Converts device ticks to nanoseconds; `bits` of the counter are valid. */
int64_t npu_device_time(const npu_device_t *device, uint64_t ticks, uint32_t bits);

/* Writes the version of the device's firmware, if system management reports it (sensor.c). */
void npu_read_firmware(int32_t device, hal_device_info_t *inout_info);

/* Returns the granularity of virtual memory in bytes; 0 = the driver has none (virtual.c). */
size_t npu_virtual_granularity(const npu_device_t *device);

/* Creates a stream that is not in a list. */
hal_status_t npu_stream_make(int32_t device, const hal_stream_desc_t *wanted, hal_plugin_stream_t **out_stream);
void npu_stream_unmake(hal_plugin_stream_t *stream);

/* ---- profiles (profile.c) --------------------------------------------------------------------------------------- */

/* Appends a record of completed work. `stream` as in the record. */
void npu_profile_append(int32_t device, hal_plugin_stream_t *stream, const npu_work_t *work);

/* ---- queued work (work.c) --------------------------------------------------------------------------------------- */

/* A command between npu_submit_begin and npu_submit_end. */
typedef struct npu_submit_s {
  hal_plugin_stream_t *stream; /* never NULL: the device's own stream for the synchronous one */
  int synchronous;
  ze_command_list_handle_t list;
  ze_event_handle_t signal, waits[2]; /* the events to pass to the command */
  uint32_t wait_count;
  npu_work_t work;
} npu_submit_t;

/* Locks the stream, and reserves an entry for the command. `device` is used for the NULL stream only.
 * Errors: HAL_RESOURCE_EXHAUSTED; then nothing is locked. */
hal_status_t npu_submit_begin(npu_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op);

/* Makes the command wait for one more event; takes ownership of a reference to it. */
void npu_submit_wait(npu_submit_t *submit, npu_event_t *event);

/* Unlocks. `code` is the driver's result for the command; on the NULL stream this waits for the command. */
hal_status_t npu_submit_end(npu_submit_t *submit, ze_result_t code);

/* Unlocks without a command. */
void npu_submit_cancel(npu_submit_t *submit);

/* Removes the completed commands at the front of the ring, and stores the first failure. The caller holds the lock. */
void npu_work_reap(hal_plugin_stream_t *stream, uint32_t most);

/* Does that for all streams of a device, so that no ring refers to a kernel whose work has ended. */
void npu_work_reap_all(int32_t device);

/* Stores a failure of a host function, unless there was an earlier one; `why` is never freed. The caller holds no lock.
 * */
void npu_stream_fail(hal_plugin_stream_t *stream, hal_status_t status, const char *op, const char *why);

/* Returns the event of the last command, with a reference; NULL if the stream is idle. The caller holds the lock. */
npu_event_t *npu_work_last(hal_plugin_stream_t *stream);

/* On a stream whose list was returned to a user, queues a barrier, which represents the user's commands in the ring.
 * The caller holds no lock. */
hal_status_t npu_work_mark(hal_plugin_stream_t *stream);

/* Waits for all commands queued so far. The stream stores the failure. */
void npu_work_drain(hal_plugin_stream_t *stream);

#endif /* NPU_H_ */
