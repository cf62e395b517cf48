/* Tests of the mock of CUDA's driver through its API, without the plugin: it behaves as the driver's manual
   specifies. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../../plugins/cuda/driver_api.h"

#define MEMBER(name, version, parameters) CUresult(*name) parameters;
static struct { CUDA_CALLS(MEMBER) CUDA_LATER_CALLS(MEMBER) } drv;
static CUcontext context;

#define GOOD(call) cr_assert_eq((call), CUDA_SUCCESS, #call)

static void open_library(void) {
  cuda_find_fn find = NULL;
  CUdriverProcAddressQueryResult found;
  setenv("CUDA_MOCK_DEVICES", "2", 1);
  void *const library = dlopen("libcuda.so.1", RTLD_NOW), *const symbol = dlsym(library, "cuGetProcAddress_v2");
  memcpy(&find, &symbol, sizeof find);
#define FIND(name, version, parameters) \
  GOOD(find(#name, (void **)(void *)&drv.name, version, 0, &found)); /* like the manual's own examples */
  CUDA_CALLS(FIND)
  CUDA_LATER_CALLS(FIND)
}

static void begin(void) {
  open_library();
  GOOD(drv.cuInit(0));
  GOOD(drv.cuDevicePrimaryCtxRetain(&context, 0));
  GOOD(drv.cuCtxSetCurrent(context));
}
TestSuite(cuda_mock, .init = begin);
TestSuite(cuda_mock_fresh, .init = open_library);

static CUdeviceptr words(size_t count) {
  CUdeviceptr address = 0;
  GOOD(drv.cuMemAlloc(&address, 4 * count));
  return address;
}

static unsigned word_at(CUdeviceptr from) {
  unsigned word = 0;
  CUstream own = NULL;
  GOOD(drv.cuStreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuMemcpyDtoHAsync(&word, from, 4, own));
  GOOD(drv.cuStreamSynchronize(own));
  GOOD(drv.cuStreamDestroy(own));
  return word;
}

/* A gate: work queued after it waits until the gate is opened. */
static atomic_int is_open;
static void wait_for_gate(CUstream stream, CUresult status, void *data) {
  (void)stream, (void)status, (void)data;
  while (!atomic_load(&is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}
static void close_gate(CUstream stream) {
  atomic_store(&is_open, 0);
  GOOD(drv.cuStreamAddCallback(stream, wait_for_gate, NULL, 0));
}
static void open_gate(void) { atomic_store(&is_open, 1); }

Test(cuda_mock_fresh, nothing_works_before_init_or_without_a_context) {
  int count = 0, version = 0;
  CUdeviceptr address = 0;
  GOOD(drv.cuDriverGetVersion(&version));
  cr_assert_eq(version, 13000);
  cr_assert_eq(drv.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  GOOD(drv.cuInit(0));
  GOOD(drv.cuDeviceGetCount(&count));
  cr_assert_eq(count, 2);
  cr_assert_eq(drv.cuMemAlloc(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
}

Test(cuda_mock, a_primary_context_exists_until_it_is_released_as_often_as_retained) {
  CUcontext again = NULL;
  const CUdeviceptr address = words(1);
  size_t free_before = 0, free_after = 0, total = 0;
  GOOD(drv.cuDevicePrimaryCtxRetain(&again, 0));
  cr_assert_eq(again, context);
  GOOD(drv.cuDevicePrimaryCtxRelease(0));
  GOOD(drv.cuMemsetD32Async(address, 1, 1, NULL));
  GOOD(drv.cuMemGetInfo(&free_before, &total));
  GOOD(drv.cuDevicePrimaryCtxRelease(0));
  cr_assert_eq(drv.cuMemsetD32Async(address, 1, 1, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  cr_assert_eq(drv.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  GOOD(drv.cuDevicePrimaryCtxRetain(&again, 0));
  GOOD(drv.cuMemGetInfo(&free_after, &total));
  cr_assert_eq(free_after, free_before + 4, "its memory went with it");
}

Test(cuda_mock, the_legacy_stream_waits_for_blocking_streams_and_they_for_it) {
  CUstream blocking = NULL, free_stream = NULL;
  const CUdeviceptr a = words(1), b = words(1), c = words(1);
  GOOD(drv.cuStreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
  GOOD(drv.cuStreamCreateWithPriority(&free_stream, CU_STREAM_NON_BLOCKING, 0));
  close_gate(blocking);
  GOOD(drv.cuMemsetD32Async(a, 1, 1, blocking));
  GOOD(drv.cuMemcpyDtoDAsync(b, a, 4, NULL)); /* after the gate */
  GOOD(drv.cuMemcpyDtoDAsync(c, b, 4, blocking));
  GOOD(drv.cuMemsetD32Async(a, 7, 1, free_stream)); /* which waits for neither */
  GOOD(drv.cuStreamSynchronize(free_stream));
  cr_assert_eq(word_at(a), 7);
  cr_assert_eq(drv.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
  open_gate();
  GOOD(drv.cuStreamSynchronize(blocking));
  cr_assert_eq(word_at(c), 1);
}

static void *use_own_stream(void *address) {
  GOOD(drv.cuCtxSetCurrent(context));
  const CUstream own = (CUstream)2; /* CU_STREAM_PER_THREAD */
  GOOD(drv.cuMemsetD32Async(*(CUdeviceptr *)address, 5, 1, own));
  GOOD(drv.cuStreamSynchronize(own));
  return NULL;
}

Test(cuda_mock, each_thread_has_a_default_stream_of_its_own) {
  pthread_t thread;
  CUdeviceptr address = words(1);
  const CUstream own = (CUstream)2;
  close_gate(own);
  pthread_create(&thread, NULL, use_own_stream, &address);
  pthread_join(thread, NULL); /* although this thread waits */
  cr_assert_eq(drv.cuStreamQuery(own), CUDA_ERROR_NOT_READY);
  cr_assert_eq(word_at(address), 5);
  open_gate();
  GOOD(drv.cuStreamSynchronize(own));
}

Test(cuda_mock, a_wait_is_for_the_record_before_it_and_an_event_may_go_before_its_wait_is_over) {
  CUstream first = NULL, second = NULL;
  CUevent event = NULL;
  const CUdeviceptr a = words(1), b = words(1);
  GOOD(drv.cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  GOOD(drv.cuEventQuery(event)); /* never recorded */
  close_gate(first);
  GOOD(drv.cuMemsetD32Async(a, 3, 1, first));
  GOOD(drv.cuEventRecord(event, first));
  cr_assert_eq(drv.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  GOOD(drv.cuStreamWaitEvent(second, event, 0));
  GOOD(drv.cuEventDestroy(event));
  GOOD(drv.cuMemcpyDtoDAsync(b, a, 4, second));
  open_gate();
  GOOD(drv.cuStreamSynchronize(second));
  cr_assert_eq(word_at(b), 3);
}

Test(cuda_mock, an_error_of_work_sticks_to_its_context_and_to_no_other) {
  CUcontext other = NULL;
  CUdeviceptr there = 0;
  int (*fault)(const char *) = NULL;
  void *const symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuda_mock_fault_set");
  memcpy(&fault, &symbol, sizeof fault);
  const CUdeviceptr address = words(1);
  cr_assert_eq(fault("code=716,lost=0"), 0);
  GOOD(drv.cuMemsetD32Async(address, 1, 1, NULL));
  cr_assert_eq(drv.cuStreamSynchronize(NULL), CUDA_ERROR_MISALIGNED_ADDRESS);
  cr_assert_eq(drv.cuMemFree(address), CUDA_ERROR_MISALIGNED_ADDRESS);
  GOOD(drv.cuDevicePrimaryCtxRetain(&other, 1));
  GOOD(drv.cuCtxSetCurrent(other));
  GOOD(drv.cuMemAlloc(&there, 4));
}

Test(cuda_mock, ranges_that_are_not_a_devices_are_refused) {
  unsigned word = 0;
  const CUdeviceptr address = words(2);
  cr_assert_eq(drv.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)&word, &word, 4, NULL), CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(drv.cuMemcpyHtoDAsync(address + 4, &word, 8, NULL), CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(drv.cuMemsetD32Async(address + 2, 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(drv.cuMemFree(address + 4), CUDA_ERROR_INVALID_VALUE);
  GOOD(drv.cuMemFree(address));
  cr_assert_eq(drv.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

Test(cuda_mock, handles_of_another_context_are_refused) {
  CUcontext other = NULL;
  CUstream stream = NULL;
  CUevent event = NULL;
  GOOD(drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuDevicePrimaryCtxRetain(&other, 1));
  GOOD(drv.cuCtxSetCurrent(other));
  GOOD(drv.cuEventCreate(&event, CU_EVENT_DEFAULT));
  cr_assert_eq(drv.cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
  cr_assert_eq(drv.cuMemsetD32Async(words(1), 1, 1, stream), CUDA_ERROR_INVALID_HANDLE);
  GOOD(drv.cuEventDestroy(event));
}

/* ---- pools ---- */

static CUmemoryPool new_pool(void) {
  CUmemoryPool pool = NULL;
  const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  GOOD(drv.cuMemPoolCreate(&pool, &properties));
  return pool;
}

static size_t reserved(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  GOOD(drv.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
  return bytes;
}

Test(cuda_mock, a_pool_keeps_as_much_as_its_threshold_when_a_stream_has_been_waited_for) {
  CUdeviceptr first = 0, second = 0;
  CUstream stream = NULL;
  CUmemoryPool const pool = new_pool();
  cuuint64_t keep = 8192;
  GOOD(drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  GOOD(drv.cuMemAllocFromPoolAsync(&first, 8192, pool, stream));
  GOOD(drv.cuMemAllocFromPoolAsync(&second, 100, pool, stream));
  cr_assert_eq(reserved(pool), 8192 + 512);
  GOOD(drv.cuMemFreeAsync(first, stream));
  GOOD(drv.cuMemFreeAsync(second, stream));
  GOOD(drv.cuStreamSynchronize(stream));
  cr_assert_leq(reserved(pool), 8192);
  GOOD(drv.cuMemPoolTrimTo(pool, 0));
  cr_assert_eq(reserved(pool), 0);
  GOOD(drv.cuStreamDestroy(stream));
}

Test(cuda_mock, what_is_no_memory_of_a_pool_and_what_was_freed_is_refused) {
  CUdeviceptr address = 0;
  CUstream stream = NULL;
  CUmemoryPool const pool = new_pool();
  GOOD(drv.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  GOOD(drv.cuMemAllocFromPoolAsync(&address, 4096, pool, stream));
  GOOD(drv.cuMemsetD32Async(address, 7, 1024, stream));
  cr_assert_eq(drv.cuMemFreeAsync(address + 512, stream), CUDA_ERROR_INVALID_VALUE);
  GOOD(drv.cuMemFreeAsync(address, stream));
  cr_assert_eq(drv.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
  cr_assert_neq(drv.cuMemsetD32Async(address, 7, 1024, stream), CUDA_SUCCESS);
  cr_assert_eq(drv.cuMemAllocFromPoolAsync(&address, 0, pool, stream), CUDA_ERROR_INVALID_VALUE);
  GOOD(drv.cuMemAllocFromPoolAsync(&address, 4096, pool, stream));
  GOOD(drv.cuMemFree(address)); /* like any other memory */
  GOOD(drv.cuStreamDestroy(stream));
}
