/* fake_support.h: helpers shared by the Criterion suites of the fake plugin. */
#ifndef TEST_HAL_FAKE_SUPPORT_H_
#define TEST_HAL_FAKE_SUPPORT_H_

#include <criterion/criterion.h>

#include "fake_testing.h"

#define must(call)                                                              \
  do {                                                                          \
    const hal_status_t must_ = (call);                                          \
    cr_assert_eq(must_, HAL_OK, "%s: %d: %s", #call, (int)must_, fake_message); \
  } while (0)

/* The call must fail with the code, and its message must contain the text. */
#define must_fail(call, code, text)                                                                    \
  do {                                                                                                 \
    fake_message[0] = 0;                                                                               \
    const hal_status_t must_ = (call);                                                                 \
    cr_assert_eq(must_, (code), "%s: %d instead of %s: %s", #call, (int)must_, #code, fake_message);   \
    cr_assert_not_null(strstr(fake_message, (text)), "message '%s' lacks '%s'", fake_message, (text)); \
  } while (0)

/* Opens the plugin in a mode, with a number of worker threads. */
static inline void open_mode(int async, int threads) {
  char number[16];
  setenv("HAL_FAKE_ASYNC", async ? "1" : "0", 1);
  snprintf(number, sizeof number, "%d", threads);
  setenv("HAL_FAKE_THREADS", number, 1);
  fake_open();
}

static inline hal_plugin_stream_t *new_stream(void) {
  hal_plugin_stream_t *stream = NULL;
  must(fake_api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  cr_assert_not_null(stream);
  return stream;
}

/* Events destroyed at the end of the suite, so that the leak checker reports leaks of the plugin and not of the
   tests. */
static hal_plugin_event_t *events[64];
static size_t event_count;

static inline hal_plugin_event_t *new_event(uint32_t flags) {
  hal_plugin_event_t *event = NULL;
  must(fake_api.event_create(0, flags, &event));
  cr_assert_lt(event_count, sizeof events / sizeof *events);
  return events[event_count++] = event;
}

static inline void destroy_event(hal_plugin_event_t *event) {
  for (size_t i = 0; i < event_count; i++) {
    if (events[i] == event) events[i] = NULL;
  }
  must(fake_api.event_destroy(event));
}

/* For each suite: TestSuite(name, .fini = close_plugin). */
static inline void close_plugin(void) {
  for (size_t i = 0; i < event_count; i++) fake_api.event_destroy(events[i]);
}

static inline void *new_memory(size_t bytes) {
  void *ptr = NULL;
  must(fake_api.memory_alloc(0, bytes, 0, &ptr));
  return ptr;
}

/* Queues out += 1 over n floats; `ones` holds n ones. */
static inline void add_ones(hal_plugin_stream_t *stream, float *out, const float *ones, uint64_t n) {
  fake_add_t add;
  fake_add_set(&add, out, out, ones, 1.0f, n);
  must(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch));
}

static inline float *new_floats(size_t count, float value) {
  float *data = new_memory(count * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = value;
  return data;
}

/* Polls the query until the stream is done. No thread synchronizes, so that only workers can run the work. */
static inline int finishes_within(hal_plugin_stream_t *stream, int milliseconds) {
  for (int i = 0; i < milliseconds; i++) {
    if (fake_api.stream_query(stream) == HAL_OK) return 1;
    fake_sleep_ms(1);
  }
  return 0;
}

#endif /* TEST_HAL_FAKE_SUPPORT_H_ */
