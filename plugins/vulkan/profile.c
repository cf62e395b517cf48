/* profile.c: records of executed work, by time stamps before and after it, and the device's clock. A measurement waits
 * in the list of its device until its work is done. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "vulkan_plugin.h"

enum { COLLECT_AT = 1024, READINGS = 5 };

struct vulkan_measure_s {
  vulkan_measure_t *next;
  vulkan_slot_t *slots[2];
  vulkan_timeline_t *timeline;
  uint64_t value; /* of the timeline when both stamps are written */
  uint32_t noted;
  hal_profile_record_t record;
};

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t device_time(const vulkan_device_t *device, uint64_t ticks) {
  const uint32_t bits = device->timestamp_bits;
  const uint64_t valid = bits < 64 ? ticks & ((UINT64_C(1) << bits) - 1) : ticks;
  const double period = (double)device->facts.limits.timestampPeriod;
  return period == 1 ? (int64_t)valid : (int64_t)((double)valid * period);
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

static void destroy(vulkan_device_t *device, vulkan_measure_t *measure) {
  for (int i = 0; i < 2; i++) vulkan_slot_give(device, measure->slots[i]);
  if (measure->timeline) vulkan_timeline_drop(measure->timeline);
  hal_host->mem_free(measure);
}

static hal_status_t stamp(vulkan_lane_t *lane, const vulkan_slot_t *slot) {
  VkCommandBuffer commands;
  const hal_status_t status = vulkan_lane_begin(lane, &commands);
  if (status) return status;
  vk.CmdResetQueryPool(commands, slot->pool, slot->index, 1);
  vk.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, slot->pool, slot->index);
  return HAL_OK;
}

/* Without memory or time stamps the work runs and leaves no record. */
vulkan_measure_t *vulkan_measure_begin(vulkan_lane_t *lane, hal_plugin_stream_t *stream, const vulkan_label_t *label,
                                       uint32_t noted, uint64_t correlation) {
  vulkan_device_t *const device = lane->device;
  vulkan_measure_t *const measure =
      device->timestamp_bits ? hal_host->mem_alloc(sizeof *measure, alignof(vulkan_measure_t)) : NULL;
  if (!measure) return NULL;
  *measure = (vulkan_measure_t){.noted = noted};
  measure->record = (hal_profile_record_t){.struct_size = sizeof measure->record,
                                           .name = label->kernel ? label->kernel : label->op,
                                           .correlation = correlation,
                                           .bytes = label->bytes,
                                           .stream = stream,
                                           .kind = label->kind,
                                           .direction = label->direction};
  if (vulkan_slot_take(device, &measure->slots[0]) || vulkan_slot_take(device, &measure->slots[1]) ||
      stamp(lane, measure->slots[0])) {
    destroy(device, measure);
    return NULL;
  }
  return measure;
}

void vulkan_measure_end(vulkan_lane_t *lane, vulkan_measure_t *measure) {
  vulkan_device_t *const device = lane->device;
  if (!measure) return;
  if (stamp(lane, measure->slots[1])) { /* the device is lost */
    destroy(device, measure);
    return;
  }
  vulkan_timeline_keep(lane->timeline);
  measure->timeline = lane->timeline;
  measure->value = atomic_load(&lane->submitted) + 1;
  pthread_mutex_lock(&device->lock);
  vulkan_measure_t **end = device->last_measure ? &device->last_measure->next : &device->measures;
  *end = device->last_measure = measure;
  const int is_long = ++device->measure_count % COLLECT_AT == 0;
  pthread_mutex_unlock(&device->lock);
  if (is_long) vulkan_measures_collect(device);
}

static void append(vulkan_device_t *device, vulkan_measure_t *measure) {
  uint64_t ticks[2] = {0};
  for (int i = 0; i < 2; i++)
    if (vk.GetQueryPoolResults(device->handle, measure->slots[i]->pool, measure->slots[i]->index, 1, sizeof *ticks,
                               &ticks[i], sizeof *ticks, VK_QUERY_RESULT_64_BIT))
      return;
  measure->record.start_ns = device_time(device, ticks[0]);
  measure->record.end_ns = device_time(device, ticks[1]);
  if (measure->record.end_ns < measure->record.start_ns) measure->record.end_ns = measure->record.start_ns;
  hal_records_append(&device->profile, measure->noted, &measure->record);
}

/* Takes the completed measurements out of the list, in order. */
static vulkan_measure_t *take_done(vulkan_device_t *device) {
  vulkan_measure_t *done = NULL, **end = &done, **link = &device->measures;
  device->last_measure = NULL;
  for (vulkan_measure_t *measure; (measure = *link);) {
    if (vulkan_timeline_query(measure->timeline, measure->value) == HAL_NOT_READY) {
      device->last_measure = measure;
      link = &measure->next;
      continue;
    }
    *link = measure->next;
    measure->next = NULL;
    *end = measure;
    end = &measure->next;
  }
  return done;
}

void vulkan_measures_collect(vulkan_device_t *device) {
  pthread_mutex_lock(&device->profile_lock); /* so that records stay in order */
  pthread_mutex_lock(&device->lock);
  vulkan_measure_t *done = take_done(device);
  pthread_mutex_unlock(&device->lock);
  for (vulkan_measure_t *next; done; done = next) {
    next = done->next;
    if (!atomic_load(&device->lost)) append(device, done);
    destroy(device, done);
  }
  pthread_mutex_unlock(&device->profile_lock);
}

/* ---- profile_* -------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_profile_enable(int32_t ordinal, int32_t on) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  if (on) atomic_store(&vulkan.keep_names, 1);
  if (!on) vulkan_measures_collect(&vulkan.devices[ordinal]);
  hal_records_enable(&vulkan.devices[ordinal].profile, on);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_read(int32_t ordinal, hal_profile_sink_t sink, void *user_data) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  vulkan_measures_collect(&vulkan.devices[ordinal]);
  hal_records_read(&vulkan.devices[ordinal].profile, sink, user_data);
  return HAL_OK;
}

static hal_status_t read_clock(vulkan_device_t *device, const vulkan_slot_t *slot, uint64_t *out_ticks) {
  vulkan_lane_t *lane;
  hal_status_t status = vulkan_lane_borrow(device, &lane);
  if (status) return status;
  status = stamp(lane, slot);
  if (!status) status = vulkan_lane_wait(lane);
  vulkan_lane_return(lane);
  if (status) return status;
  const VkResult code = vk.GetQueryPoolResults(device->handle, slot->pool, slot->index, 1, sizeof *out_ticks, out_ticks,
                                               sizeof *out_ticks, VK_QUERY_RESULT_64_BIT);
  return code ? vulkan_driver_error(code, "vulkan: cannot read the device's clock") : HAL_OK;
}

/* The shortest of several readings is the most exact. The stamp is written shortly before the host sees the end. */
hal_status_t hal_plugin_profile_timestamp(int32_t ordinal, int64_t *out_device_ns, int64_t *out_host_ns) {
  vulkan_slot_t *slot = NULL;
  int64_t best = INT64_MAX, device_ns = 0, host_ns = 0;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (status) return status;
  vulkan_device_t *const device = &vulkan.devices[ordinal];
  if (!device->timestamp_bits) return hal_base_profile_timestamp(ordinal, out_device_ns, out_host_ns);
  status = vulkan_slot_take(device, &slot);
  for (int i = 0; i < READINGS && !status; i++) {
    uint64_t ticks = 0;
    const int64_t before = host_now();
    status = read_clock(device, slot, &ticks);
    const int64_t after = host_now();
    if (status || after - before >= best) continue;
    best = after - before;
    device_ns = device_time(device, ticks);
    host_ns = before + best / 2;
  }
  vulkan_slot_give(device, slot);
  if (status) return status;
  *out_device_ns = device_ns;
  *out_host_ns = host_ns;
  return HAL_OK;
}
