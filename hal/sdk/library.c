/* library.c: a vendor's library, opened at run time (hal/plugin_library.h). */
#define _GNU_SOURCE /* RTLD_LOCAL */
#include "hal/plugin_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* `name` is the file, `what` is wrong with `detail`. */
static hal_status_t refuse(const hal_library_t *library, const char *name, const char *what, const char *detail) {
  char message[1024];
  snprintf(message, sizeof message, "%s: %s %s %s; %s", library->plugin, name, what, detail, library->advice);
  return hal_host->error_set(HAL_UNAVAILABLE, 0, message);
}

static void *find(const hal_library_t *library, void *handle, size_t index) {
  return library->find ? library->find(handle, index) : dlsym(handle, library->symbols[index].name);
}

/* All symbols are looked up before the first one is written: the table changes completely or not at all. */
static hal_status_t fill(const hal_library_t *library, const char *name, void *handle) {
  for (size_t i = 0; i < library->symbol_count; i++)
    if (!library->symbols[i].optional && !find(library, handle, i))
      return refuse(library, name, "is too old: it lacks", library->symbols[i].name);
  for (size_t i = 0; i < library->symbol_count; i++) {
    void *const symbol = find(library, handle, i);
    /* ISO C has no cast to a function pointer */
    memcpy((char *)library->table + library->symbols[i].offset, &symbol, sizeof symbol);
  }
  return HAL_OK;
}

static hal_status_t open_locked(hal_library_t *library) {
  char first[512] = "no name is set"; /* why the first name, to which the advice refers, could not be loaded */
  for (size_t i = 0; i < HAL_LIBRARY_NAMES && library->names[i]; i++) {
    void *const handle = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char *const why = dlerror();
      if (!i) snprintf(first, sizeof first, "%s", why ? why : "");
      continue;
    }
    const hal_status_t status = fill(library, library->names[i], handle);
    if (status)
      dlclose(handle);
    else
      library->handle = handle;
    return status;
  }
  return refuse(library, library->names[0] ? library->names[0] : "a library", "cannot be loaded:", first);
}

hal_status_t hal_library_open(hal_library_t *library) {
  pthread_mutex_lock(&library->lock);
  const hal_status_t status = library->handle ? HAL_OK : open_locked(library);
  pthread_mutex_unlock(&library->lock);
  return status;
}
