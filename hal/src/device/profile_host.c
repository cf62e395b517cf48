/* profile_host.c: records of operators that the host computed instead of a device. The caller of the HAL adds one per call; they are stored
 * here until hal_profile_read. */
#include <string.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "device/profile_internal.h"

enum { MOST = 1 << 16, NAME_BYTES = 96 };

typedef struct host_op_s {
  char op[NAME_BYTES];
  int64_t start_ns, end_ns;
  uint64_t correlation;
  int32_t device;
} host_op_t;

static struct {
  hal_lock_t lock;
  host_op_t *list;
  uint64_t count, room, lost;
} host;

/* Reserves one more record; the lock is held. */
static int grow(void) {
  if (host.count < host.room) return 1;
  if (host.room == MOST) return 0;
  const uint64_t room = host.room ? host.room * 2 : 256;
  host_op_t *const list = hal_malloc(room * sizeof *list);
  if (!list) return 0;
  if (host.count) memcpy(list, host.list, host.count * sizeof *list);
  hal_free(host.list);
  host.list = list, host.room = room;
  return 1;
}

hal_status_t hal_profile_host_op(int32_t device, const char *op, int64_t start_ns, int64_t end_ns) {
  if (device < 0 || device >= hal_device_count())
    return hal_error_set(HAL_OUT_OF_RANGE, "a profile's record of device %d; there are %d", (int)device,
                         (int)hal_device_count());
  if (end_ns < start_ns)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a profile's record of %s ends before it begins; pass its start first",
                         op ? op : "(null)");
  if (!hal_profile_is_on()) return HAL_OK;
  host_op_t made = {.start_ns = start_ns, .end_ns = end_ns, .correlation = hal_profile_current_id(), .device = device};
  strncpy(made.op, op ? op : "", sizeof made.op - 1);
  hal_lock(&host.lock);
  if (grow())
    host.list[host.count++] = made;
  else
    host.lost++;
  hal_unlock(&host.lock);
  return HAL_OK;
}

uint64_t hal_profile_read_host(hal_profile_fn_t fn, void *user_data) {
  hal_lock(&host.lock);
  host_op_t *const list = host.list;
  const uint64_t count = host.count, lost = host.lost;
  host.list = NULL, host.count = host.room = host.lost = 0;
  hal_unlock(&host.lock);
  for (uint64_t i = 0; i < count; i++) {
    const hal_profile_activity_t activity = {.struct_size = sizeof activity,
                                             .name = list[i].op,
                                             .op = list[i].op,
                                             .start_ns = list[i].start_ns,
                                             .end_ns = list[i].end_ns,
                                             .correlation = list[i].correlation,
                                             .stream = HAL_PROFILE_NO_STREAM,
                                             .device = list[i].device,
                                             .kind = HAL_PROFILE_HOST_OP,
                                             .answer = HAL_PROFILE_BY_HOST};
    hal_callback_check();
    fn(user_data, &activity);
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
