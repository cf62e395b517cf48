/* exhaust.c: memory that is allocated piece by piece until there is none. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cts.h"
#include "hal/status.h"

enum { PIECES = 96, ROUNDS = 3 };
#define MIB ((size_t)1 << 20)

/* Limits the addresses of this process, so that a device in the host's memory is exhausted early. Returns whether it
 * did. */
static int limit_addresses(size_t more) {
  unsigned long pages = 0;
  FILE *const file = fopen("/proc/self/statm", "re");
  const int known = file && fscanf(file, "%lu", &pages) == 1;
  if (file) fclose(file);
  const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
  return known && !setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

/* Allocates pieces until one fails. Returns their number. */
static int fill_up(cts_t *t, size_t size, void **pieces) {
  for (int count = 0; count < PIECES; count++) {
    pieces[count] = &pieces[count];
    const hal_status_t status = cts_memory_alloc(t, t->device, size, 0, &pieces[count]);
    if (!status) continue;
    CTS_CHECK(t, status == HAL_RESOURCE_EXHAUSTED,
              "memory_alloc returned %s instead of RESOURCE_EXHAUSTED, with %d pieces of %zu bytes allocated: %s",
              hal_status_name(status), count, size, hal_error_message());
    CTS_CHECK(t, pieces[count] == (void *)&pieces[count], "memory_alloc failed and wrote to its out-parameter");
    return count;
  }
  return PIECES;
}

/* Memory that was freed is available again, in each round as much as before. */
void cts_case_memory_piecewise(cts_t *t) {
  static void *pieces[PIECES];
  const int host = (t->info.flags & HAL_DEVICE_HOST_VISIBLE) != 0;
  const size_t share = t->info.total_memory / (PIECES / 2), size = host ? 32 * MIB : share;
  if (host ? !limit_addresses(1024 * MIB) : !share) cts_skip(t, "the amount of memory cannot be limited");
  int least = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const int count = fill_up(t, size, pieces);
    if (count == PIECES) cts_skip(t, "%d pieces of %zu bytes did not exhaust the memory", count, size);
    CTS_CHECK(t, round == 0 || count + 2 >= least,
              "%d pieces of %zu bytes could be allocated, and %d after all were freed", least, size, count);
    if (round == 0) least = count;
    CTS_CHECK(t, count >= 2, "%d pieces of %zu bytes could be allocated", count, size);
    cts_free(t, pieces[count - 1]); /* one is free now, so one more can be allocated */
    pieces[count - 1] = cts_alloc(t, size);
    for (int i = 0; i < count; i++) cts_free(t, pieces[i]);
  }
}

/* Sizes at which drivers divide copies: whole pages and buffers, and one byte more or less. */
void cts_case_copy_sizes(cts_t *t) {
  static const size_t sizes[] = {4096, 65536, 1 << 20, 2 << 20, 3 << 20, (4 << 20) + 1, (8 << 20) - 1, 16 << 20};
  enum { LARGEST = 16 << 20 };
  uint8_t *const to = cts_host(t, LARGEST), *const got = cts_host(t, LARGEST);
  void *const one = cts_alloc(t, LARGEST), *const other = cts_alloc(t, LARGEST);
  char what[96];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    cts_noise(to, sizes[i], sizes[i]);
    CTS_OK(t, memory_fill, NULL, t->device, one, "", 1, LARGEST);
    CTS_OK(t, memory_fill, NULL, t->device, other, "", 1, LARGEST);
    cts_put(t, NULL, one, to, sizes[i]);
    CTS_OK(t, memory_copy, NULL, other, t->device, one, t->device, sizes[i]);
    memset(got, 0, LARGEST);
    cts_get(t, NULL, got, other, sizes[i]);
    snprintf(what, sizeof what, "%zu bytes copied to the device, within it and back", sizes[i]);
    cts_same(t, got, to, sizes[i], what);
  }
}
