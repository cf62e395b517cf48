/* flags.c: flags that no version defines yet, such as those of a later one: the call is HAL_UNIMPLEMENTED, it never
 * ignores them. */
#include "cts.h"

enum { SIZE = 4096 };

void cts_refuses_flags(cts_t *t, uint32_t known, hal_status_t (*use)(cts_t *t, uint32_t flags)) {
  for (uint32_t i = 0; i <= 32; i++) {
    const uint32_t flags = i < 32 ? UINT32_C(1) << i : ~known;
    if (flags & known) continue;
    const hal_status_t status = use(t, flags);
    CTS_CHECK(t, status == HAL_UNIMPLEMENTED, "the unknown flags 0x%x returned status %d, not HAL_UNIMPLEMENTED (12)",
              (unsigned)flags, (int)status);
  }
}

static hal_status_t probe(cts_t *t, uint32_t flags) { return cts_probe(t, flags); }
static hal_status_t shutdown(cts_t *t, uint32_t flags) { return cts_shutdown(t, flags); }
static hal_status_t memory_alloc(cts_t *t, uint32_t flags) {
  void *ptr = NULL;
  const hal_status_t status = cts_memory_alloc(t, t->device, SIZE, flags, &ptr);
  return ptr ? HAL_OK : status;
}
static hal_status_t memory_alloc_async(cts_t *t, uint32_t flags) {
  void *ptr = NULL;
  const hal_status_t status = cts_memory_alloc_async(t, t->device, NULL, SIZE, flags, &ptr);
  return ptr ? HAL_OK : status;
}
static hal_status_t host_alloc(cts_t *t, uint32_t flags) {
  void *ptr = NULL;
  const hal_status_t status = cts_host_alloc(t, t->device, SIZE, flags, &ptr);
  return ptr ? HAL_OK : status;
}
static hal_status_t host_register(cts_t *t, uint32_t flags) {
  return cts_host_register(t, t->device, t->scratch, SIZE, flags);
}
static hal_status_t event_create(cts_t *t, uint32_t flags) {
  hal_plugin_event_t *event = NULL;
  const hal_status_t status = cts_event_create(t, t->device, flags, &event);
  return event ? HAL_OK : status;
}
static hal_status_t create(cts_t *t, uint32_t flags, uint32_t engine) {
  hal_stream_desc_t desc = HAL_STREAM_DESC(0);
  hal_plugin_stream_t *stream = NULL;
  desc.flags = flags, desc.engine = engine;
  const hal_status_t status = cts_stream_create(t, t->device, &desc, &stream);
  return stream ? HAL_OK : status;
}
static hal_status_t stream_create(cts_t *t, uint32_t flags) { return create(t, flags, HAL_ENGINE_ANY); }

void cts_case_flags_probe(cts_t *t) { cts_refuses_flags(t, 0, probe); }
void cts_case_flags_memory_alloc(cts_t *t) { cts_refuses_flags(t, 0, memory_alloc); }
void cts_case_flags_memory_alloc_async(cts_t *t) { cts_refuses_flags(t, 0, memory_alloc_async); }
void cts_case_flags_host_alloc(cts_t *t) { cts_refuses_flags(t, 0, host_alloc); }
void cts_case_flags_event_create(cts_t *t) {
  cts_refuses_flags(t, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS, event_create);
}
void cts_case_flags_host_register(cts_t *t) {
  t->scratch = cts_host(t, SIZE);
  cts_refuses_flags(t, 0, host_register);
}

/* A shutdown that fails shuts nothing down. */
void cts_case_flags_shutdown(cts_t *t) {
  cts_refuses_flags(t, 0, shutdown);
  CTS_OK(t, device_synchronize, t->device);
}

void cts_case_flags_stream_create(cts_t *t) {
  cts_refuses_flags(t, HAL_STREAM_QUEUE, stream_create);
  for (uint32_t engine = HAL_ENGINE_COPY + 1; engine < 40; engine++) {
    const hal_status_t status = create(t, 0, engine);
    CTS_CHECK(t, status == HAL_UNIMPLEMENTED,
              "the unknown engine class %u returned status %d, not HAL_UNIMPLEMENTED (12)", (unsigned)engine,
              (int)status);
  }
}

/* The engine classes are hints: each results in a stream that works. A queue that can be selected exists. */
void cts_case_stream_engines(cts_t *t) {
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  for (uint32_t wish = 0; wish < 6; wish++) {
    hal_stream_desc_t desc = HAL_STREAM_DESC(0);
    hal_plugin_stream_t *stream = NULL;
    desc.engine = wish % 3, desc.flags = wish < 3 ? 0 : HAL_STREAM_QUEUE;
    const hal_status_t status = cts_stream_create(t, t->device, &desc, &stream);
    if (wish >= 3 && status == HAL_UNIMPLEMENTED) continue;
    CTS_CHECK(t, status == HAL_OK, "stream_create of engine class %u%s returned status %d", (unsigned)desc.engine,
              wish < 3 ? "" : ", queue 0,", (int)status);
    cts_noise(bytes, SIZE, wish);
    cts_put(t, stream, device, bytes, SIZE);
    cts_get(t, stream, got, device, SIZE);
    cts_sync(t, stream);
    cts_same(t, got, bytes, SIZE, "bytes that a stream of an engine class copied");
    CTS_OK(t, stream_destroy, stream);
    if (wish < 3) continue;
    desc.queue = UINT32_MAX;
    CTS_STATUS(t, HAL_INVALID_ARGUMENT, stream_create, t->device, &desc, &stream);
  }
}
