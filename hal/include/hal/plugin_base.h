/* plugin_base.h: the part of plugin.h that all other parts include: version, growing structs, status codes, handles,
 * data types. */
#ifndef HAL_PLUGIN_BASE_H_
#define HAL_PLUGIN_BASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Layouts and numbers are those of 64-bit little-endian hosts. */
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ != 8
#error "the plugin ABI is defined for 64-bit hosts"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the plugin ABI is defined for little-endian hosts"
#endif
#ifdef __cplusplus
static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "the plugin ABI is defined for 64-bit hosts");
#else
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "the plugin ABI is defined for 64-bit hosts");
#endif

#define HAL_ABI_MAJOR 0
#define HAL_ABI_MINOR 5
/* The oldest minor version that this one works with: since then minor versions only append. */
#define HAL_ABI_MINOR_OLDEST 3

/* The device ordinal of host memory in memory_copy. */
#define HAL_HOST (-1)

/* Size of a struct through its last field in use. Not sizeof: a field added in tail padding would not change that. */
#define HAL_STRUCT_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Whether the struct at `ptr`, by its struct_size, has `field`; a struct that an older side wrote may not have it. */
#define HAL_HAS_FIELD(ptr, field) \
  ((ptr)->struct_size >= (size_t)((const char *)(&(ptr)->field + 1) - (const char *)(ptr)))

/* Writes a field of a struct that the other side owns; does nothing if that side's struct ends before the field. */
#define HAL_SET_FIELD(ptr, field, ...) ((void)(HAL_HAS_FIELD(ptr, field) && ((ptr)->field = (__VA_ARGS__), 1)))

/* ---- extensions
 * ------------------------------------------------------------------------------------------------------
 *
 * A group of functions or data that the table of this minor version does not have: a struct that begins with this one.
 * The plugin offers a chain of them by the slot `extensions`, the host by hal_host_api_t.extensions. Either side looks
 * up those it knows and ignores the others, so that the two sides may be built against different headers. `name` is the
 * struct's type: "hal.<group>" if the HAL defines it, "<vendor>.<group>" otherwise. A struct with a given name may only
 * grow at its end. */
typedef struct hal_extension_s { /* the beginning of each extension */
  size_t struct_size;            /* of the whole struct, through the last field in use */
  const char *name;
  const struct hal_extension_s *next; /* NULL ends the chain */
} hal_extension_t;

/* Returns the extension of this name with at least `least` bytes (HAL_STRUCT_SIZE of its struct), or NULL. The caller
 * casts it to that struct. `name` is NUL-terminated; names are compared byte by byte. */
static inline const hal_extension_t *hal_extension_find(const hal_extension_t *first, const char *name, size_t least) {
  for (; first; first = first->next) {
    size_t i = 0;
    while (name[i] && first->name[i] == name[i]) i++;
    if (first->name[i] == name[i] && first->struct_size >= least) return first;
  }
  return NULL;
}

/* ---- status codes
 * ----------------------------------------------------------------------------------------------------
 *
 * The numbers are those of absl::StatusCode, as in PJRT and IREE, and two additional ones. These codes of absl are
 * reserved, and neither plugins nor the host return them: 1 (cancelled), 4 (deadline exceeded), 6 (already exists), 7
 * (permission denied), 16 (unauthenticated). */
typedef int32_t hal_status_t; /* HAL_OK, or the code of a failure */
enum {
  HAL_OK = 0,
  HAL_UNKNOWN = 2,
  HAL_INVALID_ARGUMENT = 3,
  HAL_NOT_FOUND = 5,
  HAL_RESOURCE_EXHAUSTED = 8, /* out of memory: the host trims its caches and retries once */
  HAL_FAILED_PRECONDITION = 9,
  HAL_ABORTED = 10,
  HAL_OUT_OF_RANGE = 11,
  HAL_UNIMPLEMENTED = 12, /* no output was written: the host falls back */
  HAL_INTERNAL = 13,
  HAL_UNAVAILABLE = 14, /* no driver or device on this machine: the host skips the plugin without a warning */
  HAL_DATA_LOSS = 15,
  HAL_NOT_READY = 17,   /* work remains */
  HAL_INCOMPATIBLE = 18 /* incompatible versions or groups of ops */
};

/* ---- handles: incomplete structs that the plugin defines --------------------------------------------------------- */
typedef struct hal_plugin_stream_s hal_plugin_stream_t;
typedef struct hal_plugin_event_s hal_plugin_event_t;
typedef struct hal_plugin_module_s hal_plugin_module_t;
typedef struct hal_plugin_kernel_s hal_plugin_kernel_t;
typedef struct hal_plugin_graph_s hal_plugin_graph_t;
typedef struct hal_plugin_graph_exec_s hal_plugin_graph_exec_t;
typedef struct hal_plugin_physical_s hal_plugin_physical_t;
typedef struct hal_plugin_comm_s hal_plugin_comm_t;
typedef struct hal_plugin_comm_memory_s hal_plugin_comm_memory_t;
typedef struct hal_plugin_semaphore_s hal_plugin_semaphore_t;

/* ---- data types
 * ------------------------------------------------------------------------------------------------------
 *
 * The numbers are those of c10::ScalarType, checked by static assertions on the torch side. */
typedef int32_t hal_dtype_t; /* the data type of elements */
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
  HAL_FLOAT8_E5M2FNUZ = 25,
  HAL_FLOAT8_E4M3FNUZ = 26,
  HAL_UINT16 = 27,
  HAL_UINT32 = 28,
  HAL_UINT64 = 29,
  HAL_UINT4 = 33, /* each element takes one byte, as in torch */
  HAL_INT4 = 40,
  HAL_FLOAT8_E8M0FNU = 44,
  HAL_FLOAT4_E2M1FN_X2 = 45 /* an element is a byte of two numbers */
};

/* A mask of dtypes: bit d = dtype number d. */
#define HAL_DTYPE_BIT(dtype) (UINT64_C(1) << (dtype))
#define HAL_ALL_DTYPES UINT64_MAX

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_BASE_H_ */
