/* context.c: initialization of the library, its devices, and their primary contexts. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mock.h"

struct CUctx_st contexts[MAX_DEVICES];
int device_count;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int initialised, forked;
static _Thread_local CUcontext current;

long long setting(const char *name, long long otherwise) {
  const char *const text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

size_t memory_of_device(void) { return (size_t)setting("CUDA_MOCK_MEMORY", 8LL << 30); }

/* For nvml.c: the memory of a device that this process uses, and all of its memory. */
API void cuda_mock_memory(int device, unsigned long long *out_used, unsigned long long *out_total);
void cuda_mock_memory(int device, unsigned long long *out_used, unsigned long long *out_total) {
  pthread_mutex_lock(&lock);
  *out_used = contexts[device].used;
  *out_total = memory_of_device();
  pthread_mutex_unlock(&lock);
}

uint64_t clock_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- initialization ---- */

static void fork_child(void) { atomic_store(&forked, 1); }

static void begin(void) {
  const long long wanted = setting("CUDA_MOCK_DEVICES", 1);
  device_count = wanted < 0 ? 0 : wanted > MAX_DEVICES ? MAX_DEVICES : (int)wanted;
  for (int i = 0; i < MAX_DEVICES; i++) contexts[i].device = i;
  fault_read();
  pthread_atfork(NULL, NULL, fork_child);
  if (device_count) atomic_store(&initialised, 1);
}

/* Like the real driver, it does not work in the child of a process that has called it. */
API CUresult cuInit(unsigned int flags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (atomic_load(&forked)) return CUDA_ERROR_NOT_INITIALIZED;
  const long long refused = setting("CUDA_MOCK_INIT", 0); /* a CUresult that it returns */
  if (refused) return (CUresult)refused;
  pthread_once(&once, begin);
  return device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult check_initialised(void) {
  return atomic_load(&initialised) && !atomic_load(&forked) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult check_device(CUdevice device) {
  const CUresult code = check_initialised();
  return code ? code : device < 0 || device >= device_count ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUcontext current_context(void) { return current; }

CUresult enter(CUcontext *out_context) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current->retained) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out_context = current;
  return (CUresult)atomic_load(&current->error);
}

/* ---- devices ---- */

API CUresult cuDeviceGetCount(int *count) {
  const CUresult code = check_initialised();
  if (!code) *count = device_count;
  return code;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  const CUresult code = check_device(ordinal);
  if (!code) *device = ordinal;
  return code;
}

API CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
  const CUresult code = check_device(device);
  if (!code) snprintf(name, (size_t)room, "this machine's processors (test double) %d", (int)device);
  return code;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  const CUresult code = check_device(device);
  if (!code) snprintf(uuid->bytes, sizeof uuid->bytes, "mock-gpu %c", '0' + (int)device);
  return code;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  const CUresult code = check_device(device);
  if (!code) *bytes = memory_of_device();
  return code;
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  const int capability = (int)setting("CUDA_MOCK_CAPABILITY", 90);
  const CUresult code = check_device(device);
  if (code) return code;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 99 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *value = setting("CUDA_MOCK_POOLS", 1) != 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = MOST_PITCH;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 2;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 3;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: /* of CUDA 12.2; -1: the machine has one node */
      if (setting("CUDA_MOCK_VERSION", 13000) < 12020) return CUDA_ERROR_INVALID_VALUE;
      *value = (int)setting("CUDA_MOCK_NUMA", -1);
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      *value = setting("CUDA_MOCK_PAGEABLE", 0) != 0;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = device + 1;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

static int peers_reach(CUdevice device, CUdevice peer) { return device != peer && setting("CUDA_MOCK_PEERS", 1); }

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  CUresult code = check_device(device);
  if (!code) code = check_device(peer);
  if (!code) *can = peers_reach(device, peer);
  return code;
}

/* ---- contexts ---- */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  const CUresult code = check_device(device);
  if (code) return code;
  if (fault_takes(FAULT_CONTEXT)) return CUDA_ERROR_DEVICE_UNAVAILABLE; /* another process has exclusive access to it */
  pthread_mutex_lock(&lock);
  contexts[device].retained++;
  pthread_mutex_unlock(&lock);
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

/* Destroys a context with all its objects, and its error. */
static void end_context(CUcontext context) {
  context_drain(context);
  streams_release(context);
  pthread_mutex_lock(&lock);
  memory_release_all(context);
  context->peers = 0;
  pthread_mutex_unlock(&lock);
  atomic_store(&context->error, 0);
}

/* It stays retained. */
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const CUresult code = check_device(device);
  if (code) return code;
  if (fault_takes(FAULT_RESET)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  end_context(&contexts[device]);
  return CUDA_SUCCESS;
}

/* The last release destroys the context. */
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const CUresult code = check_device(device);
  if (code) return code;
  CUcontext const context = &contexts[device];
  pthread_mutex_lock(&lock);
  const int left = context->retained ? --context->retained : -1;
  pthread_mutex_unlock(&lock);
  if (left < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!left) end_context(context);
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
  const CUresult code = check_initialised();
  if (!code) *context = current;
  return code;
}

API CUresult cuCtxSetCurrent(CUcontext context) {
  const CUresult code = check_initialised();
  if (!code) current = context;
  return code;
}

API CUresult cuCtxSynchronize(void) {
  CUcontext context;
  CUresult code = enter(&context);
  if (!code) code = capture_forbids();
  if (code) return code;
  context_drain(context);
  return (CUresult)atomic_load(&context->error);
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CUcontext context;
  CUresult code = enter(&context);
  if (code) return code;
  if (flags || !peer) return CUDA_ERROR_INVALID_VALUE;
  if (!peers_reach(context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  pthread_mutex_lock(&lock);
  if (context->peers & 1u << peer->device) code = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  context->peers |= 1u << peer->device;
  pthread_mutex_unlock(&lock);
  return code;
}
