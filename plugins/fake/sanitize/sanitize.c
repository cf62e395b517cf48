/* sanitize.c: start of the checks, the stacks of submissions, and the work that each thread runs. */
#define _GNU_SOURCE
#include "sanitize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hal/plugin_records.h"

fake_sanitize_settings_t fake_sanitize;
fake_access_t fake_sanitize_access;

static const hal_stacks_t *stacks; /* NULL: an older host */
static pid_t process;

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

hal_status_t hal_plugin_extensions(const hal_extension_t **out_first) {
  *out_first = fake_sanitizes(FAKE_SANITIZE_LEAK) ? &lost_blocks.base : NULL;
  return HAL_OK;
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
  status = fake_checked_open();
  process = getpid();
  const int ends = settings->exit_code || settings->classes & FAKE_SANITIZE_LEAK;
  if (!status && ends && atexit(end_process))
    status = fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no memory to register a handler of the process's end");
  return status;
}

/* ---- the work of threads ----------------------------------------------------------------------------------------- */

/* By thread, without thread-local state (protect.c). An entry belongs to a thread from its first work on. */
enum { PLACES = 4096 };
static struct {
  atomic_long thread;
  _Atomic(const fake_work_t *) work;
} places[PLACES];

/* Returns the calling thread's entry; NULL: there are more threads than entries. */
static _Atomic(const fake_work_t *) *place(void) {
  const long thread = syscall(SYS_gettid);
  for (long i = 0; i < PLACES; i++) {
    const long at = (thread + i) % PLACES;
    long owner = atomic_load_explicit(&places[at].thread, memory_order_relaxed);
    if (owner == thread) return &places[at].work;
    if (!owner && atomic_compare_exchange_strong(&places[at].thread, &owner, thread)) return &places[at].work;
  }
  return NULL;
}

/* A kernel that is not instrumented may write everything that its arguments point to. */
static void mark_arguments(const hal_host_kernel_t *kernel, void *const *args) {
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    void *value = NULL;
    memcpy(&value, args[i], sizeof value); /* each value has at least eight bytes in the queue */
    if (fake_arena_has(value)) fake_check_unknown(value);
  }
}

void fake_sanitize_compute(hal_plugin_stream_t *owner, const void *stack, const hal_host_kernel_t *kernel,
                           const hal_host_range_t *range, void *const *args) {
  const fake_work_t work = {.kernel = kernel, .stream = owner, .stack = stack, .args = args};
  _Atomic(const fake_work_t *) *const own = place();
  const fake_work_t *const outer = own ? atomic_exchange(own, &work) : NULL;
  if (kernel->reserved == FAKE_NOT_INSTRUMENTED && fake_sanitizes(FAKE_SANITIZE_INIT)) mark_arguments(kernel, args);
  kernel->fn(range, args);
  if (own) atomic_store(own, outer);
}

fake_work_t fake_sanitize_work(void) {
  const _Atomic(const fake_work_t *) *const own = place();
  const fake_work_t *const work = own ? atomic_load(own) : NULL;
  return work ? *work : (fake_work_t){.kernel = NULL};
}

void fake_sanitize_fork_child(void) {
  for (long i = 0; i < PLACES; i++) {
    atomic_store(&places[i].thread, 0);
    atomic_store(&places[i].work, NULL);
  }
  fake_arena_fork_child();
  fake_report_fork_child();
}
