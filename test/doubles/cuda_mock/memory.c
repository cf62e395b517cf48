/* memory.c: memory of devices and page-locked host memory, which is the host's in both cases. A range that a copy or
 * a fill names as device memory must be an allocation of a device. */
#define _GNU_SOURCE /* memfd_create */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mock.h"

typedef enum kind_e { KIND_DEVICE, KIND_HOST, KIND_REGISTERED } kind_e;

typedef struct range_s {
  struct range_s *next;
  char *base;
  size_t size;
  CUcontext context;
  kind_e kind;
  int file; /* of the memory file of device memory, which other processes may open; -1: another object owns it */
} range_t;

static range_t *ranges; /* under `lock` */

/* The range that contains an address. The caller holds `lock`. */
static range_t *find(const void *address) {
  for (range_t *range = ranges; range; range = range->next)
    if ((const char *)address >= range->base && (const char *)address < range->base + range->size) return range;
  return NULL;
}

static CUresult add(CUcontext context, void *base, size_t size, kind_e kind, int file) {
  range_t *const range = malloc(sizeof *range);
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  *range = (range_t){.next = ranges, .base = base, .size = size, .context = context, .kind = kind, .file = file};
  ranges = range;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

/* Removes the range of that kind that begins there. Returns its size, 0 = there is none. */
static size_t take(void *base, kind_e kind, int *out_file) {
  size_t size = 0;
  pthread_mutex_lock(&lock);
  range_t **at = &ranges;
  while (*at && ((*at)->base != base || (*at)->kind != kind)) at = &(*at)->next;
  range_t *const range = *at;
  if (range) {
    *at = range->next;
    size = range->size;
    if (out_file) *out_file = range->file;
    if (kind == KIND_DEVICE && range->file >= 0) range->context->used -= size;
  }
  pthread_mutex_unlock(&lock);
  free(range);
  return size;
}

static void *map(size_t size) {
  void *const base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? NULL : base;
}

int is_device_range(CUdeviceptr address, size_t bytes) {
  const char *const begin = (const char *)(uintptr_t)address;
  size_t done = 0;
  pthread_mutex_lock(&lock);
  while (done < bytes) { /* consecutive mapped parts are one range */
    const range_t *const range = find(begin + done);
    if (!range || range->kind != KIND_DEVICE) break;
    done = (size_t)(range->base + range->size - begin);
  }
  pthread_mutex_unlock(&lock);
  return done >= bytes;
}

int is_locked_range(const void *begin, size_t bytes) {
  pthread_mutex_lock(&lock);
  const range_t *const range = find(begin);
  const int locked = range && (const char *)begin + bytes <= range->base + range->size;
  pthread_mutex_unlock(&lock);
  return locked;
}

int memory_add_mapped(CUcontext context, void *base, size_t size) { return !add(context, base, size, KIND_DEVICE, -1); }

int memory_take_mapped(void *base, size_t size) {
  pthread_mutex_lock(&lock);
  const range_t *const range = find(base);
  const int known = range && range->base == base && range->size == size && range->file < 0;
  pthread_mutex_unlock(&lock);
  return known && take(base, KIND_DEVICE, NULL) == size;
}

size_t memory_size_of(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  const range_t *const range = find((const void *)(uintptr_t)address);
  const size_t size =
      range && range->kind == KIND_DEVICE && (CUdeviceptr)(uintptr_t)range->base == address ? range->size : 0;
  pthread_mutex_unlock(&lock);
  return size;
}

int memory_file_of(CUdeviceptr address, size_t *out_size) {
  pthread_mutex_lock(&lock);
  const range_t *const range = find((const void *)(uintptr_t)address);
  const int file =
      range && range->kind == KIND_DEVICE && (CUdeviceptr)(uintptr_t)range->base == address ? range->file : -1;
  if (file >= 0) *out_size = range->size;
  pthread_mutex_unlock(&lock);
  return file;
}

/* A memory file, whole. */
static void *map_file(size_t size, int *out_file) {
  const int file = memfd_create("cuda_mock", MFD_CLOEXEC);
  void *base = MAP_FAILED;
  if (file >= 0 && ftruncate(file, (off_t)size) == 0)
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (base == MAP_FAILED) {
    if (file >= 0) close(file);
    return NULL;
  }
  *out_file = file;
  return base;
}

void memory_release_all(CUcontext context) {
  pools_release(context);
  for (range_t **at = &ranges; *at;) {
    range_t *const range = *at;
    if (range->context != context) {
      at = &range->next;
      continue;
    }
    *at = range->next;
    if (range->kind != KIND_REGISTERED) munmap(range->base, range->size);
    if (range->file >= 0) close(range->file);
    free(range);
  }
  context->used = 0;
}

/* ---- memory of a device ---- */

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  pthread_mutex_lock(&lock);
  *total_bytes = memory_of_device();
  *free_bytes = *total_bytes - context->used;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  CUcontext context;
  CUresult code = enter(&context);
  if (!code) code = capture_forbids();
  if (code) return code;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_ALLOC)) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  const int fits = bytes <= memory_of_device() - context->used;
  if (fits) context->used += bytes;
  pthread_mutex_unlock(&lock);
  int file = -1;
  void *const base = fits ? map_file(bytes, &file) : NULL;
  if (base && !add(context, base, bytes, KIND_DEVICE, file)) {
    *address = (CUdeviceptr)(uintptr_t)base;
    return CUDA_SUCCESS;
  }
  if (base) munmap(base, bytes);
  if (base) close(file);
  pthread_mutex_lock(&lock);
  if (fits) context->used -= bytes;
  pthread_mutex_unlock(&lock);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Waits for all queued work, like the real driver. */
API CUresult cuMemFree_v2(CUdeviceptr address) {
  CUcontext context;
  void *const base = (void *)(uintptr_t)address;
  CUresult code = enter(&context);
  if (!code) code = capture_forbids();
  if (code || !address) return code;
  context_drain(context);
  if (pool_free_now(address)) return CUDA_SUCCESS;
  size_t whole = 0;
  int file = -1;
  if (memory_file_of(address, &whole) < 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t size = take(base, KIND_DEVICE, &file);
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  munmap(base, size);
  close(file);
  return CUDA_SUCCESS;
}

/* ---- page-locked memory ---- */

API CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags) {
  CUcontext context;
  CUresult code = enter(&context);
  if (!code) code = capture_forbids();
  if (code) return code;
  if (!bytes || flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
    return CUDA_ERROR_INVALID_VALUE;
  void *const base = fault_takes(FAULT_HOST) ? NULL : map(bytes);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  if (add(context, base, bytes, KIND_HOST, -1)) {
    munmap(base, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = base;
  return CUDA_SUCCESS;
}

/* One address space, as with unified addressing. */
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (flags || !is_locked_range(host, 1) || is_device_range((CUdeviceptr)(uintptr_t)host, 1))
    return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)(uintptr_t)host;
  return CUDA_SUCCESS;
}

API CUresult cuMemFreeHost(void *address) {
  CUcontext context;
  CUresult code = enter(&context);
  if (!code) code = capture_forbids();
  if (code || !address) return code;
  context_drain(context);
  const size_t size = take(address, KIND_HOST, NULL);
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  munmap(address, size);
  return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!bytes || !address || flags & ~(unsigned)CU_MEMHOSTREGISTER_PORTABLE) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const int known = find(address) != NULL;
  pthread_mutex_unlock(&lock);
  return known ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : add(context, address, bytes, KIND_REGISTERED, -1);
}

API CUresult cuMemHostUnregister(void *address) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  return take(address, KIND_REGISTERED, NULL) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* ---- hints: of the host's memory, if CUDA_MOCK_PAGEABLE enables migration ---- */

static atomic_int prefetches, advice_given;

/* For tests: the number of accepted hints. */
API void cuda_mock_hints(int *out_prefetches, int *out_advice);
void cuda_mock_hints(int *out_prefetches, int *out_advice) {
  *out_prefetches = atomic_load(&prefetches);
  *out_advice = atomic_load(&advice_given);
}

static CUresult take_hint(CUdeviceptr address, size_t bytes, CUdevice place, atomic_int *count) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  pthread_mutex_lock(&lock);
  const int known = find((const void *)(uintptr_t)address) != NULL;
  pthread_mutex_unlock(&lock);
  if (!address || !bytes || known || !setting("CUDA_MOCK_PAGEABLE", 0)) return CUDA_ERROR_INVALID_VALUE;
  if (place != CU_DEVICE_CPU && check_device(place)) return CUDA_ERROR_INVALID_DEVICE;
  atomic_fetch_add(count, 1);
  return CUDA_SUCCESS;
}

API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream) {
  const CUresult code = capture_forbids_stream(stream);
  return code ? code : take_hint(address, bytes, to, &prefetches);
}

API CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  return take_hint(address, bytes, device, &advice_given);
}

/* ---- queries ---- */

/* Like the real driver: the result for an unknown address is zeros and success. */
API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                    CUdeviceptr address) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  pthread_mutex_lock(&lock);
  const range_t *const found = find((const void *)(uintptr_t)address);
  const range_t range = found ? *found : (range_t){.base = NULL};
  pthread_mutex_unlock(&lock);
  for (unsigned i = 0; i < count; i++) switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data[i] = !found ? 0 : range.kind == KIND_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: /* such memory cannot be allocated */
        *(unsigned *)data[i] = 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data[i] = found ? range.context->device : -2;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data[i] = (CUdeviceptr)(uintptr_t)range.base;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data[i] = range.size;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  return CUDA_SUCCESS;
}
