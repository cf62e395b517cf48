/* leak.c: leaks of many creations and destructions, too small to see in the size of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>

#include "kernel.h"

enum {
  TIMES = 500,
  ROUNDS = 4,
  LEAST = 2,
  OF_MODULE = 200 /* bytes that each time may leak, because compilers in the process keep some */
};

/* Returns the bytes that malloc has allocated in the arena of this thread; -1 if the C library does not report it
 * (before glibc 2.33). */
static int64_t in_use(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  struct mallinfo2 (*tell)(void) = NULL; /* looked up, so that the program runs with older libraries */
  void *const symbol = dlsym(RTLD_DEFAULT, "mallinfo2");
  if (symbol) memcpy(&tell, &symbol, sizeof tell);
  if (tell) return (int64_t)tell().uordblks;
#endif
  return -1;
}

/* Fails if each of four rounds has leaked: a pool fills once, a leak continues. */
static void check_times(cts_t *t, int times, int least_leak, void (*once)(cts_t *t), const char *what) {
  int64_t least = INT64_MAX;
  for (int round = 0; round <= ROUNDS; round++) {
    const int64_t before = in_use();
    if (before < 0) cts_skip(t, "the C library does not report the bytes that malloc has allocated");
    for (int i = 0; i < times; i++) once(t);
    const int64_t grown = in_use() - before;
    if (round && grown < least) least = grown;
  }
  CTS_CHECK(t, least < times * least_leak, "%s %d times leaks %lld bytes, in each round", what, times,
            (long long)least);
}
static void check(cts_t *t, void (*once)(cts_t *t), const char *what) { check_times(t, TIMES, LEAST, once, what); }

static void use_stream(cts_t *t) { CTS_OK(t, stream_destroy, cts_stream(t)); }
static void use_event(cts_t *t) {
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, event_record, event, NULL);
  CTS_OK(t, event_synchronize, event);
  CTS_OK(t, event_destroy, event);
}
static void use_semaphore(cts_t *t) {
  hal_plugin_semaphore_t *semaphore = NULL;
  CTS_OK(t, semaphore_create, t->device, 1, 0, &semaphore);
  CTS_OK(t, stream_signal_semaphore, NULL, semaphore, 2);
  CTS_OK(t, stream_wait_semaphore, NULL, semaphore, 2);
  CTS_OK(t, semaphore_destroy, semaphore);
}
static void use_memory(cts_t *t) { cts_free(t, cts_alloc(t, 300)); }
static void use_host_memory(cts_t *t) {
  void *host = NULL;
  CTS_OK(t, host_alloc, t->device, 300, 0, &host);
  CTS_OK(t, host_free, t->device, host);
}

static void use_graph(cts_t *t) {
  static hal_plugin_stream_t *stream;
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  if (!stream) stream = cts_stream(t), t->scratch = cts_alloc(t, 64);
  CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  CTS_OK(t, memory_fill, stream, t->device, t->scratch, "x", 1, 64);
  CTS_OK(t, capture_end, stream, &graph);
  CTS_OK(t, graph_instantiate, graph, &exec);
  CTS_OK(t, graph_exec_destroy, exec);
  CTS_OK(t, graph_destroy, graph);
}

void cts_case_leak_graph(cts_t *t) {
  check(t, use_graph, "recording a graph, instantiating it and destroying both");
  CTS_JUDGE(t, graph_instantiate, "destroyed by graph_exec_destroy");
}
void cts_case_leak_stream(cts_t *t) {
  check(t, use_stream, "making and destroying a stream");
  CTS_JUDGE(t, stream_create, "Destroyed by stream_destroy");
}
void cts_case_leak_event(cts_t *t) {
  check(t, use_event, "making, recording and destroying an event");
  CTS_JUDGE(t, event_create, "Destroyed by event_destroy");
}
void cts_case_leak_semaphore(cts_t *t) {
  check(t, use_semaphore, "making, signaling, awaiting and destroying a semaphore");
}
void cts_case_leak_memory(cts_t *t) { check(t, use_memory, "allocating and freeing 300 bytes"); }
void cts_case_leak_host_memory(cts_t *t) {
  check(t, use_host_memory, "allocating and freeing 300 bytes of host memory");
}

/* Compiled once, if a module can be exported: memory that a compiler keeps is not tested here. */
static hal_module_desc_t describe_module(cts_t *t) {
  hal_module_desc_t desc = cts_kernels_describe(t, 0);
  size_t size = 0;
  hal_plugin_module_t *const module = cts_module_of(t, &desc);
  if (CTS_PROVIDES(t, module_export) && cts_module_export(t, module, NULL, 0, &size) == HAL_OK) {
    uint8_t *const bytes = cts_host(t, size);
    CTS_OK(t, module_export, module, bytes, size, &size);
    desc.dialect = "binary", desc.data = bytes, desc.size = size;
  }
  CTS_OK(t, module_unload, module);
  return desc;
}
static void use_module(cts_t *t) {
  static hal_module_desc_t desc;
  if (!desc.data) desc = describe_module(t);
  hal_plugin_module_t *const module = cts_module_of(t, &desc);
  cts_kernel_find(t, module, "cts_ramp");
  CTS_OK(t, module_unload, module);
}
static void use_virtual(cts_t *t) {
  const size_t size = (size_t)t->info.virtual_granularity;
  hal_plugin_physical_t *memory = NULL;
  void *base = NULL;
  CTS_OK(t, virtual_reserve, t->device, size, &base);
  CTS_OK(t, virtual_create, t->device, size, HAL_HANDLE_NONE, &memory);
  CTS_OK(t, virtual_map, t->device, base, size, memory);
  CTS_OK(t, virtual_unmap, t->device, base, size);
  CTS_OK(t, virtual_release, t->device, memory);
  CTS_OK(t, virtual_unreserve, t->device, base, size);
}

/* Fewer: a compiler, a network and pages take time. */
void cts_case_leak_module(cts_t *t) {
  check_times(t, TIMES / 2, OF_MODULE, use_module, "loading and unloading a module");
  CTS_GENERAL(t, "The side that created an object frees it");
}
void cts_case_leak_virtual(cts_t *t) {
  if (!t->info.virtual_granularity) cts_skip(t, "device_info reports no virtual_granularity");
  check_times(t, TIMES / 5, LEAST, use_virtual, "making, mapping and releasing virtual memory");
}

/* Calls that fail, each in another way; other cases test how they fail. */
static void fail_alloc(cts_t *t) {
  void *ptr = NULL;
  CTS_STATUS(t, HAL_RESOURCE_EXHAUSTED, memory_alloc, t->device, SIZE_MAX / 2 - 4095, 0, &ptr);
}
static void fail_load(cts_t *t) {
  hal_plugin_module_t *module = NULL;
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = "cts-no-such-dialect",
                                  .options = "",
                                  .data = "x",
                                  .size = 1};
  if (!cts_module_load(t, t->device, &desc, &module)) CTS_OK(t, module_unload, module);
}
static void fail_fill(cts_t *t) { (void)cts_memory_fill(t, NULL, t->device, t->scratch, "abc", 3, 12); }
static void fail_elapsed(cts_t *t) {
  int64_t nanoseconds = 0;
  hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_TIMING);
  (void)cts_event_elapsed(t, event, event, &nanoseconds);
  CTS_OK(t, event_destroy, event);
}

void cts_case_leak_failures(cts_t *t) {
  t->scratch = cts_alloc(t, 64);
  check(t, fail_alloc, "failing in memory_alloc");
  if (CTS_PROVIDES(t, module_load)) {
    CTS_JUDGE(t, module_load, "HAL_UNIMPLEMENTED = dialect");
    check(t, fail_load, "failing in module_load");
  }
  if (CTS_PROVIDES(t, memory_fill)) {
    CTS_JUDGE(t, memory_fill, "Errors: HAL_INVALID_ARGUMENT");
    check(t, fail_fill, "failing in memory_fill");
  }
  if (CTS_PROVIDES(t, event_elapsed)) {
    CTS_JUDGE(t, event_elapsed, "HAL_FAILED_PRECONDITION");
    check(t, fail_elapsed, "failing in event_elapsed");
  }
}
