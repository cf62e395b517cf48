/* opaque.c: memory of platforms whose programs do not compute in memory of the host. An allocation is a range of
 * addresses, which are those of a mirror in memory of this process. Parts of it have versions: buffers of the platform
 * with the type that a program uses. A version may be ahead of the mirror. Programs read and make versions; kernels of
 * the host, copies and fills use the mirror. Threads use different parts of an allocation at the same time. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "opaque.h"

enum {
  MAPPED_BYTES = 1 << 20, /* from here on, memory is mapped, so that unused pages of a mirror are returned */
  CLASSES = 64            /* more than class_of returns for less than that */
};

struct opaque_version_s {
  opaque_version_t *next;
  pjrt_buffer_t *buffer;
  size_t offset, size; /* bytes of the allocation */
  int type;            /* PJRT_F32 ... */
  int32_t site;
  int ahead;        /* the mirror is older */
  atomic_int users; /* its allocation, and programs */
};

typedef struct allocation_s {
  char *base;
  size_t size;
  pthread_mutex_t lock; /* guards the versions, which overlap only where none is ahead */
  opaque_version_t *versions;
  struct allocation_s *next; /* in `released` */
} allocation_t;

/* All allocations by address. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation_t **allocations;
static size_t count, reserved;
static allocation_t *released[CLASSES]; /* small ones, by class_of, for later tensors */

/* ---- allocations ------------------------------------------------------------------------------------------------- */

/* Returns the number of allocations at or before an address. The lock is held. */
static size_t count_before(const void *address) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if ((uintptr_t)allocations[middle]->base <= (uintptr_t)address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns the allocation that contains an address; NULL = memory of the host. */
static allocation_t *find(const void *address) {
  pthread_mutex_lock(&lock);
  const size_t before = count_before(address);
  allocation_t *const found = before ? allocations[before - 1] : NULL;
  const int inside = found && (uintptr_t)address - (uintptr_t)found->base < found->size;
  pthread_mutex_unlock(&lock);
  return inside ? found : NULL;
}

/* Extends the array for another allocation. The lock is held. */
static int grow(void) {
  if (count < reserved) return 1;
  const size_t more = reserved ? 2 * reserved : 1024;
  allocation_t **const grown = hal_host->mem_alloc(more * sizeof *grown, sizeof *grown);
  if (!grown) return 0;
  if (count) memcpy(grown, allocations, count * sizeof *grown);
  hal_host->mem_free(allocations);
  allocations = grown, reserved = more;
  return 1;
}

static int insert(allocation_t *allocation) {
  pthread_mutex_lock(&lock);
  const int ok = grow();
  if (ok) {
    const size_t at = count_before(allocation->base);
    memmove(allocations + at + 1, allocations + at, (count++ - at) * sizeof *allocations);
    allocations[at] = allocation;
  }
  pthread_mutex_unlock(&lock);
  return ok;
}

static char *map(size_t size) {
  void *const mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? NULL : mapped;
}

/* ---- reuse of small mirrors -------------------------------------------------------------------------------------- */

/* Rounds a size up to that of a class: one to eight times 256 bytes, then four sizes for each power of two. Tensors of
 * repeated steps so have the mirrors of earlier ones, whatever the order of their releases. */
static int class_of(size_t size, size_t *out_rounded) {
  size_t unit = PJRT_OPAQUE_ALIGNMENT;
  int class = 0;
  for (; size > 8 * unit; unit *= 2) class += 4;
  const size_t units = (size + unit - 1) / unit;
  *out_rounded = units * unit;
  return class + (int)units - 1;
}

/* Returns a released allocation of a class; NULL = there is none. */
static allocation_t *take_released(int class) {
  pthread_mutex_lock(&lock);
  allocation_t *const taken = released[class];
  if (taken) released[class] = taken->next;
  pthread_mutex_unlock(&lock);
  return taken;
}

static void put_released(allocation_t *allocation, int class) {
  pthread_mutex_lock(&lock);
  allocation->next = released[class];
  released[class] = allocation;
  pthread_mutex_unlock(&lock);
}

/* Returns an allocation that is not in the array. */
static allocation_t *make(size_t size) {
  size_t rounded = size;
  allocation_t *const taken = size < MAPPED_BYTES ? take_released(class_of(size, &rounded)) : NULL;
  allocation_t *const made = taken ? taken : hal_host->mem_alloc(sizeof *made, _Alignof(allocation_t));
  if (!made) return NULL;
  if (!taken) {
    *made =
        (allocation_t){.base = size < MAPPED_BYTES ? hal_host->mem_alloc(rounded, PJRT_OPAQUE_ALIGNMENT) : map(size)};
    pthread_mutex_init(&made->lock, NULL);
  }
  made->size = size;
  if (made->base) return made;
  pthread_mutex_destroy(&made->lock);
  hal_host->mem_free(made);
  return NULL;
}

/* Ends an allocation that is not in the array. */
static void end(allocation_t *allocation) {
  size_t rounded;
  if (allocation->size < MAPPED_BYTES) {
    put_released(allocation, class_of(allocation->size, &rounded));
    return;
  }
  munmap(allocation->base, allocation->size);
  pthread_mutex_destroy(&allocation->lock);
  hal_host->mem_free(allocation);
}

void *pjrt_opaque_alloc(size_t size) {
  allocation_t *const allocation = make(size);
  if (!allocation) return NULL;
  if (insert(allocation)) return allocation->base;
  end(allocation);
  return NULL;
}

size_t pjrt_opaque_size(const void *address) {
  const allocation_t *const allocation = find(address);
  return allocation ? allocation->size : SIZE_MAX / 2;
}

void pjrt_opaque_free(void *address) {
  allocation_t *const allocation = find(address);
  if (!allocation) return;
  pthread_mutex_lock(&lock);
  const size_t at = count_before(address) - 1;
  memmove(allocations + at, allocations + at + 1, (--count - at) * sizeof *allocations);
  pthread_mutex_unlock(&lock);
  for (opaque_version_t *version = allocation->versions, *next; version; version = next) {
    next = version->next;
    pjrt_opaque_release(version);
  }
  allocation->versions = NULL;
  end(allocation);
}

/* ---- versions; the lock of the allocation is held ---------------------------------------------------------------- */

void pjrt_opaque_release(opaque_version_t *version) {
  if (!version || atomic_fetch_sub(&version->users, 1) > 1) return;
  pjrt_buffer_destroy(version->site, version->buffer);
  hal_host->mem_free(version);
}

static int overlaps(const opaque_version_t *version, size_t low, size_t high) {
  return version->offset < high && version->offset + version->size > low;
}

/* Copies the versions that are ahead in a part of the allocation to the mirror. With `rest`, those that are wholly in
 * the part are left out, because it is about to be written. A version that cannot be copied stays ahead, so that later
 * reads fail, too, instead of returning the older content of the mirror. */
static hal_status_t fetch(allocation_t *allocation, size_t low, size_t high, int rest, char *why) {
  hal_status_t status = HAL_OK;
  for (opaque_version_t *version = allocation->versions; version && !status; version = version->next) {
    if (!version->ahead || !overlaps(version, low, high)) continue;
    if (rest && version->offset >= low && version->offset + version->size <= high) continue;
    status = pjrt_download(version->buffer, version->site, allocation->base + version->offset, version->size, why);
    if (!status) version->ahead = 0;
  }
  return status;
}

/* Removes the versions of a part of the allocation. */
static void drop(allocation_t *allocation, size_t low, size_t high) {
  for (opaque_version_t **link = &allocation->versions; *link;) {
    opaque_version_t *const version = *link;
    if (!overlaps(version, low, high)) {
      link = &version->next;
      continue;
    }
    *link = version->next;
    pjrt_opaque_release(version);
  }
}

static void push(allocation_t *allocation, opaque_version_t *version) {
  version->next = allocation->versions;
  allocation->versions = version;
}

/* After a version of the whole allocation: returns the pages of a large mirror to the system. */
static void empty_mirror(const allocation_t *allocation, const opaque_version_t *version) {
  if (allocation->size < MAPPED_BYTES || version->size != allocation->size || !version->ahead) return;
  madvise(allocation->base, allocation->size, MADV_DONTNEED);
}

static opaque_version_t *find_version(const allocation_t *allocation, size_t offset, const pjrt_span_t *span,
                                      int32_t site) {
  const size_t size = pjrt_span_bytes(span);
  for (opaque_version_t *version = allocation->versions; version; version = version->next)
    if (version->offset == offset && version->size == size && version->type == span->type && version->site == site)
      return version;
  return NULL;
}

static opaque_version_t *make_version(size_t offset, const pjrt_span_t *span, int32_t site, char *why) {
  opaque_version_t *const version = hal_host->mem_alloc(sizeof *version, _Alignof(opaque_version_t));
  if (!version) {
    snprintf(why, PJRT_WHY, "no host memory for a buffer");
    return NULL;
  }
  *version =
      (opaque_version_t){.offset = offset, .size = pjrt_span_bytes(span), .type = span->type, .site = site, .users = 1};
  return version;
}

/* ---- the mirror -------------------------------------------------------------------------------------------------- */

hal_status_t pjrt_opaque_kernel(const void *address, char *why) {
  allocation_t *const allocation = find(address);
  if (!allocation) return HAL_OK;
  pthread_mutex_lock(&allocation->lock);
  const hal_status_t status = allocation->versions ? fetch(allocation, 0, allocation->size, 0, why) : HAL_OK;
  if (!status) drop(allocation, 0, allocation->size);
  pthread_mutex_unlock(&allocation->lock);
  return status;
}

hal_status_t pjrt_opaque_write(const void *address, size_t size, char *why) {
  allocation_t *const allocation = find(address);
  if (!allocation) return HAL_OK;
  const size_t low = (size_t)((const char *)address - allocation->base);
  pthread_mutex_lock(&allocation->lock);
  const hal_status_t status = fetch(allocation, low, low + size, 1, why);
  if (!status) drop(allocation, low, low + size);
  pthread_mutex_unlock(&allocation->lock);
  return status;
}

hal_status_t pjrt_opaque_read(void *to, const void *address, size_t size, char *why) {
  allocation_t *const allocation = find(address);
  if (!allocation) return memcpy(to, address, size), HAL_OK;
  const size_t low = (size_t)((const char *)address - allocation->base);
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&allocation->lock);
  opaque_version_t *version = allocation->versions;
  while (version && !(version->ahead && version->offset == low && version->size == size)) version = version->next;
  if (version) {
    status = pjrt_download(version->buffer, version->site, to, size, why); /* without the mirror */
  } else {
    status = fetch(allocation, low, low + size, 0, why);
    if (!status) memcpy(to, address, size);
  }
  pthread_mutex_unlock(&allocation->lock);
  return status;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Makes a version of memory of the host, which is copied. */
static hal_status_t upload(size_t offset, const pjrt_span_t *span, int32_t site, opaque_version_t **out_version,
                           char *why) {
  opaque_version_t *const version = make_version(offset, span, site, why);
  if (!version) return HAL_RESOURCE_EXHAUSTED;
  const hal_status_t status = pjrt_upload(span, site, &version->buffer, why);
  if (status)
    hal_host->mem_free(version);
  else
    *out_version = version;
  return status;
}

/* As upload, for a part of an allocation, which keeps the version. */
static hal_status_t upload_part(allocation_t *allocation, size_t offset, const pjrt_span_t *span, int32_t site,
                                opaque_version_t **out_version, char *why) {
  hal_status_t status = fetch(allocation, offset, offset + pjrt_span_bytes(span), 0, why);
  if (!status) status = upload(offset, span, site, out_version, why);
  if (status) return status;
  opaque_version_t *const version = *out_version;
  if (version->size == allocation->size && allocation->size >= MAPPED_BYTES) {
    drop(allocation, 0, allocation->size);
    version->ahead = 1; /* the only one, so that the mirror is not needed */
    empty_mirror(allocation, version);
  }
  push(allocation, version);
  return HAL_OK;
}

hal_status_t pjrt_opaque_argument(const pjrt_span_t *span, int32_t site, opaque_version_t **out_version, char *why) {
  allocation_t *const allocation = find(span->data);
  if (!allocation) return upload(0, span, site, out_version, why);
  const size_t offset = (size_t)((char *)span->data - allocation->base);
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&allocation->lock);
  opaque_version_t *version = find_version(allocation, offset, span, site);
  if (!version) status = upload_part(allocation, offset, span, site, &version, why);
  if (!status) atomic_fetch_add(&version->users, 1), *out_version = version;
  pthread_mutex_unlock(&allocation->lock);
  return status;
}

hal_status_t pjrt_opaque_claim(const pjrt_span_t *span, char *why) {
  return pjrt_opaque_write(span->data, pjrt_span_bytes(span), why);
}

int pjrt_opaque_donates(const opaque_version_t *version) { return atomic_load(&version->users) == 1; }

void pjrt_opaque_restore(const pjrt_span_t *span, opaque_version_t *version) {
  allocation_t *const allocation = find(span->data);
  if (!allocation) return;
  pthread_mutex_lock(&allocation->lock);
  drop(allocation, version->offset, version->offset + version->size);
  atomic_fetch_add(&version->users, 1);
  push(allocation, version);
  pthread_mutex_unlock(&allocation->lock);
}

pjrt_buffer_t *pjrt_opaque_buffer(const opaque_version_t *version) { return version->buffer; }

hal_status_t pjrt_opaque_result(const pjrt_span_t *span, int32_t site, pjrt_buffer_t *buffer, char *why) {
  allocation_t *const allocation = find(span->data);
  opaque_version_t *const version =
      allocation ? make_version((size_t)((char *)span->data - allocation->base), span, site, why) : NULL;
  if (!version) {
    pjrt_buffer_destroy(site, buffer);
    return allocation ? HAL_RESOURCE_EXHAUSTED : HAL_INTERNAL;
  }
  version->buffer = buffer;
  version->ahead = 1;
  pthread_mutex_lock(&allocation->lock);
  drop(allocation, version->offset, version->offset + version->size);
  push(allocation, version);
  empty_mirror(allocation, version);
  pthread_mutex_unlock(&allocation->lock);
  return HAL_OK;
}
