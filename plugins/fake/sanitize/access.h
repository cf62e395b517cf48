/* access.h: what the plugin passes to instrumented kernels (access.c). Private. */
#ifndef FAKE_ACCESS_H_
#define FAKE_ACCESS_H_

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "hal/plugin_kernels.h"

enum {
  FAKE_CELL_BYTES = 4,
  FAKE_CELL_MASK = 15,
  FAKE_CELL_SET = 16,
  FAKE_KNOWN = 32,
  FAKE_RANGES = 64,
  FAKE_THREADS = 4096
};

typedef struct fake_range_s {
  uintptr_t address;
  size_t size; /* bytes; 0: no range */
} fake_range_t;

/* The last write of four bytes, and the last reads (race.c). */
typedef struct fake_cells_s {
  uint32_t write, read;
} fake_cells_t;

/* A thread that computes, with what the class race needs for each access (race.c). */
typedef struct fake_thread_s {
  uintptr_t thread; /* FAKE_THREAD_POINTER; 0: the entry is free. An entry is never freed */
  uint32_t is_compared;
  uint32_t mine;              /* the cell of its work, without bytes */
  uint32_t gap, span;         /* of cells of work that surely comes before: FAKE_CELL_BEFORE */
  uint32_t shared;            /* the same of a set of readers that contains it; 1 = none */
  uint32_t from, to;          /* the cell before and after the last shared read */
  uint32_t known[FAKE_KNOWN]; /* cells of work that comes before, without bytes */
  const struct fake_work_s *work;
  fake_range_t ranges[FAKE_RANGES]; /* that the work has read, by a hash of the address */
} fake_thread_t;

typedef struct fake_access_s {
  uintptr_t base; /* the addresses of device memory */
  size_t size;
  unsigned char *shadow;
  uint64_t needs; /* the bits that a load requires, for eight bytes */
  uint32_t marks; /* stores mark their bytes as written */
  void (*report)(uintptr_t address, size_t size, int is_store);
  fake_cells_t *cells;                                        /* by four bytes; NULL: accesses are not compared */
  fake_thread_t *threads;                                     /* FAKE_THREADS entries */
  void (*race)(uintptr_t address, size_t size, int is_store); /* an access that is not known to be in order */
} fake_access_t;

/* The address of the thread's control block, which identifies the thread. */
#if defined(__x86_64__)
#define FAKE_THREAD_POINTER(out) __asm__("mov %%fs:0, %0" : "=r"(out))
#elif defined(__aarch64__)
#define FAKE_THREAD_POINTER(out) __asm__("mrs %0, tpidr_el0" : "=r"(out))
#else
#define FAKE_THREAD_POINTER(out) ((out) = (uintptr_t)pthread_self())
#endif
/* Whether the work item of a cell, which is not a set, comes before that of the thread by its number. The subtractions
 * are modulo 2^32. */
#define FAKE_CELL_BEFORE(entry, cell) ((entry)->mine - ((cell) & ~31u) - (entry)->gap < (entry)->span)
/* The first entry in which to search a thread. */
#define FAKE_THREAD_HASH(pointer) (((pointer) >> 12) % FAKE_THREADS)

/* Symbols of the library of checked kernels and of modules. */
#define FAKE_ACCESS_SYMBOL "fake_access"
#define FAKE_CHECKED_KERNEL_SYMBOL "fake_checked_kernel"
typedef const hal_host_kernel_t *(*fake_checked_kernel_fn_t)(const char *name);

#endif /* FAKE_ACCESS_H_ */
