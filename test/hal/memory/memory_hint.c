/* Tests of hal_memory_prefetch, hal_memory_advise and object names. */
#define _DEFAULT_SOURCE /* mincore */
#include "support.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if KERNEL_PLUGIN_EXISTS
enum { ROOM = 1 << 20 };
static char *device;

static void open_fake(void) {
  hal_block_t *block = NULL;
  setenv("HAL_FAKE_DEVICES", "2", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake," FIXTURE("five")));
  assert_ok(hal_memory_allocate(0, NULL, ROOM, &block));
  device = hal_memory_block_address(block);
}

/* Returns the number of resident pages. */
static size_t present(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = ROOM / page;
  unsigned char in[ROOM / 4096];
  size_t count = 0;
  cr_assert_eq(mincore(device, ROOM, in), 0);
  for (size_t i = 0; i < pages; i++) count += in[i] & 1;
  return count;
}

Test(memory_hint, a_prefetch_to_the_fake_device_populates_pages) {
  const size_t pages = ROOM / (size_t)sysconf(_SC_PAGESIZE);
  open_fake();
  cr_assert_lt(present(), pages);
  assert_ok(hal_memory_prefetch(0, NULL, device, ROOM, HAL_HOST));
  assert_ok(hal_memory_prefetch(0, NULL, device, 0, 0));
  assert_ok(hal_device_synchronize(0));
  cr_assert_lt(present(), pages);
  assert_ok(hal_memory_prefetch(0, NULL, device, ROOM, 0));
  assert_ok(hal_device_synchronize(0));
  if (present() < pages) cr_skip_test("this system cannot populate pages (MADV_POPULATE_WRITE)");
}

Test(memory_hint, a_recorded_stream_records_no_hint) {
  hal_program_t *program = NULL;
  hal_stream_t *stream = NULL;
  open_fake();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(hal_memory_prefetch(0, stream, device, ROOM, 0));
  assert_ok(hal_memory_fill(stream, 0, device, "x", 1, ROOM));
  assert_ok(hal_program_end(program));
  assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(device[ROOM - 1], 'x');
  hal_program_destroy(program);
}

Test(memory_hint, an_invalid_argument_is_named_with_its_value) {
  hal_stream_t *other = NULL;
  open_fake();
  assert_ok(hal_stream_default(1, &other));
  assert_fails(hal_memory_prefetch(0, other, device, ROOM, 0), HAL_INVALID_ARGUMENT, "the stream of device fake:1");
  assert_fails(hal_memory_prefetch(0, NULL, NULL, 8, 0), HAL_INVALID_ARGUMENT, "invalid range of 8 bytes");
  assert_fails(hal_memory_prefetch(0, NULL, device, SIZE_MAX, 0), HAL_INVALID_ARGUMENT, "invalid range");
  assert_fails(hal_memory_prefetch(0, NULL, device, ROOM, 9), HAL_OUT_OF_RANGE, "device 9");
  assert_fails(hal_memory_prefetch(9, NULL, device, ROOM, 0), HAL_OUT_OF_RANGE, "device 9");
  assert_fails(hal_memory_prefetch(0, NULL, device, ROOM, 2), HAL_INVALID_ARGUMENT, "of another plugin");
  assert_fails(hal_memory_advise(0, device, ROOM, 0, 0), HAL_INVALID_ARGUMENT, "invalid advice 0");
  assert_fails(hal_memory_advise(0, device, ROOM, 7, 0), HAL_INVALID_ARGUMENT, "invalid advice 7");
  assert_fails(hal_memory_advise(0, device, ROOM, HAL_ADVICE_PREFERRED, -7), HAL_OUT_OF_RANGE, "device -7");
  assert_ok(hal_memory_advise(0, device, ROOM, HAL_ADVICE_PREFERRED, 1));
  assert_ok(hal_memory_advise(0, device, ROOM, HAL_ADVICE_ACCESSED, HAL_HOST));
  assert_ok(hal_memory_advise(0, NULL, 0, HAL_ADVICE_READ_MOSTLY, 0));
}

Test(memory_hint, a_plugin_without_hints_and_names_takes_them) {
  static char bytes[64];
  hal_event_t *event = NULL;
  hal_stream_t *stream = NULL;
  open_fixture("five");
  assert_ok(hal_memory_prefetch(0, NULL, bytes, sizeof bytes, 1));
  assert_ok(hal_memory_advise(0, bytes, sizeof bytes, HAL_ADVICE_READ_MOSTLY, HAL_HOST));
  assert_ok(hal_stream_default(0, &stream));
  assert_ok(hal_stream_set_name(stream, "a stream without a handle"));
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_event_set_name(event, "an event"));
  assert_fails(hal_event_set_name(event, NULL), HAL_INVALID_ARGUMENT, "hal_event_set_name: missing name");
  hal_event_destroy(event);
}

Test(memory_hint, a_stream_is_named_and_a_name_is_needed) {
  hal_stream_t *stream = NULL;
  open_fake();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_set_name(stream, "data loader"));
  assert_ok(hal_stream_set_name(NULL, "the current one"));
  assert_ok(hal_stream_set_name(stream, ""));
  assert_fails(hal_stream_set_name(stream, NULL), HAL_INVALID_ARGUMENT, "hal_stream_set_name: missing name");
}
#endif
