/* resample_map.c: launcher of interpolation and average pooling, forward and backward, with ATen's arguments: a map
 * along each spatial dimension in turn (resample.c), whose tables a kernel writes to scratch memory. The name of an
 * operator selects its kind. */
#include <math.h>
#include <string.h>

#include "op/dims.h"
#include "op/window.h"

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/resample/resample.h"

HAL_OP_LAUNCHER(queue_tables, items, RESAMPLE_MAP_TABLES_ARGS)

/* The maps along the last dimensions. `ratio`: the number of input positions per element of the result, as the kernel
 * computes it. */
typedef struct plan_s {
  int32_t spatial;
  pk_resample_t map[3];
  hal_op_scalar_t ratio[3];
} plan_t;

static int64_t kind_of(const char *name) {
  static const struct {
    const char *part;
    int64_t kind;
  } kinds[] = {
      {"nearest_exact", RESAMPLE_NEAREST_EXACT}, {"nearest", RESAMPLE_NEAREST}, {"linear2d_aa", RESAMPLE_LINEAR_WIDE},
      {"cubic2d_aa", RESAMPLE_CUBIC_WIDE},       {"linear", RESAMPLE_LINEAR},   {"cubic", RESAMPLE_CUBIC},
      {"adaptive_avg_pool", RESAMPLE_ADAPTIVE},  {"avg_pool", RESAMPLE_WINDOWS}};
  size_t i = 0;
  while (!strstr(name, kinds[i].part)) i++;
  return kinds[i].kind;
}

/* Reads a number that may be absent; then it is 0. */
static hal_status_t optional_double(const hal_op_context_t *context, const hal_op_call_t *call, int32_t index,
                                    double *out) {
  *out = 0;
  if (index < 0 || call->args[index].tag == HAL_VALUE_NONE) return HAL_OK;
  return hal_op_double(context, call, (uint32_t)index, out);
}

/* Computed as in ATen: in the kernel's type, and for nearest neighbors in float. */
static void set_ratio(const pk_resample_t *map, double scale, hal_dtype_t dtype, hal_op_scalar_t *out) {
  const int nearest = map->kind <= RESAMPLE_NEAREST_EXACT;
  double ratio = scale > 0 ? 1.0 / scale : (double)map->in / (double)map->out;
  if (dtype != HAL_FLOAT64 || nearest) ratio = scale > 0 ? (float)ratio : (float)map->in / (float)map->out;
  if (map->align_corners && map->out <= 1) ratio = 0;
  if (map->align_corners && map->out > 1)
    ratio = dtype == HAL_FLOAT64 ? (double)(map->in - 1) / (double)(map->out - 1)
                                 : (float)(map->in - 1) / (float)(map->out - 1);
  out->size = hal_op_dtype_size(dtype);
  if (dtype == HAL_FLOAT64) out->u.f64 = ratio;
  if (dtype != HAL_FLOAT64) out->u.f32 = (float)ratio;
}

static hal_status_t read_interpolation(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                       plan_t *plan) {
  const int32_t align = hal_op_named(context, "align_corners"), scales = hal_op_named(context, "scales");
  int64_t aligned = 0;
  if (align >= 0) HAL_RETURN_IF_ERROR(hal_op_int(context, call, (uint32_t)align, &aligned));
  for (int32_t d = 0; d < plan->spatial; d++) {
    double scale;
    pk_resample_t *map = &plan->map[d];
    map->align_corners = aligned;
    HAL_RETURN_IF_ERROR(optional_double(context, call, scales + d, &scale));
    set_ratio(map, scale, dtype, &plan->ratio[d]);
    const double ratio = dtype == HAL_FLOAT64 ? plan->ratio[d].u.f64 : (double)plan->ratio[d].u.f32;
    const double support = ceil((map->kind == RESAMPLE_CUBIC_WIDE ? 2 : 1) * fmax(ratio, 1));
    if (map->kind <= RESAMPLE_NEAREST_EXACT)
      map->taps = 1;
    else if (map->kind <= RESAMPLE_CUBIC)
      map->taps = map->kind == RESAMPLE_LINEAR ? 2 : 4;
    else
      map->taps = support < (double)map->in ? 2 * (int64_t)support + 2 : map->in;
  }
  return HAL_OK;
}

static hal_status_t read_windows(const hal_op_context_t *context, const hal_op_call_t *call, plan_t *plan) {
  const uint32_t size = (uint32_t)hal_op_named(context, "kernel_size");
  double divisor;
  int64_t counts;
  pk_window_t w;
  HAL_RETURN_IF_ERROR(hal_op_window_steps(context, call, size, size + 1, size + 2, plan->spatial, &w));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, (uint32_t)hal_op_named(context, "count_include_pad"), &counts));
  HAL_RETURN_IF_ERROR(optional_double(context, call, hal_op_named(context, "divisor_override"), &divisor));
  for (int32_t d = 0; d < plan->spatial; d++) {
    pk_resample_t *map = &plan->map[d];
    const int32_t at = 3 - plan->spatial + d;
    map->size = map->taps = w.size[at], map->step = w.step[at], map->pad = w.pad[at];
    map->count_padding = counts;
    if (divisor != 0)
      map->divisor = d == 0 ? (int64_t)divisor : 1; /* of the complete window: the first dimension divides, others
                                                     * sum */
  }
  return HAL_OK;
}

static hal_status_t read_plan(const hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *self,
                              const hal_tensor_t *result, plan_t *plan) {
  memset(plan, 0, sizeof *plan);
  const char *const name = context->info->name;
  const int backward = strstr(name, "_backward") != NULL;
  plan->spatial = hal_op_spatial(context);
  if (self->ndim != result->ndim || self->ndim < plan->spatial)
    return hal_op_invalid(context, "the operand has %d dimensions and the result %d; expected images of %d",
                          (int)self->ndim, (int)result->ndim, (int)plan->spatial);
  for (int32_t d = 0; d < plan->spatial; d++) {
    const int32_t at = self->ndim - plan->spatial + d;
    pk_resample_t *map = &plan->map[d];
    map->kind = kind_of(name), map->backward = backward;
    map->in = (backward ? result : self)->sizes[at], map->out = (backward ? self : result)->sizes[at];
    if (map->in > INT32_MAX || map->out > INT32_MAX) /* products of two of them must not overflow */
      return hal_op_invalid(context, "%lld elements from %lld positions: a dimension exceeds 2^31 - 1",
                            (long long)map->out, (long long)map->in);
    if (map->out > 0) map->taps = map->in / map->out + 2; /* of adaptive windows */
    plan->ratio[d].size = hal_op_dtype_size(self->dtype);
  }
  if (plan->map[0].kind == RESAMPLE_WINDOWS) HAL_RETURN_IF_ERROR(read_windows(context, call, plan));
  if (plan->map[0].kind < RESAMPLE_WINDOWS) HAL_RETURN_IF_ERROR(read_interpolation(context, call, self->dtype, plan));
  for (int32_t d = 0; d < plan->spatial; d++)
    if (plan->map[d].taps > plan->map[d].in) plan->map[d].taps = plan->map[d].in > 1 ? plan->map[d].in : 1;
  return HAL_OK;
}

static int changes_nothing(const pk_resample_t *map) {
  if (map->in != map->out) return 0;
  if (map->kind == RESAMPLE_WINDOWS)
    return map->size == 1 && map->step == 1 && map->pad == 0 && (map->divisor == 0 || map->divisor == 1);
  return map->kind == RESAMPLE_NEAREST || map->kind == RESAMPLE_LINEAR || map->kind == RESAMPLE_ADAPTIVE;
}

/* Orders the dimensions to map: those that make the tensor smallest first; at least one. */
static int32_t order_of(const plan_t *plan, int32_t order[3]) {
  int32_t count = 0;
  for (int32_t d = 0; d < plan->spatial; d++) {
    if (changes_nothing(&plan->map[d]) && (count > 0 || d + 1 < plan->spatial)) continue;
    const pk_resample_t *mine = &plan->map[d];
    const double growth = (double)mine->out / (double)mine->in;
    int32_t place = count++;
    for (; place > 0; place--) {
      const pk_resample_t *other = &plan->map[order[place - 1]];
      const double its = (double)other->out / (double)other->in;
      if (mine->backward ? its >= growth : its <= growth) break;
      order[place] = order[place - 1];
    }
    order[place] = d;
  }
  return count;
}

/* Creates the tables of a map in scratch memory; the caller always releases it. */
static hal_status_t make_tables(hal_op_context_t *context, const plan_t *plan, int32_t d, hal_dtype_t dtype,
                                hal_op_scratch_t *scratch, hal_op_map_t *out_map) {
  const pk_resample_t *map = &plan->map[d];
  const size_t rows = (size_t)(map->backward ? map->in : map->out), terms = (size_t)(map->out * map->taps);
  hal_plugin_kernel_t *kernel;
  if (map->out > 0 && map->taps > (INT64_MAX >> 5) / map->out)
    return hal_op_invalid(context, "%lld elements of %lld positions each: their table does not fit into memory",
                          (long long)map->out, (long long)map->taps);
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_RESAMPLE_MAP_VARIANT_TABLES, &kernel));
  HAL_RETURN_IF_ERROR(
      hal_op_scratch(context, (2 * rows + terms) * sizeof(int64_t) + terms * hal_op_dtype_size(dtype), scratch));
  int64_t *starts = scratch->address, *ends = starts + rows, *indices = ends + rows;
  void *s = starts, *e = ends, *i = indices, *w = indices + terms;
  *out_map = (hal_op_map_t){s, e, i, w, map->backward ? map->taps : 1};
  const uint64_t n = (uint64_t)(map->backward && map->in > map->out ? map->in : map->out);
  return queue_tables(context, kernel, n, s, e, i, w, n, map, hal_op_number(&plan->ratio[d]));
}

/* Describes a dense tensor of other sizes, with the order of dimensions of `like`. */
static void lay_out(const hal_tensor_t *like, const int64_t *sizes, int64_t *strides) {
  int64_t stride = 1;
  uint64_t done = 0;
  for (int32_t n = 0; n < like->ndim; n++) {
    int32_t least = -1;
    for (int32_t d = like->ndim - 1; d >= 0; d--)
      if (!(done >> d & 1) && (least < 0 || like->strides[d] < like->strides[least])) least = d;
    done |= UINT64_C(1) << least;
    strides[least] = stride;
    stride *= sizes[least];
  }
}

/* Maps one dimension after the other, through scratch memory. */
static hal_status_t map_all(hal_op_context_t *context, const plan_t *plan, const hal_tensor_t *self,
                            const hal_tensor_t *result) {
  int32_t order[3];
  const int32_t count = order_of(plan, order);
  int64_t sizes[2][HAL_OP_MAX_DIMS], strides[2][HAL_OP_MAX_DIMS];
  hal_tensor_t step[2];
  hal_op_scratch_t memory[2] = {{0}};
  hal_op_context_t part;
  hal_status_t status = HAL_OK;
  hal_op_context_of(context, HAL_OP_ID_RESAMPLE, &part);
  const hal_tensor_t *current = self;
  for (int32_t n = 0; !status && n < count; n++) {
    const int32_t dim = self->ndim - plan->spatial + order[n], turn = n % 2;
    const hal_tensor_t *next = result;
    if (n + 1 < count) {
      step[turn] = *result;
      step[turn].sizes = sizes[turn], step[turn].strides = strides[turn];
      memcpy(sizes[turn], current->sizes, (size_t)self->ndim * sizeof(int64_t));
      sizes[turn][dim] = result->sizes[dim];
      lay_out(current, sizes[turn], strides[turn]);
      int64_t numel;
      next = &step[turn];
      hal_op_scratch_release(&memory[turn]);
      memory[turn] = (hal_op_scratch_t){0};
      status = hal_op_numel(context, next, "a step", &numel);
      if (!status) status = hal_op_scratch(context, (size_t)numel * hal_op_dtype_size(result->dtype), &memory[turn]);
      step[turn].data = memory[turn].address;
    }
    hal_op_scratch_t tables = {0};
    hal_op_map_t map;
    if (!status) status = make_tables(context, plan, order[n], self->dtype, &tables, &map);
    if (!status) status = hal_op_resample_along(&part, current, next, dim, &map);
    hal_op_scratch_release(&tables);
    current = next;
  }
  for (int i = 0; i < 2; i++) hal_op_scratch_release(&memory[i]);
  return status;
}

hal_status_t hal_op_launch_resample_map(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result;
  plan_t plan;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "the operand", result, "the result"));
  HAL_RETURN_IF_ERROR(read_plan(context, call, self, result, &plan));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  return numel == 0 ? HAL_OK : map_all(context, &plan, self, result);
}
