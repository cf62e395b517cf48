/* virtual.c: separate addresses and memory: reserved ranges without permissions, memory files that are mapped into
 * them, and memory of other processes, by the numbers of their files. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mock.h"

enum { GRANULARITY = 2 << 20 };

typedef struct memory_s {
  size_t size;
  int file;
  CUdevice device;
  int shared; /* it may be exported */
} memory_t;

static int fits(CUdeviceptr address, size_t bytes) {
  return bytes && bytes % GRANULARITY == 0 && address % GRANULARITY == 0;
}

API CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                           CUmemAllocationGranularity_flags which) {
  (void)which;
  const CUresult code = check_device(properties->location.id);
  if (!code) *bytes = GRANULARITY;
  return code;
}

/* ---- addresses ---- */

API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                                 unsigned long long flags) {
  const CUresult code = check_initialised();
  if (code) return code;
  (void)wish;
  if (!fits(0, bytes) || alignment || flags) return CUDA_ERROR_INVALID_VALUE;
  const size_t whole = bytes + GRANULARITY;
  char *const range = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  char *const base = range + (GRANULARITY - (uintptr_t)range % GRANULARITY) % GRANULARITY;
  if (base > range) munmap(range, (size_t)(base - range));
  if (base + bytes < range + whole) munmap(base + bytes, (size_t)(range + whole - base - bytes));
  *address = (CUdeviceptr)(uintptr_t)base;
  return CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!fits(address, bytes) || is_device_range(address, 1)) return CUDA_ERROR_INVALID_VALUE;
  return munmap((void *)(uintptr_t)address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- memory ---- */

static CUresult make(size_t bytes, int file, CUdevice device, int shared, CUmemGenericAllocationHandle *handle) {
  memory_t *const memory = malloc(sizeof *memory);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = (memory_t){bytes, file, device, shared};
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
  return CUDA_SUCCESS;
}

static memory_t *memory_of(CUmemGenericAllocationHandle handle) { return (memory_t *)(uintptr_t)handle; }

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                         unsigned long long flags) {
  CUresult code = check_device(properties->location.id);
  if (code) return code;
  if (!fits(0, bytes) || flags || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_ALLOC) || bytes > memory_of_device()) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("cuda_mock", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  code = ftruncate(file, (off_t)bytes) ? CUDA_ERROR_OUT_OF_MEMORY
                                       : make(bytes, file, properties->location.id,
                                              properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE, handle);
  if (code) close(file);
  return code;
}

/* A mapping remains until it is unmapped: it keeps its file open. */
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  close(memory_of(handle)->file);
  free(memory_of(handle));
  return CUDA_SUCCESS;
}

/* No access before cuMemSetAccess enables it. */
API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
  const CUresult code = check_initialised();
  if (code) return code;
  const memory_t *const memory = memory_of(handle);
  void *const base = (void *)(uintptr_t)address;
  if (!memory || !fits(address, bytes) || offset || flags || bytes > memory->size || is_device_range(address, 1))
    return CUDA_ERROR_INVALID_VALUE;
  if (mmap(base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return memory_add_mapped(&contexts[memory->device], base, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const CUresult code = check_initialised();
  void *const base = (void *)(uintptr_t)address;
  if (code) return code;
  if (!fits(address, bytes) || !memory_take_mapped(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const void *const cleared =
      mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return cleared == MAP_FAILED ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* All devices share the host's address space: access of one device applies to all. */
API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count) {
  const CUresult code = check_initialised();
  int permissions = PROT_NONE;
  if (code) return code;
  if (!fits(address, bytes) || !is_device_range(address, bytes) || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (list[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) permissions |= PROT_READ;
    if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) permissions |= PROT_WRITE;
  }
  return mprotect((void *)(uintptr_t)address, bytes, permissions) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType type, unsigned long long flags) {
  const memory_t *const memory = memory_of(handle);
  if (!memory || !memory->shared || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(memory->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *(int *)shared = file;
  return CUDA_SUCCESS;
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                            CUmemAllocationHandleType type) {
  struct stat about;
  const int theirs = (int)(uintptr_t)shared;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(theirs, &about) || !fits(0, (size_t)about.st_size))
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult code = make((size_t)about.st_size, file, 0, 1, handle);
  if (code) close(file);
  return code;
}

/* ---- other processes ---- */

typedef struct theirs_s { /* in a CUipcMemHandle */
  char magic[8];
  int32_t process, file;
  uint64_t size;
} theirs_t;
static const char magic[8] = "mockgpu";

void process_handle_write(void *handle, int file, size_t size) {
  theirs_t own = {.process = getpid(), .file = file, .size = size};
  memcpy(own.magic, magic, sizeof magic);
  memset(handle, 0, sizeof(CUipcMemHandle));
  memcpy(handle, &own, sizeof own);
}

CUresult process_handle_open(const void *handle, int *out_file, size_t *out_size) {
  theirs_t theirs;
  char path[64];
  memcpy(&theirs, handle, sizeof theirs);
  if (memcmp(theirs.magic, magic, sizeof magic) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (theirs.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)theirs.process, (int)theirs.file);
  *out_file = open(path, O_RDWR | O_CLOEXEC);
  *out_size = theirs.size;
  return *out_file < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  CUcontext context;
  size_t size = 0;
  const CUresult code = enter(&context);
  if (code) return code;
  const int file = memory_file_of(address, &size);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  process_handle_write(handle, file, size);
  return CUDA_SUCCESS;
}

/* Like the real driver, not in the process that created it. */
API CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
  CUcontext context;
  int file = -1;
  size_t size = 0;
  CUresult code = enter(&context);
  if (code) return code;
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  code = process_handle_open(&handle, &file, &size);
  if (code) return code;
  void *const base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!memory_add_mapped(context, base, size)) {
    munmap(base, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = (CUdeviceptr)(uintptr_t)base;
  return CUDA_SUCCESS;
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  const size_t size = memory_size_of(address);
  if (!size || !memory_take_mapped((void *)(uintptr_t)address, size)) return CUDA_ERROR_INVALID_VALUE;
  munmap((void *)(uintptr_t)address, size);
  return CUDA_SUCCESS;
}
