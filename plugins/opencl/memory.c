/* memory.c: device memory of one of four kinds: the best that all devices of the context have, or that of
 * HAL_OPENCL_MEMORY. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <errno.h>
#include <hal/plugin_setting.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture.h"

static const char *const kind_names[OCL_MEMORY_KINDS] = {"usm", "svm-fine", "svm-coarse", "buffer"};

/* ---- the kind --------------------------------------------------------------------------------------------------- */

static void *extension(const char *name) { return icd.clGetExtensionFunctionAddressForPlatform(ocl.platform, name); }

static int has_usm(const ocl_device_t *device) {
  if (!ocl_device_has(device->id, "cl_intel_unified_shared_memory")) return 0;
  static const char *const names[] = {"clDeviceMemAllocINTEL", "clMemFreeINTEL", "clSetKernelArgMemPointerINTEL",
                                      "clEnqueueMemcpyINTEL", "clEnqueueMemFillINTEL"};
  void *symbols[sizeof names / sizeof *names];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(symbols[i] = extension(names[i]))) return 0;
  _Static_assert(sizeof symbols == sizeof ocl.usm, "the names are those of ocl_usm_t, in its order");
  memcpy(&ocl.usm, symbols, sizeof symbols); /* ISO C has no cast to a function pointer */
  return 1;
}

static int has_kind(const ocl_device_t *device, ocl_memory_t kind) {
  const int svm = icd.clSVMAlloc && icd.clSVMFree && icd.clEnqueueSVMMemcpy && icd.clEnqueueSVMMemFill &&
                  icd.clSetKernelArgSVMPointer;
  switch (kind) {
    case OCL_MEMORY_USM:
      return has_usm(device);
    case OCL_MEMORY_SVM_FINE:
      return svm && (device->svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER);
    case OCL_MEMORY_SVM_COARSE:
      return svm && (device->svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER);
    default:
      return 1;
  }
}

/* Returns the first device that lacks a kind of memory, or NULL. */
static const ocl_device_t *who_lacks(ocl_memory_t kind) {
  for (int32_t i = 0; i < ocl.device_count; i++)
    if (!has_kind(&ocl.devices[i], kind)) return &ocl.devices[i];
  return NULL;
}

hal_status_t ocl_memory_choose(void) {
  const char *wanted = hal_setting("HAL_OPENCL_MEMORY");
  if (!wanted || !*wanted) {
    ocl.memory = OCL_MEMORY_USM;
    while (who_lacks(ocl.memory)) ocl.memory++; /* every device has buffers */
    return HAL_OK;
  }
  for (ocl_memory_t kind = 0; kind < OCL_MEMORY_KINDS; kind++) {
    if (strcmp(wanted, kind_names[kind]) != 0) continue;
    const ocl_device_t *device = who_lacks(kind);
    if (device)
      return ocl_error(
          HAL_INVALID_ARGUMENT, 0,
          "opencl: HAL_OPENCL_MEMORY=%s, but '%s' has no such memory; unset it, or set it to buffer, which every "
          "device has",
          wanted, device->name);
    ocl.memory = kind;
    return HAL_OK;
  }
  return ocl_error(HAL_INVALID_ARGUMENT, 0,
                   "opencl: HAL_OPENCL_MEMORY is '%.100s'; set it to usm, svm-fine, svm-coarse or buffer, or unset it",
                   wanted);
}

/* The maximum alignment that a caller may request for shared memory is that of the largest type, long16 (OpenCL 3.0,
 * clSVMAlloc), which is also the default. */
uint32_t ocl_memory_alignment(const ocl_device_t *device) {
  return ocl.memory == OCL_MEMORY_BUFFER ? device->alignment : sizeof(cl_long16);
}

uint64_t ocl_memory_flags(void) { return ocl.memory == OCL_MEMORY_SVM_FINE ? HAL_DEVICE_HOST_VISIBLE : 0; }

/* ---- buffers ---------------------------------------------------------------------------------------------------- */

/* Adds pages without permissions after each buffer's addresses, so that no two ranges are adjacent. */
static size_t reserved_bytes(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return size > SIZE_MAX - 2 * page ? 0 : (size + page - 1) / page * page + page;
}

/* Makes the device allocate the memory now. At its first use a lack of memory would be unexpected. */
static cl_int allocate_now(const ocl_device_t *device, cl_mem memory) {
  cl_event moved = NULL;
  cl_int code = icd.clEnqueueMigrateMemObjects(device->queue, 1, &memory, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                               NULL, &moved);
  if (!code && !moved) code = CL_INVALID_EVENT;
  if (code) return code;
  code = icd.clWaitForEvents(1, &moved);
  icd.clReleaseEvent(moved);
  return code;
}

static cl_int make_buffer(const ocl_device_t *device, ocl_segment_t *segment) {
  cl_int code = CL_SUCCESS;
  const size_t reserved = reserved_bytes(segment->size);
  segment->memory = icd.clCreateBuffer(ocl.context, CL_MEM_READ_WRITE, segment->size, NULL, &code);
  if (!code && !segment->memory) code = CL_INVALID_MEM_OBJECT;
  if (!code) code = allocate_now(device, segment->memory);
  if (!code) {
    void *base =
        reserved ? mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
    if (base == MAP_FAILED)
      code = CL_OUT_OF_HOST_MEMORY;
    else
      segment->base = base;
  }
  if (code && segment->memory) icd.clReleaseMemObject(segment->memory);
  return code;
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

static cl_int make(const ocl_device_t *device, ocl_segment_t *segment) {
  cl_int code = CL_SUCCESS;
  if (ocl.memory == OCL_MEMORY_BUFFER) return make_buffer(device, segment);
  if (ocl.memory == OCL_MEMORY_USM) {
    segment->base = ocl.usm.alloc(ocl.context, device->id, NULL, segment->size, 0, &code);
  } else {
    const cl_svm_mem_flags fine = ocl.memory == OCL_MEMORY_SVM_FINE ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0;
    segment->base = icd.clSVMAlloc(ocl.context, CL_MEM_READ_WRITE | fine, segment->size, 0);
  }
  return segment->base || code ? code : CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

/* Checks the alignment that was reported to the host. */
static hal_status_t check_base(const ocl_device_t *device, const ocl_segment_t *segment) {
  const uint32_t alignment = ocl_memory_alignment(device);
  if ((uintptr_t)segment->base % alignment == 0) return HAL_OK;
  return ocl_error(HAL_INTERNAL, 0,
                   "opencl: the driver of '%s' returned memory (%s) at %p, which is not a multiple of %u; set "
                   "HAL_OPENCL_MEMORY=buffer",
                   device->name, kind_names[ocl.memory], (void *)segment->base, (unsigned)alignment);
}

static void unmake(const ocl_segment_t *segment) {
  if (ocl.memory == OCL_MEMORY_BUFFER) {
    munmap(segment->base, reserved_bytes(segment->size));
    icd.clReleaseMemObject(segment->memory);
  } else if (ocl.memory == OCL_MEMORY_USM) {
    ocl.usm.free(ocl.context, segment->base);
  } else {
    icd.clSVMFree(ocl.context, segment->base);
  }
}

hal_status_t ocl_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = ocl_check_device(ordinal);
  if (!status) status = hal_flags_check("opencl: memory_alloc", flags, 0);
  if (status) return status;
  const ocl_device_t *device = &ocl.devices[ordinal];
  if (!size) return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: memory_alloc of 0 bytes; request at least one");
  if (size > device->most_bytes)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0,
                     "opencl: tried to allocate %zu bytes on '%s', whose driver allocates at most %llu bytes at once "
                     "(CL_DEVICE_MAX_MEM_ALLOC_SIZE); use smaller tensors",
                     size, device->name, (unsigned long long)device->most_bytes);
  ocl_segment_t segment = {.size = size, .device = ordinal};
  const cl_int code = make(device, &segment);
  if (code)
    return ocl_error(
        HAL_RESOURCE_EXHAUSTED, code,
        "opencl: the driver has no %zu bytes of memory (%s) for '%s', which has %llu in total (%s); free some tensors",
        size, kind_names[ocl.memory], device->name, (unsigned long long)device->global_bytes, ocl_error_name(code));
  status = check_base(device, &segment);
  if (!status) status = ocl_map_add(&segment);
  if (status) {
    unmake(&segment);
    return status;
  }
  *out_ptr = segment.base;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = ocl_capture_forbid(NULL, "memory_alloc");
  return status ? status : ocl_memory_alloc(ordinal, size, flags, out_ptr);
}

hal_status_t hal_plugin_memory_free(int32_t ordinal, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  ocl_segment_t segment;
  if (!ocl_map_take(ordinal, ptr, &segment))
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: memory_free(%d, %p): this is not the start of an allocation of this device; free each once",
        (int)ordinal, ptr);
  unmake(&segment);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  ocl_segment_t segment;
  if (atomic_load(&ocl.forked)) return HAL_NOT_FOUND; /* a thread of the parent may hold the table's lock forever */
  if (!ocl_map_find(ptr, &segment) || (size_t)((const char *)ptr - segment.base) >= segment.size)
    return ocl_error(HAL_NOT_FOUND, 0, "opencl: %p is not in an allocation of this plugin", ptr);
  hal_pointer_info_t info = {.struct_size = out_info->struct_size,
                             .base = segment.base,
                             .size = segment.size,
                             .device = segment.device,
                             .kind = segment.device == HAL_HOST ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}
