/* loader.c: the shared objects of platforms, opened at run time, and the version of their tables of functions. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "pjrt.h"

enum {
  OLDEST_MINOR = 70, /* of API 0.x. The plugin was tested with 0.81 and 0.115 */
  LEAST_TABLE = offsetof(pjrt_table_t, Error_Destroy)
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns the name of a function that this plugin cannot do without and that the table lacks; NULL = there is none. */
static const char *missing_slot(const pjrt_table_t *table) {
#define PJRT_NEEDED(X)         \
  X(Error_Destroy)             \
  X(Error_Message)             \
  X(Error_GetCode)             \
  X(Plugin_Initialize)         \
  X(Event_Destroy)             \
  X(Event_Await)               \
  X(Client_Create)             \
  X(Client_Destroy)            \
  X(Client_AddressableDevices) \
  X(Client_Compile)            \
  X(Client_BufferFromHostBuffer) X(LoadedExecutable_Destroy) X(LoadedExecutable_Execute) X(Buffer_Destroy)
#define PJRT_CHECK(slot) \
  if (!PJRT_HAS(table, slot)) return #slot;
  PJRT_NEEDED(PJRT_CHECK)
#undef PJRT_CHECK
#undef PJRT_NEEDED
  return NULL;
}

static hal_status_t check_table(const char *path, const pjrt_table_t *table) {
  if (!table || table->struct_size < LEAST_TABLE)
    return pjrt_error(HAL_INCOMPATIBLE, "pjrt: '%.300s' returned no table of functions; install another version of it",
                      path);
  if (table->major_version != 0 || table->minor_version < OLDEST_MINOR)
    return pjrt_error(HAL_INCOMPATIBLE,
                      "pjrt: '%.300s' has version %d.%d of the PJRT C API, expected 0.%d or a later 0.x; install "
                      "another version of it",
                      path, table->major_version, table->minor_version, OLDEST_MINOR);
  const char *const missing = missing_slot(table);
  if (missing)
    return pjrt_error(HAL_INCOMPATIBLE, "pjrt: '%.300s', of PJRT C API %d.%d, lacks the function %s", path,
                      table->major_version, table->minor_version, missing);
  return HAL_OK;
}

/* Whether an earlier platform is of the same shared object. */
static int is_initialized(const pjrt_table_t *table) {
  for (int32_t i = 0; i < pjrt.platform_count; i++)
    if (pjrt.platforms[i].table == table) return 1;
  return 0;
}

static hal_status_t open_file(const char *path, const pjrt_table_t **out_table) {
  /* The object is never closed: its threads and handlers would crash. */
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const int machine = library ? -1 : pjrt_other_machine(path); /* dlopen reports that the file does not exist */
  if (machine >= 0)
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: HAL_PJRT_PLUGIN=%.300s is for another processor (machine %d of ELF); install the package "
                      "for this one",
                      path, machine);
  if (!library) return pjrt_error(HAL_UNAVAILABLE, "pjrt: HAL_PJRT_PLUGIN cannot be opened: %.600s", dlerror());
  void *const symbol = dlsym(library, "GetPjrtApi");
  if (!symbol)
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: HAL_PJRT_PLUGIN=%.300s is not a PJRT plugin: it lacks the function GetPjrtApi", path);
  const pjrt_table_t *(*get)(void);
  memcpy(&get, &symbol, sizeof get); /* ISO C has no cast to a function pointer */
  const pjrt_table_t *const table = get();
  const hal_status_t status = check_table(path, table);
  if (status) return status;
  *out_table = table;
  if (is_initialized(table)) return HAL_OK;
  pjrt_Plugin_Initialize_t initialize = {.struct_size = 0};
  pjrt_failure_t failure;
  if (pjrt_failed(table, PJRT_CALL(table, Plugin_Initialize, initialize), &failure))
    return pjrt_error(HAL_UNAVAILABLE, "pjrt: '%.300s' cannot be initialized: %s", path, failure.text);
  return HAL_OK;
}

/* The lock is held. */
static hal_status_t open_files(const pjrt_paths_t *paths) {
  hal_status_t status = HAL_OK;
  while (!status && pjrt.platform_count < paths->count) {
    pjrt_platform_t *const platform = &pjrt.platforms[pjrt.platform_count];
    *platform = (pjrt_platform_t){.number = pjrt.platform_count};
    status = open_file(paths->paths[platform->number], &platform->table);
    if (!status) pjrt.platform_count++;
  }
  return status;
}

hal_status_t pjrt_load(void) {
  static pjrt_paths_t paths;
  static int is_loaded;
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  if (!is_loaded) status = pjrt_find_plugins(&paths);
  if (!is_loaded && !status) {
    pjrt.platform_count = 0;
    status = open_files(&paths);
    is_loaded = !status;
  }
  pthread_mutex_unlock(&lock);
  return status;
}
