/* plugin_op.h: the part of plugin.h about operators: tensors, values, calls, a plugin's own operators, random numbers. */
#ifndef HAL_PLUGIN_OP_H_
#define HAL_PLUGIN_OP_H_

#include "hal/plugin_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  HAL_VALUE_COMPLEX = 10,
  HAL_VALUE_BOOL_LIST = 11,
  HAL_VALUE_SCALAR_LIST = 12,  /* values of the tags BOOL, INT, DOUBLE and COMPLEX */
  HAL_VALUE_DEVICE = 13,       /* the plugin's ordinal, or HAL_HOST */
  HAL_VALUE_LAYOUT = 14,       /* HAL_LAYOUT_* */
  HAL_VALUE_MEMORY_FORMAT = 15 /* HAL_FORMAT_* */
};

/* The numbers are those of c10::Layout and c10::MemoryFormat. */
enum {
  HAL_LAYOUT_STRIDED = 0,
  HAL_LAYOUT_SPARSE = 1,
  HAL_LAYOUT_SPARSE_CSR = 2,
  HAL_LAYOUT_SPARSE_CSC = 4,
  HAL_LAYOUT_SPARSE_BSR = 5,
  HAL_LAYOUT_SPARSE_BSC = 6,
  HAL_LAYOUT_JAGGED = 7
};
enum {
  HAL_FORMAT_CONTIGUOUS = 0,
  HAL_FORMAT_PRESERVE = 1,
  HAL_FORMAT_CHANNELS_LAST = 2,
  HAL_FORMAT_CHANNELS_LAST_3D = 3
};

typedef struct hal_value_s { /* 16 bytes */
  uint32_t tag;              /* HAL_VALUE_*: which member */
  uint32_t count;            /* length of a list */
  union {
    int64_t i; /* bool, int, dtype, device, layout, memory format */
    double d;
    const char *s;
    const hal_tensor_t *t;
    const hal_tensor_t *const *tl;
    const int64_t *il;
    const double *dl;             /* double list; complex: two doubles */
    const uint8_t *bl;            /* bool list: 0 or 1 each */
    const struct hal_value_s *vl; /* scalar list */
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
  const hal_value_t *args;            /* the operator's frozen argument list, codegen/operators */
  const hal_tensor_t *const *results; /* allocated by the host, shapes and dtypes right */
  uint64_t seed, offset;              /* Philox state for random operators */
  /* Device memory in calls that are captured into a graph, else NULL: two numbers, read when the work runs, so that a replay draws new numbers. The state is then seed
   * = random_state[0], offset = random_state[1] + `offset`. */
  const uint64_t *random_state;
  void *host; /* the host's own, for hal_host->scratch_alloc */
} hal_op_call_t;

/* Queues an operator. Whatever it needs of `call` it has copied when it returns. HAL_UNIMPLEMENTED = no result was touched. */
typedef hal_status_t (*hal_op_fn_t)(void *state, const hal_op_call_t *call);

/* Tells whether the operator would take a call: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing. The answer depends on the
 * operator's state, on shapes, strides, dtypes, numbers and flags, and of an address on its alignment up to 256 bytes only:
 * `data` of the call that runs may be another. A yes binds: the function does not decline such a call. `call->stream` is
 * NULL, scratch memory is not given. */
typedef hal_status_t (*hal_op_query_fn_t)(void *state, const hal_op_call_t *call);

/* hal_op_own_t.layouts: how the tensors of a call may lie, each of them in one of these ways. */
#define HAL_TAKES_CONTIGUOUS (UINT32_C(1) << 0) /* C order; dimensions of size 1 may have any stride */
#define HAL_TAKES_CHANNELS_LAST \
  (UINT32_C(1) << 1) /* 4 or 5 dimensions, the second one innermost, as torch.channels_last(_3d) */
#define HAL_TAKES_STRIDED (UINT32_C(1) << 2) /* any strides, zero and overlapping ones in arguments included */
#define HAL_TAKES_ALL UINT32_C(7)

/* hal_op_own_t.flags */
#define HAL_OP_CAPTURABLE \
  (UINT32_C(1) << 0) /* may be called while its stream is captured: queues work, waits for nothing */
#define HAL_OP_RANDOM_STATE (UINT32_C(1) << 1) /* reads call->random_state; without it such calls are not asked */
#define HAL_OP_NEVER_DECLINES \
  (UINT32_C(1) << 2) /* takes every call that this descriptor lets through: needs no query */

/* What op_find answers: a plugin's own operator, and which calls it wants to see. A call with a tensor of another dtype or
 * layout goes to the portable kernel without asking. The host zeroes the struct before; a descriptor without a function,
 * dtypes or layouts is not used, with a warning. */
typedef struct hal_op_own_s {
  size_t struct_size;
  hal_op_fn_t fn;
  void *state;      /* given back at each call; lives as long as the process */
  uint64_t dtypes;  /* of tensors: HAL_DTYPE_BIT(...) of each, or HAL_ALL_DTYPES */
  uint32_t layouts; /* of tensors: HAL_TAKES_* */
  /* Arguments of the frozen list that the author knew; 0 = as many as this host's. Lists only grow: a call is shown this
   * many, and is not asked when one behind them is not at its default (HAL_VALUE_NONE). */
  uint32_t argument_count;
  uint32_t flags; /* HAL_OP_* */
  uint32_t reserved;
  hal_op_query_fn_t query; /* or NULL: then fn alone decides, when it is called */
} hal_op_own_t;

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
  double p0, p1;                /* uniform: low, high; normal: mean, deviation; bernoulli: probability */
  const uint64_t *random_state; /* device memory or NULL, as in hal_op_call_t */
} hal_random_t;

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_OP_H_ */
