/* sanitize.h: HAL_FAKE_SANITIZE: checks of the accesses of kernels, copies and fills to device memory. Private.
 *
 * Device memory comes from one range of reserved addresses (arena.c), with red zones around each allocation. A released
 * allocation is not used again until the quarantine is full. Each byte has a byte of shadow (access.c). Kernels are
 * instrumented: the portable ones are in a library of their own (kernels.c), modules in the dialect "c" are compiled
 * with the same instrumentation. Copies and fills check their ranges (check.c). Each work item has a note with the
 * stack of the call that submitted it. */
#ifndef FAKE_SANITIZE_H_
#define FAKE_SANITIZE_H_

#include "../fake.h"
#include "access.h"
#include "clock.h"

enum {
  FAKE_SANITIZE_MEMORY = 1, /* accesses outside of live allocations, and invalid frees */
  FAKE_SANITIZE_INIT = 2,   /* reads of bytes that were never written */
  FAKE_SANITIZE_LEAK = 4,   /* allocations that exist when the device is closed */
  FAKE_SANITIZE_RACE = 8    /* accesses to the same bytes without an order */
};

enum { FAKE_SHADOW_LIVE = 1, FAKE_SHADOW_WRITTEN = 2 };

/* hal_host_kernel_t.reserved of kernels that the program compiled itself. */
enum { FAKE_NOT_INSTRUMENTED = 1 };

/* Smallest red zone, and the alignment of blocks. */
enum { FAKE_RED_ZONE = 512 };

typedef struct fake_block_s { /* an allocation, live or in the quarantine */
  struct fake_block_s *next, *previous;
  char *base;
  size_t size;  /* as requested */
  char *begin;  /* of the range, with its red zones */
  size_t bytes; /* of the range */
  int32_t device;
  uint32_t is_released, is_program; /* is_program: of memory_alloc_async, not of the host itself */
  uint64_t number;                  /* in the order of allocation */
  const void *allocated, *released; /* stacks */
  fake_trace_t release;             /* of a release that is queued */
} fake_block_t;

/* The settings of the variables HAL_FAKE_SANITIZE*. */
struct fake_sanitize_settings_s {
  uint32_t classes, raises, exit_code;
  uint64_t quarantine, limit; /* bytes; number of reports */
};

extern fake_sanitize_settings_t fake_sanitize;
extern fake_access_t fake_sanitize_access; /* what instrumented kernels get */

static inline int fake_sanitizes(uint32_t class) { return (fake_sanitize.classes & class) != 0; }

/* ---- sanitize.c: start, stacks and the work of threads ---- */
/* Starts the checks after the settings were read. */
hal_status_t fake_sanitize_init(const fake_sanitize_settings_t *settings);
/* Returns the plugin's extension that reports lost memory; NULL = without this check. */
const hal_extension_t *fake_sanitize_extension(void);
const void *fake_sanitize_stack(void); /* of the calling thread; NULL = unknown */
/* As hal_stacks_t. */
int fake_sanitize_is_unchecked(void);
size_t fake_sanitize_describe(const void *stack, char *text, size_t size);
void fake_sanitize_operators(const char *kernel, char *text, size_t size);
void fake_sanitize_fork_child(void);

/* What a thread computes, for reports. */
typedef struct fake_work_s {
  const hal_host_kernel_t *kernel; /* NULL: the release of an allocation */
  hal_plugin_stream_t *stream;     /* NULL: none */
  const fake_trace_t *trace;       /* NULL: work without a note, which does not access device memory */
  void *const *args;
} fake_work_t;
/* Writes what the reports need about work that is submitted now. NULL or not captured: numbers it (clock.h). */
void fake_sanitize_submit(hal_plugin_stream_t *stream, fake_trace_t *out_trace);
/* Runs a part of a launch on the calling thread. */
void fake_sanitize_compute(hal_plugin_stream_t *owner, const fake_trace_t *trace, const hal_host_kernel_t *kernel,
                           const hal_host_range_t *range, void *const *args);
/* Returns the calling thread's entry; NULL: there are more threads than entries. */
fake_thread_t *fake_sanitize_thread(void);
/* Sets the work of the thread, and restores that before. */
const fake_work_t *fake_sanitize_enter(fake_thread_t *thread, const fake_work_t *work);
/* Returns the work of the calling thread; its kernel is NULL if it runs none. */
fake_work_t fake_sanitize_work(void);

/* ---- arena.c: allocations ---- */
hal_status_t fake_arena_init(void);
static inline int fake_arena_has(const void *address) {
  return (uintptr_t)address - fake_sanitize_access.base < fake_sanitize_access.size;
}
static inline unsigned char *fake_arena_shadow(const void *address) {
  return fake_sanitize_access.shadow + ((uintptr_t)address - fake_sanitize_access.base);
}
hal_status_t fake_arena_alloc(int32_t device, size_t size, int is_program, void **out_ptr);
/* Releases an allocation at once, or after the work that is queued on `stream`. */
hal_status_t fake_arena_free(int32_t device, hal_plugin_stream_t *stream, void *ptr);
/* Copies the description of the block that contains an address, or whose red zone does; returns whether there is one.
 */
int fake_arena_find(const void *address, fake_block_t *out_block);
/* Returns a list, by `next`, of the program's live blocks, which no thread may release meanwhile. */
fake_block_t *fake_arena_live(void);
void fake_arena_fork_prepare(void);
void fake_arena_fork_parent(void);
void fake_arena_fork_child(void);

/* ---- check.c: accesses ---- */
/* Check a range that a copy or fill reads or writes. Return whether it may be accessed. Addresses outside of device
 * memory may. */
int fake_check_read(const void *address, size_t size);
int fake_check_write(const void *address, size_t size);
/* As both, for a copy: the destination's bytes are written where the source's are. Bytes that leave the device must be
 * written. */
int fake_check_copy(void *dst, const void *src, size_t size);
/* Marks all bytes of the block that contains an address as written, for code that is not instrumented. */
void fake_check_unknown(const void *address);

/* ---- race.c: the order of accesses ---- */
/* Short numbers of work items are unique within two periods. */
#define FAKE_RACE_PERIOD (UINT64_C(1) << 26)
#define FAKE_RELEASE "the release of the block"
typedef struct fake_race_work_s {
  uint64_t number;
  const char *name; /* of its kernel; static text */
  const void *stack;
  uint32_t timeline;
} fake_race_work_t;

static inline int fake_races(void) { return fake_sanitizes(FAKE_SANITIZE_RACE); }
static inline fake_timeline_t *fake_timeline_of(hal_plugin_stream_t *stream) {
  return stream ? &stream->timeline : NULL;
}
/* Returns the clock of the work submitted so far, for fake_race_known after a wait for that work; NULL without race. */
static inline fake_clock_t *fake_race_now(hal_plugin_stream_t *stream) {
  return FAKE_UNLIKELY(fake_races()) ? fake_timeline_now(fake_timeline_of(stream)) : NULL;
}
/* The host has waited for a clock, whose reference this releases. */
static inline void fake_race_known(fake_clock_t *clock) {
  if (FAKE_LIKELY(!clock)) return;
  fake_timeline_wait(NULL, clock);
  fake_clock_drop(clock);
}
hal_status_t fake_race_init(void);
/* Forgets all accesses. */
void fake_race_forget(void);
/* To be called before a work item runs. */
void fake_race_begin(const fake_trace_t *trace, const char *name);
/* An access of the calling thread to device memory; the second function accepts any memory. */
void fake_race_access(uintptr_t address, size_t size, int is_store);
void fake_race_range(const void *address, size_t size, int is_store);
/* Forgets the accesses to memory that was allocated. */
void fake_race_allocated(const void *base, size_t size);
/* The release of a block is a write of all its bytes. */
void fake_race_release(const fake_block_t *block, const fake_trace_t *trace);
void fake_race_fork_child(void);

/* ---- report.c ---- */
/* Stores the name of a stream, for reports about its work; NULL: the timeline is that of a branch of a graph. */
void fake_report_name(uint32_t timeline, const char *name);
/* Reports that the calling thread's access to a byte and that of another work item have no order. */
void fake_report_race(uintptr_t address, int is_store, int was_store, const fake_race_work_t *other);
/* Reports an access of the calling thread (fake_access_t). */
void fake_report_access(uintptr_t address, size_t size, int is_store);
/* Reports a free of an address that is not a live allocation. */
void fake_report_free(int32_t device, const void *address);
/* Reports that the red zone of a block, or a released block, was overwritten at an address. */
void fake_report_damage(const fake_block_t *block, const void *address);
void fake_report_leak(const fake_block_t *block);
/* Returns the number of findings. */
uint64_t fake_report_count(void);
void fake_report_fork_child(void);

/* ---- kernels.c: instrumented kernels ---- */
/* Opens the library of checked kernels. */
hal_status_t fake_checked_open(void);
const hal_host_kernel_t *fake_checked_find(const char *name);
/* Returns the options and the text for the end of the source, with which a module is instrumented. */
const char *fake_checked_options(void);
const char *fake_checked_text(size_t *out_size);
/* Connects a module that was compiled so. */
void fake_checked_connect(void *library);

#endif /* FAKE_SANITIZE_H_ */
