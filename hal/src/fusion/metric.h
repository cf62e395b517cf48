/* metric.h: sampled numbers: their sum, and the last of them for percentiles. Private to hal/src. */
#ifndef HAL_SRC_FUSION_METRIC_H_
#define HAL_SRC_FUSION_METRIC_H_

#include "base/lock.h"
#include "hal/lazy.h"

enum { HAL_METRIC_SAMPLES = 1024 };

typedef struct hal_metric_s {
  uint64_t count, total, least, most;
  uint64_t samples[HAL_METRIC_SAMPLES]; /* the last ones, in a ring */
} hal_metric_t;

/* The measurements of a device. */
typedef struct hal_metrics_s {
  hal_lock_t lock;
  hal_metric_t metric[HAL_LAZY_METRICS];
} hal_metrics_t;

/* Adds a sample. */
void hal_metric_add(hal_metrics_t *metrics, uint32_t metric, uint64_t sample);

/* Returns a time, and adds the nanoseconds since then. */
int64_t hal_metric_begin(void);
void hal_metric_end(hal_metrics_t *metrics, uint32_t metric, int64_t begin);

#endif /* HAL_SRC_FUSION_METRIC_H_ */
