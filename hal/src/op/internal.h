/* internal.h: the interface of the dispatch (dispatch.c) and the launchers of the operator families (hal/ops).
 * Private to hal.
 *
 * A launcher turns one call into launches of portable kernels. It is called with a context on the stack and returns
 * HAL_OK, HAL_UNIMPLEMENTED (nothing queued, no result written) or an error. It checks its operands; only the
 * shapes of a call flagged HAL_CALL_DENSE are not checked. A steady-state call takes no lock, builds no string and
 * allocates nothing. */
#ifndef HAL_SRC_OP_INTERNAL_H_
#define HAL_SRC_OP_INTERNAL_H_

#include "base/dtype.h"
#include "device/device.h"
#include "hal/kernel.h"
#include "hal/memory.h"
#include "hal/op.h"
#include "op/target.h"
#include "plugin/call.h"

/* dtypes of portable kernels, as indices of the handle cache, in this order: u8 i8 i16 i32 i64 f32 f64 bool f16
 * bf16 c64 c128 u16 u32 u64 */
#define HAL_OP_DTYPE_SLOTS 15

/* hal_op_info_t.result: the dtype that results must have */
enum {
  HAL_OP_RESULT_SAME = 0, /* the computing dtype, which is the dtype of operand 0 */
  HAL_OP_RESULT_BOOL = 1,
  HAL_OP_RESULT_ANY = 2, /* the launcher checks */
  HAL_OP_RESULT_REAL = 3 /* the computing dtype; for complex numbers the dtype of their parts */
};

typedef hal_status_t (*hal_op_launcher_t)(hal_op_context_t *context, const hal_op_call_t *call);

/* One operator; the table is generated from codegen/operators. */
typedef struct hal_op_info_s {
  const char *name;             /* "add.Tensor" */
  const char *error_name;       /* "index" for "index.lines": the name in errors; NULL: the name */
  const char *kernel;           /* "add": kernels are "<kernel>_<dtype>_<variant>" */
  const char *const *variants;  /* the family's variants, numbered HAL_<FAMILY>_VARIANT_<VARIANT> (hal_op_variants.h) */
  const char *const *arguments; /* names of the frozen arguments, for messages */
  uint32_t argument_count;      /* of the portable kernel */
  /* number of optional arguments after them for the plugin's own op, passed if the caller passed them */
  uint32_t further_count;
  hal_op_launcher_t launch;                 /* NULL: no portable kernel */
  hal_op_launcher_t launch_without_kernels; /* for devices without portable kernels; NULL: none */
  uint64_t dtypes;                          /* computing dtypes with a kernel: bit d = dtype number d */
  uint64_t device_dtypes;                   /* additional ones if kernels are not host C */
  uint8_t device_images;                    /* images in channels-last order are supported only on those devices */
  uint32_t first_handle;                    /* the op's part of the device's handle cache: [slot][variant] */
  uint16_t variant_count;
  uint16_t family;  /* number of the module */
  uint8_t operands; /* tensor arguments, which come first: a, b, c */
  uint8_t scalars;  /* number arguments, which follow: s0, s1, s2 */
  uint8_t numbers;  /* bit i: tensor argument i may be passed as a number */
  uint8_t result;   /* HAL_OP_RESULT_* */
  uint8_t updates;  /* kernels read results, or write them in part */
  uint8_t checked;  /* bit i: the operator `check` of the family `check` checks the values of argument i first */
  uint16_t check;
} hal_op_info_t;

/* hal_op_context_t.elsewhere */
enum {
  HAL_OP_PLANS = 1, /* plan mode: everything is discarded */
  HAL_OP_QUEUES = 2 /* the stream's queue, which is not its direct one, receives it */
};

struct hal_op_context_s {
  const hal_op_info_t *info;
  hal_device_t *device;
  hal_stream_t *stream;
  hal_queue_t *queue;                      /* of the stream */
  _Atomic(hal_plugin_kernel_t *) *handles; /* of this op */
  uint32_t op;                             /* HAL_OP_ID_* */
  uint32_t called;             /* the operator that was called, of which `op` may be a part: errors use its name */
  uint32_t group_threads;      /* of group kernels: target.h */
  uint64_t few_loops;          /* target.h */
  hal_recorded_op_t *recorded; /* the queue's record of the operator (queue/queue.h); NULL = there is none */
  uint32_t elsewhere;          /* HAL_OP_PLANS, HAL_OP_QUEUES: calls do not go to the device directly (op/launch.h) */
};

/* Returns the dtype of the result of an operator that computes in `dtype`. */
static inline hal_dtype_t hal_op_result_dtype(const hal_op_info_t *info, hal_dtype_t dtype) {
  if (HAL_LIKELY(info->result == HAL_OP_RESULT_SAME)) return dtype;
  if (info->result == HAL_OP_RESULT_BOOL) return HAL_BOOL;
  return dtype == HAL_COMPLEX64 ? HAL_FLOAT32 : dtype == HAL_COMPLEX128 ? HAL_FLOAT64 : dtype;
}

/* ---- all operators ----------------------------------------------------------------------------------------------- */
/* The generated tables of codegen/operators; hal/ops/table.c, a higher component, defines them. Operators of libraries
 * have the numbers after them (define.h). */
extern const hal_op_info_t hal_op_infos[];
extern const char *const hal_op_families[];
extern const char *const hal_op_dtype_tokens[HAL_OP_DTYPE_SLOTS]; /* "f32": in the names of kernels, by slot */

/* Returns the name of an argument of an operator of codegen/operators; NULL if there is none. */
const char *hal_op_argument(uint32_t op, uint32_t argument);
/* Returns the name of an operator in errors: torch's name of an operator that torch has. NULL past the last one. */
const char *hal_op_error_name(uint32_t op);
/* Writes the names, as in errors, of the operators that launch a portable kernel, "mm, bmm"; "" if there are none. */
void hal_op_names_of_kernel(const char *kernel, char *text, size_t size);

/* ---- kernels and launches ---------------------------------------------------------------------------------------- */
extern const uint8_t hal_op_dtype_slots[32]; /* dtype number -> cache index, 0xff without portable kernels */
extern char hal_op_no_kernel;                /* its address stands for a kernel that the device does not have */

/* Returns whether portable kernels support a dtype. */
static inline int hal_op_has_slot(hal_dtype_t dtype) {
  return (uint32_t)dtype < 32u && hal_op_dtype_slots[dtype] < HAL_OP_DTYPE_SLOTS;
}

/* Finds and caches a handle; the slow path of hal_op_kernel. */
hal_status_t hal_op_kernel_find(hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                                hal_plugin_kernel_t **out_kernel);

/* Returns whether the operator has portable kernels that compute in a dtype. */
static inline int hal_op_has_dtype(const hal_op_context_t *context, hal_dtype_t dtype) {
  return (uint32_t)dtype < 64u && (context->info->dtypes >> dtype & 1);
}

/* Returns the kernel "<kernel>_<dtype>_<variant>". Errors: HAL_UNIMPLEMENTED = there is none for this dtype or
 * device. */
static inline hal_status_t hal_op_kernel(hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                                         hal_plugin_kernel_t **out_kernel) {
  const uint32_t slot = (uint32_t)dtype < 32u ? hal_op_dtype_slots[dtype] : 0xffu;
  if (HAL_UNLIKELY(slot >= HAL_OP_DTYPE_SLOTS)) return HAL_UNIMPLEMENTED;
  hal_plugin_kernel_t *kernel =
      atomic_load_explicit(&context->handles[slot * context->info->variant_count + variant], memory_order_acquire);
  if (HAL_UNLIKELY(!kernel)) return hal_op_kernel_find(context, dtype, variant, out_kernel);
  if (HAL_UNLIKELY((void *)kernel == (void *)&hal_op_no_kernel)) return HAL_UNIMPLEMENTED;
  *out_kernel = kernel;
  return HAL_OK;
}

/* Creates the application's handle of a kernel, freed by hal_free; NULL = no memory. */
hal_kernel_t *hal_kernel_wrap(hal_device_t *device, hal_plugin_kernel_t *handle, uint32_t group_threads,
                              const char *name);

/* Returns the plugin's handle of such a kernel. */
hal_plugin_kernel_t *hal_kernel_handle(const hal_kernel_t *kernel);

/* ---- reading and checking a call (args.c) --------------------------------------------------------------------- */

/* Reports a wrong call: HAL_INVALID_ARGUMENT with "<op>: <message>". */
hal_status_t hal_op_invalid(const hal_op_context_t *context, const char *format, ...) HAL_PRINTF(2, 3);

/* Checks that a tensor can be used: struct_size, 0 <= ndim <= 64, sizes >= 0, data unless empty. `what` is its name in
 * messages. */
hal_status_t hal_op_check_tensor(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what);

/* Return argument `index` as a checked tensor, an integer, a floating number, an integer list. Numbers are converted
 * between bool, int and double if the value stays the same. */
hal_status_t hal_op_tensor(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           const hal_tensor_t **out_tensor);
hal_status_t hal_op_int(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index, int64_t *out_value);
hal_status_t hal_op_double(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           double *out_value);
hal_status_t hal_op_int_list(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                             const int64_t **out_list, uint32_t *out_count);

/* Returns the state of random numbers in device memory, or NULL if the call has seed and offset. */
static inline const uint64_t *hal_op_random_state(const hal_op_call_t *call) {
  return HAL_HAS_FIELD(call, random_state) ? call->random_state : NULL;
}

/* Returns result `index` as a checked tensor. */
hal_status_t hal_op_result(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           const hal_tensor_t **out_tensor);

/* A number in the computing type of a kernel, to be passed as an argument. */
typedef struct hal_op_scalar_s {
  union {
    double c128[2];
    float c64[2];
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
  } u;
  uint32_t size; /* bytes */
} hal_op_scalar_t;

/* Converts a number to a dtype: integers wrap as in C and torch; a fraction for an integer dtype is an error. */
hal_status_t hal_op_scalar(const hal_op_context_t *context, const hal_value_t *value, hal_dtype_t dtype,
                           const char *what, hal_op_scalar_t *out_scalar);

/* Return the size of an element in bytes, 0 for an unknown dtype, and its name ("float32"). */
static inline uint32_t hal_op_dtype_size(hal_dtype_t dtype) { return hal_dtype_size(dtype); }
static inline const char *hal_op_dtype_name(hal_dtype_t dtype) { return hal_dtype_name(dtype); }
/* Returns the dtype whose kernels move elements of this size, the set `element_size_to_16` of codegen/dtypes.py: uint8,
 * int16, int32, int64, complex128. */
hal_dtype_t hal_op_dtype_moved(hal_dtype_t dtype);

/* Returns the number of elements. Errors: HAL_INVALID_ARGUMENT = it does not fit in 63 bits. */
hal_status_t hal_op_numel(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                          int64_t *out_numel);

/* Checks a contiguous tensor of `count` elements of a dtype. */
hal_status_t hal_op_check_dense(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                int64_t count, hal_dtype_t dtype);

/* Returns argument `index`, which may be missing, as such a tensor; NULL if it is missing. */
hal_status_t hal_op_optional_dense(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                   int64_t count, hal_dtype_t dtype, const hal_tensor_t **out_tensor);

/* Returns whether a tensor is contiguous in C order (dimensions of size 1 have any stride). */
int hal_op_is_contiguous(const hal_tensor_t *tensor);

#endif /* HAL_SRC_OP_INTERNAL_H_ */
