/* plugin.h: the interface between a vendor's shared object and the HAL. Version 0.5, which is open: until its release
 * more is appended (hal/CHANGELOG-ABI.md).
 *
 * This header and its parts plugin_base.h (version, status codes, handles, dtypes) and plugin_op.h (operators) depend
 * only on stddef.h and stdint.h, and compile as C11 and C++17. A plugin needs no other header of the HAL.
 *
 * A plugin is a shared object linked with libhal_plugin.a. The author defines functions hal_plugin_<op> (see
 * plugin_ops.def). Five are mandatory: hal_plugin_info, hal_plugin_device_count, hal_plugin_memory_alloc,
 * hal_plugin_memory_free and hal_plugin_memory_copy. Every other op has a weak default in the archive, which works or
 * returns HAL_UNIMPLEMENTED. Defaults call other ops, so that an override of one op improves them. Example (a plugin
 * without the code of its driver):
 *
 *   #include <hal/plugin.h>
 *   hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) { out_info->name = "toy", out_info->vendor = "me",
 *   out_info->version = "1.0"; return HAL_OK;
 *   }
 *   hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) { void *ptr =
 *   my_driver_alloc(device, size); if (!ptr) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "toy: out of memory;
 *   free some tensors"); *out_ptr = ptr; return HAL_OK;
 *   }
 *   ...
 *
 * Rules.
 *  - Every op returns hal_status_t. Out-parameters come last (`out_`) and are unchanged after a failure.
 *  - Structs start with `struct_size`, set by the owner of the memory: the size through the last field it knows. A
 *    reader ignores bytes beyond the size that it was given; a writer of the other side's struct writes a field only if
 *    it is within that size (HAL_SET_FIELD). Reserved fields are zero. Fields of 0.3 always exist, except in
 *    hal_device_info_t, of which the host also requests only a part.
 *  - Some structs have no struct_size. These never change: hal_arg_t, hal_launch_attribute_t, hal_value_t,
 *    hal_memory_handle_t, hal_host_range_t, hal_host_kernel_t. These may grow, and an array of them comes with the
 *    distance of its elements: hal_copy_t, hal_comm_call_t, hal_ir_use_t, hal_ir_buffer_t.
 *  - Flags are macros of bits. A flag that the plugin does not know is HAL_UNIMPLEMENTED, never ignored
 *    (plugin_flags.h): later minor versions add flags to calls and descriptors.
 *  - The interface has no bool, enum, long, bit-field, FILE *, C++ or torch type. Strings are UTF-8, NUL-terminated,
 *    and borrowed for the call.
 *  - Every op is thread-safe unless its comment excludes it. The side that created an object frees it.
 *  - Device memory is an address: `ptr + offset` is valid in every call. Device and stream are explicit arguments;
 *    there is no current device.
 *  - A launch passes each device address that it uses as a separate HAL_ARG_POINTER argument. Values, structs and
 *    device memory contain no addresses (no tables of pointers): a plugin may have to translate addresses (to buffer
 *    objects, to another mapping) and sees arguments only. A kernel over a list of tensors is launched repeatedly, each
 *    time with as many tensors as it has pointer arguments, or finds them at offsets from one pointer. A device whose
 *    addresses are valid anywhere sets HAL_DEVICE_RAW_POINTERS, for a host that passes such tables (none does yet).
 *  - A NULL stream is the synchronous stream, and is valid wherever a stream is accepted: the work is finished on
 *    return. Its work starts at once, does not wait for other streams, and other streams do not wait for it. A caller
 *    that needs an order synchronizes, or records an event on the other stream.
 *  - Errors are a code plus a message that the host stores per thread (hal_host->error_set). An asynchronous failure is
 *    reported once, at the next synchronization or query of its stream, and then cleared; the host reports it to
 *    streams that waited. A lost device stays HAL_UNAVAILABLE.
 *
 * Versions. The host refuses to load another MAJOR version. A new MINOR version appends slots and struct fields and
 * changes no meaning: an older plugin works in a newer host (which fills the end of the table with defaults) and a
 * newer plugin in an older host (which ignores the slots that it does not know). This holds from 0.3 on: the host
 * refuses a plugin of 0.2 or older; rebuild it. */
#ifndef HAL_PLUGIN_H_
#define HAL_PLUGIN_H_

#include "hal/plugin_base.h"
#include "hal/plugin_op.h"
#include "hal/plugin_program.h"
#include "hal/plugin_sensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plugin and device ------------------------------------------------------------------------------------------- */
typedef struct hal_plugin_info_s { /* the result of info */
  size_t struct_size;
  /* Lower-case letters, digits and '_', at most 31, beginning with a letter, but not with cpu or cuda. It is also the
   * name of the device type in torch, which accepts no digits there: a name with digits needs the setting
   * TORCH_BACKEND_NAME. */
  const char *name;
  const char *vendor;  /* human-readable */
  const char *version; /* human-readable */
  uint32_t flags;      /* HAL_PLUGIN_* */
} hal_plugin_info_t;

/* hal_plugin_info_t.flags */
#define HAL_PLUGIN_ON_REQUEST (UINT32_C(1) << 0) /* never chosen automatically, only if the user names it */

/* hal_device_info_t.flags */
#define HAL_DEVICE_HOST_VISIBLE (UINT64_C(1) << 0) /* the host may use device addresses when no work is queued */
#define HAL_DEVICE_UNIFIED (UINT64_C(1) << 1)      /* the device may use any host address, such as malloc's */
#define HAL_DEVICE_ASYNC (UINT64_C(1) << 2)        /* work on streams runs asynchronously */
#define HAL_DEVICE_FP64 (UINT64_C(1) << 3)         /* computes in double precision */
#define HAL_DEVICE_POOLED (UINT64_C(1) << 4) /* the plugin pools memory: the host's caching allocator is not used */
#define HAL_DEVICE_CPU (UINT64_C(1) << 5)    /* few wide cores: kernels are launched with large blocks per item */
#define HAL_DEVICE_RAW_POINTERS \
  (UINT64_C(1) << 6) /* device addresses may also be in values, structs and device memory. Not used yet */
#define HAL_DEVICE_FIRST_BLOCK \
  (UINT64_C(1) << 7) /* launches accept HAL_LAUNCH_FIRST_BLOCK: the host divides those beyond max_grid. Since 0.5 */
/* Only programs of its compiler run on the device: torch_backend defers work from the first use on. Since 0.5 */
#define HAL_DEVICE_DEFERRED (UINT64_C(1) << 8)

typedef struct hal_device_info_s { /* the result of device_info */
  size_t struct_size;
  char name[64];     /* NUL-ended */
  char dialects[64]; /* accepted module dialects, the preferred one first, e.g. "native"; "" = no modules */
  uint8_t uuid[16];
  uint64_t flags;        /* HAL_DEVICE_* */
  uint64_t total_memory; /* bytes; 0 = unknown */
  uint32_t compute_units, subgroup_size, max_block_threads, max_shared_bytes;
  uint32_t pci_domain, pci_bus, pci_device, base_alignment; /* base_alignment: of memory_alloc, in bytes */
  /* bytes; 0 = the VIRTUAL group is not implemented. Not used yet */
  uint64_t virtual_granularity;
  /* Since 0.3; 0 and "" = unknown. Must be cheap: the host reads these when it initializes the device. */
  uint64_t l2_bytes;     /* size in bytes of the last-level cache that all compute units share */
  uint32_t copy_engines; /* number of engines that copy while kernels run */
  uint32_t pci_function;
  char architecture[32]; /* the target of the vendor's compiler: "sm_90", "gfx90a" */
  /* Since 0.3. The host reads these when a program queries the properties of a device; the driver may take
   * milliseconds. */
  int32_t
      numa_node; /* of the host memory nearest to the device, if HAL_DEVICE_KNOWS_NUMA_NODE is set. Otherwise the host
                  * fills it */
  /* if HAL_DEVICE_KNOWS_PARTITION is set: the index of this device among the parts of a partitioned device */
  uint32_t partition_index;
  uint32_t known;            /* HAL_DEVICE_KNOWS_*: fields whose value may be 0 */
  uint32_t reserved;         /* 0 */
  char driver_version[64];   /* in the vendor's format: "550.54.15" */
  char firmware_version[64]; /* of the device's firmware */
  /* Since 0.5: limits of launches; 0 = no limit. Must be cheap: the host reads these when it initializes the device. It
   * does not exceed them: it divides a launch, calls it several times, or runs the operator on the CPU. */
  uint32_t max_grid[3];       /* blocks of a launch along each axis */
  uint32_t binding_alignment; /* of the addresses in a launch, in bytes: a power of two, at most base_alignment */
  uint64_t max_threads;       /* highest number of a thread along an axis: (first block + grid) * block threads */
  uint64_t max_binding;       /* bytes from the address in a launch that a kernel can access; none before it */
} hal_device_info_t;

/* hal_device_info_t.known */
#define HAL_DEVICE_KNOWS_NUMA_NODE (1u << 0)
#define HAL_DEVICE_KNOWS_PARTITION (1u << 1)
/* Set by the host when it initializes a device, since 0.5: fields from numa_node to firmware_version, for which the
 * driver may take milliseconds, may stay 0. The plugin clears it. */
#define HAL_DEVICE_INFO_BRIEF (1u << 31)

typedef struct hal_pointer_info_s { /* the result of memory_pointer_info */
  size_t struct_size;
  void *base; /* start of the allocation */
  size_t size;
  int32_t device; /* HAL_HOST for host memory */
  uint32_t kind;  /* HAL_POINTER_* */
} hal_pointer_info_t;

enum { HAL_POINTER_DEVICE = 1, HAL_POINTER_PINNED = 2, HAL_POINTER_MANAGED = 3 };

/* A rectangle of bytes, see memory_copy_2d. Consecutive rows begin one pitch apart. */
typedef struct hal_copy_2d_s {
  size_t struct_size;
  void *dst;
  const void *src;
  size_t dst_pitch, src_pitch;    /* bytes from the beginning of a row to the beginning of the next one */
  size_t width, height;           /* bytes of a row; rows */
  int32_t dst_device, src_device; /* device ordinals or HAL_HOST */
} hal_copy_2d_t;

/* One copy of memory_copy_batch. The struct may grow: elements are `stride` bytes apart. */
typedef struct hal_copy_s {
  void *dst;
  const void *src;
  size_t size;
  int32_t dst_device, src_device; /* device ordinals or HAL_HOST */
} hal_copy_t;

/* Advice of memory_advise, with the numbers of CUDA's driver. PREFERRED and ACCESSED refer to a device or HAL_HOST; the
 * others ignore it. */
enum {
  HAL_ADVICE_READ_MOSTLY = 1, /* rarely written: each device that reads the memory may have a copy */
  HAL_ADVICE_NOT_READ_MOSTLY = 2,
  HAL_ADVICE_PREFERRED = 3, /* the memory stays there as long as others can access it there */
  HAL_ADVICE_NOT_PREFERRED = 4,
  HAL_ADVICE_ACCESSED = 5, /* the device or the host accesses the memory in place, and does not wait for it to move */
  HAL_ADVICE_NOT_ACCESSED = 6
};

/* Kinds of objects for object_name_set. */
enum {
  HAL_OBJECT_DEVICE = 0,
  HAL_OBJECT_STREAM = 1,
  HAL_OBJECT_EVENT = 2,
  HAL_OBJECT_MODULE = 3,
  HAL_OBJECT_KERNEL = 4,
  HAL_OBJECT_GRAPH_EXEC = 5,
  HAL_OBJECT_COMM = 6,
  HAL_OBJECT_SEMAPHORE = 7,
  HAL_OBJECT_MEMORY = 8 /* of memory_alloc or memory_alloc_async: its first address */
};

/* ---- virtual memory: how other processes get memory of virtual_create -------------------------------------------- */
#define HAL_HANDLE_NONE UINT32_C(0)
#define HAL_HANDLE_FILE (UINT32_C(1) << 0)
#define HAL_HANDLE_FABRIC (UINT32_C(1) << 1)
#define HAL_ACCESS_NONE UINT32_C(0)
#define HAL_ACCESS_READ UINT32_C(1)
#define HAL_ACCESS_READ_WRITE UINT32_C(3)

typedef struct hal_memory_handle_s { /* a handle of memory that processes share */
  uint32_t kind;                     /* HAL_HANDLE_*, one of them */
  int32_t file;  /* HAL_HANDLE_FILE: a file descriptor, which the receiver of the handle closes; otherwise -1 */
  uint32_t size; /* HAL_HANDLE_FABRIC: number of bytes in use */
  uint32_t reserved;
  uint8_t bytes[240]; /* HAL_HANDLE_FABRIC */
} hal_memory_handle_t;

/* Flags of event_create */
#define HAL_EVENT_TIMING (UINT32_C(1) << 0)
#define HAL_EVENT_BLOCKING (UINT32_C(1) << 1)
#define HAL_EVENT_INTERPROCESS (UINT32_C(1) << 2) /* for event_ipc_export; never together with HAL_EVENT_TIMING */

/* ---- streams ----------------------------------------------------------------------------------------------------- */
/* hal_stream_desc_t.engine */
enum {
  HAL_ENGINE_ANY = 0,
  HAL_ENGINE_COMPUTE = 1,
  HAL_ENGINE_COPY = 2 /* the stream gets copies, fills, events and host functions only */
};

/* hal_stream_desc_t.flags */
/* `queue` selects a hardware queue; without the flag the plugin selects one */
#define HAL_STREAM_QUEUE (UINT32_C(1) << 0)

/* The properties of a new stream. A field that a later minor version appends is zero if the host does not know it; a
 * field that must not be ignored comes with a flag. */
typedef struct hal_stream_desc_s {
  size_t struct_size;
  uint32_t flags;   /* HAL_STREAM_* */
  int32_t priority; /* 0 is normal, lower is more urgent; a device without priorities ignores it */
  uint32_t engine;  /* HAL_ENGINE_*, a hint: a device without engines of the class uses others */
  uint32_t queue;   /* with HAL_STREAM_QUEUE: the index among the queues of the engine class */
} hal_stream_desc_t;

/* Initializer of a descriptor with a priority and otherwise default values. */
#define HAL_STREAM_DESC(priority) \
  { HAL_STRUCT_SIZE(hal_stream_desc_t, queue), 0, (priority), HAL_ENGINE_ANY, 0 }

typedef void (*hal_host_fn_t)(void *user_data); /* a function of the program that a stream calls */

/* The failure of a stream, see stream_error. Texts are NUL-terminated, "" if unknown. */
typedef struct hal_stream_error_s {
  size_t struct_size;
  hal_status_t status;
  int32_t reserved;
  int64_t native_code; /* the driver's own number, 0 if none */
  char op[64];         /* slot or operator that queued the work: "memory_copy", "add.Tensor" */
  char kernel[96];
  char message[256];
} hal_stream_error_t;

/* ---- modules and kernels
 * ---------------------------------------------------------------------------------------------
 *
 * Dialects:
 *   - "native": the host's portable kernels, compiled ahead of time into the plugin; `data` is the name of the family.
 *   - "host": kernels compiled ahead of time into the caller's library, for devices that are the host's CPU. `data` is
 *     an array of hal_host_kernel_t (hal/plugin_kernels.h), valid as long as the module.
 *   - "c": C for the host's compiler; kernel k is the hal_host_kernel_t hal_host_kernel_k, which PK_KERNEL of the
 *     portable dialect defines.
 *   - "opencl-c", "cuda-c", "ptx", "cubin", "spirv".
 *   - "binary": the bytes of module_export, for the same kind of device with the same driver.
 *
 * The host loads its own portable kernels in the first of "native", "opencl-c" and "cuda-c" that the device lists: one
 * module per family or, from source, one per kernel. Kernels of a pack (docs/packaging.md) come before source, in any
 * dialect that the device lists; a device without the three has the kernels of its packs only. Kernels that a program
 * writes in the portable dialect, and kernels of lazy work, are in "c" if the others are "native". Modules in the other
 * dialects come from programs, by hal_module_load (hal/kernel.h). */
typedef struct hal_module_desc_s { /* the argument of module_load */
  size_t struct_size;
  const char *dialect;
  const char *options; /* compiler options, "" = none */
  const void *data;
  size_t size; /* bytes */
  /* The cancellation flag, or NULL. Another thread sets it to 1, atomically, when the module is not needed any more,
   * for example if the process ends while lazy work is compiled. Read it by hal_is_cancelled. A plugin that compiles
   * for a long time polls it (hal_process_run_wanted) and returns HAL_ABORTED; a plugin that ignores it delays process
   * exit. */
  const int32_t *cancelled;
} hal_module_desc_t;

#if defined(__GNUC__)
/* Returns whether a cancellation flag is set, by an atomic load, since another thread writes it while the plugin runs.
 * NULL is not set. */
static inline int32_t hal_is_cancelled(const int32_t *flag) { return flag && __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
#endif

enum { HAL_ARG_VALUE = 0, HAL_ARG_POINTER = 1, HAL_ARG_LOCAL = 2 };

typedef struct hal_arg_s { /* size and kind: OpenCL and Level Zero need both; every address is a HAL_ARG_POINTER */
  const void *value; /* address of the value; for a pointer, the address of the device address; NULL for local memory */
  uint32_t size;     /* size of the value or of local memory, in bytes */
  uint32_t kind;     /* HAL_ARG_* */
} hal_arg_t;

/* How a launch runs, beyond its geometry, for kernels that a program brings (hal/kernel.h). The host's own launches
 * have no attribute but HAL_LAUNCH_FIRST_BLOCK, and this one only if HAL_DEVICE_FIRST_BLOCK is set. A plugin ignores an
 * attribute that it does not know unless `required` is 1: then the launch is HAL_UNIMPLEMENTED. */
enum {
  HAL_LAUNCH_CLUSTER = 1,     /* x, y, z: blocks of a cluster */
  HAL_LAUNCH_COOPERATIVE = 2, /* x = 1: all blocks are resident together and may wait for one another */
  HAL_LAUNCH_PRIORITY = 3,    /* x: as for stream_create, two's complement */
  HAL_LAUNCH_CARVEOUT = 4,    /* x: percentage of the unit's fast memory that is shared memory, 0 to 100 */
  HAL_LAUNCH_OVERLAP = 5,     /* x = 1: may begin before the previous launch on the stream has ended */
  HAL_LAUNCH_FIRST_BLOCK = 6  /* since 0.5; x, y, z: the first block. Always required */
};
/* With HAL_LAUNCH_FIRST_BLOCK, the indices of blocks and threads that the kernel reads begin at that block: Vulkan's
 * vkCmdDispatchBase, or a global offset of OpenCL or Level Zero. */
typedef struct hal_launch_attribute_s { /* 20 bytes */
  uint32_t kind;                        /* HAL_LAUNCH_* */
  uint32_t required;                    /* 1 or 0 */
  uint32_t x, y, z;
} hal_launch_attribute_t;

typedef struct hal_launch_s { /* the argument of kernel_launch */
  size_t struct_size;
  uint32_t grid[3];  /* number of blocks */
  uint32_t block[3]; /* threads of a block */
  uint32_t shared_bytes;
  uint32_t arg_count;
  const hal_arg_t *args;
  const hal_launch_attribute_t *attributes;
  uint32_t attribute_count, reserved;
} hal_launch_t;

/* The resources of a kernel, see kernel_info. 0 = unknown, except for blocks_per_unit. */
typedef struct hal_kernel_info_s {
  size_t struct_size;
  uint32_t max_block_threads; /* of a launch of this kernel */
  uint32_t subgroup_size;
  uint32_t registers;    /* 32-bit registers of a thread */
  uint32_t shared_bytes; /* of a block, declared by the kernel */
  uint64_t local_bytes;  /* of a thread, including spilled registers */
  uint32_t max_shared;   /* bytes that a launch may request in addition to shared_bytes */
  uint32_t
      blocks_per_unit; /* blocks of the given size that run on one compute unit at once; 0 = such a block cannot run */
} hal_kernel_info_t;

/* ---- capture ----------------------------------------------------------------------------------------------------- */
/* The mode of capture_begin: which calls that a graph cannot contain (synchronization, allocation) fail during the
 * capture. */
enum {
  HAL_CAPTURE_GLOBAL = 0, /* calls of any thread */
  HAL_CAPTURE_THREAD = 1, /* calls of the thread that began the capture */
  HAL_CAPTURE_RELAXED = 2 /* none */
};
/* capture_status */
enum {
  HAL_CAPTURE_NONE = 0,
  HAL_CAPTURE_ACTIVE = 1,
  HAL_CAPTURE_INVALID = 2 /* a forbidden call has invalidated it: capture_end returns no graph */
};

/* ---- profiling --------------------------------------------------------------------------------------------------- */
/* LOST is not work: it reports records that were dropped because a buffer was full. */
enum {
  HAL_PROFILE_KERNEL = 0,
  HAL_PROFILE_COPY = 1,
  HAL_PROFILE_FILL = 2,
  HAL_PROFILE_RANGE = 3,
  HAL_PROFILE_LOST = 4
};
enum {
  HAL_COPY_UNKNOWN = 0,
  HAL_COPY_HOST_TO_DEVICE = 1,
  HAL_COPY_DEVICE_TO_HOST = 2,
  HAL_COPY_DEVICE_TO_DEVICE = 3, /* within one device */
  HAL_COPY_PEER = 4              /* between two devices */
};

typedef struct hal_profile_record_s { /* a record of work that the device has executed */
  size_t struct_size;
  const char *name;            /* of the kernel or range; unspecified for a copy or fill */
  int64_t start_ns, end_ns;    /* device clock */
  uint64_t correlation;        /* hal_host->profile_correlation() at submission; 0: unknown */
  uint64_t bytes;              /* copied or filled; HAL_PROFILE_LOST: the number of missing records */
  hal_plugin_stream_t *stream; /* NULL: a synchronous call; may be destroyed already, the host only compares it */
  uint32_t kind;               /* HAL_PROFILE_* */
  uint32_t direction;          /* of a copy: HAL_COPY_*; else 0 */
} hal_profile_record_t;

typedef void (*hal_profile_sink_t)(void *user_data, const hal_profile_record_t *record); /* receives one record */

/* ---- services of the host: a plugin uses no others --------------------------------------------------------------- */
enum { HAL_LOG_ERROR = 0, HAL_LOG_WARNING = 1, HAL_LOG_INFO = 2, HAL_LOG_DEBUG = 3 };

typedef struct hal_host_api_s { /* the functions that a plugin may call */
  size_t struct_size;
  uint32_t major, minor;
  /* Stores `message` (what failed, the value, what to do) for this thread and returns `code`. `native_code` is the
   * driver's own number, 0 if none. */
  hal_status_t (*error_set)(hal_status_t code, int64_t native_code, const char *message);
  void (*log)(int32_t level, const char *message);
  void *(*mem_alloc)(size_t size, size_t alignment); /* alignment: a power of two; NULL = out of memory */
  void (*mem_free)(void *ptr);
  /* Returns the number for records of the work that this thread submits now (hal_profile_record_t.correlation). Called
   * when work is submitted while records are collected, not when it runs. An older host does not have it: check
   * struct_size. */
  uint64_t (*profile_correlation)(void);
  /* Allocates device memory for intermediate values of an operator's function (hal_op_fn_t): `size` > 0 bytes on
   * `call->device`, aligned as memory_alloc's, from the host's caching allocator. Work that the function queues on
   * `call->stream` may use it. After the function has returned, the host reuses the memory in the order of that stream.
   * The function may call it any number of times. Errors: HAL_RESOURCE_EXHAUSTED, which the function returns;
   * HAL_FAILED_PRECONDITION = not the `call` that the host passed to the function. */
  hal_status_t (*scratch_alloc)(const hal_op_call_t *call, size_t size, void **out_ptr);
  const hal_extension_t *extensions; /* of the host, or NULL: hal_extension_find */
} hal_host_api_t;

/* ---- the plugin's table of functions, filled by the archive's entry ---------------------------------------------- */
/* hal_plugin_api_t.build_flags: a sanitized plugin cannot be loaded into a host without sanitizers */
#define HAL_BUILD_DEBUG (UINT64_C(1) << 0)
#define HAL_BUILD_ASAN (UINT64_C(1) << 1)
#define HAL_BUILD_TSAN (UINT64_C(1) << 2)

typedef struct hal_plugin_api_s { /* the table of a plugin's functions */
  size_t struct_size;             /* in: bytes the host owns; out: bytes the plugin wrote */
  uint32_t major, minor;
  const uint64_t
      *provided; /* bit i of word i / 64: op i is the author's own, not the archive's default; valid until the process
                  * ends */
  uint64_t provided_words;
  uint64_t build_flags; /* HAL_BUILD_* */
#define HAL_OP(since, kind, group, need, name, params, args) hal_status_t(*name) params;
#include "hal/plugin_ops.def"
#undef HAL_OP
} hal_plugin_api_t;

/* The functions that the plugin's author writes. Never declared weak here: the author's definition would also become
 * weak. */
#define HAL_OP(since, kind, group, need, name, params, args) hal_status_t hal_plugin_##name params;
#include "hal/plugin_ops.def"
#undef HAL_OP

/* The archive's default for an op, which an override may call; none for the mandatory ops. */
#define HAL_DECLARE_BASE_M(name, params)
#define HAL_DECLARE_BASE_D(name, params) hal_status_t hal_base_##name params;
#define HAL_DECLARE_BASE_U(name, params) hal_status_t hal_base_##name params;
#define HAL_OP(since, kind, group, need, name, params, args) HAL_DECLARE_BASE_##kind(name, params)
#include "hal/plugin_ops.def"
#undef HAL_OP

/* The host's services; set before any other op is called. */
extern const hal_host_api_t *hal_host;

#if defined(__GNUC__)
#define HAL_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define HAL_PLUGIN_EXPORT __declspec(dllexport)
#endif

/* The one exported symbol of a plugin. The archive defines it; it negotiates the versions. Errors: HAL_INCOMPATIBLE: a
 * NULL argument, or a table or host API that is too short: nothing was written. Another major, or a minor before
 * HAL_ABI_MINOR_OLDEST: `major` and `minor` were written. */
HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api);
typedef hal_status_t (*hal_plugin_entry_fn_t)(const hal_host_api_t *host, hal_plugin_api_t *api); /* its type */

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_H_ */
