/* window.c: see window.h. */
#include "op/window.h"

#include <string.h>

hal_status_t hal_op_volume(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                           hal_op_volume_t *out_volume) {
  const int32_t named = hal_op_spatial(context), has_batch = named == 0 || tensor->ndim != named + 1;
  const int32_t spatial = named ? named : tensor->ndim - 2, at = spatial < 0 ? 0 : tensor->ndim - spatial;
  if (spatial < 1 || spatial > 3 || tensor->ndim != spatial + 1 + has_batch)
    return hal_op_invalid(context, "%s has %d dimensions; expected batch, channel and one to three spatial ones", what,
                          (int)tensor->ndim);
  hal_op_volume_t *volume = out_volume;
  volume->spatial = spatial;
  volume->batch = has_batch ? tensor->sizes[0] : 1;
  volume->channels = tensor->sizes[at - 1];
  volume->strides.batch = has_batch ? tensor->strides[0] : 0;
  volume->strides.channel = tensor->strides[at - 1];
  for (int d = 0; d < 3; d++) {
    const int32_t own = d - 3 + volume->spatial;
    volume->space[d] = own < 0 ? 1 : tensor->sizes[at + own];
    volume->strides.space[d] = own < 0 ? 0 : tensor->strides[at + own];
  }
  return HAL_OK;
}

hal_status_t hal_op_window_list(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                int32_t spatial, int64_t least, int64_t missing, int64_t out_list[3]) {
  const int64_t *list;
  uint32_t count;
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, index, &list, &count));
  if (count != 1 && count != (uint32_t)spatial)
    return hal_op_invalid(context, "`%s` has %u numbers; expected 1 or %d", context->info->arguments[index],
                          (unsigned)count, (int)spatial);
  for (int d = 0; d < 3; d++) {
    const int32_t own = d - 3 + spatial;
    out_list[d] = own < 0 ? missing : list[count == 1 ? 0 : own];
    if (out_list[d] < least || out_list[d] > INT32_MAX)
      return hal_op_invalid(context, "`%s` has the value %lld; expected %lld to %d", context->info->arguments[index],
                            (long long)out_list[d], (long long)least, (int)INT32_MAX);
  }
  return HAL_OK;
}

hal_status_t hal_op_window_steps(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t size,
                                 uint32_t step, uint32_t pad, int32_t spatial, pk_window_t *out_window) {
  const int64_t *list;
  uint32_t count;
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, step, &list, &count));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, size, spatial, 1, 1, out_window->size));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, count ? step : size, spatial, 1, 1, out_window->step));
  return hal_op_window_list(context, call, pad, spatial, 0, 0, out_window->pad);
}

int32_t hal_op_spatial(const hal_op_context_t *context) {
  for (const char *at = context->info->name; *at; at++)
    if (at[0] >= '1' && at[0] <= '3' && at[1] == 'd') return at[0] - '0';
  return 0;
}

int32_t hal_op_named(const hal_op_context_t *context, const char *name) {
  for (uint32_t i = 0; i < context->info->argument_count; i++)
    if (!strncmp(context->info->arguments[i], name, strlen(name))) return (int32_t)i;
  return -1;
}

hal_status_t hal_op_window_read(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t size,
                                uint32_t step, uint32_t pad, uint32_t dilation, int32_t spatial,
                                pk_window_t *out_window) {
  HAL_RETURN_IF_ERROR(hal_op_window_steps(context, call, size, step, pad, spatial, out_window));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, dilation, spatial, 1, 1, out_window->dilation));
  out_window->adaptive = 0;
  return HAL_OK;
}

hal_status_t hal_op_volume_matches(const hal_op_context_t *context, const hal_op_volume_t *volume, const char *what,
                                   const hal_op_volume_t *other, const char *other_what) {
  if (volume->batch == other->batch && volume->channels == other->channels && volume->spatial == other->spatial)
    return HAL_OK;
  return hal_op_invalid(context, "%s has %lld x %lld images of %d dimensions, %s has %lld x %lld of %d", what,
                        (long long)volume->batch, (long long)volume->channels, (int)volume->spatial, other_what,
                        (long long)other->batch, (long long)other->channels, (int)other->spatial);
}
