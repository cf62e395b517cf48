/* copy.c: launcher of the family `copy`: copies the source to the result, converted to the result's dtype.
 *
 * Pairs of dtypes whose copies have the same bits share a kernel (hal_op_copy.inc). Complex numbers are copied as their
 * parts: tensors of real numbers with twice the strides. float8 is converted from and to float32 and half precision,
 * and through float32 from and to others. */
#include "hal_op_variants.h"
#include "op/parts.h"
#include "ops/copy/copy_args.h"
#include "ops/elementwise/elementwise.h"

#define COMPOSED 0xff
#include "hal_op_copy.inc"

HAL_OP_LAUNCHER(queue_contig, items, COPY_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, COPY_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  (void)given;
  return queue_contig(context, kernel, line->items, line->address[0], line->address[1], line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  (void)given;
  return queue_rows(context, kernel, line->items, line->address[0], line->address[1], line->n, line->block,
                    &line->rows);
}

/* Variants are numbered by the source's dtype, then contiguous and row form. Those from and to float8 follow. */
enum { FLOAT8_COUNT = sizeof copy_float8 / sizeof *copy_float8 };
_Static_assert(HAL_COPY_VARIANT_U8_CONTIG == 0 && HAL_COPY_VARIANT_U8_ROWS == 1 &&
                   HAL_COPY_VARIANT_U64_ROWS == 2 * HAL_OP_DTYPE_SLOTS - 1 &&
                   HAL_COPY_VARIANT_E5M2_CONTIG == 2 * HAL_OP_DTYPE_SLOTS &&
                   HAL_COPY_VARIANT_TO_E5M2_CONTIG == HAL_COPY_VARIANT_E5M2_CONTIG + 2 * FLOAT8_COUNT &&
                   HAL_COPY_VARIANT_COUNT == HAL_COPY_VARIANT_TO_E5M2_CONTIG + 2 * FLOAT8_COUNT,
               "numbering of the copy kernels");

/* Returns the index in copy_float8; -1 = another dtype. */
static int float8_of(hal_dtype_t dtype) {
  for (int i = 0; i < FLOAT8_COUNT; i++)
    if (copy_float8[i] == dtype) return i;
  return -1;
}

static int is_float(hal_dtype_t dtype) { return dtype == HAL_FLOAT32 || dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16; }

static hal_status_t copy_pair(hal_op_context_t *context, const hal_op_call_t *call);

static hal_status_t copy(hal_op_context_t *context, const hal_op_call_t *like, const hal_tensor_t *from,
                         const hal_tensor_t *to) {
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = from}};
  const hal_tensor_t *const results[] = {to};
  hal_op_call_t call = *like;
  call.args = args;
  call.results = results;
  call.flags = 0;
  return copy_pair(context, &call);
}

/* Returns HAL_UNIMPLEMENTED if the device lacks the kernel for a pair of dtypes. */
static hal_status_t has_kernel(hal_op_context_t *context, hal_dtype_t to, hal_dtype_t from) {
  const uint8_t *kernel = copy_kernels[hal_op_dtype_slots[to]][hal_op_dtype_slots[from]];
  hal_plugin_kernel_t *rows;
  return hal_op_kernel(context, kernel[0], 2u * hal_op_dtype_slots[kernel[1]] + 1, &rows);
}

/* Copies if one side or both are complex and there is no kernel for the pair. */
static hal_status_t copy_parts(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *from,
                               const hal_tensor_t *to) {
  hal_op_parts_t source, target;
  if (from->ndim >= HAL_OP_MAX_DIMS) return HAL_UNIMPLEMENTED;
  if (hal_op_is_complex(to->dtype) && hal_op_is_complex(from->dtype)) {
    hal_op_parts(from, HAL_OP_BOTH_PARTS, &source);
    hal_op_parts(to, HAL_OP_BOTH_PARTS, &target);
    return copy(context, call, &source.tensor, &target.tensor);
  }
  if (hal_op_is_complex(from->dtype)) {
    hal_op_parts(from, HAL_OP_REAL_PART, &source);
    return copy(context, call, &source.tensor, to);
  }
  /* The real parts are converted in place, and then combined to complex numbers there: by a kernel that the device must
   * have before the result is written. */
  hal_op_parts(to, HAL_OP_REAL_PART, &target);
  HAL_RETURN_IF_ERROR(has_kernel(context, to->dtype, target.tensor.dtype));
  HAL_RETURN_IF_ERROR(copy(context, call, from, &target.tensor));
  const hal_status_t status = copy(context, call, &target.tensor, to);
  return status == HAL_UNIMPLEMENTED ? HAL_INTERNAL : status; /* the result is written already */
}

/* Copies bytes. */
static hal_status_t copy_run(hal_op_context_t *context, const hal_op_elementwise_t *operands) {
  size_t size;
  void *to = operands->tensors[0]->data, *from = operands->tensors[1]->data;
  if (__builtin_mul_overflow((size_t)operands->numel, (size_t)hal_op_dtype_size(operands->tensors[0]->dtype), &size))
    return hal_op_invalid(context, "the result has more than 2^64 - 1 bytes");
  if (to == from) return HAL_OK;
  return hal_op_queue_copy(context, to, from, size);
}

/* Converts through float32 in scratch memory. */
static hal_status_t copy_through_float(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *from,
                                       const hal_tensor_t *to, int64_t numel) {
  int64_t strides[HAL_OP_MAX_DIMS], stride = 1;
  hal_op_scratch_t scratch = {.block = NULL};
  hal_tensor_t middle = *to;
  size_t bytes;
  if (to->ndim > HAL_OP_MAX_DIMS) return HAL_UNIMPLEMENTED;
  if (__builtin_mul_overflow((size_t)numel, sizeof(float), &bytes)) return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, bytes, &scratch));
  for (int32_t d = to->ndim - 1; d >= 0; d--) strides[d] = stride, stride *= to->sizes[d];
  middle.dtype = HAL_FLOAT32, middle.strides = strides, middle.data = scratch.address;
  hal_status_t status = copy(context, call, from, &middle);
  if (!status) status = copy(context, call, &middle, to);
  hal_op_scratch_release(&scratch);
  return status;
}

/* Copies if one side or both are float8. */
static hal_status_t copy_float8_pair(hal_op_context_t *context, const hal_op_call_t *call,
                                     const hal_op_elementwise_t *operands) {
  hal_tensor_t to = *operands->tensors[0], from = *operands->tensors[1];
  const int decoded = float8_of(from.dtype), encoded = float8_of(to.dtype);
  if (to.dtype == from.dtype) {
    to.dtype = from.dtype = HAL_UINT8;
    return copy(context, call, &from, &to);
  }
  if (!is_float(decoded < 0 ? from.dtype : to.dtype))
    return copy_through_float(context, call, &from, &to, operands->numel);
  const uint32_t variant = decoded < 0 ? HAL_COPY_VARIANT_TO_E5M2_CONTIG + 2u * (uint32_t)encoded
                                       : HAL_COPY_VARIANT_E5M2_CONTIG + 2u * (uint32_t)decoded;
  const hal_op_forms_t forms = {variant, variant + 1, contig_line, rows_line};
  return hal_op_elementwise_launch(context, operands, decoded < 0 ? from.dtype : to.dtype, &forms, NULL);
}

static hal_status_t copy_pair(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 1, &operands));
  const hal_dtype_t to = operands.tensors[0]->dtype, from = operands.tensors[1]->dtype;
  if (operands.numel == 0) return HAL_OK;
  if (to == from && operands.dense && hal_op_dtype_size(to)) return copy_run(context, &operands);
  if (float8_of(to) >= 0 || float8_of(from) >= 0) return copy_float8_pair(context, call, &operands);
  if (!hal_op_has_slot(to) || !hal_op_has_slot(from)) return HAL_UNIMPLEMENTED;
  const uint8_t *kernel = copy_kernels[hal_op_dtype_slots[to]][hal_op_dtype_slots[from]];
  if (kernel[0] == COMPOSED) return copy_parts(context, call, operands.tensors[1], operands.tensors[0]);
  const uint32_t variant = 2u * hal_op_dtype_slots[kernel[1]];
  const hal_op_forms_t forms = {variant, variant + 1, contig_line, rows_line};
  return hal_op_elementwise_launch(context, &operands, kernel[0], &forms, NULL);
}

hal_status_t hal_op_launch_copy(hal_op_context_t *context, const hal_op_call_t *call) {
  return copy_pair(context, call);
}
