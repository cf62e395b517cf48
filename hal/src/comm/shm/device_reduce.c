/* device_reduce.c: reductions by the device's operators. As on the host, elements are combined in the order of the
 * ranks, 16-bit types in float32, and results are rounded once. */
#include "comm/shm/device.h"
#include "hal/op.h"

#define BIT(dtype) (UINT64_C(1) << (dtype))

static const uint64_t halves = BIT(HAL_FLOAT16) | BIT(HAL_BFLOAT16);
static const uint64_t floats = BIT(HAL_FLOAT16) | BIT(HAL_BFLOAT16) | BIT(HAL_FLOAT32) | BIT(HAL_FLOAT64);

/* ---- operators ---- */

static const char *name_of(hal_dtype_t dtype, uint32_t reduce) {
  static const char *const names[HAL_SHM_REDUCTIONS] = {
      [HAL_REDUCE_SUM] = "add.Tensor",        [HAL_REDUCE_PROD] = "mul.Tensor",
      [HAL_REDUCE_MIN] = "minimum",           [HAL_REDUCE_MAX] = "maximum",
      [HAL_REDUCE_AVG] = "add.Tensor",        [HAL_REDUCE_BAND] = "bitwise_and.Tensor",
      [HAL_REDUCE_BOR] = "bitwise_or.Tensor", [HAL_REDUCE_BXOR] = "bitwise_xor.Tensor",
      [HAL_REDUCE_PREMUL_SUM] = "add.Tensor"};
  if (dtype != HAL_BOOL || reduce == HAL_REDUCE_BXOR) return names[reduce];
  const int is_all = reduce == HAL_REDUCE_PROD || reduce == HAL_REDUCE_MIN || reduce == HAL_REDUCE_BAND;
  return names[is_all ? HAL_REDUCE_BAND : HAL_REDUCE_BOR];
}

/* Returns the type in which elements are combined. */
static hal_dtype_t accumulator(hal_dtype_t dtype) { return halves & BIT(dtype) ? HAL_FLOAT32 : dtype; }

static int computes(int32_t device, const char *name, hal_dtype_t dtype) {
  uint32_t op;
  return !hal_op_id(name, &op) && hal_op_enabled(op) && (hal_op_dtypes(device, op) & BIT(dtype));
}

/* Complex numbers are summed as pairs of numbers. */
static hal_dtype_t part_of(hal_dtype_t dtype, uint32_t reduce) {
  if (reduce == HAL_REDUCE_PROD) return dtype;
  return dtype == HAL_COMPLEX32 ? HAL_FLOAT16 : dtype == HAL_COMPLEX64 ? HAL_FLOAT32 : HAL_FLOAT64;
}

static int is_complex(hal_dtype_t dtype) {
  return dtype == HAL_COMPLEX32 || dtype == HAL_COMPLEX64 || dtype == HAL_COMPLEX128;
}

static int reduces(int32_t device, hal_dtype_t dtype, uint32_t reduce) {
  if (is_complex(dtype)) dtype = part_of(dtype, reduce);
  const hal_dtype_t wide = accumulator(dtype);
  if (!computes(device, name_of(dtype, reduce), wide)) return 0;
  if (wide != dtype && (!computes(device, "copy", dtype) || !computes(device, "copy", wide))) return 0;
  if (dtype == HAL_BOOL && !computes(device, "ne.Tensor", dtype)) return 0;
  if (reduce == HAL_REDUCE_AVG) return computes(device, "div.Tensor", wide);
  return reduce != HAL_REDUCE_PREMUL_SUM || ((floats & BIT(dtype)) && computes(device, "mul.Tensor", wide));
}

uint64_t hal_shm_device_dtypes(int32_t device, uint32_t reduce) {
  hal_shm_reducer_t reducer;
  uint64_t all = 0;
  for (hal_dtype_t dtype = 0; dtype <= HAL_UINT64; dtype++)
    if (hal_shm_reducer_find(dtype, reduce, &reducer) && reduces(device, dtype, reduce)) all |= BIT(dtype);
  return all;
}

/* ---- one reduction ---- */

/* A vector of device memory. */
typedef struct vector_s {
  void *data;
  hal_dtype_t dtype;
} vector_t;

typedef struct reduction_s {
  hal_shm_t *shm;
  hal_dtype_t dtype, wide;
  int64_t count;
  vector_t acc, next; /* scratch memory of the region */
} reduction_t;

static hal_tensor_t tensor_of(const reduction_t *reduction, vector_t vector) {
  static const int64_t one = 1;
  return (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                        .data = vector.data,
                        .sizes = &reduction->count,
                        .strides = &one,
                        .ndim = 1,
                        .dtype = vector.dtype};
}

/* Queues out = op(a, b), or op(a, number) if `b` has no data; "copy" has one operand. */
static hal_status_t run(const reduction_t *reduction, const char *name, vector_t a, vector_t b, double number,
                        vector_t out) {
  const hal_shm_device_t *const device = reduction->shm->device;
  const hal_tensor_t first = tensor_of(reduction, a), second = tensor_of(reduction, b),
                     result = tensor_of(reduction, out);
  const hal_tensor_t *const results[] = {&result};
  const hal_value_t args[] = {
      {.tag = HAL_VALUE_TENSOR, .u.t = &first},
      b.data ? (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &second}
             : (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = number},
      {.tag = HAL_VALUE_DOUBLE, .u.d = 1} /* alpha of add.Tensor */
  };
  const uint32_t count = !strcmp(name, "copy") ? 1 : !strcmp(name, "add.Tensor") ? 3 : 2;
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = results};
  uint32_t op;
  hal_status_t status = hal_op_id(name, &op);
  if (!status) status = hal_op_run(device->device, op, device->stream, &call);
  return status ? hal_shm_fail_by_last(reduction->shm, status) : HAL_OK;
}

static const vector_t none;

/* Makes `*inout` an accumulator, in `scratch` unless it is one already. */
static hal_status_t load(const reduction_t *reduction, const void *scale, vector_t scratch, vector_t *inout) {
  const int converts = reduction->wide != reduction->dtype || reduction->dtype == HAL_BOOL;
  if (converts) {
    const int is_bool = reduction->dtype == HAL_BOOL; /* true for every byte except 0 */
    HAL_RETURN_IF_ERROR(run(reduction, is_bool ? "ne.Tensor" : "copy", *inout, none, 0, scratch));
    *inout = scratch;
  }
  if (!scale) return HAL_OK;
  float single;
  double factor;
  if (reduction->wide == HAL_FLOAT64) {
    memcpy(&factor, scale, sizeof factor);
  } else {
    memcpy(&single, scale, sizeof single);
    factor = single;
  }
  HAL_RETURN_IF_ERROR(run(reduction, "mul.Tensor", *inout, none, factor, scratch));
  *inout = scratch;
  return HAL_OK;
}

/* The last operation writes the result, which may be one of the inputs. */
static hal_status_t reduce_all(const reduction_t *reduction, uint32_t reduce, const void *const *in,
                               const void *const *scales, vector_t out) {
  const int32_t ranks = reduction->shm->size;
  const int scaled = reduce == HAL_REDUCE_PREMUL_SUM, divides = reduce == HAL_REDUCE_AVG;
  const int ends = !divides && reduction->wide == reduction->dtype;
  vector_t acc = {(void *)(uintptr_t)in[0], reduction->dtype};
  HAL_RETURN_IF_ERROR(load(reduction, scaled ? scales[0] : NULL, reduction->acc, &acc));
  for (int32_t rank = 1; rank < ranks; rank++) {
    vector_t next = {(void *)(uintptr_t)in[rank], reduction->dtype};
    HAL_RETURN_IF_ERROR(load(reduction, scaled ? scales[rank] : NULL, reduction->next, &next));
    const vector_t to = ends && rank == ranks - 1 ? out : reduction->acc;
    HAL_RETURN_IF_ERROR(run(reduction, name_of(reduction->dtype, reduce), acc, next, 0, to));
    acc = to;
  }
  if (divides) {
    const vector_t to = reduction->wide == reduction->dtype ? out : reduction->acc;
    HAL_RETURN_IF_ERROR(run(reduction, "div.Tensor", acc, none, ranks, to));
  }
  if (reduction->wide != reduction->dtype) return run(reduction, "copy", reduction->acc, none, 0, out);
  return HAL_OK;
}

hal_status_t hal_shm_device_reduce(hal_shm_t *shm, const hal_shm_call_t *call, const void *const *in,
                                   const void *const *scales, size_t count, void *out, void *copy) {
  const int is_pair = is_complex(call->dtype) && call->reduce != HAL_REDUCE_PROD;
  const hal_dtype_t dtype = is_complex(call->dtype) ? part_of(call->dtype, call->reduce) : call->dtype;
  unsigned char *const scratch = shm->regions[shm->rank] + hal_shm_region_scratch_offset(shm->size);
  const hal_dtype_t wide = accumulator(dtype);
  const reduction_t reduction = {.shm = shm,
                                 .dtype = dtype,
                                 .wide = wide,
                                 .count = (int64_t)(is_pair ? 2 * count : count),
                                 .acc = {scratch, wide},
                                 .next = {scratch + (size_t)2 * HAL_SHM_SLOT, wide}};
  HAL_RETURN_IF_ERROR(reduce_all(&reduction, call->reduce, in, scales, (vector_t){out, dtype}));
  return copy ? hal_shm_device_copy(shm, copy, out, count * call->size) : HAL_OK;
}
