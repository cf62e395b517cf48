/* main.c: the program torch_backend_hal_helper, installed in the directory of libtorch_backend_hal.so.0. It opens that
 * library and runs the command in its arguments (hal/src/plugin/helper.h). It links no library of this project, so that
 * it always opens the library in its own directory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

/* Whether plugins count their devices in this process and start no helper; hal/sdk/count.c looks it up. */
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
