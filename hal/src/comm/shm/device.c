/* device.c: the regions of device memory: lifetime, copies, waits. */
#include "comm/shm/device.h"

#include "base/host_malloc.h"
#include "base/life.h"
#include "base/status_internal.h"
#include "device/device.h"
#include "hal/log.h"
#include "memory/allocator.h"

/* What a rank publishes, in its first slot in host memory, between two collectives. */
typedef struct record_s {
  uint64_t dtypes[HAL_SHM_REDUCTIONS];
  uint32_t sizes[HAL_SHM_RANKS]; /* of the handles; one for each rank */
  unsigned char handles[HAL_SHM_RANKS][HAL_MEMORY_SHARE_BYTES];
} record_t;
_Static_assert(sizeof(record_t) <= HAL_SHM_SLOT, "a record fits into a slot");

/* Values of the counter HAL_SHM_DEVICE: the rank has a region, and has opened those of the others or not; or it has
 * none. */
enum { DESCRIBED = 1, OPENED = 2, NOT_OPENED = 3, NONE = 4 };

static record_t *record_of(const hal_shm_t *shm, int32_t rank) { return (record_t *)hal_shm_slot(shm, rank, 0); }

/* ---- lifetime ---- */

static void release_region(hal_shm_region_t *region) {
  if (atomic_fetch_sub(&region->references, 1) != 1) return;
  hal_memory_release(region->block);
  hal_free(region);
}

static void receiver_released(void *region) { release_region(region); }

void hal_shm_device_destroy(hal_shm_device_t *device) {
  if (!device) return;
  if (!hal_life_ended()) {
    for (int32_t rank = 0; rank < HAL_SHM_RANKS; rank++) hal_memory_release(device->opened[rank]);
    if (device->own) release_region(device->own);
    hal_stream_give_back(device->stream);
    hal_memory_collect_shared();
  }
  hal_free(device);
}

/* Releases the handles that no rank has opened, and the device. Keeps the thread's error. */
static void withdraw(const hal_shm_t *shm, const record_t *own, hal_shm_device_t *device) {
  hal_error_saved_t saved;
  hal_error_save(&saved);
  for (int32_t rank = 0; rank < shm->size; rank++)
    if (own->sizes[rank] && hal_memory_decline(own->handles[rank], own->sizes[rank]))
      hal_log(HAL_LOG_DEBUG, "communicator '%s': rank %d has opened its handle: %s", shm->name, (int)rank,
              hal_error_message());
  hal_shm_device_destroy(device);
  hal_error_restore(&saved);
}

/* Makes a handle of the region for each other rank. */
static hal_status_t share(const hal_shm_t *shm, hal_shm_device_t *device, record_t *own) {
  for (int32_t rank = 0; rank < shm->size; rank++) {
    size_t size = 0;
    if (rank == shm->rank) continue;
    atomic_fetch_add(&device->own->references, 1);
    const hal_status_t status = hal_memory_share(device->own->block, device->stream, receiver_released, device->own,
                                                 own->handles[rank], sizeof own->handles[rank], &size);
    if (status) atomic_fetch_sub(&device->own->references, 1);
    HAL_RETURN_IF_ERROR(status);
    own->sizes[rank] = (uint32_t)size;
  }
  return HAL_OK;
}

static hal_status_t fill_region(const hal_shm_t *shm, hal_shm_device_t *device, record_t *own) {
  device->own = hal_calloc(1, sizeof *device->own);
  if (!device->own) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory");
  atomic_init(&device->own->references, 1);
  HAL_RETURN_IF_ERROR(hal_stream_take(device->device, -1, &device->stream));
  HAL_RETURN_IF_ERROR(hal_memory_allocate_shareable(device->device, device->stream, hal_shm_region_bytes(shm->size),
                                                    &device->own->block));
  device->regions[shm->rank] = hal_memory_block_address(device->own->block);
  HAL_RETURN_IF_ERROR(share(shm, device, own));
  for (uint32_t reduce = 0; reduce < HAL_SHM_REDUCTIONS; reduce++)
    own->dtypes[reduce] = hal_shm_device_dtypes(device->device, reduce);
  return HAL_OK;
}

/* Returns NULL if this rank has no region: the plugin does not share memory, or there is none. */
static hal_shm_device_t *make(const hal_shm_t *shm, int32_t index, record_t *own) {
  if (index < 0) return NULL;
  hal_shm_device_t *const device = hal_calloc(1, sizeof *device);
  if (!device) return NULL;
  device->device = index;
  if (!fill_region(shm, device, own)) return device;
  hal_log(HAL_LOG_INFO, "communicator '%s': collectives copy through host memory: rank %d has no shared memory: %s",
          shm->name, (int)shm->rank, hal_error_message());
  withdraw(shm, own, device);
  return NULL;
}

/* ---- opening ---- */

static hal_status_t open_regions(hal_shm_t *shm, hal_shm_device_t *device) {
  for (int32_t rank = 0; rank < shm->size; rank++) {
    const record_t *const record = record_of(shm, rank);
    if (rank == shm->rank) continue;
    HAL_RETURN_IF_ERROR(hal_memory_open(device->device, device->stream, record->handles[shm->rank],
                                        record->sizes[shm->rank], &device->opened[rank]));
    device->regions[rank] = hal_memory_block_address(device->opened[rank]);
    if (hal_memory_block_size(device->opened[rank]) < hal_shm_region_bytes(shm->size))
      return hal_error_set(HAL_INCOMPATIBLE, "the memory of rank %d has %zu bytes; expected %zu", (int)rank,
                           hal_memory_block_size(device->opened[rank]), hal_shm_region_bytes(shm->size));
  }
  return HAL_OK;
}

static int is_any(const hal_shm_t *shm, uint64_t state) {
  for (int32_t rank = 0; rank < shm->size; rank++)
    if (atomic_load(&hal_shm_page(shm, rank)->counters[HAL_SHM_DEVICE]) == state) return 1;
  return 0;
}

static void publish(hal_shm_t *shm, uint64_t state) {
  hal_shm_set(shm, HAL_SHM_DEVICE, state);
  hal_shm_notify(shm);
}

/* `*out_use`: all ranks have opened the regions. All ranks find the same. A rank without a region does not wait, and
 * may already use its slot for a collective. */
static hal_status_t exchange(hal_shm_t *shm, hal_shm_device_t *device, int *out_use) {
  publish(shm, DESCRIBED);
  HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DEVICE, DESCRIBED));
  if (is_any(shm, NONE)) return HAL_OK;
  const hal_status_t opened = open_regions(shm, device);
  if (opened)
    hal_log(HAL_LOG_INFO,
            "communicator '%s': collectives copy through host memory: rank %d cannot open the memory of others: %s",
            shm->name, (int)shm->rank, hal_error_message());
  for (uint32_t reduce = 0; reduce < HAL_SHM_REDUCTIONS; reduce++) {
    device->dtypes[reduce] = UINT64_MAX;
    for (int32_t rank = 0; rank < shm->size; rank++) device->dtypes[reduce] &= record_of(shm, rank)->dtypes[reduce];
  }
  publish(shm, opened ? NOT_OPENED : OPENED); /* has read what the others published */
  HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DEVICE, OPENED));
  *out_use = !is_any(shm, NOT_OPENED);
  return HAL_OK;
}

hal_status_t hal_shm_device_create(hal_shm_t *shm, int32_t index, hal_shm_device_t **out) {
  record_t *const own = record_of(shm, shm->rank);
  int use = 0;
  *out = NULL;
  /* until the others have read what the slot has */
  if (shm->round) HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_DRAINED, shm->round));
  memset(own, 0, sizeof *own);
  hal_shm_device_t *const device = make(shm, index, own);
  if (!device) {
    publish(shm, NONE);
    return HAL_OK;
  }
  const hal_status_t status = exchange(shm, device, &use);
  if (!status && use) {
    *out = device;
    return HAL_OK;
  }
  withdraw(shm, own, device);
  return status;
}

/* ---- work of the device ---- */

hal_status_t hal_shm_device_allocate(const hal_shm_t *shm, uint64_t bytes, hal_block_t **out) {
  return hal_memory_allocate(shm->device->device, shm->device->stream, (size_t)bytes, out);
}

hal_status_t hal_shm_device_copy(hal_shm_t *shm, void *to, const void *from, size_t bytes) {
  const hal_shm_device_t *const device = shm->device;
  const hal_status_t status = hal_memory_copy(device->stream, to, device->device, from, device->device, bytes);
  return status ? hal_shm_fail_by_last(shm, status) : HAL_OK;
}

/* No time limit: the stream has only copies and operators of at most a few slots, which wait for nothing. A thread that
 * synchronizes may run them itself, which a wait with a limit does not. */
hal_status_t hal_shm_device_finish(hal_shm_t *shm) {
  const hal_status_t status = hal_stream_synchronize(shm->device->stream);
  return status ? hal_shm_fail_by_last(shm, status) : hal_shm_stopped(shm);
}
