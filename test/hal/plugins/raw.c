/* raw.c: entry functions that the SDK of this version would not produce. */
#include <hal/plugin.h>

#if defined(RAW_OTHER_MAJOR) /* the entry of a later major version, which refuses this host */
#undef HAL_ABI_MAJOR
#define HAL_ABI_MAJOR 7
#include <entry.c>

#elif defined(RAW_LATER_MINOR) /* the entry of a later minor version */
#undef HAL_ABI_MINOR
#define HAL_ABI_MINOR 99
#include <entry.c>

#elif defined(RAW_OLDER_MINOR) /* the behavior of the entry of 0.2 with a host of any other minor version */
HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
  if (host->major != 0 || host->minor != 2) {
    api->major = 0;
    api->minor = 2;
  }
  return HAL_INCOMPATIBLE;
}

#elif defined(RAW_NO_ENTRY) /* an ordinary shared object */
hal_status_t hal_plugin_unused(void);
hal_status_t hal_plugin_unused(void) { return HAL_OK; }

#else
#if defined(RAW_SANITIZED) /* reports that it was built with a sanitizer that the process does not have */
#if defined(__SANITIZE_THREAD__)
#define HAL_BUILD_FLAGS HAL_BUILD_ASAN
#else
#define HAL_BUILD_FLAGS HAL_BUILD_TSAN
#endif
#endif
hal_status_t real_entry(const hal_host_api_t *host, hal_plugin_api_t *api);
#define hal_plugin_entry real_entry
#include <entry.c>
#undef hal_plugin_entry

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
#if defined(RAW_OLD) /* the table of an older minor version: it ended with memory_copy */
  api->struct_size = offsetof(hal_plugin_api_t, memory_copy) + sizeof api->memory_copy;
#endif
  const hal_status_t status = real_entry(host, api);
#if defined(RAW_LYING_MAJOR)
  api->major = 7;
#elif defined(RAW_LYING_MINOR)
  api->minor = 1;
#elif defined(RAW_ODD_SIZE)
  api->struct_size -= 3;
#elif defined(RAW_HOLE)
  api->memory_free = NULL;
#endif
  return status;
}
#endif
