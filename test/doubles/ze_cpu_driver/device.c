/* device.c: the driver, its devices (ZE_CPU_DEVICES of them, 1 otherwise) and contexts, and the tables by which the
 * loader finds all functions. A function that is not implemented here returns ZE_RESULT_ERROR_UNSUPPORTED_FEATURE. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define EXPORTED __attribute__((visibility("default")))

device_t devices[MAX_DEVICES];
uint32_t device_count;
static int driver_object, context_object;

uint64_t clock_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- driver ---- */

static ze_result_t init(ze_init_flags_t flags) {
  const char *const text = getenv("ZE_CPU_DEVICES");
  const long wanted = text ? strtol(text, NULL, 10) : 1;
  if (flags & ZE_INIT_FLAG_GPU_ONLY) return ZE_RESULT_ERROR_UNINITIALIZED;
  device_count = wanted < 0 ? 0 : wanted < MAX_DEVICES ? (uint32_t)wanted : MAX_DEVICES;
  for (int32_t i = 0; i < MAX_DEVICES; i++) devices[i].ordinal = i;
  fault_read();
  return ZE_RESULT_SUCCESS;
}

/* Returns the handles of `total` objects of `size` bytes each in the convention of Level Zero: only their number if
   `out` is NULL. */
static ze_result_t list_objects(uint32_t *count, void **out, void *objects, size_t size, uint32_t total) {
  if (!out || !*count || *count > total) *count = total;
  for (uint32_t i = 0; out && i < *count; i++) out[i] = (char *)objects + i * size;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_get(uint32_t *count, ze_driver_handle_t *out) {
  return list_objects(count, (void **)out, &driver_object, 0, 1);
}

static ze_result_t driver_version(ze_driver_handle_t driver, ze_api_version_t *out) {
  (void)driver;
  *out = ZE_API_VERSION_1_4;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_properties(ze_driver_handle_t driver, ze_driver_properties_t *out) {
  (void)driver;
  memset(&out->uuid, 7, sizeof out->uuid);
  out->driverVersion = 1u << 24 | 3 << 16 | 26241;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_extensions(ze_driver_handle_t driver, uint32_t *count,
                                     ze_driver_extension_properties_t *out) {
  (void)driver, (void)out;
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

/* ---- devices ---- */

static ze_result_t device_get(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *out) {
  (void)driver;
  return list_objects(count, (void **)out, devices, sizeof *devices, device_count);
}

/* ZE_CPU_TYPE: "vpu" (the default), "gpu" or "cpu". */
static ze_device_type_t device_type(void) {
  const char *const text = getenv("ZE_CPU_TYPE");
  if (text && strcmp(text, "gpu") == 0) return ZE_DEVICE_TYPE_GPU;
  return text && strcmp(text, "cpu") == 0 ? ZE_DEVICE_TYPE_CPU : ZE_DEVICE_TYPE_VPU;
}

static ze_result_t device_properties(ze_device_handle_t handle, ze_device_properties_t *out) {
  const device_t *const device = (device_t *)handle;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  out->type = device_type();
  out->vendorId = 0;
  out->deviceId = (uint32_t)device->ordinal;
  out->flags = ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
  out->subdeviceId = 0;
  out->coreClockRate = 1000;
  out->maxMemAllocSize = 8ull << 30;
  out->maxHardwareContexts = 64;
  out->maxCommandQueuePriority = 1;
  out->numThreadsPerEU = out->numEUsPerSubslice = out->numSubslicesPerSlice = 1;
  out->physicalEUSimdWidth = 1;
  out->numSlices = cores > 0 ? (uint32_t)cores : 1;
  out->timerResolution = out->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1000000000 : 1; /* Hz or ns */
  out->timestampValidBits = out->kernelTimestampValidBits = 64;
  memset(&out->uuid, 0, sizeof out->uuid);
  snprintf((char *)out->uuid.id, sizeof out->uuid.id, "ze-cpu-%d", (int)device->ordinal);
  snprintf(out->name, sizeof out->name, "ze_cpu_driver (test double) %d", (int)device->ordinal);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_compute(ze_device_handle_t device, ze_device_compute_properties_t *out) {
  (void)device;
  out->maxTotalGroupSize = out->maxGroupSizeX = out->maxGroupSizeY = out->maxGroupSizeZ = 1024;
  out->maxGroupCountX = out->maxGroupCountY = out->maxGroupCountZ = INT32_MAX;
  out->maxSharedLocalMemory = 65536;
  out->numSubGroupSizes = out->subGroupSizes[0] = 1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_module(ze_device_handle_t device, ze_device_module_properties_t *out) {
  (void)device;
  out->spirvVersionSupported = ZE_MAKE_VERSION(1, 2);
  out->flags = ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
  out->fp32flags = out->fp64flags = ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN | ZE_DEVICE_FP_FLAG_FMA;
  out->fp16flags = 0;
  out->maxArgumentsSize = 1024;
  out->printfBufferSize = 0;
  memset(&out->nativeKernelSupported, 0, sizeof out->nativeKernelSupported);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_queue_groups(ze_device_handle_t device, uint32_t *count,
                                       ze_command_queue_group_properties_t *out) {
  (void)device;
  if (out && *count) {
    out->flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    out->maxMemoryFillPatternSize = MAX_PATTERN;
    out->numQueues = QUEUES;
  }
  *count = 1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_memory(ze_device_handle_t device, uint32_t *count, ze_device_memory_properties_t *out) {
  (void)device;
  const char *const text = getenv("ZE_CPU_MEMORY");
  const unsigned long long bytes = text ? strtoull(text, NULL, 10) : 0;
  if (out && *count) {
    out->flags = 0;
    out->maxClockRate = out->maxBusWidth = 0;
    out->totalSize = bytes ? bytes : 8ull << 30;
    snprintf(out->name, sizeof out->name, "host memory");
  }
  *count = 1;
  return ZE_RESULT_SUCCESS;
}

/* Two caches, of which the second is the larger one. */
static ze_result_t device_caches(ze_device_handle_t device, uint32_t *count, ze_device_cache_properties_t *out) {
  static const size_t sizes[] = {32 << 10, 8 << 20};
  (void)device;
  if (!out || !*count || *count > 2) *count = 2;
  for (uint32_t i = 0; out && i < *count; i++) out[i].cacheSize = sizes[i];
  return ZE_RESULT_SUCCESS;
}

/* ZE_CPU_WITHOUT=pci: like a device that is on no bus. */
static ze_result_t device_pci(ze_device_handle_t device, ze_pci_ext_properties_t *out) {
  if (driver_lacks("pci")) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  out->address =
      (ze_pci_address_ext_t){.bus = 0xf0 + (uint32_t)((device_t *)device)->ordinal, .device = 11, .function = 3};
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_can_access(ze_device_handle_t device, ze_device_handle_t peer, ze_bool_t *out) {
  (void)device, (void)peer;
  *out = 1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t device_status(ze_device_handle_t device) {
  return atomic_load(&((device_t *)device)->lost) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static ze_result_t device_timestamps(ze_device_handle_t device, uint64_t *host, uint64_t *own) {
  (void)device;
  *host = *own = clock_now();
  return ZE_RESULT_SUCCESS;
}

static ze_result_t context_create(ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *out) {
  (void)driver, (void)desc;
  *out = (ze_context_handle_t)&context_object;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t context_destroy(ze_context_handle_t context) {
  (void)context;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_ipc(ze_driver_handle_t driver, ze_driver_ipc_properties_t *out) {
  (void)driver;
  out->flags = driver_lacks("ipc") ? 0 : ZE_IPC_PROPERTY_FLAG_MEMORY;
  return ZE_RESULT_SUCCESS;
}

int driver_lacks(const char *what) {
  const char *const list = getenv("ZE_CPU_WITHOUT");
  return list && strstr(list, what);
}

/* ---- tables ---- */

static ze_result_t unsupported(void) { return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; }

/* Fills a whole table with the function that returns UNSUPPORTED_FEATURE. */
static void fill_unsupported(void *table, size_t bytes) {
  ze_result_t (*const function)(void) = unsupported;
  for (size_t at = 0; at < bytes; at += sizeof function) memcpy((char *)table + at, &function, sizeof function);
}

#define TABLE(NAME, TYPE, ...)                                                                                         \
  EXPORTED ze_result_t zeGet##NAME##ProcAddrTable(ze_api_version_t, TYPE *);                                           \
  ze_result_t zeGet##NAME##ProcAddrTable(ze_api_version_t version, TYPE *t) {                                          \
    if (!t) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                               \
    if (version > ZE_API_VERSION_CURRENT && ZE_MAJOR_VERSION(version) > 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION; \
    fill_unsupported(t, sizeof *t);                                                                                    \
    __VA_ARGS__;                                                                                                       \
    return ZE_RESULT_SUCCESS;                                                                                          \
  }

TABLE(Global, ze_global_dditable_t, t->pfnInit = init)
TABLE(Driver, ze_driver_dditable_t, t->pfnGet = driver_get, t->pfnGetApiVersion = driver_version,
      t->pfnGetProperties = driver_properties, t->pfnGetExtensionProperties = driver_extensions,
      t->pfnGetIpcProperties = driver_ipc)
TABLE(Device, ze_device_dditable_t, t->pfnGet = device_get, t->pfnGetProperties = device_properties,
      t->pfnGetComputeProperties = device_compute, t->pfnGetModuleProperties = device_module,
      t->pfnGetCommandQueueGroupProperties = device_queue_groups, t->pfnGetMemoryProperties = device_memory,
      t->pfnGetCacheProperties = device_caches, t->pfnPciGetPropertiesExt = device_pci,
      t->pfnCanAccessPeer = device_can_access, t->pfnGetStatus = device_status,
      t->pfnGetGlobalTimestamps = device_timestamps)
TABLE(Context, ze_context_dditable_t, t->pfnCreate = context_create, t->pfnDestroy = context_destroy)
TABLE(CommandQueue, ze_command_queue_dditable_t, queue_fill_table(t))
TABLE(CommandList, ze_command_list_dditable_t, list_fill_table(t))
TABLE(EventPool, ze_event_pool_dditable_t, event_fill_tables(t, NULL, NULL))
TABLE(Event, ze_event_dditable_t, event_fill_tables(NULL, t, NULL))
TABLE(Fence, ze_fence_dditable_t, event_fill_tables(NULL, NULL, t))
TABLE(Mem, ze_mem_dditable_t, memory_fill_table(t))
TABLE(Module, ze_module_dditable_t, module_fill_tables(t, NULL, NULL))
TABLE(ModuleBuildLog, ze_module_build_log_dditable_t, module_fill_tables(NULL, t, NULL))
TABLE(Kernel, ze_kernel_dditable_t, module_fill_tables(NULL, NULL, t))
TABLE(Image, ze_image_dditable_t, (void)0)
TABLE(PhysicalMem, ze_physical_mem_dditable_t, virtual_fill_tables(NULL, t))
TABLE(Sampler, ze_sampler_dditable_t, (void)0)
TABLE(VirtualMem, ze_virtual_mem_dditable_t, virtual_fill_tables(t, NULL))
