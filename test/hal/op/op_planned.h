/* op_planned.h: runs a call in plan mode before it is executed. The verdicts must agree, and planning must not reach
   the device. */
#ifndef TEST_HAL_OP_PLANNED_H_
#define TEST_HAL_OP_PLANNED_H_

#include <criterion/criterion.h>
#include <hal/hal.h>
#include <stdlib.h>

#include "device/device.h"
#include "op/launch.h"

/* Slots of the plugin that must not be called in plan mode. */
static int planned_reached;
static inline hal_status_t planned_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                          const hal_launch_t *launch) {
  (void)kernel, (void)stream, (void)launch;
  planned_reached++;
  return HAL_INTERNAL;
}
static inline hal_status_t planned_copy(hal_plugin_stream_t *stream, void *to, int32_t to_device, const void *from,
                                        int32_t from_device, size_t size) {
  (void)stream, (void)to, (void)to_device, (void)from, (void)from_device, (void)size;
  planned_reached++;
  return HAL_INTERNAL;
}
static inline hal_status_t planned_random(hal_plugin_stream_t *stream, const hal_random_t *desc) {
  (void)stream, (void)desc;
  planned_reached++;
  return HAL_INTERNAL;
}

static inline int64_t planned_memory(int32_t device) {
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  cr_assert_eq(hal_memory_stats(device, &stats), HAL_OK);
  return stats.allocation[0].allocated;
}

/* hal_op_run, planned before. Errors in values are not part of the verdict: a synchronous stream reports them at the
 * launch. */
static inline hal_status_t run_planned(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call) {
  hal_plugin_t *const plugin = hal_devices[device].plugin;
  const hal_plugin_api_t api = plugin->api;
  const int64_t blocks = planned_memory(device);
  planned_reached = 0;
  plugin->api.kernel_launch = planned_launch;
  plugin->api.memory_copy = planned_copy;
  plugin->api.random_fill = planned_random;
  const hal_status_t planned = hal_op_plan(device, op, stream, call);
  int32_t verdict = -1;
  const hal_status_t queried = hal_op_query(device, op, call, &verdict);
  plugin->api = api;
  cr_assert_eq(queried, planned == HAL_UNIMPLEMENTED ? HAL_OK : planned);
  const int own = verdict == HAL_VERDICT_OWN && getenv("HAL_TEST_OWN"); /* the plugin has its own operators */
  if (!queried && !own) cr_assert_eq(verdict, planned ? HAL_VERDICT_NONE : HAL_VERDICT_PORTABLE);
  cr_assert_eq(planned_reached, 0, "%s: plan mode reached the device %d times", hal_op_name(op), planned_reached);
  cr_assert_eq(planned_memory(device), blocks, "%s: plan mode allocated memory", hal_op_name(op));
  const hal_status_t status = hal_op_run(device, op, stream, call);
  cr_assert_eq(planned, status, "%s was planned as %s and executed as %s", hal_op_name(op), hal_status_name(planned),
               hal_status_name(status));
  return status;
}

#endif /* TEST_HAL_OP_PLANNED_H_ */
