/* programs.c: programs whose commands are the input's bytes have the same results directly, deferred and recorded. The
 * first byte determines how they are deferred and recorded. */
#include <stdint.h>
#include <stdlib.h>

#include "program_ways.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int is_open, inputs;
  if (size < 2) return 0;
  if (!is_open) {
    MUST(hal_registry_open(PLUGIN_DIR "/libhal_fake.so"));
    find_operators();
    is_open = 1;
  }
  script = data + 1;
  script_size = size - 1;
  if (check(data[0])) abort();
  /* The memory of destroyed programs remains in the cache, which would grow to the size of the device. */
  if (++inputs % 64 == 0) MUST(hal_memory_empty_cache(0));
  return 0;
}
