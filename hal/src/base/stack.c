/* stack.c: see stack.h. The stack of a thread is the text of the program's source (hal_stack_set_source), which Python
 * provides, or otherwise the return addresses of C functions. */
#define _GNU_SOURCE
#include "base/stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/symbol.h"
#include "base/text.h"
#include "hal/log.h"

enum { BUCKETS = 4096 };

typedef struct stack_s {
  struct stack_s *next;
  const char *text; /* of the source; NULL: frames */
  uint64_t hash;
  uint32_t count;
  void *frames[];
} call_stack_t;

static hal_lock_t lock;
static call_stack_t *table[BUCKETS];
static uint32_t count_of_all;
static _Atomic(hal_stack_source_t) source;

void hal_stack_set_source(hal_stack_source_t function) { atomic_store(&source, function); }

static _Thread_local int32_t unchecked;

void hal_stack_set_unchecked(int32_t on) { unchecked += on ? 1 : -1; }
int32_t hal_stack_is_unchecked(void) { return unchecked > 0; }

/* ---- capturing --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(void *const *frames, uint32_t count) {
  uint64_t hash = count;
  for (uint32_t i = 0; i < count; i++) hash = (hash ^ (uintptr_t)frames[i]) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 32;
}

/* Returns the stored stack, which is created if there is none. */
static const call_stack_t *find_or_add(const char *text, void *const *frames, uint32_t count) {
  void *const key = (void *)(uintptr_t)text;
  const uint64_t hash = text ? hash_of(&key, 1) : hash_of(frames, count);
  hal_lock(&lock);
  call_stack_t *found = table[hash % BUCKETS];
  while (found && (found->hash != hash || found->text != text || found->count != count ||
                   (count && memcmp(found->frames, frames, count * sizeof *frames) != 0)))
    found = found->next;
  if (!found && count_of_all < HAL_STACKS_MOST && (found = hal_malloc(sizeof *found + count * sizeof *frames))) {
    *found = (call_stack_t){.next = table[hash % BUCKETS], .text = text, .hash = hash, .count = count};
    if (count) memcpy(found->frames, frames, count * sizeof *frames);
    table[hash % BUCKETS] = found;
    count_of_all++;
  }
  hal_unlock(&lock);
  return found;
}

/* The text of the source at the last hal_stack_remember; plain thread-local data without a destructor. */
static _Thread_local const char *remembered;

atomic_int hal_stack_wanted;

/* The source may wait for a lock of the program, whose owner may wait for one of the HAL. */
static const char *ask_source(void) {
  const hal_stack_source_t function = atomic_load_explicit(&source, memory_order_acquire);
  if (!function) return NULL;
  return hal_callbacks_are_deferred() ? remembered : function();
}

void hal_stack_remember_now(void) {
  if (!hal_callbacks_are_deferred()) remembered = ask_source();
}

const void *hal_stack_capture(void) {
  void *frames[HAL_STACK_FRAMES];
  atomic_store_explicit(&hal_stack_wanted, 1, memory_order_relaxed);
  const char *const text = ask_source();
  if (text) return find_or_add(text, NULL, 0);
  const int count = backtrace(frames, HAL_STACK_FRAMES);
  return count > 1 ? find_or_add(NULL, frames + 1, (uint32_t)count - 1) : NULL;
}

/* ---- describing -------------------------------------------------------------------------------------------------- */

/* Returns whether a frame belongs to the HAL, a plugin or the C library's start code, which is of no use to a user. */
static int is_own(const char *object) {
  const char *const slash = strrchr(object, '/'), *const name = slash ? slash + 1 : object;
  return strncmp(name, "libtorch_backend_hal", 20) == 0 || strncmp(name, "libhal_", 7) == 0 ||
         strncmp(name, "libc.so", 7) == 0;
}

static size_t put_frame(const void *address, char *text, size_t size, size_t at) {
  const void *const call = (const char *)address - 1; /* the call, not the instruction after it */
  char name[160] = "", *const to = at < size ? text + at : NULL;
  Dl_info info = {.dli_fname = NULL};
  int length = 0;
  const size_t room = at < size ? size - at : 0;
  char program[PATH_MAX];
  const int known = dladdr(call, &info) && info.dli_fname;
  if (known && !strchr(info.dli_fname, '/')) { /* the program, by its first argument */
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    program[bytes > 0 ? bytes : 0] = '\0';
    info.dli_fname = program;
  }
  if (!known)
    length = snprintf(to, room, "    %p\n", address);
  else if (is_own(info.dli_fname))
    return at;
  else if (hal_symbol_name(info.dli_fname, (uintptr_t)call - (uintptr_t)info.dli_fbase, name, sizeof name))
    length = snprintf(to, room, "    %s (%s+0x%zx)\n", name, info.dli_fname,
                      (size_t)((uintptr_t)call - (uintptr_t)info.dli_fbase));
  else
    length = snprintf(to, room, "    %s (%s+0x%zx)\n", info.dli_sname ? info.dli_sname : "?", info.dli_fname,
                      (size_t)((uintptr_t)call - (uintptr_t)info.dli_fbase));
  return at + (length > 0 ? (size_t)length : 0);
}

size_t hal_stack_describe(const void *stack, char *text, size_t size) {
  const call_stack_t *const found = stack;
  size_t at = 0;
  if (size) text[0] = '\0';
  if (!found) return (size_t)snprintf(text, size, "    unknown\n");
  if (found->text) return (size_t)snprintf(text, size, "%s", found->text);
  for (uint32_t i = 0; i < found->count; i++) at = put_frame(found->frames[i], text, size, at);
  return at ? at : (size_t)snprintf(text, size, "    unknown\n");
}
