/* plugin.h: what a vendor's shared object and the HAL say to each other. Version 0.1.
 *
 * This header stands alone (stddef.h, stdint.h), compiles as C11 and C++17, and is all of ours that a plugin includes.
 *
 * A plugin is a shared object linked with libhal_plugin.a. The author defines functions hal_plugin_<op> (see
 * plugin_ops.def). Five are mandatory: hal_plugin_info, hal_plugin_device_count, hal_plugin_memory_alloc,
 * hal_plugin_memory_free and hal_plugin_memory_copy. Every other op has a weak default in the archive which works, or
 * answers HAL_UNIMPLEMENTED; an override of one op improves the defaults that stand on it. Example (all of a plugin but its
 * five bodies):
 *
 *   #include <hal/plugin.h>
 *   hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
 *     out_info->name = "toy", out_info->vendor = "me", out_info->version = "1.0";
 *     return HAL_OK;
 *   }
 *   hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
 *     void *ptr = my_driver_alloc(device, size);
 *     if (!ptr) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "toy: out of memory; free some tensors");
 *     *out_ptr = ptr;
 *     return HAL_OK;
 *   }
 *   ...
 *
 * Rules.
 *  - Every op returns hal_status_t. Out-parameters come last (`out_`) and stay untouched on failure.
 *  - Every struct starts with `struct_size`, set by the owner of the memory: the size through the last field it knows.
 *    A reader ignores what lies beyond the size it was given. Reserved fields are zero.
 *  - No bool, enum, long, bit-field, FILE *, C++ or torch type crosses. Strings are UTF-8, NUL-ended, borrowed for the call.
 *  - Every op is thread-safe unless it says otherwise. The side that made a thing frees it.
 *  - Device memory is an address: `ptr + offset` is valid in every call. Device and stream are explicit arguments; there is
 *    no current device.
 *  - A launch names each device address that it uses as a HAL_ARG_POINTER argument of its own. No address lies in a value,
 *    in a struct or in device memory (no tables of pointers): a plugin may have to translate addresses (to buffer objects,
 *    to another mapping) and sees arguments only. A kernel over a list of tensors is launched with as many of them as it has
 *    pointer arguments, again and again, or finds them at offsets from one pointer.
 *  - A NULL stream is the synchronous stream and legal wherever a stream is taken: the work is finished on return.
 *  - Errors are a code plus a message that the host keeps per thread (hal_host->error_set). Asynchronous failures surface
 *    once, at the next synchronisation or query of the stream, and are then cleared; a lost device stays lost.
 *
 * Versions. Another MAJOR is refused at load. A new MINOR appends slots or struct fields and changes no meaning: an old
 * plugin works on a new host (which fills the tail of the table) and a new plugin on an old host. While MAJOR is 0 the ABI
 * may still change with a minor; from 1.0 on the host supports every 1.x plugin. */
#ifndef HAL_PLUGIN_H_
#define HAL_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAL_ABI_MAJOR 0
#define HAL_ABI_MINOR 1

/* The device ordinal of host memory in memory_copy. */
#define HAL_HOST (-1)

/* Size of a struct through its last field in use. Not sizeof: a field added in tail padding would not change that. */
#define HAL_STRUCT_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* ---- status codes -------------------------------------------------------------------------------------------------------
 * The numbers are those of absl::StatusCode, as in PJRT and IREE, plus two of ours. */
typedef int32_t hal_status_t;
enum {
  HAL_OK = 0,
  HAL_UNKNOWN = 2,
  HAL_INVALID_ARGUMENT = 3,
  HAL_NOT_FOUND = 5,
  HAL_RESOURCE_EXHAUSTED = 8, /* out of memory: the host trims its caches and retries once */
  HAL_FAILED_PRECONDITION = 9,
  HAL_ABORTED = 10,
  HAL_OUT_OF_RANGE = 11,
  HAL_UNIMPLEMENTED = 12, /* outputs were not touched: the host falls back */
  HAL_INTERNAL = 13,
  HAL_UNAVAILABLE = 14, /* no driver or device on this machine: the host skips the plugin quietly */
  HAL_DATA_LOSS = 15,
  HAL_NOT_READY = 17,   /* work remains */
  HAL_INCOMPATIBLE = 18 /* versions or groups of ops do not fit */
};

/* ---- handles: incomplete structs that the plugin defines ---------------------------------------------------------------- */
typedef struct hal_plugin_stream_s hal_plugin_stream_t;
typedef struct hal_plugin_event_s hal_plugin_event_t;
typedef struct hal_plugin_module_s hal_plugin_module_t;
typedef struct hal_plugin_kernel_s hal_plugin_kernel_t;
typedef struct hal_plugin_graph_s hal_plugin_graph_t;
typedef struct hal_plugin_comm_s hal_plugin_comm_t;
typedef struct hal_plugin_physical_s hal_plugin_physical_t;

/* ---- plugin and device -------------------------------------------------------------------------------------------------- */
typedef struct hal_plugin_info_s {
  size_t struct_size;
  const char
      *name; /* also the device type's name in torch: lower-case letters, digits and '_', not beginning with cpu or
                          cuda */
  const char *vendor;  /* for people */
  const char *version; /* for people */
  uint32_t flags;      /* HAL_PLUGIN_* */
} hal_plugin_info_t;

enum {
  HAL_PLUGIN_ON_REQUEST = 1u << 0 /* never chosen by itself, only when the user names it */
};

/* hal_device_info_t.flags */
#define HAL_DEVICE_HOST_VISIBLE \
  (UINT64_C(1) << 0)                          /* the host may read and write device addresses when no work is queued */
#define HAL_DEVICE_UNIFIED (UINT64_C(1) << 1) /* the device may use any host address, such as malloc's */
#define HAL_DEVICE_ASYNC (UINT64_C(1) << 2)   /* streams run behind the caller's back */
#define HAL_DEVICE_FP64 (UINT64_C(1) << 3)    /* computes in double precision */
#define HAL_DEVICE_POOLED \
  (UINT64_C(1) << 4)                      /* the plugin pools memory itself: the host's caching allocator steps aside */
#define HAL_DEVICE_CPU (UINT64_C(1) << 5) /* few wide cores: kernels are launched with large blocks per item */

typedef struct hal_device_info_s {
  size_t struct_size;
  char name[64];     /* NUL-ended */
  char dialects[64]; /* accepted module dialects, most wanted first, e.g. "spirv,opencl-c"; "" = no modules */
  uint8_t uuid[16];
  uint64_t flags;        /* HAL_DEVICE_* */
  uint64_t total_memory; /* bytes; 0 = unknown */
  uint32_t compute_units, subgroup_size, max_block_threads, max_shared_bytes;
  uint32_t pci_domain, pci_bus, pci_device, base_alignment; /* base_alignment: bytes, of memory_alloc */
  uint64_t virtual_granularity;                             /* bytes; 0 = no virtual memory group */
} hal_device_info_t;

typedef struct hal_pointer_info_s {
  size_t struct_size;
  void *base; /* start of the allocation */
  size_t size;
  int32_t device; /* HAL_HOST for host memory */
  uint32_t kind;  /* HAL_POINTER_* */
} hal_pointer_info_t;

enum { HAL_POINTER_DEVICE = 1, HAL_POINTER_PINNED = 2, HAL_POINTER_MANAGED = 3 };

typedef struct hal_ipc_handle_s {
  uint8_t bytes[64];
} hal_ipc_handle_t;

/* event_create flags */
enum { HAL_EVENT_TIMING = 1u << 0, HAL_EVENT_BLOCKING = 1u << 1, HAL_EVENT_INTERPROCESS = 1u << 2 };

typedef void (*hal_host_fn_t)(void *user_data);

/* ---- data types ---------------------------------------------------------------------------------------------------------
 * The numbers are those of c10::ScalarType, checked by static assertions on the torch side. */
typedef int32_t hal_dtype_t;
enum {
  HAL_UINT8 = 0,
  HAL_INT8 = 1,
  HAL_INT16 = 2,
  HAL_INT32 = 3,
  HAL_INT64 = 4,
  HAL_FLOAT16 = 5,
  HAL_FLOAT32 = 6,
  HAL_FLOAT64 = 7,
  HAL_COMPLEX32 = 8,
  HAL_COMPLEX64 = 9,
  HAL_COMPLEX128 = 10,
  HAL_BOOL = 11,
  HAL_BFLOAT16 = 15,
  HAL_FLOAT8_E5M2 = 23,
  HAL_FLOAT8_E4M3FN = 24,
  HAL_UINT16 = 27,
  HAL_UINT32 = 28,
  HAL_UINT64 = 29
};

/* ---- modules and kernels ------------------------------------------------------------------------------------------------
 * Dialects: "native" (the host's portable kernels, compiled ahead of time into the plugin; data is the family's name),
 * "host" (kernels compiled ahead of time into the caller's library, for devices that are the host's CPU; data is an array of
 * hal_host_kernel_t, hal/plugin_kernels.h, which lives as long as the module), "c", "opencl-c", "cuda-c", "ptx", "spirv". */
typedef struct hal_module_desc_s {
  size_t struct_size;
  const char *dialect;
  const char *options; /* compiler options, "" = none */
  const void *data;
  size_t size; /* bytes */
} hal_module_desc_t;

enum { HAL_ARG_VALUE = 0, HAL_ARG_POINTER = 1, HAL_ARG_LOCAL = 2 };

typedef struct hal_arg_s { /* size AND kind: OpenCL and Level Zero need both; every address is a HAL_ARG_POINTER */
  const void *value; /* the value's address; for a pointer, the address of the device address; NULL for local memory */
  uint32_t size;     /* bytes of the value, or of local memory */
  uint32_t kind;     /* HAL_ARG_* */
} hal_arg_t;

typedef struct hal_launch_s {
  size_t struct_size;
  uint32_t grid[3];  /* number of blocks */
  uint32_t block[3]; /* threads of a block */
  uint32_t shared_bytes;
  uint32_t arg_count;
  const hal_arg_t *args;
} hal_launch_t;

/* ---- operator calls ----------------------------------------------------------------------------------------------------- */
typedef struct hal_tensor_s { /* 48 bytes; sizes and strides are borrowed for the call */
  size_t struct_size;
  void *data; /* device address of the first element, storage offset included */
  const int64_t *sizes;
  const int64_t *strides; /* in elements */
  int32_t ndim;
  hal_dtype_t dtype;
  int32_t device; /* the plugin's ordinal */
  uint32_t flags; /* zero */
} hal_tensor_t;

enum {
  HAL_VALUE_NONE = 0,
  HAL_VALUE_BOOL = 1,
  HAL_VALUE_INT = 2,
  HAL_VALUE_DOUBLE = 3,
  HAL_VALUE_STRING = 4,
  HAL_VALUE_TENSOR = 5,
  HAL_VALUE_TENSOR_LIST = 6,
  HAL_VALUE_INT_LIST = 7,
  HAL_VALUE_DOUBLE_LIST = 8,
  HAL_VALUE_DTYPE = 9,
  HAL_VALUE_COMPLEX = 10
};

typedef struct hal_value_s { /* 16 bytes */
  uint32_t tag;              /* HAL_VALUE_*: which member */
  uint32_t count;            /* length of a list */
  union {
    int64_t i; /* bool, int, dtype */
    double d;
    const char *s;
    const hal_tensor_t *t;
    const hal_tensor_t *const *tl;
    const int64_t *il;
    const double *dl; /* double list; complex: two doubles */
  } u;
} hal_value_t;

/* hal_op_call_t.flags */
#define HAL_CALL_DENSE (1u << 0) /* all tensors have one shape and are contiguous, all operands have one dtype */

typedef struct hal_op_call_s {
  size_t struct_size;
  hal_plugin_stream_t *stream;
  int32_t device; /* the plugin's ordinal */
  uint32_t arg_count, result_count;
  uint32_t flags;                     /* HAL_CALL_* */
  const hal_value_t *args;            /* the operator's frozen argument list, codegen/ops.yaml */
  const hal_tensor_t *const *results; /* allocated by the host, shapes and dtypes right */
  uint64_t seed, offset;              /* Philox state for random operators */
} hal_op_call_t;

/* Queues an operator. Whatever it needs of `call` it has copied when it returns. HAL_UNIMPLEMENTED = no result was touched. */
typedef hal_status_t (*hal_op_fn_t)(void *state, const hal_op_call_t *call);

/* ---- random numbers -----------------------------------------------------------------------------------------------------
 * Element i uses word i % 4 (32-bit dtypes and below; for 64-bit dtypes words 2*(i%2) and 2*(i%2)+1) of the Philox4x32-10
 * block with key = seed and counter = (offset + i / 4 (or i / 2), 0) as two 64-bit numbers, low words first. With w the
 * word of element i and n = the two words of a 64-bit element, the first one low:
 *   u          float32: (w >> 8) * 2^-24; float16: (w >> 21) * 2^-11; bfloat16: (w >> 24) * 2^-8; float64: (n >> 11) * 2^-53
 *   uniform    low + (high - low) * u, computed in float (float64: double) without a fused multiply-add; low and high - low
 *              are rounded to that type first. A number that rounds up to high becomes low, so that the interval is
 *              half open. Equal on every plugin, bit for bit.
 *   normal     Box-Muller on the pair of elements (2j, 2j + 1) of one block, in double and rounded once:
 *              r = sqrt(-2 ln a), even element mean + deviation * r cos(2 pi b), odd element mean + deviation * r sin(2 pi b)
 *              with a = (w_even + 1) * 2^-32, b = w_odd * 2^-32 (float64: a = ((n_even >> 11) + 1) * 2^-53,
 *              b = (n_odd >> 11) * 2^-53). An element's number does not depend on `count`.
 *   bernoulli  u < p0 ? 1 : 0 with u as for float32 (64-bit dtypes: as for float64), compared in double
 *   bits       the low bits of w (64-bit dtypes: n); bool: the lowest bit. Integers and bool only. */
enum { HAL_RANDOM_UNIFORM = 0, HAL_RANDOM_NORMAL = 1, HAL_RANDOM_BERNOULLI = 2, HAL_RANDOM_BITS = 3 };

typedef struct hal_random_s {
  size_t struct_size;
  void *dst;      /* contiguous */
  uint64_t count; /* elements */
  uint64_t seed, offset;
  int32_t device;
  hal_dtype_t dtype;
  int32_t distribution; /* HAL_RANDOM_* */
  int32_t reserved;
  double p0, p1; /* uniform: low, high; normal: mean, deviation; bernoulli: probability */
} hal_random_t;

/* ---- collectives -------------------------------------------------------------------------------------------------------- */
typedef struct hal_comm_id_s {
  uint8_t bytes[128];
} hal_comm_id_t;

enum {
  HAL_COMM_ALL_REDUCE = 0,
  HAL_COMM_BROADCAST = 1,
  HAL_COMM_REDUCE = 2,
  HAL_COMM_ALL_GATHER = 3,
  HAL_COMM_REDUCE_SCATTER = 4,
  HAL_COMM_ALL_TO_ALL = 5,
  HAL_COMM_SEND = 6,
  HAL_COMM_RECV = 7,
  HAL_COMM_BARRIER = 8
};
enum { HAL_REDUCE_SUM = 0, HAL_REDUCE_PROD = 1, HAL_REDUCE_MIN = 2, HAL_REDUCE_MAX = 3, HAL_REDUCE_AVG = 4 };

typedef struct hal_collective_s {
  size_t struct_size;
  uint32_t op;     /* HAL_COMM_* */
  uint32_t reduce; /* HAL_REDUCE_* */
  hal_dtype_t dtype;
  int32_t peer; /* root or partner rank */
  const void *send;
  void *recv;
  uint64_t count;                  /* elements per rank */
  const uint64_t *counts, *displs; /* per rank for uneven all-to-all, else NULL */
} hal_collective_t;

/* ---- profiling ---------------------------------------------------------------------------------------------------------- */
/* LOST is no work: it says that a full buffer has dropped records. */
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

typedef struct hal_profile_record_s {
  size_t struct_size;
  const char *name;            /* of the kernel or range; a copy's or fill's may be anything */
  int64_t start_ns, end_ns;    /* device clock */
  uint64_t correlation;        /* hal_host->profile_correlation() at the moment of submission; 0: unknown */
  uint64_t bytes;              /* copied or filled; HAL_PROFILE_LOST: the number of records that are missing */
  hal_plugin_stream_t *stream; /* NULL: a synchronous call; may be destroyed by now, it is only compared */
  uint32_t kind;               /* HAL_PROFILE_* */
  uint32_t direction;          /* of a copy: HAL_COPY_*; else 0 */
} hal_profile_record_t;

typedef void (*hal_profile_sink_t)(void *user_data, const hal_profile_record_t *record);

/* ---- what the host gives to the plugin: the only host services a plugin reaches ------------------------------------------- */
enum { HAL_LOG_ERROR = 0, HAL_LOG_WARNING = 1, HAL_LOG_INFO = 2, HAL_LOG_DEBUG = 3 };

typedef struct hal_host_api_s {
  size_t struct_size;
  uint32_t major, minor;
  /* Keeps `message` (what was tried, with which value, what to do) for this thread and returns `code`. `native_code` is the
   * driver's own number, 0 if none. */
  hal_status_t (*error_set)(hal_status_t code, int64_t native_code, const char *message);
  void (*log)(int32_t level, const char *message);
  void *(*mem_alloc)(size_t size, size_t alignment); /* alignment: a power of two; NULL when there is no memory */
  void (*mem_free)(void *ptr);
  /* Gives the number that records of work submitted by this thread now are to carry (hal_profile_record_t.correlation).
   * Asked when work is submitted while records are collected, not when it runs. An older host does not have it: look at
   * struct_size. */
  uint64_t (*profile_correlation)(void);
} hal_host_api_t;

/* ---- what the plugin gives to the host: one flat table, filled by the archive's entry --------------------------------------- */
/* hal_plugin_api_t.build_flags: a sanitized plugin cannot be loaded into a plain host */
#define HAL_BUILD_DEBUG (UINT64_C(1) << 0)
#define HAL_BUILD_ASAN (UINT64_C(1) << 1)
#define HAL_BUILD_TSAN (UINT64_C(1) << 2)

typedef struct hal_plugin_api_s {
  size_t struct_size; /* in: bytes the host owns; out: bytes the plugin wrote */
  uint32_t major, minor;
  uint64_t provided[2]; /* bit i: op i is the author's own, not the archive's default */
  uint64_t build_flags; /* HAL_BUILD_* */
#define HAL_OP(since, kind, group, need, name, params, args) hal_status_t(*name) params;
#include "hal/plugin_ops.def"
#undef HAL_OP
} hal_plugin_api_t;

/* What the plugin's author writes. Never declared weak here: the author's own definition would become weak too. */
#define HAL_OP(since, kind, group, need, name, params, args) hal_status_t hal_plugin_##name params;
#include "hal/plugin_ops.def"
#undef HAL_OP

/* The archive's default for an op, callable as "super" from an override; none for the mandatory ops. */
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

/* The one exported symbol of a plugin; it comes from the archive and negotiates the versions.
 * Errors: HAL_INCOMPATIBLE, nothing written: NULL argument, other major, a table or host API that is too short. */
HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api);
typedef hal_status_t (*hal_plugin_entry_fn_t)(const hal_host_api_t *host, hal_plugin_api_t *api);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_H_ */
