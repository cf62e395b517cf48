/* programs.c: random programs have the same results whether their work runs directly, is deferred, or is recorded and
 * run again; for the sanitizers, too. HAL_TEST_PROGRAMS is their number (60), HAL_TEST_SEED the first seed (0). The
 * argument is a plugin; without one, the plugin of five functions runs them, and operators are left out. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>

#include "program_ways.h"

static uint64_t number_of(const char *setting, uint64_t otherwise) {
  const char *const text = getenv(setting);
  return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
  const uint64_t count = number_of("HAL_TEST_PROGRAMS", 60), first = number_of("HAL_TEST_SEED", 0);
  uint64_t mistakes = 0;
  MUST(hal_registry_open(argc > 1 ? argv[1] : FIXTURE_DIR "/libhal_five.so"));
  find_operators();
  for (uint64_t seed = first; seed < first + count && mistakes < 10; seed++) mistakes += (uint64_t)check(seed);
  hal_registry_close();
  printf("%llu programs of %d commands, with %s: %llu groups, %llu differences\n", (unsigned long long)count, COMMANDS,
         has_operators ? "operators" : "copies, fills and random numbers", (unsigned long long)groups,
         (unsigned long long)mistakes);
  return mistakes || !count || (has_operators && groups < count);
}
