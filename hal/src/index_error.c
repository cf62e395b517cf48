/* index_error.c: see index_error.h. */
#include "index_error.h"

#include "call.h"
#include "hal/op.h"
#include "hal/status.h"

#define STREAMS (1 + HAL_STREAM_POOLS * HAL_STREAMS_PER_POOL)

/* pk_index_error_t of hal/kernels/pk_index.h. */
typedef struct record_s {
  uint32_t claimed, reserved;
  int64_t site; /* operator * 256 + dimension */
  int64_t index, bound;
} record_t;

static char *record_of(const hal_stream_t *stream) {
  char *records = atomic_load_explicit(&stream->device->index_errors, memory_order_acquire);
  return records ? records + (size_t)stream->id * sizeof(record_t) : NULL;
}

/* Makes the records, outside the allocator: they are no tensor's memory and count in no statistics. The device is idle
 * as far as they are concerned, so they are cleared by the synchronous stream. */
static hal_status_t create(hal_device_t *device) {
  static const uint8_t zero[1] = {0};
  const size_t size = STREAMS * sizeof(record_t);
  void *records = NULL;
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&device->lock);
  if (atomic_load(&device->index_errors)) goto cleanup; /* another thread was first */
  status = hal_call_memory_alloc(device->plugin, device->ordinal, size, 0, &records);
  if (status) {
    hal_error_plugin(device->plugin, HAL_SLOT_memory_alloc, status);
    goto cleanup;
  }
  status = hal_call_memory_fill(device->plugin, NULL, device->ordinal, records, zero, sizeof zero, size);
  if (status) {
    hal_error_plugin(device->plugin, HAL_SLOT_memory_fill, status);
    hal_call_memory_free(device->plugin, device->ordinal, records);
    goto cleanup;
  }
  atomic_store_explicit(&device->index_errors, (char *)records, memory_order_release);

cleanup:
  pthread_mutex_unlock(&device->lock);
  return status;
}

void hal_index_error_destroy(hal_device_t *device) {
  char *records = atomic_exchange(&device->index_errors, NULL);
  if (records) hal_call_memory_free(device->plugin, device->ordinal, records);
}

hal_status_t hal_index_error_address(hal_stream_t *stream, void **out_address) {
  if (HAL_UNLIKELY(!record_of(stream))) HAL_RETURN_IF_ERROR(create(stream->device));
  *out_address = record_of(stream);
  return HAL_OK;
}

/* Reads the stream's record, whose work is done, and clears it when it was written. */
static hal_status_t collect(hal_stream_t *stream) {
  static const uint8_t zero[1] = {0};
  hal_device_t *const device = stream->device;
  char *const address = record_of(stream);
  record_t record;
  hal_status_t status =
      hal_call_memory_copy(device->plugin, NULL, &record, HAL_HOST, address, device->ordinal, sizeof record);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_memory_copy, status);
  if (HAL_LIKELY(!record.claimed)) return HAL_OK;
  status = hal_call_memory_fill(device->plugin, NULL, device->ordinal, address, zero, sizeof zero, sizeof record);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_memory_fill, status);
  const char *name = hal_op_name((uint32_t)(record.site >> 8));
  return hal_error_set(HAL_OUT_OF_RANGE, "%s: index %lld is out of bounds for dimension %d with size %lld",
                       name ? name : "an operator", (long long)record.index, (int)(record.site & 255),
                       (long long)record.bound);
}

hal_status_t hal_index_error_launched(hal_stream_t *stream) {
  /* After the launch: set before it, a thread that synchronises meanwhile could take the mark and miss the launch. */
  atomic_store_explicit(&stream->index_error_pending, 1, memory_order_release);
  if (stream->device->info.flags & HAL_DEVICE_ASYNC) return HAL_OK;
  return hal_index_error_end(stream, hal_index_error_begin(stream), HAL_OK);
}

int hal_index_error_begin(hal_stream_t *stream) {
  return HAL_UNLIKELY(atomic_load_explicit(&stream->index_error_pending, memory_order_relaxed)) &&
         atomic_exchange(&stream->index_error_pending, 0);
}

hal_status_t hal_index_error_end(hal_stream_t *stream, int pending, hal_status_t status) {
  if (HAL_LIKELY(!pending)) return status;
  if (status == HAL_NOT_READY) atomic_store(&stream->index_error_pending, 1);
  return status ? status : collect(stream);
}

static hal_stream_t *stream_at(hal_device_t *device, int id) {
  if (id == 0) return &device->default_stream;
  return atomic_load_explicit(&device->streams[(id - 1) / HAL_STREAMS_PER_POOL][(id - 1) % HAL_STREAMS_PER_POOL],
                              memory_order_acquire);
}

void hal_index_error_begin_all(hal_device_t *device, hal_index_error_set_t *out_set) {
  *out_set = (hal_index_error_set_t){{0}};
  if (!atomic_load_explicit(&device->index_errors, memory_order_acquire)) return;
  for (int id = 0; id < STREAMS; id++) {
    hal_stream_t *const stream = stream_at(device, id);
    if (stream && hal_index_error_begin(stream)) out_set->pending[id / 64] |= UINT64_C(1) << id % 64;
  }
}

hal_status_t hal_index_error_end_all(hal_device_t *device, const hal_index_error_set_t *set, hal_status_t status) {
  if (!atomic_load_explicit(&device->index_errors, memory_order_acquire)) return status;
  for (int id = 0; id < STREAMS; id++) {
    hal_stream_t *const stream = stream_at(device, id);
    if (!(set->pending[id / 64] >> id % 64 & 1)) continue;
    if (status) /* one failure at a time: this one is for the next synchronisation */
      atomic_store(&stream->index_error_pending, 1);
    else
      status = collect(stream);
  }
  return status;
}
