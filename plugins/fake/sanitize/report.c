/* report.c: the reports on standard error: one block of lines per finding. A finding that occurs again, by the same
 * kernel from the same stacks, is only counted. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sanitize.h"

enum { TEXT = 32768, KNOWN = 8192 };

static struct {
  fake_lock_t lock;
  uint64_t known[KNOWN]; /* hashes of findings; 0 = free */
  uint64_t printed;
  _Atomic uint64_t count;
  size_t length;
  char text[TEXT];
  char names[FAKE_TIMELINES][FAKE_NAME_BYTES + 16]; /* of timelines; "": no name */
} all;

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(all.text + all.length, TEXT - all.length, format, arguments);
  va_end(arguments);
  if (length > 0) all.length += (size_t)length;
  if (all.length > TEXT - 1) all.length = TEXT - 1;
}

static void put_stack(const char *title, const void *stack) {
  put("  %s:\n", title);
  const size_t room = TEXT - all.length, length = fake_sanitize_describe(stack, all.text + all.length, room);
  all.length += length < room ? length : room - 1;
}

static void put_block(const fake_block_t *block) {
  put("  block %llu: %zu bytes at %p on device %d%s\n", (unsigned long long)block->number, block->size,
      (void *)block->base, (int)block->device, block->is_released ? ", released" : "");
  put_stack("allocated by", block->allocated);
  if (block->is_released) put_stack("released by", block->released);
}

static void write_text(void) {
  for (size_t done = 0; done < all.length;) {
    const ssize_t written = write(STDERR_FILENO, all.text + done, all.length - done);
    if (written < 0) return;
    done += (size_t)written;
  }
}

/* ---- which findings are printed ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15); }

/* Counts a finding, and begins its text if it is new. The caller holds the lock. */
static int begin(uint64_t hash) {
  atomic_fetch_add_explicit(&all.count, 1, memory_order_relaxed);
  hash ^= hash >> 29;
  if (!hash) hash = 1;
  for (size_t i = 0; i < KNOWN; i++) {
    uint64_t *const known = &all.known[(hash + i) % KNOWN];
    if (*known == hash) return 0;
    if (*known) continue;
    *known = hash;
    break;
  }
  all.length = 0;
  if (++all.printed > fake_sanitize.limit) {
    if (all.printed == fake_sanitize.limit + 1) {
      put("==== fake sanitizer: more than %llu findings; the others are only counted (HAL_FAKE_SANITIZE_REPORTS)\n",
          (unsigned long long)fake_sanitize.limit);
      write_text();
    }
    return 0;
  }
  return 1;
}

static void end(void) {
  put("====\n");
  write_text();
}

/* HAL_FAKE_SANITIZE_RAISE: the next synchronization of the stream fails. Without asynchronous work, the calling thread
 * holds the stream's lock. */
static void raise_in(hal_plugin_stream_t *stream, const char *kernel) {
  if (!stream || !fake_sanitize.raises) return;
  if (fake.settings.async) {
    fake_stream_fail(stream, HAL_DATA_LOSS, kernel);
    return;
  }
  stream->error = HAL_DATA_LOSS;
  stream->error_kernel = kernel;
  atomic_store_explicit(&stream->failed, 1, memory_order_release);
}

/* ---- accesses ---------------------------------------------------------------------------------------------------- */

/* Returns the bytes of an element by the kernel's name, such as add_f32_contig; copies are named by the types of the
 * result and of the operand. 0 = unknown. */
static size_t element_size(const char *kernel, int is_store) {
  static const struct {
    char name[6];
    uint8_t size;
  } types[] = {{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1},   {"u8", 1},  {"i16", 2},  {"u16", 2},
               {"i32", 4}, {"u32", 4}, {"i64", 8}, {"u64", 8},  {"bool", 1}, {"c64", 8}, {"c128", 16}};
  size_t found = 0;
  for (const char *at = strchr(kernel, '_'); at; at = strchr(at + 1, '_')) {
    const size_t length = strcspn(at + 1, "_");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
      if (strlen(types[i].name) != length || memcmp(types[i].name, at + 1, length) != 0) continue;
      if (found) return types[i].size;
      found = types[i].size;
      if (is_store || strncmp(kernel, "copy_", 5) != 0) return found;
    }
  }
  return found;
}

/* Finds the argument of the launch that points to the block, nearest below the address, else nearest above it. Returns
 * its number; -1 = there is none. */
static int operand_of(const fake_work_t *work, const fake_block_t *block, uintptr_t address, uintptr_t *out_operand) {
  int found = -1;
  const uintptr_t begin = (uintptr_t)block->begin, end = begin + block->bytes;
  for (uint32_t i = 0; work->args && i < work->kernel->arg_count; i++) {
    uintptr_t value = 0;
    memcpy(&value, work->args[i], sizeof value); /* each value has at least eight bytes in the queue */
    if (value < begin || value >= end) continue;
    const int below = value <= address;
    if (found >= 0 && (below ? *out_operand <= address && *out_operand >= value : *out_operand <= value)) continue;
    found = (int)i;
    *out_operand = value;
  }
  return found;
}

/* `kernel` names the access whose argument it is, where a report has two; NULL: there is one. */
static void put_place(const fake_work_t *work, const fake_block_t *block, uintptr_t address, size_t size, int is_store,
                      const char *kernel) {
  const uintptr_t base = (uintptr_t)block->base;
  size_t element = work->kernel ? element_size(work->kernel->name, is_store) : 0;
  uintptr_t operand = 0;
  const int number = work->kernel ? operand_of(work, block, address, &operand) : -1;
  if (!element) element = size <= 16 ? size : 1;
  put("  address: %p, ", (void *)address); /* NOLINT(performance-no-int-to-ptr) */
  if (address < base)
    put("%zu bytes before the block", (size_t)(base - address));
  else if (address - base >= block->size)
    put("%zu bytes after the end of the block", (size_t)(address - base) - block->size);
  else
    put("offset %zu in the block", (size_t)(address - base));
  if (number >= 0)
    put("; element %lld of argument %d%s%s", (long long)((intptr_t)(address - operand) / (intptr_t)element), number,
        kernel ? " of " : "", kernel ? kernel : "");
  else
    put("; element %lld", (long long)((intptr_t)(address - base) / (intptr_t)element));
  put(" (%zu bytes each)\n", element);
}

static const char *what_of(const fake_block_t *block, int found, int is_live, uintptr_t address) {
  if (is_live) return "read of memory that was never written";
  if (!found) return "access to memory that is in no allocation";
  if (address < (uintptr_t)block->base) return "access before an allocation";
  if (address - (uintptr_t)block->base >= block->size) return "access after the end of an allocation";
  return block->is_released ? "access to released memory" : "access to memory that is in no allocation";
}

static void put_head(const char *class, const char *what, const fake_work_t *work, size_t size, int is_store) {
  char operators[160] = "";
  const char *const kernel = work->kernel ? work->kernel->name : "the host";
  if (work->kernel) fake_sanitize_operators(kernel, operators, sizeof operators);
  put("==== fake sanitizer: %s: %s\n", class, what);
  put("  %s: %s of %zu bytes", kernel, is_store ? "write" : "read", size);
  if (operators[0]) put("; operator %s", operators);
  if (work->stream && work->stream->name[0]) put("; stream '%s'", work->stream->name);
  put("\n");
}

void fake_report_access(uintptr_t address, size_t size, int is_store) {
  const fake_work_t work = fake_sanitize_work();
  const unsigned char *shadow = fake_sanitize_access.shadow + (address - fake_sanitize_access.base);
  const unsigned char needs = is_store ? FAKE_SHADOW_LIVE : (unsigned char)(fake_sanitize_access.needs & 255);
  while (size > 1 && (*shadow & needs) == needs) address++, shadow++, size--; /* the first invalid byte */
  const int is_live = (*shadow & FAKE_SHADOW_LIVE) != 0;
  if (!fake_sanitizes(is_live ? FAKE_SANITIZE_INIT : FAKE_SANITIZE_MEMORY)) return;
  fake_block_t block = {.number = 0};
  const int found = fake_arena_find((const void *)address, &block); /* NOLINT(performance-no-int-to-ptr) */
  const void *const stack = work.trace ? work.trace->stack : fake_sanitize_stack();
  uint64_t hash =
      mix(mix((uint64_t)is_live * 2 + (uint64_t)is_store + 1, (uintptr_t)stack), (uintptr_t)block.allocated);
  hash = mix(hash, work.kernel ? (uintptr_t)work.kernel : 0);
  fake_lock(&all.lock);
  if (begin(hash)) {
    put_head(is_live ? "init" : "memory", what_of(&block, found, is_live, address), &work, size, is_store);
    if (found) put_place(&work, &block, address, size, is_store, NULL);
    if (!found) put("  address: %p\n", (void *)address); /* NOLINT(performance-no-int-to-ptr) */
    put_stack("submitted by", stack);
    if (found) put_block(&block);
    end();
  }
  fake_unlock(&all.lock);
  raise_in(work.stream, work.kernel ? work.kernel->name : "the host");
}

/* ---- accesses without an order ----------------------------------------------------------------------------------- */

void fake_report_name(uint32_t timeline, const char *name) {
  if (timeline >= FAKE_TIMELINES) return;
  fake_lock(&all.lock);
  if (name && *name)
    snprintf(all.names[timeline], sizeof all.names[timeline], "stream '%s'", name);
  else
    snprintf(all.names[timeline], sizeof all.names[timeline], "%s", name ? "" : "branch of a graph");
  fake_unlock(&all.lock);
}

/* One of the two accesses. */
static void put_side(int is_store, const fake_race_work_t *work) {
  char operators[160] = "";
  fake_sanitize_operators(work->name, operators, sizeof operators);
  put("  %s: %s", work->name, is_store ? "write" : "read");
  if (operators[0]) put("; operator %s", operators);
  if (!work->timeline)
    put("; by the host");
  else if (all.names[work->timeline][0])
    put("; %s", all.names[work->timeline]);
  else
    put("; stream number %u", (unsigned)work->timeline);
  put("\n");
  put_stack("submitted by", work->stack);
}

void fake_report_race(uintptr_t address, int is_store, int was_store, const fake_race_work_t *other) {
  const fake_work_t work = fake_sanitize_work();
  const char *const name = work.kernel ? work.kernel->name : FAKE_RELEASE;
  const fake_race_work_t own = {
      .number = work.trace->number, .name = name, .stack = work.trace->stack, .timeline = work.trace->timeline};
  const int is_later = own.number > other->number; /* which of them ran first differs between runs */
  fake_block_t block = {.number = 0};
  const int found = fake_arena_find((const void *)address, &block); /* NOLINT(performance-no-int-to-ptr) */
  const int is_release =
      name == other->name ? 0 : strcmp(name, FAKE_RELEASE) == 0 || strcmp(other->name, FAKE_RELEASE) == 0;
  uint64_t pair = mix(mix(6, (uintptr_t)own.stack), (uintptr_t)own.name);
  pair ^= mix(mix(6, (uintptr_t)other->stack), (uintptr_t)other->name); /* in any order */
  fake_lock(&all.lock);
  if (begin(pair)) {
    put("==== fake sanitizer: race: %s\n", is_release ? "memory was released while another stream may use it"
                                           : !own.timeline || !other->timeline
                                               ? "a stream and the host access the same memory without an order"
                                               : "two streams access the same memory without an order");
    put_side(is_later ? was_store : is_store, is_later ? other : &own);
    put_side(is_later ? is_store : was_store, is_later ? &own : other);
    if (found) put_place(&work, &block, address, 1, is_store, own.name);
    if (found) put_block(&block);
    end();
  }
  fake_unlock(&all.lock);
  raise_in(work.stream, name);
}

/* ---- other findings ---------------------------------------------------------------------------------------------- */

void fake_report_free(int32_t device, const void *address) {
  fake_block_t block = {.number = 0};
  if (!fake_sanitizes(FAKE_SANITIZE_MEMORY)) return;
  const int found = fake_arena_find(address, &block);
  const void *const stack = fake_sanitize_stack();
  fake_lock(&all.lock);
  if (begin(mix(mix(3, (uintptr_t)stack), (uintptr_t)block.allocated))) {
    put("==== fake sanitizer: memory: %s\n", found && block.is_released && block.base == address
                                                 ? "second release of an allocation"
                                                 : "release of an address that is not an allocation");
    put("  address: %p on device %d\n", address, (int)device);
    put_stack("released now by", stack);
    if (found) put_block(&block);
    end();
  }
  fake_unlock(&all.lock);
}

void fake_report_damage(const fake_block_t *block, const void *address) {
  if (!fake_sanitizes(FAKE_SANITIZE_MEMORY)) return;
  fake_lock(&all.lock);
  if (begin(mix(mix(4, (uintptr_t)block->allocated), block->number))) {
    const fake_work_t none = {.kernel = NULL};
    const uintptr_t at = (uintptr_t)address, base = (uintptr_t)block->base;
    const int inside = at >= base && at - base < block->size;
    put("==== fake sanitizer: memory: %s, by code that is not instrumented\n",
        inside      ? "released memory was overwritten"
        : at < base ? "memory before an allocation was overwritten"
                    : "memory after the end of an allocation was overwritten");
    put("  found when the block was released%s\n", inside ? " for other allocations" : "");
    put_place(&none, block, at, 1, 1, NULL);
    put_block(block);
    end();
  }
  fake_unlock(&all.lock);
}

void fake_report_leak(const fake_block_t *block) {
  fake_lock(&all.lock);
  if (begin(mix(mix(5, (uintptr_t)block->allocated), block->number))) {
    put("==== fake sanitizer: leak: an allocation was not released\n");
    put_block(block);
    end();
  }
  fake_unlock(&all.lock);
}

uint64_t fake_report_count(void) { return atomic_load_explicit(&all.count, memory_order_relaxed); }

void fake_report_fork_child(void) {
  fake_lock_reset(&all.lock);
  atomic_store_explicit(&all.count, 0, memory_order_relaxed);
}
