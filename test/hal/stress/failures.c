/* stress/failures.c: an asynchronous failure is reported once, to the caller that synchronizes the failed stream,
 * and never to another caller, whichever call detected it. The plugin is unlucky.c. */
#define _POSIX_C_SOURCE 200809L
#include <hal/compiler.h>
#include <hal/hal.h>
#include <string.h>

#include "repeated.h"

enum { FATAL = 13, DEADLY = 14 }; /* sizes of copies, in unlucky.c */

static const char unlucky[] = FIXTURE_DIR "/libhal_unlucky.so";
static const char with_events[] = FIXTURE_DIR "/libhal_unlucky_events.so";
static const char pooled[] = FIXTURE_DIR "/libhal_unlucky_pooled.so";

static hal_stream_t *a, *b, *c;

static int open_plugin(const char *path) {
  MUST(hal_registry_open(path) == HAL_OK);
  MUST(hal_stream_acquire(0, 0, &a) == HAL_OK);
  MUST(hal_stream_acquire(0, 0, &b) == HAL_OK);
  MUST(hal_stream_acquire(0, 0, &c) == HAL_OK);
  return 0;
}

/* Queues a copy on the stream that fails. */
static int fail_copy(hal_stream_t *stream, size_t size) {
  static char from[16];
  hal_block_t *block;
  MUST(hal_memory_allocate(0, stream, size, &block) == HAL_OK);
  MUST(hal_memory_copy(stream, hal_memory_block_address(block), 0, from, HAL_HOST, size) == HAL_OK);
  hal_memory_release(block);
  return 0;
}

static int is_told(hal_status_t status) {
  return status == HAL_DATA_LOSS && strstr(hal_error_message(), "the copy failed on purpose (driver code 4711)");
}

#define OPEN(path) MUST(open_plugin(path) == 0)
#define FAIL(stream) MUST(fail_copy(stream, FATAL) == 0)

/* The other streams report no failure; the stream reports it once. */
static int told_by_a_alone(void) {
  MUST(hal_stream_synchronize(b) == HAL_OK && hal_stream_query(b) == HAL_OK);
  MUST(hal_stream_synchronize(NULL) == HAL_OK);
  MUST(is_told(hal_stream_synchronize(a)));
  MUST(hal_stream_synchronize(a) == HAL_OK && hal_stream_query(a) == HAL_OK);
  MUST(hal_device_synchronize(0) == HAL_OK);
  return 0;
}

static int play_plain(void) {
  OPEN(unlucky);
  FAIL(a);
  return told_by_a_alone();
}

/* A block that the stream uses is released: the allocator records an event, and its default synchronizes. */
static int lend_and_release(const char *path) {
  hal_block_t *block;
  OPEN(path);
  MUST(hal_memory_allocate(0, NULL, 100, &block) == HAL_OK);
  FAIL(a);
  MUST(hal_memory_record_stream(block, a) == HAL_OK);
  hal_memory_release(block);
  MUST(hal_memory_empty_cache(0) == HAL_OK);
  return told_by_a_alone();
}

static int play_allocator(void) { return lend_and_release(unlucky); }
static int play_allocator_with_events(void) { return lend_and_release(with_events); }

static void nothing(void *data) { (void)data; }

static int play_deferred(void) {
  OPEN(unlucky);
  FAIL(a);
  MUST(hal_memory_defer(0, a, nothing, NULL) == HAL_OK);
  return told_by_a_alone();
}

/* The default of memory_free_async synchronizes. */
static int play_pooled(void) {
  OPEN(pooled);
  FAIL(a);
  return told_by_a_alone();
}

static int play_profile(void) {
  OPEN(unlucky);
  MUST(hal_profile_start() == HAL_OK);
  FAIL(a);
  MUST(hal_profile_stop() == HAL_OK);
  return told_by_a_alone();
}

static int32_t accept_nothing(void *state, uint32_t op, const char *name, const hal_op_call_t *call) {
  (void)state, (void)op, (void)name, (void)call;
  return 0;
}
static hal_status_t compile_nothing(void *state, const hal_ir_t *ir, void **out_program) {
  (void)state, (void)ir, (void)out_program;
  return HAL_UNIMPLEMENTED;
}
static hal_status_t execute_nothing(void *state, void *program, const hal_ir_run_t *run) {
  (void)state, (void)program, (void)run;
  return HAL_OK;
}
static void destroy_nothing(void *state, void *program) { (void)state, (void)program; }

/* The programs of a compiler are destroyed when the device has completed its work. */
static int change_compiler(const char *path) {
  const hal_compiler_t compiler = {.struct_size = sizeof compiler,
                                   .name = "none",
                                   .accepts = accept_nothing,
                                   .compile = compile_nothing,
                                   .execute = execute_nothing,
                                   .destroy = destroy_nothing};
  OPEN(path);
  MUST(hal_compiler_set(0, &compiler) == HAL_OK);
  FAIL(a);
  MUST(hal_compiler_set(0, NULL) == HAL_OK);
  return told_by_a_alone();
}

static int play_compiler(void) { return change_compiler(unlucky); }
static int play_compiler_with_events(void) { return change_compiler(with_events); }

/* An event reports the failure of its stream, which is then reported. */
static int by_event(const char *path) {
  hal_event_t *event;
  OPEN(path);
  MUST(hal_event_create(0, 0, &event) == HAL_OK);
  FAIL(a);
  MUST(hal_event_record(event, a) == HAL_OK);
  MUST(hal_stream_synchronize(b) == HAL_OK);
  MUST(is_told(hal_event_synchronize(event)));
  MUST(hal_event_synchronize(event) == HAL_OK && hal_event_query(event) == HAL_OK);
  MUST(hal_stream_synchronize(a) == HAL_OK);
  FAIL(a);
  MUST(hal_event_record(event, a) == HAL_OK);
  MUST(is_told(hal_event_query(event)));
  MUST(hal_stream_synchronize(a) == HAL_OK);
  hal_event_destroy(event);
  return 0;
}

static int play_event(void) { return by_event(unlucky); }
static int play_own_event(void) { return by_event(with_events); }

/* Along stream_wait_event, also over two steps. After the waiting stream reports the failure, it is reported. */
static int by_wait(const char *path) {
  hal_event_t *event;
  OPEN(path);
  MUST(hal_event_create(0, 0, &event) == HAL_OK);
  FAIL(a);
  MUST(hal_event_record(event, a) == HAL_OK);
  MUST(hal_stream_wait_event(b, event) == HAL_OK);
  MUST(hal_event_record(event, b) == HAL_OK);
  MUST(hal_stream_wait_event(c, event) == HAL_OK);
  MUST(hal_stream_synchronize(NULL) == HAL_OK);
  MUST(is_told(hal_stream_synchronize(c)) && strstr(hal_error_message(), "waited for"));
  MUST(hal_stream_synchronize(a) == HAL_OK && hal_stream_synchronize(b) == HAL_OK);
  MUST(hal_stream_synchronize(c) == HAL_OK);
  FAIL(b); /* no call waits for this */
  MUST(hal_stream_synchronize(c) == HAL_OK);
  MUST(is_told(hal_stream_synchronize(b)));
  hal_event_destroy(event);
  return 0;
}

static int play_wait(void) { return by_wait(unlucky); }
static int play_own_wait(void) { return by_wait(with_events); }

/* The device reports the failures of all streams, one after the other. */
static int play_device(void) {
  OPEN(unlucky);
  for (int round = 0; round < 2; round++) {
    FAIL(a);
    FAIL(b);
    if (round) { /* detected by the host before */
      MUST(hal_memory_defer(0, a, nothing, NULL) == HAL_OK);
      MUST(hal_memory_defer(0, b, nothing, NULL) == HAL_OK);
    }
    MUST(is_told(hal_device_synchronize(0)) && is_told(hal_device_synchronize(0)));
    MUST(hal_device_synchronize(0) == HAL_OK && hal_stream_synchronize(a) == HAL_OK);
  }
  return 0;
}

/* If a stream has two failures before it is queried, both are reported. */
static int play_two(void) {
  OPEN(unlucky);
  FAIL(a);
  MUST(hal_memory_defer(0, a, nothing, NULL) == HAL_OK);
  FAIL(a);
  int told = is_told(hal_stream_synchronize(a)) != 0;
  told += strstr(hal_error_message(), "and then") ? 1 : is_told(hal_stream_synchronize(a)) != 0;
  MUST(told == 2);
  MUST(hal_stream_synchronize(a) == HAL_OK);
  return 0;
}

static int play_lost(void) {
  OPEN(unlucky);
  MUST(fail_copy(a, DEADLY) == 0);
  for (int i = 0; i < 3; i++) {
    MUST(hal_stream_synchronize(a) == HAL_UNAVAILABLE && strstr(hal_error_message(), "fell off the bus"));
    MUST(strstr(hal_error_message(), "is lost; start a new process"));
    MUST(hal_stream_query(b) == HAL_UNAVAILABLE && hal_device_synchronize(0) == HAL_UNAVAILABLE);
  }
  return 0;
}

/* The message names the operator and the kernel. */
static int play_names(void) {
  const int64_t sizes[1] = {1000}, strides[1] = {1};
  hal_block_t *block;
  uint32_t op;
  if (!KERNEL_PLUGIN_EXISTS) return 0;
  setenv("HAL_FAKE_FAULT", "1", 1);
  OPEN(PLUGIN_DIR "/libhal_fake.so");
  MUST(hal_op_id("fill.Scalar", &op) == HAL_OK);
  MUST(hal_memory_allocate(0, a, 4000, &block) == HAL_OK);
  hal_tensor_t tensor = {.struct_size = sizeof tensor,
                         .data = hal_memory_block_address(block),
                         .sizes = sizes,
                         .strides = strides,
                         .ndim = 1,
                         .dtype = HAL_FLOAT32};
  const hal_tensor_t *const results[1] = {&tensor};
  const hal_value_t args[1] = {{.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
  hal_op_call_t call = {
      .struct_size = sizeof call, .args = args, .arg_count = 1, .results = results, .result_count = 1};
  MUST(hal_op_run(0, op, a, &call) == HAL_OK);
  MUST(hal_stream_synchronize(b) == HAL_OK);
  MUST(hal_stream_synchronize(a) == HAL_INTERNAL);
  MUST(strstr(hal_error_message(), "fill.Scalar, kernel 'fill_f32_contig': fake, stream_synchronize:"));
  MUST(hal_stream_synchronize(a) == HAL_OK);
  hal_memory_release(block);
  return 0;
}

int main(void) {
  static const scene_t scenes[] = {
      {"a failure of one stream is not another's", play_plain},
      {"the allocator leaves a failure to the stream, with default events", play_allocator},
      {"the allocator leaves a failure to the stream, with own events", play_allocator_with_events},
      {"a deferred free leaves a failure to the stream", play_deferred},
      {"memory that the plugin pools leaves a failure to the stream", play_pooled},
      {"the profile leaves a failure to the stream", play_profile},
      {"a change of the compiler leaves a failure to the stream, with default events", play_compiler},
      {"a change of the compiler leaves a failure to the stream, with own events", play_compiler_with_events},
      {"an event reports the failure of its stream, with default events", play_event},
      {"an event reports the failure of its stream, with own events", play_own_event},
      {"a stream reports the failure it waited for, with default events", play_wait},
      {"a stream reports the failure it waited for, with own events", play_own_wait},
      {"the device reports the failures of all streams", play_device},
      {"two failures of a stream are both reported", play_two},
      {"a lost device stays lost", play_lost},
      {"a failure names the operator and the kernel", play_names},
  };
  return repeat(scenes, sizeof scenes / sizeof scenes[0]);
}
