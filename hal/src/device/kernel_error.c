/* kernel_error.c: see kernel_error.h. */
#include "device/kernel_error.h"

#include <string.h>

#include "base/status_internal.h"
#include "device/hooks.h"
#include "hal/status.h"
#include "kernels/pk_error.h"
#include "plugin/call.h"

/* States of a record, which kernels claim and write (kernels/pk_error.h). */
enum { FREE = 0, CLAIMED = 1, WRITTEN = 2 };
typedef pk_error_t record_t;

enum { RECORDS_BYTES = HAL_STREAMS_OF_DEVICE * sizeof(record_t) }; /* of a device */

int hal_kernel_error_holds(const hal_device_t *device, const void *address) {
  const uintptr_t first = (uintptr_t)atomic_load_explicit(&device->kernel_errors, memory_order_acquire);
  return first && (uintptr_t)address - first < RECORDS_BYTES;
}

static char *record_of(const hal_stream_t *stream) {
  char *records = atomic_load_explicit(&stream->device->kernel_errors, memory_order_acquire);
  return records ? records + (size_t)stream->id * sizeof(record_t) : NULL;
}

/* Creates the records, outside the allocator: they hold no tensor and are not part of the statistics. No kernel uses
 * them yet, so the synchronous stream clears them. */
static hal_status_t create(hal_device_t *device) {
  static const uint8_t zero[1] = {0};
  const size_t size = RECORDS_BYTES;
  void *records = NULL;
  hal_status_t status = HAL_OK;
  hal_lock_and_defer(&device->lock);
  if (atomic_load(&device->kernel_errors)) goto cleanup; /* another thread was first */
  status = hal_call_memory_alloc(device->plugin, device->ordinal, size, 0, &records);
  status = hal_error_plugin_made(device->plugin, HAL_SLOT_memory_alloc, status, records);
  if (status) goto cleanup;
  status = hal_call_memory_fill(device->plugin, NULL, device->ordinal, records, zero, sizeof zero, size);
  if (status) {
    hal_error_plugin(device->plugin, HAL_SLOT_memory_fill, status);
    HAL_CALL_AFTER(device->plugin, memory_free, device->ordinal, records);
    goto cleanup;
  }
  atomic_store_explicit(&device->kernel_errors, (char *)records, memory_order_release);

cleanup:
  hal_unlock_and_run(&device->lock);
  return status;
}

void hal_kernel_error_destroy(hal_device_t *device) {
  char *records = atomic_exchange(&device->kernel_errors, NULL);
  if (records) HAL_CALL_QUIETLY(device->plugin, memory_free, device->ordinal, records);
}

hal_status_t hal_kernel_error_address(hal_stream_t *stream, void **out_address) {
  if (HAL_UNLIKELY(!record_of(stream))) HAL_RETURN_IF_ERROR(create(stream->device));
  *out_address = record_of(stream);
  return HAL_OK;
}

/* torch's messages use this name for the first operand. */
static const char *operand_name(const char *argument) {
  return !argument || strcmp(argument, "self") == 0 ? "input" : argument;
}

static hal_status_t report(const record_t *record) {
  const uint32_t op = (uint32_t)(record->site >> 8) & PK_NO_OPERATOR, place = (uint32_t)(record->site & 255);
  const char *const known = hal_device_hooks.op_error_name(op), *const name = known ? known : "a compiled kernel";
  const long long value = record->value.i64, bound = record->bound;
  const int wide = bound == sizeof(double);
  switch (record->kind) {
    case PK_BAD_INDEX:
      if (place == PK_NO_PLACE)
        return hal_error_set(HAL_OUT_OF_RANGE, "%s: index %lld is out of bounds for a dimension with size %lld", name,
                             value, bound);
      return hal_error_set(HAL_OUT_OF_RANGE, "%s: index %lld is out of bounds for dimension %d with size %lld", name,
                           value, (int)place, bound);
    case PK_BAD_CLASS:
      return hal_error_set(HAL_OUT_OF_RANGE, "%s: Target %lld is out of bounds: the input has %lld classes", name,
                           value, bound);
    case PK_BAD_DIVISOR:
      return hal_error_set(HAL_INVALID_ARGUMENT, "%s: ZeroDivisionError: an integer of the divisor is 0", name);
    case PK_BAD_PROBABILITY:
      return hal_error_set(HAL_INVALID_ARGUMENT, "%s: all elements of %s should be between 0 and 1; one is %.*g", name,
                           operand_name(hal_device_hooks.op_argument(op, place)), wide ? 17 : 9,
                           wide ? record->value.f64 : (double)record->value.f32);
    default:
      return hal_error_set(HAL_INTERNAL, "%s: a kernel reported an error of the unknown kind %u", name,
                           (unsigned)record->kind);
  }
}

/* Adds the caller's line, if the stream's queue knows it. */
static hal_status_t with_line(hal_stream_t *stream, const record_t *record, hal_status_t status) {
  const uint64_t origin = (uint64_t)record->site >> 32;
  hal_queue_t *const queue = hal_stream_queue(stream);
  char where[256] = "";
  if (origin) queue->calls->describe(queue, origin, where, sizeof where);
  return *where ? hal_error_prefix(status, "deferred work recorded at %s: ", where) : status;
}

/* Copies `size` bytes of a record to the host. */
static hal_status_t read_back(hal_device_t *device, const char *address, void *to, size_t size) {
  const hal_status_t status = hal_call_memory_copy(device->plugin, NULL, to, HAL_HOST, address, device->ordinal, size);
  return status ? hal_error_plugin(device->plugin, HAL_SLOT_memory_copy, status) : HAL_OK;
}

/* Reads the stream's record, and frees it if it was written. Later work of the stream may be claiming it meanwhile:
 * that work's own synchronization reports a record that is not written yet. */
static hal_status_t read_record(hal_stream_t *stream) {
  static const uint8_t zero[1] = {0};
  hal_device_t *const device = stream->device;
  char *const address = record_of(stream);
  record_t record;
  HAL_RETURN_IF_ERROR(read_back(device, address, &record.state, sizeof record.state));
  if (HAL_LIKELY(record.state != WRITTEN)) return HAL_OK;
  HAL_RETURN_IF_ERROR(read_back(device, address, &record, sizeof record));
  const hal_status_t status =
      hal_call_memory_fill(device->plugin, NULL, device->ordinal, address, zero, sizeof zero, sizeof record.state);
  return status ? hal_error_plugin(device->plugin, HAL_SLOT_memory_fill, status)
                : with_line(stream, &record, report(&record));
}

hal_status_t hal_kernel_error_launched(hal_stream_t *stream) {
  /* After the launch: counted earlier, a thread that synchronizes meanwhile would count the launch as checked. */
  const uint64_t mark = atomic_fetch_add_explicit(&stream->reporters, 1, memory_order_release) + 1;
  if (stream->device->info.flags & HAL_DEVICE_ASYNC) return HAL_OK;
  return hal_kernel_error_collect(stream, mark, HAL_OK);
}

hal_status_t hal_kernel_error_collect(hal_stream_t *stream, uint64_t mark, hal_status_t status) {
  uint64_t checked = atomic_load_explicit(&stream->checked, memory_order_relaxed);
  if (HAL_LIKELY(checked >= mark) || status) return status;
  do { /* the thread that increments the count reads the record, so that an error is reported once */
    if (checked >= mark) return HAL_OK;
  } while (!atomic_compare_exchange_weak(&stream->checked, &checked, mark));
  return read_record(stream);
}

void hal_kernel_error_mark_all(hal_device_t *device, hal_kernel_error_marks_t *out_marks) {
  memset(out_marks, 0, sizeof *out_marks);
  if (!atomic_load_explicit(&device->kernel_errors, memory_order_acquire)) return;
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    const hal_stream_t *const stream = hal_stream_at(device, id);
    if (stream) out_marks->mark[id] = hal_kernel_error_mark(stream);
  }
}
