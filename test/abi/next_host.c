/* next_host.c: what the loader of the stand-in host wants of the components above it, which it does not have. */
#include "base/host_malloc.h"
#include "base/life.h"
#include "base/log_internal.h"
#include "base/status_internal.h"
#include "plugin/hooks.h"

static void do_nothing(void) {}
static void add_nothing(hal_plugin_t *plugin) { (void)plugin; }
static uint64_t no_correlation(void) { return 0; }
static hal_status_t no_scratch(const hal_op_call_t *call, size_t size, void **out_ptr) {
  (void)call, (void)size, (void)out_ptr;
  return HAL_FAILED_PRECONDITION;
}
static int64_t thousand(void) { return 1000; }

const hal_life_hooks_t hal_life_hooks = {.after_fork = do_nothing};
const hal_registry_hooks_t hal_registry_hooks = {.added = add_nothing, .closing = do_nothing};
hal_host_api_t hal_host_api = {
    .struct_size = HAL_STRUCT_SIZE(hal_host_api_t, next_service),
    .major = HAL_ABI_MAJOR,
    .minor = HAL_ABI_MINOR,
    .error_set = hal_error_from_plugin,
    .log = hal_log_from_plugin,
    .mem_alloc = hal_malloc_aligned,
    .mem_free = hal_free,
    .profile_correlation = no_correlation,
    .scratch_alloc = no_scratch,
    .next_service = thousand,
};
