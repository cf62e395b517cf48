/* main.c: the program torch_backend_hal_helper, installed beside libtorch_backend_hal.so.0. It opens that library
 * and does what its arguments say (hal/src/plugin/helper.h). It is linked with nothing of ours, so that the library
 * that is opened is the one beside it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

/* Whether plugins count their devices here and start no helper of their own; looked up by hal/sdk/count.c. */
extern int32_t hal_helper_counts;
int32_t hal_helper_counts;

int main(int count, char **words) {
  static const char name[] = "libtorch_backend_hal.so.0";
  char library[PATH_MAX];
  int (*run)(int count, char **words);
  if (count != 3) {
    fprintf(stderr, "%s is started by libtorch_backend_hal and by plugins, not by hand\n", HAL_HELPER_FILE);
    return 2;
  }
  char *const end = realpath("/proc/self/exe", library) ? strrchr(library, '/') + 1 : library;
  if (end == library || (size_t)(end - library) + sizeof name > sizeof library) return 2;
  memcpy(end, name, sizeof name);
  hal_helper_counts = strcmp(words[1], HAL_HELPER_COUNT) == 0;
  void *const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void *const symbol = handle ? dlsym(handle, "hal_helper_main") : NULL;
  if (!symbol) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  memcpy(&run, &symbol, sizeof run); /* ISO C has no cast to a function pointer */
  return run(count, words);
}
