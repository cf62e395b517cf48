/* Tests of hal_memory_copy_2d and hal_memory_copy_batch: bytes compared with memcpy, and rejected calls. */
#include "support.h"

#include <stdint.h>

#if KERNEL_PLUGIN_EXISTS
enum { ROOM = 1 << 16 };
static uint8_t bytes[ROOM], got[ROOM], expected[ROOM];
static uint8_t *device;

static void open_fake(void) {
  hal_block_t *block = NULL;
  setenv("HAL_FAKE_DEVICES", "2", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
  assert_ok(hal_memory_allocate(0, NULL, ROOM, &block));
  device = hal_memory_block_address(block);
  for (int i = 0; i < ROOM; i++) bytes[i] = (uint8_t)(i * 31 + i / 256);
  memset(expected, 0x77, ROOM);
  assert_ok(hal_memory_fill(NULL, 0, device, "\x77", 1, ROOM));
}

static hal_copy_2d_t rectangle(size_t width, size_t height, size_t dst_pitch, size_t src_pitch) {
  return (hal_copy_2d_t){.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                         .dst = device + 5,
                         .src = bytes + 9,
                         .dst_pitch = dst_pitch,
                         .src_pitch = src_pitch,
                         .width = width,
                         .height = height,
                         .dst_device = 0,
                         .src_device = HAL_HOST};
}

static void expect_rectangle(const hal_copy_2d_t *desc) {
  for (size_t row = 0; row < desc->height; row++)
    memcpy(expected + 5 + row * desc->dst_pitch, bytes + 9 + row * desc->src_pitch, desc->width);
  assert_ok(hal_memory_copy(NULL, got, HAL_HOST, device, 0, ROOM));
  assert_ok(hal_device_synchronize(0));
  cr_assert_arr_eq(got, expected, ROOM);
}

Test(copy_many, rows_arrive_and_gaps_stay) {
  static const size_t shapes[][4] = {
      {3, 4, 7, 11}, {64, 100, 64, 64}, {500, 100, 600, 601}, {1, 1, 1, 1}, {0, 9, 1, 1}};
  open_fake();
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const hal_copy_2d_t desc = rectangle(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    assert_ok(hal_memory_copy_2d(NULL, &desc));
    expect_rectangle(&desc);
  }
}

Test(copy_many, rows_are_recorded_and_replayed) {
  hal_program_t *program = NULL;
  hal_stream_t *stream = NULL;
  open_fake();
  const hal_copy_2d_t desc = rectangle(30, 50, 40, 31);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(hal_memory_copy_2d(stream, &desc));
  assert_ok(hal_program_end(program));
  assert_ok(hal_memory_copy(NULL, got, HAL_HOST, device, 0, ROOM));
  assert_ok(hal_device_synchronize(0));
  cr_assert_arr_eq(got, expected, ROOM, "a recording runs nothing");
  assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  expect_rectangle(&desc);
  hal_program_destroy(program);
}

Test(copy_many, an_invalid_rectangle_is_reported_with_its_numbers) {
  hal_copy_2d_t desc;
  open_fake();
  desc = rectangle(10, 4, 9, 10);
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "invalid pitch 9: rows of 10 bytes");
  desc = rectangle(10, SIZE_MAX / 4, 10, 10);
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "end beyond the address space");
  desc = rectangle(10, 4, SIZE_MAX / 2, 10);
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "end beyond the address space");
  desc = rectangle(10, 4, 10, 10), desc.src = NULL;
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "4 rows of 10 bytes from address NULL");
  desc = rectangle(10, 4, 10, 10), desc.dst_device = HAL_HOST, desc.dst = got;
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "both sides are host memory");
  desc = rectangle(10, 4, 10, 10), desc.dst_device = 7;
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_OUT_OF_RANGE, "device 7");
  desc = rectangle(10, 4, 10, 10), desc.struct_size = 8;
  assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "struct_size is 8");
  assert_ok(hal_memory_copy(NULL, got, HAL_HOST, device, 0, ROOM));
  assert_ok(hal_device_synchronize(0));
  cr_assert_arr_eq(got, expected, ROOM);
}

/* Compares with a table of all bytes: whether two rectangles of one block of memory overlap. */
Test(copy_many, rectangles_that_share_a_byte_are_refused_and_no_others) {
  static uint8_t used[4096];
  int shared = 0, apart = 0;
  open_fake();
  for (unsigned i = 0; i < 4000; i++) {
    const size_t width = 1 + i % 5, height = 1 + i / 5 % 4, pitch = width + i / 20 % 6;
    const size_t other = i / 120 % 3 ? pitch : width + i / 7 % 9, dst = i * 7 % 60, src = i * 13 % 60;
    int overlaps = 0;
    memset(used, 0, sizeof used);
    for (size_t row = 0; row < height; row++) memset(used + dst + row * pitch, 1, width);
    for (size_t row = 0; row < height; row++)
      for (size_t x = 0; x < width; x++) overlaps |= used[src + row * other + x];
    hal_copy_2d_t desc = rectangle(width, height, pitch, other);
    desc.dst = device + dst, desc.src = device + src, desc.src_device = 0;
    if (overlaps)
      assert_fails(hal_memory_copy_2d(NULL, &desc), HAL_INVALID_ARGUMENT, "overlap");
    else
      assert_ok(hal_memory_copy_2d(NULL, &desc));
    shared += overlaps, apart += !overlaps;
  }
  cr_assert(shared > 500 && apart > 500, "%d and %d", shared, apart);
}

Test(copy_many, rows_between_two_plugins_go_through_the_host) {
  enum { PITCH = 64 };
  hal_block_t *block = NULL;
  uint8_t back[4 * PITCH];
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake," FIXTURE("tally")));
  assert_ok(hal_memory_allocate(0, NULL, sizeof back, &block));
  uint8_t *const here = hal_memory_block_address(block);
  assert_ok(hal_memory_allocate(1, NULL, sizeof back, &block));
  uint8_t *const there = hal_memory_block_address(block);
  for (int i = 0; i < (int)sizeof back; i++) bytes[i] = (uint8_t)i;
  assert_ok(hal_memory_copy(NULL, here, 0, bytes, HAL_HOST, sizeof back));
  assert_ok(hal_memory_fill(NULL, 1, there, "", 1, sizeof back));
  const hal_copy_2d_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                              .dst = there,
                              .src = here,
                              .dst_pitch = PITCH,
                              .src_pitch = PITCH,
                              .width = 10,
                              .height = 4,
                              .dst_device = 1,
                              .src_device = 0};
  assert_ok(hal_memory_copy_2d(NULL, &desc));
  const hal_copy_t two[] = {{there + 20, here + 20, 5, 1, 0}, {there + 90, here + 90, 6, 1, 0}};
  assert_ok(hal_memory_copy_batch(NULL, two, 2, sizeof *two));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, there, 1, sizeof back));
  assert_ok(hal_device_synchronize(1));
  memset(expected, 0, sizeof back);
  for (int row = 0; row < 4; row++) memcpy(expected + row * PITCH, bytes + row * PITCH, 10);
  memcpy(expected + 20, bytes + 20, 5), memcpy(expected + 90, bytes + 90, 6);
  cr_assert_arr_eq(back, expected, sizeof back);
}

Test(copy_many, a_batch_is_as_many_copies_whatever_its_length) {
  static const size_t counts[] = {0, 1, 63, 64, 65, 200};
  open_fake();
  for (int i = 0; i < 6; i++) {
    struct {
      hal_copy_t copy;
      uint8_t more[8];
    } list[200];
    for (size_t j = 0; j < counts[i]; j++) {
      list[j].copy = (hal_copy_t){device + 300 * j, bytes + ROOM - 300 * (j + 1), j % 299, 0, HAL_HOST};
      memcpy(expected + 300 * j, bytes + ROOM - 300 * (j + 1), j % 299);
    }
    assert_ok(hal_memory_copy_batch(NULL, &list->copy, counts[i], sizeof *list));
    assert_ok(hal_memory_copy(NULL, got, HAL_HOST, device, 0, ROOM));
    assert_ok(hal_device_synchronize(0));
    cr_assert_arr_eq(got, expected, ROOM, "%zu copies", counts[i]);
  }
}

Test(copy_many, an_invalid_copy_of_a_batch_is_reported_with_its_index) {
  open_fake();
  hal_copy_t list[] = {{device, bytes, 8, 0, HAL_HOST}, {NULL, bytes, 8, 0, HAL_HOST}};
  assert_fails(hal_memory_copy_batch(NULL, list, 2, sizeof *list), HAL_INVALID_ARGUMENT,
               "copy 1: hal_memory_copy_batch: 8 bytes to address NULL");
  list[1] = (hal_copy_t){device + 4, device, 8, 0, 0};
  assert_fails(hal_memory_copy_batch(NULL, list, 2, sizeof *list), HAL_INVALID_ARGUMENT, "overlap");
  list[1] = (hal_copy_t){device + 4, bytes, 8, 1, HAL_HOST};
  assert_fails(hal_memory_copy_batch(NULL, list, 2, sizeof *list), HAL_INVALID_ARGUMENT, "copy 1: ");
  assert_fails(hal_memory_copy_batch(NULL, list, 2, 8), HAL_INVALID_ARGUMENT, "a stride of 8 bytes");
  assert_fails(hal_memory_copy_batch(NULL, NULL, 2, sizeof *list), HAL_INVALID_ARGUMENT, "2 copies");
}
#endif
