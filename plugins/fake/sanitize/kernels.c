/* kernels.c: the library of checked kernels, and modules that are compiled with the same instrumentation. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "sanitize.h"

#define LIBRARY "libfake_checked_kernels.so"

static fake_checked_kernel_fn_t find_kernel;

/* The text of access.c, by CMakeLists.txt. */
static const char text[] =
#include "fake_access_text.inc"
    ;

hal_status_t fake_checked_open(void) {
  Dl_info own;
  char path[PATH_MAX];
  if (!dladdr((void *)(uintptr_t)&text, &own) || !own.dli_fname) own.dli_fname = "";
  const char *const slash = strrchr(own.dli_fname, '/');
  snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - own.dli_fname) : 0, own.dli_fname, LIBRARY);
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fake_error(HAL_UNAVAILABLE, 0,
                      "fake: HAL_FAKE_SANITIZE needs " LIBRARY
                      " in the folder of the plugin: %s; install the package "
                      "again, or unset it",
                      dlerror());
  *(void **)&find_kernel = dlsym(library, FAKE_CHECKED_KERNEL_SYMBOL);
  fake_checked_connect(library);
  if (find_kernel) return HAL_OK;
  return fake_error(HAL_INCOMPATIBLE, 0, "fake: %s is not of this version; install the package again", path);
}

void fake_checked_connect(void *library) {
  fake_access_t *const access = dlsym(library, FAKE_ACCESS_SYMBOL);
  if (access) *access = fake_sanitize_access;
}

const hal_host_kernel_t *fake_checked_find(const char *name) { return find_kernel(name); }

const char *fake_checked_options(void) {
  static const char gcc[] =
      " -fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0 --param asan-stack=0 --param "
      "asan-globals=0 -fno-builtin-memcpy -fno-builtin-memset -fno-builtin-memmove";
  static const char clang[] =
      " -fsanitize=kernel-address -mllvm -asan-instrumentation-with-call-threshold=0 -mllvm -asan-stack=0 -mllvm "
      "-asan-globals=0 -fno-builtin-memcpy -fno-builtin-memset -fno-builtin-memmove";
  return strstr(fake.settings.compiler, "clang") ? clang : gcc;
}

const char *fake_checked_text(size_t *out_size) {
  *out_size = sizeof text - 1;
  return text;
}
