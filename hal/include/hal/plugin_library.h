/* plugin_library.h: for plugins: a vendor's library that is opened at run time, so that the plugin loads on machines
 * without it. Linked from libhal_plugin.a into plugins that use it.
 *
 *   typedef struct calls_s { int (*acme_open)(void); int (*acme_fast_open)(void); } calls_t;
 *   static calls_t calls;
 *   static const hal_library_symbol_t symbols[] = {{"acme_open", offsetof(calls_t, acme_open), 0},
 *                                                  {"acme_fast_open", offsetof(calls_t, acme_fast_open), 1}};
 *   static hal_library_t acme = {"mine", {"libacme.so.2", "libacme.so"}, "install acme-runtime", symbols, 2, &calls,
 *                                HAL_LIBRARY_CLOSED};
 *   hal_status_t hal_plugin_probe(uint32_t flags) { return hal_library_open(&acme); } */
#ifndef HAL_PLUGIN_LIBRARY_H_
#define HAL_PLUGIN_LIBRARY_H_

#include <pthread.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the library. Since 0.2. */
typedef struct hal_library_symbol_s {
  const char *name; /* literal */
  size_t offset;    /* offset in the table, in bytes, of the pointer to the function */
  int optional;     /* 1: its pointer is NULL if the library is too old to have it */
} hal_library_symbol_t;

enum { HAL_LIBRARY_NAMES = 4 };

/* Initializer of the last three members of hal_library_t. */
#define HAL_LIBRARY_CLOSED PTHREAD_MUTEX_INITIALIZER, NULL, NULL

/* Finds the symbol with that index in the library that dlopen returned as `handle`; NULL = it is missing. Since 0.2. */
typedef void *(*hal_library_find_fn_t)(void *handle, size_t index);

/* A library and the table of its functions; a static variable, valid until the process ends. Since 0.2. */
typedef struct hal_library_s {
  const char *plugin;                   /* begins messages */
  const char *names[HAL_LIBRARY_NAMES]; /* file names for dlopen, tried in this order; NULL ends them */
  const char *advice;                   /* ends messages: what to install */
  const hal_library_symbol_t *symbols;
  size_t symbol_count;
  void *table;
  pthread_mutex_t lock; /* HAL_LIBRARY_CLOSED */
  void *handle;
  hal_library_find_fn_t
      find; /* NULL: dlsym finds symbols by name. For libraries that have their own look-up function */
} hal_library_t;

/* Opens the library and fills the table; a second call returns at once. The library is never closed, because threads
 * and handlers of drivers would crash. Thread-safe. Errors: HAL_UNAVAILABLE = no file with these names, or the library
 * lacks a symbol that is not optional. The message has the name, the table is unchanged, and a later call tries again.
 * Since 0.2. */
hal_status_t hal_library_open(hal_library_t *library);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_LIBRARY_H_ */
