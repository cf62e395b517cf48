/* op.h: operators. A call runs the plugin's own op, else the portable kernel, else it returns HAL_UNIMPLEMENTED.
 *
 * Operators are numbered by codegen/operators; the numbers are valid for one build (hal_op_id finds one by name).
 * Libraries may define further operators (hal_op_define), which have the next numbers and are run by the same
 * functions. */
#ifndef HAL_OP_H_
#define HAL_OP_H_

#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of operators of this build. Since 0.1. */
HAL_API uint32_t hal_op_count(void);

/* Returns the operator's name, "name.overload"; NULL past the last one. Since 0.1. */
HAL_API const char *hal_op_name(uint32_t op);

/* Finds an operator by name. Errors: HAL_NOT_FOUND. Since 0.1. */
HAL_API hal_status_t hal_op_id(const char *name, uint32_t *out_op);

/* Returns a mask of dtypes (bit d = dtype number d) for which the operator may run natively on the device if its
 * computing dtype is d: in the plugin's op, by its descriptor, or in a portable kernel. 0 if neither exists or the
 * device cannot be used. Cached: the call is an array look-up. Since 0.1. */
HAL_API uint64_t hal_op_dtypes(int32_t device, uint32_t op);

/* Returns the mask of dtypes with which the plugin's own op may be called (hal_op_run_own); 0 if the plugin has none,
 * or the device cannot be used. Cached: the call is an array look-up. Since 0.2. */
HAL_API uint64_t hal_op_own_dtypes(int32_t device, uint32_t op);

/* Returns the mask of dtypes for which the operator has a portable kernel that the device accepts, regardless of the
 * plugin's own op. Cached: the call is an array look-up. Since 0.2. */
HAL_API uint64_t hal_op_portable_dtypes(int32_t device, uint32_t op);

/* Returns 1 if the device's portable kernel of an operator on images accesses channels-last images directly. Returns 0
 * if it needs contiguous ones, or if the device cannot be used. Cached: the call is an array look-up. Since 0.2. */
HAL_API int32_t hal_op_takes_channels_last(int32_t device, uint32_t op);

/* Disables an operator (`enabled` 0), so that it returns HAL_UNIMPLEMENTED on every device, or enables it (1). Use it
 * to find out whether a kernel computes a wrong result, and to test fallbacks. HAL_DISABLE_OPS in the environment
 * does the same for the whole process: a comma-separated list of names ("sort.stable"), of their first parts
 * ("sort"), or "*". Not while another thread runs operators. Errors: HAL_OUT_OF_RANGE, also for operators of
 * libraries. Since 0.1. */
HAL_API hal_status_t hal_op_set_enabled(uint32_t op, int32_t enabled);

/* Returns whether an operator is enabled, that is, not disabled by hal_op_set_enabled or HAL_DISABLE_OPS: 1 (also for
 * operators of libraries and unknown ones) or 0. For callers that implement an operator by calls of others. The call is
 * one load. Since 0.2. */
HAL_API int32_t hal_op_enabled(uint32_t op);

/* Queues an operator on a stream (NULL: current). The HAL sets `call->stream` and `call->device`, and sets `device` in
 * the tensors that the implementation gets. Values and descriptors are only read, and may be constants. Arguments
 * follow the operator's frozen list. Shapes, dtypes and broadcast strides must be correct already. Errors:
 * HAL_UNIMPLEMENTED = no result was written, use a fallback; HAL_INVALID_ARGUMENT; the plugin's own. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_op_run(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call);

/* hal_op_call_t.flags, for the host only: the plugin's own op has already declined these operands and is not
 * queried. */
#define HAL_RUN_PORTABLE (UINT32_C(1) << 31)

/* hal_op_call_t.flags, set by hal_op_run_own when it returns HAL_UNIMPLEMENTED: the plugin's own op declines every call
 * with the same shapes, strides, dtypes, numbers and alignment of addresses up to 256 bytes. */
#define HAL_RUN_DECLINED_ALIKE (UINT32_C(1) << 30)

/* Calls only the plugin's own op, with the user's original operands; otherwise as hal_op_run. If the op declines, the
 * caller prepares other operands (casts, copies) and runs them with HAL_RUN_PORTABLE; it may remember a decline with
 * HAL_RUN_DECLINED_ALIKE. Errors: HAL_UNIMPLEMENTED = the plugin has no such op or it declined, no result was written;
 * those of hal_op_run. Since 0.2. */
HAL_API hal_status_t hal_op_run_own(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call);

/* The implementation that runs a call. */
enum {
  HAL_VERDICT_NONE = 0,     /* none: hal_op_run would return HAL_UNIMPLEMENTED */
  HAL_VERDICT_PORTABLE = 1, /* portable kernels */
  HAL_VERDICT_OWN = 2,      /* the plugin's own op */
  HAL_VERDICT_UNSURE =
      3 /* the first implementation may decline when it is called: an own op without a query, the function of a
         * library */
};

/* Returns the implementation that would run a call, without queueing anything; the call is as for hal_op_run, on the
 * current stream. The result depends on shapes, strides, dtypes, numbers, flags, and the alignment of addresses up to
 * 256 bytes. HAL_VERDICT_OWN and HAL_VERDICT_PORTABLE are binding. Errors: those of hal_op_run. Since 0.2. */
HAL_API hal_status_t hal_op_query(int32_t device, uint32_t op, hal_op_call_t *call, int32_t *out_verdict);

/* The function of a library's operator, for devices whose plugin does not implement it. Queues its work on `stream`,
 * with its own kernels (kernel.h), memory copies and similar; `call` is borrowed, its tensors have the HAL's device,
 * its `stream` is NULL. HAL_UNIMPLEMENTED = no result was written. */
typedef hal_status_t (*hal_op_own_fn_t)(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call);

typedef struct hal_op_desc_s { /* the description of an operator */
  size_t struct_size;
  const char *name; /* "library::operator"; copied. The HAL queries plugins for their own op by this name (op_find) */
  uint32_t argument_count;
  uint32_t reserved;
  hal_op_own_fn_t fn; /* NULL: plugins only */
  void *state;        /* for fn; valid until the process ends */
} hal_op_desc_t;

/* Defines an operator until the process ends, and returns its number. Thread-safe. Errors: HAL_INVALID_ARGUMENT;
 * HAL_FAILED_PRECONDITION = the name is defined already; HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_op_define(const hal_op_desc_t *desc, uint32_t *out_op);

/* How many times an operator ran since the start of the process or hal_op_reset_counts. `portable`: by a portable
 * kernel, or by the function of the library that defined it. */
typedef struct hal_op_counts_s {
  size_t struct_size;
  uint64_t plugin, portable, unimplemented;
} hal_op_counts_t;

/* Returns the counts of an operator over all devices. The caller sets `out_counts->struct_size`. Errors:
 * HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_op_counts(uint32_t op, hal_op_counts_t *out_counts);

/* Sets all counts to zero. Since 0.1. */
HAL_API void hal_op_reset_counts(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_OP_H_ */
