/* segment.c: the shared memory of a communicator. Rank 0 creates it, and the others open it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/shm/internal.h"
#include "comm/shm/system.h"

hal_status_t hal_shm_segment_create(hal_shm_t *shm, const uint8_t *nonce, int *out_file) {
  const size_t bytes = hal_shm_segment_bytes(shm->size);
  const int file = hal_shm_file_create(bytes);
  if (file < 0)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "rank 0 cannot create a memory file of %zu bytes: %s; use another transport", bytes,
                         strerror(errno));
  hal_shm_header_t *const header = hal_shm_map(file, bytes);
  if (!header) {
    const int code = errno;
    close(file);
    return hal_error_set(HAL_UNIMPLEMENTED, "rank 0 cannot map %zu bytes of shared memory: %s; use another transport",
                         bytes, strerror(code));
  }
  header->version = HAL_SHM_VERSION;
  header->size = shm->size;
  header->bytes = bytes;
  memcpy(header->nonce, nonce, HAL_SHM_NONCE);
  atomic_store_explicit(&header->state, HAL_SHM_JOINING, memory_order_release);
  shm->header = header;
  shm->bytes = bytes;
  *out_file = file;
  return HAL_OK;
}

static hal_status_t cannot_open(const hal_shm_t *shm, int code) {
  return hal_error_set(HAL_UNIMPLEMENTED,
                       "rank %d cannot open the shared memory of rank 0: %s; the ranks are on different hosts, in "
                       "different pid namespaces "
                       "or of different users: use another transport",
                       (int)shm->rank, strerror(code));
}

hal_status_t hal_shm_segment_open(hal_shm_t *shm, int32_t pid, int32_t file, const uint8_t *nonce) {
  const size_t bytes = hal_shm_segment_bytes(shm->size);
  const int opened = hal_shm_file_open(pid, file, bytes);
  if (opened < 0) return cannot_open(shm, errno);
  hal_shm_header_t *const header = hal_shm_map(opened, bytes);
  const int code = errno;
  close(opened);
  if (!header) return cannot_open(shm, code);
  if (memcmp(header->nonce, nonce, HAL_SHM_NONCE) != 0 || header->version != HAL_SHM_VERSION ||
      header->bytes != bytes || atomic_load_explicit(&header->state, memory_order_acquire) != HAL_SHM_JOINING) {
    munmap(header, bytes);
    return cannot_open(shm, ESTALE);
  }
  shm->header = header;
  shm->bytes = bytes;
  return HAL_OK;
}

void hal_shm_segment_release(hal_shm_t *shm) {
  if (shm->header) munmap(shm->header, shm->bytes);
  shm->header = NULL;
}
