/* optimizer.c: launcher of the family `optimizer`: one step over one parameter, in one launch.
 *
 * Results are the parameter, its gradient and its state, dense and of one shape and dtype; all are read and written.
 * Arguments, by name: `step`, `lr`, `grad_scale`, `found_inf` are float32 tensors of one element or (all but `step`)
 * absent; `lr` may be a number; the rest are numbers and flags. */
#include <string.h>

#include "hal_op_variants.h"
#include "op/launch.h"
#include "ops/optimizer/optimizer_args.h"

HAL_OP_LAUNCHER(queue_adam, groups, OPTIMIZER_ADAM_ARGS)
HAL_OP_LAUNCHER(queue_sgd, groups, OPTIMIZER_SGD_ARGS)
HAL_OP_LAUNCHER(queue_adagrad, groups, OPTIMIZER_ADAGRAD_ARGS)

/* Elements of a group: many, because a group's first item computes values that all items need; few enough to occupy the
 * device. */
enum { LEAST_OF_GROUP = 4 * PK_LSIZE, MOST_OF_GROUP = 128 * PK_LSIZE };

#define MOST_STATE 5  /* results of an optimizer: the parameter, its gradient, up to three of state */
#define MOST_DEVICE 4 /* numbers in device memory */
#define MOST_NUMBERS 4

/* Arguments that are flags, and the bits of flags; the first three mean that a number is in device memory. */
static const char *const flag_names[] = {"lr",        "grad_scale",      "found_inf",     "maximize", "amsgrad",
                                         "decoupled", "momentum_buffer", "is_first_step", "nesterov"};
enum { FLAG_LR = 0, FLAG_DEVICE_COUNT = 3, FLAG_COUNT = sizeof flag_names / sizeof flag_names[0] };

typedef struct step_s {
  pk_optimizer_t how;
  int32_t numbers;
  void *device[MOST_DEVICE];
  int32_t device_count;
} step_t;

static int flag_of(const char *name) {
  for (int i = 0; i < FLAG_COUNT; i++)
    if (strcmp(flag_names[i], name) == 0) return i;
  return -1;
}

/* Reads an argument that is a number in device memory, or is absent. */
static hal_status_t read_device_number(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                       step_t *step) {
  const char *name = context->info->arguments[index];
  const int flag = flag_of(name);
  const hal_tensor_t *tensor = NULL;
  if (call->args[index].tag != HAL_VALUE_TENSOR) {
    if (flag < 0) return hal_op_invalid(context, "`%s` must be a tensor on the device", name);
    step->device[step->device_count++] = NULL;
    return flag == FLAG_LR ? hal_op_double(context, call, index, &step->how.lr) : HAL_OK;
  }
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, &tensor));
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, name, &numel));
  if (tensor->dtype != HAL_FLOAT32 || numel != 1)
    return hal_op_invalid(context, "`%s` must be one float32 number; it has dtype %s and %lld elements", name,
                          hal_op_dtype_name(tensor->dtype), (long long)numel);
  step->device[step->device_count++] = tensor->data;
  if (flag >= 0) step->how.flags |= 1 << flag;
  return HAL_OK;
}

/* Reads all arguments: those in device memory are first (`operands` of the family's op is their number). */
static hal_status_t read_arguments(const hal_op_context_t *context, const hal_op_call_t *call, step_t *step) {
  const hal_op_info_t *info = context->info;
  for (uint32_t i = 0; i < info->argument_count; i++) {
    const char *name = info->arguments[i];
    const int flag = flag_of(name);
    if (strcmp(name, "step") == 0 || (flag >= 0 && flag < FLAG_DEVICE_COUNT)) {
      HAL_RETURN_IF_ERROR(read_device_number(context, call, i, step));
    } else if (flag >= 0) {
      int64_t value;
      HAL_RETURN_IF_ERROR(hal_op_int(context, call, i, &value));
      step->how.flags |= (value != 0) << flag;
    } else {
      if (step->numbers == MOST_NUMBERS) return hal_op_invalid(context, "has more than %d numbers", MOST_NUMBERS);
      HAL_RETURN_IF_ERROR(hal_op_double(context, call, i, &step->how.number[step->numbers++]));
    }
  }
  return HAL_OK;
}

/* Checks that the parameter, its gradient and its state are dense and have the same layout; returns their dtype and
 * length. */
static hal_status_t read_state(const hal_op_context_t *context, const hal_op_call_t *call, void **out_data,
                               hal_dtype_t *out_dtype, uint64_t *out_numel) {
  const hal_tensor_t *first, *other;
  int64_t numel, numel_other;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &first));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, first, "the parameter", &numel));
  for (uint32_t i = 0; i < call->result_count; i++) {
    HAL_RETURN_IF_ERROR(hal_op_result(context, call, i, &other));
    HAL_RETURN_IF_ERROR(hal_op_numel(context, other, "a result", &numel_other));
    if (other->dtype != first->dtype || numel_other != numel || !hal_op_is_contiguous(other))
      return hal_op_invalid(
          context, "result %u is not dense like the parameter: dtype %s, %lld elements; expected %s, %lld", (unsigned)i,
          hal_op_dtype_name(other->dtype), (long long)numel_other, hal_op_dtype_name(first->dtype), (long long)numel);
    out_data[i] = other->data;
  }
  *out_dtype = first->dtype;
  *out_numel = (uint64_t)numel;
  return HAL_OK;
}

static uint64_t elements_of_group(const hal_op_context_t *context, uint64_t n) {
  if (hal_op_target(context)->form != HAL_FORM_SIMT) return MOST_OF_GROUP;
  const uint64_t share = n / hal_op_target(context)->wanted_groups / PK_LSIZE * PK_LSIZE;
  return share < LEAST_OF_GROUP ? LEAST_OF_GROUP : share < MOST_OF_GROUP ? share : MOST_OF_GROUP;
}

/* Queues the kernel of the operator's algorithm; missing numbers in device memory are not read. */
static hal_status_t launch(hal_op_context_t *context, hal_plugin_kernel_t *kernel, void *const state[], uint32_t count,
                           const step_t *step, uint64_t n) {
  const void *device[MOST_DEVICE];
  for (int32_t i = 0; i < step->device_count; i++) device[i] = step->device[i] ? step->device[i] : state[0];
  const uint64_t each = elements_of_group(context, n), groups = n / each + (n % each != 0);
  const char *const name = context->info->kernel;
  if (strcmp(name, "adam") == 0 && count == 5 && step->device_count == 4)
    return queue_adam(context, kernel, groups, state[0], state[1], state[2], state[3], state[4], device[0], device[1],
                      device[2], device[3], &step->how, n, each);
  if (strcmp(name, "adagrad") == 0 && count == 3 && step->device_count == 4)
    return queue_adagrad(context, kernel, groups, state[0], state[1], state[2], device[0], device[1], device[2],
                         device[3], &step->how, n, each);
  if (strcmp(name, "sgd") == 0 && count == 3 && step->device_count == 3)
    return queue_sgd(context, kernel, groups, state[0], state[1], state[2], device[0], device[1], device[2], &step->how,
                     n, each);
  return hal_op_invalid(context, "has %u results", (unsigned)count);
}

hal_status_t hal_op_launch_optimizer(hal_op_context_t *context, const hal_op_call_t *call) {
  step_t step;
  void *state[MOST_STATE];
  hal_plugin_kernel_t *kernel;
  hal_dtype_t dtype = HAL_FLOAT32;
  uint64_t n = 0;
  memset(&step, 0, sizeof step);
  if (call->result_count > MOST_STATE) return hal_op_invalid(context, "has %u results", (unsigned)call->result_count);
  HAL_RETURN_IF_ERROR(read_state(context, call, state, &dtype, &n));
  HAL_RETURN_IF_ERROR(read_arguments(context, call, &step));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_OPTIMIZER_VARIANT_DENSE, &kernel));
  return launch(context, kernel, state, call->result_count, &step, n);
}
