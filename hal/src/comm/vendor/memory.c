/* memory.c: memory that is registered with a library (COMM_REGISTER). A segment of the allocator is registered at the
 * first collective that uses it, until it is freed or the communicator ends. */
#include <string.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "comm/collective.h"
#include "comm/vendor/memory.h"
#include "device/device.h"
#include "hal/log.h"
#include "hal/status.h"
#include "memory/allocator.h"
#include "plugin/call.h"

struct hal_comm_segment_s {
  void *address;
  size_t size;
  hal_plugin_comm_memory_t *handle; /* NULL: the library uses the memory without registration */
};

/* Communicators that register memory. A freed segment is deregistered from each of them. */
static struct {
  hal_lock_t lock;
  hal_comm_vendor_t *first;
} users;

/* ---- registering ---- */

/* The caller holds `users.lock`. */
static int is_known(const hal_comm_vendor_t *vendor, const void *address) {
  for (uint32_t i = 0; i < vendor->segment_count; i++)
    if (vendor->segments[i].address == address) return 1;
  return 0;
}

static hal_comm_segment_t *append(hal_comm_vendor_t *vendor) {
  if (vendor->segment_count == vendor->segment_capacity) {
    const uint32_t capacity = vendor->segment_capacity ? 2 * vendor->segment_capacity : 16;
    hal_comm_segment_t *const more = hal_calloc(capacity, sizeof *more);
    if (!more) return NULL;
    if (vendor->segment_count) memcpy(more, vendor->segments, vendor->segment_count * sizeof *more);
    hal_free(vendor->segments);
    vendor->segments = more, vendor->segment_capacity = capacity;
  }
  return &vendor->segments[vendor->segment_count++];
}

static void add(hal_comm_vendor_t *vendor, void *address, size_t size) {
  if (is_known(vendor, address)) return;
  hal_comm_segment_t *const segment = append(vendor);
  if (!segment) return; /* the library works without registration */
  *segment = (hal_comm_segment_t){.address = address, .size = size};
  hal_error_saved_t saved;
  hal_error_save(&saved);
  const hal_status_t status =
      hal_call_comm_register(vendor->plugin, vendor->handle, address, size, 0, &segment->handle);
  if (status) {
    segment->handle = NULL;
    hal_error_plugin(vendor->plugin, HAL_SLOT_comm_register, status);
    hal_log(HAL_LOG_INFO, "group '%s': library %s does not register %zu bytes at %p: %s", vendor->comm->name,
            vendor->info.name, size, address, hal_error_message());
  }
  hal_error_restore(&saved);
}

void hal_comm_memory_use(hal_comm_vendor_t *vendor, const hal_collective_t *call) {
  const void *const buffers[] = {call->send, call->recv};
  hal_device_t *device;
  if (!vendor->registers || hal_device_get(vendor->comm->device, &device)) return;
  for (int i = 0; i < 2; i++) {
    void *address;
    size_t size;
    if (!buffers[i] || !hal_allocator_segment(hal_allocator_of(device), buffers[i], &address, &size)) continue;
    hal_lock_and_defer(&users.lock);
    add(vendor, address, size);
    hal_unlock_and_run(&users.lock);
  }
}

/* ---- beginning and end ---- */

static void deregister(hal_comm_vendor_t *vendor, const hal_comm_segment_t *segment) {
  if (!segment->handle || atomic_load(&vendor->is_aborted)) return; /* an abort ends registrations */
  HAL_CALL_AFTER(vendor->plugin, comm_deregister, vendor->handle, segment->handle);
}

/* Called before a segment is freed: no library uses it afterwards. */
static void leave(void *address) {
  if (hal_life_ended()) return; /* created by the parent: its libraries do not exist here */
  hal_lock_and_defer(&users.lock);
  for (hal_comm_vendor_t *vendor = users.first; vendor; vendor = vendor->next_user)
    for (uint32_t i = 0; i < vendor->segment_count; i++) {
      if (vendor->segments[i].address != address) continue;
      deregister(vendor, &vendor->segments[i]);
      vendor->segments[i] = vendor->segments[--vendor->segment_count];
      break;
    }
  hal_unlock_and_run(&users.lock);
}

void hal_comm_memory_begin(hal_comm_vendor_t *vendor) {
  if (!(vendor->flags & HAL_COMM_REGISTER_MEMORY) || !(vendor->info.flags & HAL_COMM_CAN_REGISTER)) return;
  hal_lock_and_defer(&users.lock);
  vendor->registers = 1;
  vendor->next_user = users.first;
  users.first = vendor;
  hal_allocator_set_leaving(leave);
  hal_unlock_and_run(&users.lock);
}

void hal_comm_memory_end(hal_comm_vendor_t *vendor) {
  if (!vendor->registers) return;
  hal_lock_and_defer(&users.lock);
  hal_comm_vendor_t **place = &users.first;
  while (*place && *place != vendor) place = &(*place)->next_user;
  if (*place) *place = vendor->next_user;
  for (uint32_t i = 0; i < vendor->segment_count; i++) deregister(vendor, &vendor->segments[i]);
  hal_free(vendor->segments);
  vendor->segments = NULL, vendor->segment_count = vendor->segment_capacity = 0;
  vendor->registers = 0;
  hal_unlock_and_run(&users.lock);
}
