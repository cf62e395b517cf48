/* Tests of the native handles of streams (hal_stream_native) on the Level Zero plugin: work that users queue on them
 * is work of the stream. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include <dlfcn.h>
#include <level_zero/ze_api.h>

#include "native_testing.h"
#include "npu_testing.h"

static ze_event_handle_t gate;

static void *function(const char *name) {
  void *const loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_NOLOAD), *const found =
                                                                                loader ? dlsym(loader, name) : NULL;
  cr_assert_not_null(found, "%s", name);
  return found;
}
#define CALL(name, ...)                                               \
  do {                                                                \
    __typeof__(name) *call_;                                          \
    *(void **)&call_ = function(#name);                               \
    cr_assert_eq(call_(__VA_ARGS__), ZE_RESULT_SUCCESS, "%s", #name); \
  } while (0)

/* An event of the user's own context. */
static void make_gate(void) {
  static ze_event_pool_handle_t pool;
  if (!pool) {
    uint32_t count = 1;
    ze_driver_handle_t driver = NULL;
    ze_context_handle_t context = NULL;
    const ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    const ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    CALL(zeDriverGet, &count, &driver);
    CALL(zeContextCreate, driver, &context_desc, &context);
    CALL(zeEventPoolCreate, context, &pool_desc, 0, NULL, &pool);
  }
  const ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .index = 0};
  CALL(zeEventCreate, pool, &desc, &gate);
}

static void hold(void *native) {
  make_gate();
  CALL(zeCommandListAppendWaitOnEvents, native, 1, &gate);
}
static void release(void) { CALL(zeEventHostSignal, gate); }

Test(npu_native, work_that_a_user_queues_on_the_handle_is_work_of_the_stream, .timeout = 120) {
  open_npu();
  native_check(&(native_user_t){hold, release});
  close_opencl();
}
