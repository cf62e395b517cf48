/* queued_memory.c: memory and modules that queued work uses remain valid until that work is done: if the work runs,
 * is deferred or is recorded as a program, with and without streams of the plugin; on the device that
 * HAL_TEST_PLUGIN names. The tests check the bytes. */
#define _XOPEN_SOURCE 700
#include <hal/lazy.h>
#include <hal/program.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "fake/fake_testing.h"
#include "plugin/call.h"
#include "support.h"

/* Larger than the memory that malloc retains (32 MiB at most): an access after the plugin has freed it is a fault. */
enum { SIZE = 40 << 20, OLD = 0x33, NEW = 0x44, GONE = 0xEE };
enum { DIRECT, LAZY, CAPTURE };

static const char *plugin_name(void) {
  const char *const name = getenv("HAL_TEST_PLUGIN");
  return name ? name : "streamless";
}

static void open_device(void) {
  assert_ok(hal_registry_add_path(FIXTURE_DIR));
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  const hal_status_t status = hal_registry_open(plugin_name());
  if (status == HAL_UNAVAILABLE) {
    fprintf(stderr, "SKIPPED: %s\n", hal_error_message());
    cr_skip_test("%s", hal_error_message());
  }
  assert_ok(status);
}

TestSuite(queued_memory, .init = open_device, .timeout = 120);

/* ---- a stream in one of the three modes ---- */

typedef struct work_s {
  int mode;
  hal_stream_t *stream;
  hal_lazy_t *lazy;
  hal_program_t *program;
} work_t;

static work_t begin(int mode, hal_stream_t *stream) {
  work_t work = {.mode = mode, .stream = stream};
  if (!stream) assert_ok(hal_stream_current(0, &work.stream));
  if (mode == LAZY) assert_ok(hal_lazy_begin(work.stream, NULL, &work.lazy));
  if (mode == CAPTURE) assert_ok(hal_program_begin(work.stream, NULL, &work.program));
  return work;
}

/* Launches a program: its runs keep the memory that it uses, its recording does not. */
static void launch(work_t *work) {
  if (work->mode != CAPTURE) return;
  assert_ok(hal_program_end(work->program));
  assert_ok(hal_program_run(work->program, work->stream));
}

static void finish(work_t *work) {
  if (work->mode == LAZY) assert_ok(hal_lazy_end(work->lazy));
  assert_ok(hal_stream_synchronize(work->stream));
  if (work->mode == CAPTURE) hal_program_destroy(work->program);
}

/* ---- memory ---- */

static char *take(int value, size_t size, hal_block_t **block) {
  const uint8_t byte = (uint8_t)value;
  assert_ok(hal_memory_allocate(0, NULL, size, block));
  char *const address = hal_memory_block_address(*block);
  assert_ok(hal_memory_fill(NULL, 0, address, &byte, 1, size));
  assert_ok(hal_stream_synchronize(NULL));
  return address;
}

static void copy(const work_t *work, char *to, const char *from) {
  assert_ok(hal_memory_copy(work->stream, to, 0, from, 0, SIZE));
}

static void check(const char *address, int value) {
  static uint8_t bytes[SIZE];
  assert_ok(hal_memory_copy(NULL, bytes, HAL_HOST, address, 0, SIZE));
  assert_ok(hal_stream_synchronize(NULL));
  size_t i = 0;
  while (i < SIZE && bytes[i] == value) i++;
  if (i < SIZE) cr_assert_fail("byte %zu is %#x instead of %#x", i, bytes[i], (unsigned)value);
}

/* Memory that the test allocates from the plugin; its free_fn overwrites and frees it. */
static struct {
  char *address;
  atomic_int freed;
} adopted;

static hal_device_t *device_of_plugin(void) {
  hal_device_t *device;
  assert_ok(hal_device_get(0, &device));
  return device;
}

static void overwrite(void *user_data) {
  hal_device_t *const device = user_data;
  const uint8_t byte = GONE;
  atomic_fetch_add(&adopted.freed, 1);
  assert_ok(hal_call_memory_fill(device->plugin, NULL, 0, adopted.address, &byte, 1, SIZE));
}

static void adopt(hal_block_t **block) {
  void *address;
  const uint8_t byte = OLD;
  hal_device_t *const device = device_of_plugin();
  assert_ok(hal_call_memory_alloc(device->plugin, 0, SIZE, 0, &address));
  adopted.address = address;
  assert_ok(hal_memory_fill(NULL, 0, address, &byte, 1, SIZE));
  assert_ok(hal_stream_synchronize(NULL));
  assert_ok(hal_memory_adopt(0, NULL, address, SIZE, overwrite, device, block));
}

/* ---- release ---- */

static void released_then_reused(int mode) {
  hal_block_t *to, *from, *next;
  char *const result = take(0, SIZE, &to), *const source = take(OLD, SIZE, &from);
  const uint8_t byte = NEW;
  work_t work = begin(mode, NULL);
  copy(&work, result, source);
  hal_memory_release(from);
  assert_ok(hal_memory_allocate(0, NULL, SIZE, &next)); /* may be the same memory */
  assert_ok(hal_memory_fill(work.stream, 0, hal_memory_block_address(next), &byte, 1, SIZE));
  launch(&work);
  finish(&work);
  check(result, OLD);
  hal_memory_release(to);
  hal_memory_release(next);
}
Test(queued_memory, a_released_block_is_reused_after_the_work) { released_then_reused(DIRECT); }
Test(queued_memory, a_released_block_is_reused_after_deferred_work) { released_then_reused(LAZY); }
Test(queued_memory, a_released_block_is_reused_after_a_program) { released_then_reused(CAPTURE); }

/* ---- another thread that submits deferred work ---- */

static void *submit(void *status) {
  *(hal_status_t *)status = hal_device_synchronize(0);
  return NULL;
}

static void *end_recording(void *lazy) { return hal_lazy_end(lazy) ? lazy : NULL; }

/* One thread submits the work and another one ends the recording. As soon as the stream is not recorded, its work runs
 * directly, and follows the deferred work. */
Test(queued_memory, direct_work_follows_deferred_work_that_another_thread_submits) {
  enum { ROUNDS = 24, STEP_NS = 400000 };
  hal_block_t *block, *to;
  char *const address = take(OLD, SIZE, &block), *const result = take(0, SIZE, &to);
  for (int round = 0; round < ROUNDS; round++) {
    hal_status_t status = HAL_INTERNAL;
    pthread_t submitter, ender;
    void *failed;
    const uint8_t byte = (uint8_t)(round + 1);
    work_t work = begin(LAZY, NULL);
    assert_ok(hal_memory_fill(work.stream, 0, address, &byte, 1, SIZE));
    assert_ok(hal_memory_copy(work.stream, result, 0, address, 0, SIZE));
    cr_assert_eq(pthread_create(&submitter, NULL, submit, &status), 0);
    nanosleep(&(struct timespec){.tv_nsec = round * STEP_NS}, NULL);
    cr_assert_eq(pthread_create(&ender, NULL, end_recording, work.lazy), 0);
    while (hal_stream_is_recorded(work.stream)) nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    check(result, byte);
    cr_assert_eq(pthread_join(submitter, NULL), 0);
    cr_assert_eq(pthread_join(ender, &failed), 0);
    cr_assert(!failed);
    assert_ok(status);
  }
  hal_memory_release(block);
  hal_memory_release(to);
}

/* ---- adopted memory ---- */

static void adopted_then_released(int mode) {
  hal_block_t *to, *from;
  char *const result = take(0, SIZE, &to);
  adopt(&from);
  work_t work = begin(mode, NULL);
  copy(&work, result, adopted.address);
  launch(&work);
  hal_memory_release(from);
  finish(&work);
  check(result, OLD);
  hal_memory_release(to);
  assert_ok(hal_device_synchronize(0));
  assert_ok(hal_memory_empty_cache(0));
  cr_assert_eq(atomic_load(&adopted.freed), 1);
}
Test(queued_memory, adopted_memory_is_freed_after_the_work) { adopted_then_released(DIRECT); }
Test(queued_memory, adopted_memory_is_freed_after_deferred_work) { adopted_then_released(LAZY); }
Test(queued_memory, adopted_memory_is_freed_after_a_program) { adopted_then_released(CAPTURE); }

/* ---- memory of another stream ---- */

static void used_by_another_stream(int mode) {
  hal_block_t *to, *from, *next;
  hal_stream_t *other;
  const uint8_t byte = NEW;
  char *const result = take(0, SIZE, &to), *const source = take(OLD, SIZE, &from);
  assert_ok(hal_stream_acquire(0, 0, &other));
  work_t work = begin(mode, other);
  copy(&work, result, source);
  launch(&work);
  assert_ok(hal_memory_record_stream(from, other));
  hal_memory_release(from);
  assert_ok(hal_memory_allocate(0, NULL, SIZE, &next)); /* may be the same memory, after the other stream is done */
  assert_ok(hal_memory_fill(NULL, 0, hal_memory_block_address(next), &byte, 1, SIZE));
  assert_ok(hal_stream_synchronize(NULL));
  finish(&work);
  check(result, OLD);
  hal_memory_release(to);
  hal_memory_release(next);
}
Test(queued_memory, a_block_waits_for_the_work_of_a_recorded_stream) { used_by_another_stream(DIRECT); }
Test(queued_memory, a_block_waits_for_the_deferred_work_of_a_recorded_stream) { used_by_another_stream(LAZY); }
Test(queued_memory, a_block_waits_for_a_program_on_a_recorded_stream) { used_by_another_stream(CAPTURE); }

/* ---- the cache ---- */

static void emptied_cache(int mode) {
  hal_block_t *to, *from, *written;
  char *const result = take(0, SIZE, &to), *const source = take(OLD, SIZE, &from),
              *const sink = take(0, SIZE, &written);
  work_t work = begin(mode, NULL);
  copy(&work, result, source);
  copy(&work, sink, source);
  launch(&work);
  hal_memory_release(from);
  hal_memory_release(written);
  assert_ok(hal_memory_empty_cache(0));
  finish(&work);
  check(result, OLD);
  hal_memory_release(to);
}
Test(queued_memory, the_cache_is_emptied_after_the_work) { emptied_cache(DIRECT); }
Test(queued_memory, the_cache_is_emptied_after_deferred_work) { emptied_cache(LAZY); }
Test(queued_memory, the_cache_is_emptied_after_a_program) { emptied_cache(CAPTURE); }

/* ---- modules ---- */

static const char source[] =
    "__kernel void store(__global int *target, int value) { target[get_global_id(0)] = value; }\n";

/* Launches a kernel on the stream that writes `value` to the beginning of `target`, with a module in the device's
   own dialect. Returns NULL if the device has none. */
static hal_module_t *store(const work_t *work, char *target, int32_t value) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_module_desc_t desc = {.struct_size = sizeof desc, .options = ""};
  hal_module_t *module;
  hal_kernel_t *kernel;
  fake_add_t add;
  const hal_arg_t args[] = {{&target, sizeof target, HAL_ARG_POINTER}, {&value, sizeof value, HAL_ARG_VALUE}};
  const hal_launch_t simple = {
      .struct_size = sizeof simple, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 2, .args = args};
  assert_ok(hal_device_info(0, &info));
  const int has_text = strstr(info.dialects, "opencl-c") != NULL, is_native = strncmp(info.dialects, "native", 6) == 0;
  if (!*info.dialects) return NULL;
  desc.dialect = has_text ? "opencl-c" : is_native ? "native" : info.dialects;
  if (has_text) desc.data = source, desc.size = sizeof source - 1;
  assert_ok(hal_module_load(0, &desc, &module));
  assert_ok(hal_kernel_get(module, is_native && !has_text ? "add_f32_contig" : "store", &kernel));
  float *const number = (float *)(void *)target; /* doubled by add_f32_contig */
  fake_add_set(&add, number, number, number, 1, 1);
  assert_ok(hal_kernel_launch(kernel, work->stream, is_native && !has_text ? &add.launch : &simple));
  return module;
}

static void unloaded_module(int mode) {
  hal_block_t *block;
  char *const target = take(0x40, 64, &block);
  uint32_t word = 0, before;
  memset(&before, 0x40, sizeof before);
  work_t work = begin(mode, NULL);
  hal_module_t *const module = store(&work, target, 4711);
  launch(&work);
  hal_module_unload(module);
  finish(&work);
  assert_ok(hal_memory_copy(NULL, &word, HAL_HOST, target, 0, sizeof word));
  assert_ok(hal_stream_synchronize(NULL));
  if (module) cr_assert_neq(word, before, "the kernel did not run");
  hal_memory_release(block);
}
Test(queued_memory, a_module_is_unloaded_after_the_work) { unloaded_module(DIRECT); }
Test(queued_memory, a_module_is_unloaded_after_deferred_work) { unloaded_module(LAZY); }
Test(queued_memory, a_module_is_unloaded_after_a_program) { unloaded_module(CAPTURE); }

/* ---- exit of the process ---- */

static void closed_registry(int mode) {
  hal_block_t *from;
  char *const source_bytes = take(OLD, SIZE, &from);
  void *result;
  const uint8_t byte = NEW;
  hal_device_t *const device = device_of_plugin();
  assert_ok(hal_call_memory_alloc(device->plugin, 0, SIZE, 0, &result)); /* remains allocated when the registry is
                                                                            closed */
  assert_ok(hal_memory_fill(NULL, 0, result, &byte, 1, SIZE));
  assert_ok(hal_stream_synchronize(NULL));
  const int visible = (device->info.flags & HAL_DEVICE_HOST_VISIBLE) != 0 || !*device->info.dialects;
  work_t work = begin(mode, NULL);
  copy(&work, result, source_bytes);
  launch(&work);
  hal_registry_close();
  if (visible) cr_assert_eq(((const uint8_t *)result)[SIZE - 1], OLD, "the work was discarded");
  if (mode == LAZY) assert_ok(hal_lazy_end(work.lazy));
  if (mode == CAPTURE) hal_program_destroy(work.program);
  hal_memory_release(from);
}
Test(queued_memory, the_work_is_done_when_the_registry_closes) { closed_registry(DIRECT); }
Test(queued_memory, deferred_work_is_done_when_the_registry_closes) { closed_registry(LAZY); }
Test(queued_memory, a_program_is_done_when_the_registry_closes) { closed_registry(CAPTURE); }

/* ---- fork ---- */

/* The call that a child of the process may make on inherited objects: it releases them, which reaches no driver. */
static void give_back(work_t *work, hal_block_t *block) {
  hal_memory_release(block);
  if (work->mode == LAZY && hal_lazy_end(work->lazy)) _exit(2);
  if (work->mode == CAPTURE) hal_program_destroy(work->program);
  _exit(atomic_load(&adopted.freed) ? 3 : 0);
}

static void forked(int mode) {
  hal_block_t *to, *from;
  int state = 0;
  char *const result = take(0, SIZE, &to);
  adopt(&from);
  work_t work = begin(mode, NULL);
  copy(&work, result, adopted.address);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (!child) give_back(&work, from);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "the child ended with state %#x", (unsigned)state);
  launch(&work);
  finish(&work);
  check(result, OLD);
  hal_memory_release(to);
  hal_memory_release(from);
}
Test(queued_memory, the_work_of_a_parent_is_not_affected_by_its_child) { forked(DIRECT); }
Test(queued_memory, deferred_work_of_a_parent_is_not_affected_by_its_child) { forked(LAZY); }
Test(queued_memory, a_program_of_a_parent_is_not_affected_by_its_child) { forked(CAPTURE); }
