/* metric.c: see metric.h. */
#define _POSIX_C_SOURCE 200809L
#include "fusion/metric.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status_internal.h"
#include "device/device.h"
#include "fusion/fuse.h"
#include "op/table.h"

void hal_metric_add(hal_metrics_t *metrics, uint32_t metric, uint64_t sample) {
  hal_metric_t *const own = &metrics->metric[metric];
  hal_lock(&metrics->lock);
  own->samples[own->count % HAL_METRIC_SAMPLES] = sample;
  own->least = own->count && own->least < sample ? own->least : sample;
  own->most = own->most > sample ? own->most : sample;
  own->total += sample;
  own->count++;
  hal_unlock(&metrics->lock);
}

int64_t hal_metric_begin(void) { return hal_clock_ns(); }

void hal_metric_end(hal_metrics_t *metrics, uint32_t metric, int64_t begin) {
  hal_metric_add(metrics, metric, (uint64_t)(hal_clock_ns() - begin));
}

static int compare(const void *one, const void *other) {
  const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

static void fill(hal_metrics_t *metrics, uint32_t metric, hal_lazy_metric_t *out) {
  static const uint32_t percents[HAL_LAZY_PERCENTILES] = {1, 5, 10, 20, 50, 80, 90, 95, 99};
  uint64_t sorted[HAL_METRIC_SAMPLES];
  const hal_metric_t *const own = &metrics->metric[metric];
  hal_lock(&metrics->lock);
  const uint32_t samples = own->count < HAL_METRIC_SAMPLES ? (uint32_t)own->count : HAL_METRIC_SAMPLES;
  *out = (hal_lazy_metric_t){.count = own->count, .total = own->total, .least = own->least, .most = own->most};
  memcpy(sorted, own->samples, samples * sizeof *sorted);
  hal_unlock(&metrics->lock);
  qsort(sorted, samples, sizeof *sorted, compare);
  for (uint32_t i = 0; samples && i < HAL_LAZY_PERCENTILES; i++)
    out->percentile[i] = sorted[percents[i] * (samples - 1) / 100];
}

hal_status_t hal_lazy_op_count(uint32_t op, uint64_t *out_count) {
  const atomic_uint_fast64_t *const counter = hal_op_counter_slot(op, HAL_COMPONENT_CAPTURE);
  if (!counter) return hal_op_unknown(op);
  *out_count = atomic_load_explicit(counter, memory_order_relaxed);
  return HAL_OK;
}

/* Finds the measurements of a device; NULL = nothing was deferred there. */
static hal_status_t find(int32_t device, hal_metrics_t **out_metrics) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_fuse_t *const fuse = hal_device_slot_peek(found, HAL_COMPONENT_FUSION);
  *out_metrics = fuse ? &fuse->metrics : NULL;
  return HAL_OK;
}

hal_status_t hal_lazy_metric(int32_t device, uint32_t metric, hal_lazy_metric_t *out_metric) {
  hal_metrics_t *metrics;
  hal_lazy_metric_t copy = {.struct_size = 0};
  HAL_RETURN_IF_ERROR(find(device, &metrics));
  if (metric >= HAL_LAZY_METRICS)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_lazy_metric: expected a measurement from 0 to %d, not %u",
                         HAL_LAZY_METRICS - 1, (unsigned)metric);
  if (metrics) fill(metrics, metric, &copy);
  copy.struct_size = out_metric->struct_size < sizeof copy ? out_metric->struct_size : sizeof copy;
  memcpy(out_metric, &copy, copy.struct_size);
  return HAL_OK;
}

hal_status_t hal_lazy_reset_metrics(int32_t device) {
  hal_metrics_t *metrics;
  HAL_RETURN_IF_ERROR(find(device, &metrics));
  if (!metrics) return HAL_OK;
  hal_lock(&metrics->lock);
  memset(metrics->metric, 0, sizeof metrics->metric);
  hal_unlock(&metrics->lock);
  return HAL_OK;
}
