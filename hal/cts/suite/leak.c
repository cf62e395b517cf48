/* leak.c: what many makings and destroyings leave behind, too small to see in the size of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>

#include "cts.h"

enum { TIMES = 500, ROUNDS = 4, LEAST = 16 /* bytes of a leak */ };

/* Bytes that malloc has given out in the arena of this thread; -1 where the C library does not tell (before glibc 2.33). */
static int64_t in_use(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  struct mallinfo2 (*tell)(void) = NULL; /* looked up, so that the program runs with older libraries */
  void *const symbol = dlsym(RTLD_DEFAULT, "mallinfo2");
  if (symbol) memcpy(&tell, &symbol, sizeof tell);
  if (tell) return (int64_t)tell().uordblks;
#endif
  return -1;
}

/* Fails when each of four rounds has left something: a pool fills once, a leak goes on. */
static void check(cts_t *t, void (*once)(cts_t *t), const char *what) {
  int64_t least = INT64_MAX;
  for (int round = 0; round <= ROUNDS; round++) {
    const int64_t before = in_use();
    if (before < 0) cts_skip(t, "the C library does not tell what malloc has given out");
    for (int i = 0; i < TIMES; i++) once(t);
    const int64_t grown = in_use() - before;
    if (round && grown < least) least = grown;
  }
  CTS_CHECK(t, least < TIMES * LEAST / 8, "%s %d times leaves %lld bytes behind, each time anew", what, TIMES,
            (long long)least);
}

static void use_stream(cts_t *t) { CTS_OK(t, stream_destroy, cts_stream(t)); }
static void use_event(cts_t *t) {
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, event_record, event, NULL);
  CTS_OK(t, event_synchronize, event);
  CTS_OK(t, event_destroy, event);
}
static void use_memory(cts_t *t) { cts_free(t, cts_alloc(t, 300)); }
static void use_host_memory(cts_t *t) {
  void *host = NULL;
  CTS_OK(t, host_alloc, t->device, 300, &host);
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

void cts_case_leak_graph(cts_t *t) { check(t, use_graph, "recording a graph, instantiating it and destroying both"); }
void cts_case_leak_stream(cts_t *t) { check(t, use_stream, "making and destroying a stream"); }
void cts_case_leak_event(cts_t *t) { check(t, use_event, "making, recording and destroying an event"); }
void cts_case_leak_memory(cts_t *t) { check(t, use_memory, "allocating and freeing 300 bytes"); }
void cts_case_leak_host_memory(cts_t *t) {
  check(t, use_host_memory, "allocating and freeing 300 bytes of host memory");
}

/* Calls that fail, each in its way; that they do, and how, is for other cases. */
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
