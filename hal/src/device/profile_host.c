/* profile_host.c: records of work that the host did for a device: operators and kernels that it computed, and
 * collectives that it ran. They are stored here until hal_profile_read. */
#include <stdio.h>
#include <string.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "device/profile_internal.h"

enum { MOST = 1 << 16, NAME_BYTES = 96, GROUP_BYTES = 64 };

typedef struct record_s {
  hal_profile_activity_t activity; /* its names are set when it is read, because the list may move */
  char name[NAME_BYTES], group[GROUP_BYTES];
} record_t;

static struct {
  hal_lock_t lock;
  record_t *list;
  uint64_t count, room, lost;
} host;

/* Reserves one more record; the caller holds the lock. */
static int grow(void) {
  if (host.count < host.room) return 1;
  if (host.room == MOST) return 0;
  const uint64_t room = host.room ? host.room * 2 : 256;
  record_t *const list = hal_malloc(room * sizeof *list);
  if (!list) return 0;
  if (host.count) memcpy(list, host.list, host.count * sizeof *list);
  hal_free(host.list);
  host.list = list, host.room = room;
  return 1;
}

static void add(const hal_profile_activity_t *activity, const char *name, const char *group) {
  hal_lock(&host.lock);
  if (grow()) {
    record_t *const record = &host.list[host.count++];
    record->activity = *activity;
    snprintf(record->name, sizeof record->name, "%s", name);
    snprintf(record->group, sizeof record->group, "%s", group);
  } else {
    host.lost++;
  }
  hal_unlock(&host.lock);
}

hal_status_t hal_profile_host_op(int32_t device, const char *op, int64_t start_ns, int64_t end_ns) {
  if (device < 0 || device >= hal_device_count())
    return hal_error_set(HAL_OUT_OF_RANGE, "a profile's record of device %d; there are %d", (int)device,
                         (int)hal_device_count());
  if (end_ns < start_ns)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a profile's record of %s ends before it begins; pass its start first",
                         op ? op : "(null)");
  if (!hal_profile_is_on()) return HAL_OK;
  const hal_profile_activity_t activity = {.struct_size = sizeof activity,
                                           .start_ns = start_ns,
                                           .end_ns = end_ns,
                                           .correlation = hal_profile_current_id(),
                                           .stream = HAL_PROFILE_NO_STREAM,
                                           .device = device,
                                           .kind = HAL_PROFILE_HOST_OP,
                                           .answer = HAL_PROFILE_BY_HOST};
  add(&activity, op ? op : "", "");
  return HAL_OK;
}

void hal_profile_add_timed(const hal_profile_activity_t *activity, uint64_t launch) {
  if (!hal_profile_is_on()) return;
  const hal_profile_launch_t found = hal_profile_find_launch(launch);
  hal_profile_activity_t record = *activity;
  record.struct_size = sizeof record;
  record.correlation = found.correlation;
  record.launch = found.number, record.launch_thread = found.thread;
  record.launch_start_ns = found.start_ns, record.launch_end_ns = found.end_ns;
  add(&record, activity->name, activity->group ? activity->group : "");
}

uint64_t hal_profile_read_host(hal_profile_fn_t fn, void *user_data) {
  hal_lock(&host.lock);
  record_t *const list = host.list;
  const uint64_t count = host.count, lost = host.lost;
  host.list = NULL, host.count = host.room = host.lost = 0;
  hal_unlock(&host.lock);
  for (uint64_t i = 0; i < count; i++) {
    hal_profile_activity_t *const activity = &list[i].activity;
    activity->name = list[i].name;
    activity->op = activity->kind == HAL_PROFILE_HOST_OP ? list[i].name : "";
    activity->group = activity->kind == HAL_PROFILE_COLLECTIVE ? list[i].group : NULL;
    hal_callback_check();
    fn(user_data, activity);
  }
  hal_free(list);
  return lost;
}

void hal_profile_forget_host(void) {
  hal_lock(&host.lock);
  hal_free(host.list);
  host.list = NULL, host.count = host.room = host.lost = 0;
  hal_unlock(&host.lock);
}

/* Another thread of the parent may have been changing the list, so it is not freed. */
void hal_profile_host_after_fork(void) {
  host.list = NULL;
  host.count = host.room = host.lost = 0;
}
