/* sanitize.c: start of the checks, the stacks of submissions, and the work that each thread runs. */
#define _GNU_SOURCE
#include "sanitize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hal/plugin_records.h"

fake_sanitize_settings_t fake_sanitize;
fake_access_t fake_sanitize_access;

static const hal_stacks_t *stacks; /* NULL: an older host */
static pid_t process;

/* By thread, without thread-local state, which instrumented kernels could not access. An entry belongs to a thread from
 * its first work on, and then to threads at the same address. */
static fake_thread_t threads[FAKE_THREADS];
static atomic_uint used;

const void *fake_sanitize_stack(void) { return stacks ? stacks->capture() : NULL; }

int fake_sanitize_is_unchecked(void) { return stacks && stacks->is_unchecked(); }

size_t fake_sanitize_describe(const void *stack, char *text, size_t size) {
  return stacks ? stacks->describe(stack, text, size) : (size_t)snprintf(text, size, "    unknown\n");
}

void fake_sanitize_operators(const char *kernel, char *text, size_t size) {
  if (size) text[0] = '\0';
  if (stacks) stacks->operators(kernel, text, size);
}

/* ---- the end of the process -------------------------------------------------------------------------------------- */

static void lost(int32_t device, const void *address) {
  fake_block_t block;
  if (fake_arena_find(address, &block) && block.base == address && block.device == device && !block.is_released)
    fake_report_leak(&block);
}

static const hal_lost_blocks_t lost_blocks = {
    .base = {.struct_size = HAL_STRUCT_SIZE(hal_lost_blocks_t, lost), .name = HAL_LOST_BLOCKS}, .lost = lost};

const hal_extension_t *fake_sanitize_extension(void) {
  return fake_sanitizes(FAKE_SANITIZE_LEAK) ? &lost_blocks.base : NULL;
}

/* Handlers that the program registered before this one do not run if there is an exit code. */
static void end_process(void) {
  if (getpid() != process) return; /* a forked child, whose memory belongs to the parent */
  if (fake_sanitizes(FAKE_SANITIZE_LEAK)) {
    if (stacks) stacks->drain();
    fake_block_t *const leaks = fake_arena_live();
    for (const fake_block_t *block = leaks; block; block = block->next) fake_report_leak(block);
  }
  if (!fake_report_count() || !fake_sanitize.exit_code) return;
  fflush(NULL);
  _exit((int)fake_sanitize.exit_code);
}

hal_status_t fake_sanitize_init(const fake_sanitize_settings_t *settings) {
  fake_sanitize = *settings;
  if (!settings->classes) return HAL_OK;
  stacks = (const hal_stacks_t *)(const void *)hal_extension_find(hal_host->extensions, HAL_STACKS,
                                                                  HAL_STRUCT_SIZE(hal_stacks_t, drain));
  hal_status_t status = fake_arena_init();
  if (status) return status;
  const int init = fake_sanitizes(FAKE_SANITIZE_INIT);
  fake_sanitize_access.needs =
      (init ? FAKE_SHADOW_LIVE | FAKE_SHADOW_WRITTEN : FAKE_SHADOW_LIVE) * UINT64_C(0x0101010101010101);
  fake_sanitize_access.marks = (uint32_t)init;
  fake_sanitize_access.report = fake_report_access;
  fake_sanitize_access.threads = threads;
  if (fake_races()) status = fake_race_init();
  if (status) return status;
  status = fake_checked_open();
  process = getpid();
  const int ends = settings->exit_code || settings->classes & FAKE_SANITIZE_LEAK;
  if (!status && ends && atexit(end_process))
    status = fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no memory to register a handler of the process's end");
  return status;
}

/* ---- the work of threads ----------------------------------------------------------------------------------------- */

fake_thread_t *fake_sanitize_thread(void) {
  uintptr_t own;
  FAKE_THREAD_POINTER(own);
  for (uintptr_t i = 0; i < FAKE_THREADS - 1; i++) { /* one remains free, which ends a search */
    fake_thread_t *const entry = &threads[(FAKE_THREAD_HASH(own) + i) % FAKE_THREADS];
    uintptr_t owner = __atomic_load_n(&entry->thread, __ATOMIC_RELAXED);
    if (owner == own) return entry;
    if (!owner && used < FAKE_THREADS - 1 &&
        __atomic_compare_exchange_n(&entry->thread, &owner, own, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      atomic_fetch_add(&used, 1);
      return entry;
    }
  }
  return NULL;
}

const fake_work_t *fake_sanitize_enter(fake_thread_t *thread, const fake_work_t *work) {
  const fake_work_t *const outer = thread->work;
  thread->work = work;
  memset(thread->ranges, 0, sizeof thread->ranges);
  thread->is_compared = fake_races() && work && work->trace && work->trace->clock;
  if (!thread->is_compared) return outer;
  thread->mine = (uint32_t)work->trace->number << 5;
  thread->gap = work->trace->gap << 5;
  thread->span = (UINT32_C(1) << 31) - thread->gap;
  thread->shared = 1;
  thread->from = thread->to = 0;
  memset(thread->known, 0, sizeof thread->known);
  thread->known[(thread->mine >> 5) % FAKE_KNOWN] = thread->mine >> 4;
  return outer;
}

void fake_sanitize_submit(hal_plugin_stream_t *stream, fake_trace_t *trace) {
  *trace = (fake_trace_t){.stack = fake_sanitize_stack(), .unchecked = fake_sanitize_is_unchecked()};
  if (fake_races() && !(stream && fake_is_captured(stream))) fake_timeline_submit(fake_timeline_of(stream), trace);
}

/* A kernel that is not instrumented may write everything that its arguments point to. */
static void mark_arguments(const hal_host_kernel_t *kernel, void *const *args) {
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    void *value = NULL;
    memcpy(&value, args[i], sizeof value); /* each value has at least eight bytes in the queue */
    if (fake_arena_has(value)) fake_check_unknown(value);
  }
}

void fake_sanitize_compute(hal_plugin_stream_t *owner, const fake_trace_t *trace, const hal_host_kernel_t *kernel,
                           const hal_host_range_t *range, void *const *args) {
  const fake_work_t work = {.kernel = kernel, .stream = owner, .trace = trace, .args = args};
  fake_thread_t *const thread = fake_sanitize_thread();
  const fake_work_t *const outer = thread ? fake_sanitize_enter(thread, &work) : NULL;
  if (kernel->reserved == FAKE_NOT_INSTRUMENTED && fake_sanitizes(FAKE_SANITIZE_INIT)) mark_arguments(kernel, args);
  kernel->fn(range, args);
  if (thread) fake_sanitize_enter(thread, outer);
}

fake_work_t fake_sanitize_work(void) {
  const fake_thread_t *const thread = fake_sanitize_thread();
  return thread && thread->work ? *thread->work : (fake_work_t){.kernel = NULL};
}

void fake_sanitize_fork_child(void) {
  for (uint32_t i = 0; i < FAKE_THREADS; i++) /* the others are zero, and mostly have no pages */
    if (threads[i].thread) memset(&threads[i], 0, sizeof threads[i]);
  atomic_store(&used, 0);
  fake_clock_fork_child();
  fake_race_fork_child();
  fake_arena_fork_child();
  fake_report_fork_child();
}
