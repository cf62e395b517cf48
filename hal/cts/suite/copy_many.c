/* copy_many.c: rectangles and several ranges are copied, and the bytes between them do not change. */
#include <stdio.h>

#include "cts.h"

enum { ROOM = 1 << 19, TO = 1, FROM = 2 };

/* A side of a case: memory of the host or of the device, and its expected content. */
typedef struct area_s {
  uint8_t *memory;
  int32_t device;
} area_t;

static area_t make_area(cts_t *t, int on_device) {
  return (area_t){.memory = on_device ? cts_alloc(t, ROOM) : cts_pinned(t, ROOM),
                  .device = on_device ? t->device : HAL_HOST};
}

static void put(cts_t *t, const area_t *area, const uint8_t *bytes) {
  if (area->device == HAL_HOST)
    memcpy(area->memory, bytes, ROOM);
  else
    cts_put(t, NULL, area->memory, bytes, ROOM);
}

static void get(cts_t *t, const area_t *area, uint8_t *bytes) {
  if (area->device == HAL_HOST)
    memcpy(bytes, area->memory, ROOM);
  else
    cts_get(t, NULL, bytes, area->memory, ROOM);
}

static void free_area(cts_t *t, const area_t *area) {
  if (area->device != HAL_HOST) cts_free(t, area->memory);
}

/* ---- rectangles ---- */

typedef struct shape_s {
  size_t width, height, dst_pitch, src_pitch, dst_offset, src_offset;
} shape_t;

static const shape_t shapes[] = {{1, 1, 1, 1, 0, 0},           {5, 3, 5, 5, 0, 0},
                                 {16, 7, 64, 16, 3, 0},        {64, 100, 64, 256, 0, 129},
                                 {1, 255, 3, 1000, 7, 1},      {4097, 9, 5000, 8192, 1, 70},
                                 {257, 64, 257, 300, 4096, 0}, {300, 1, 300, 300, 11, 5},
                                 {0, 5, 8, 8, 0, 0},           {8, 0, 8, 8, 0, 0}};

static void copy_shape(cts_t *t, const shape_t *shape, int sides, hal_plugin_stream_t *stream) {
  const area_t to = make_area(t, sides & TO), from = make_area(t, sides & FROM);
  uint8_t *const expected = cts_host(t, ROOM), *const bytes = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  const hal_copy_2d_t copy = {.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                              .dst = to.memory + shape->dst_offset,
                              .src = from.memory + shape->src_offset,
                              .dst_pitch = shape->dst_pitch,
                              .src_pitch = shape->src_pitch,
                              .width = shape->width,
                              .height = shape->height,
                              .dst_device = to.device,
                              .src_device = from.device};
  char what[256];
  cts_noise(expected, ROOM, 21);
  cts_noise(bytes, ROOM, 22);
  put(t, &to, expected);
  put(t, &from, bytes);
  CTS_OK(t, memory_copy_2d, stream, &copy);
  cts_sync(t, stream);
  for (size_t row = 0; row < shape->height; row++)
    memcpy(expected + shape->dst_offset + row * shape->dst_pitch, bytes + shape->src_offset + row * shape->src_pitch,
           shape->width);
  snprintf(what, sizeof what, "memory of %s after a copy of %zu rows of %zu bytes from %s, pitches %zu and %zu",
           sides & TO ? "the device" : "the host", shape->height, shape->width,
           sides & FROM ? "the device" : "the host", shape->dst_pitch, shape->src_pitch);
  get(t, &to, got);
  cts_same(t, got, expected, ROOM, what);
  get(t, &from, got);
  cts_same(t, got, bytes, ROOM, "the source of a rectangle");
  free_area(t, &to);
  free_area(t, &from);
}

static void copy_shapes(cts_t *t, hal_plugin_stream_t *stream) {
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int sides = TO; sides <= (TO | FROM); sides++) copy_shape(t, &shapes[i], sides, stream);
}

/* Two columns of one matrix in device memory are copied to one another: their rows are interleaved. */
static void copy_within_one(cts_t *t) {
  enum { PITCH = 100, WIDTH = 40, ROWS = 50 };
  uint8_t *const matrix = cts_alloc(t, PITCH * ROWS), bytes[PITCH * ROWS], got[PITCH * ROWS];
  const hal_copy_2d_t copy = {.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                              .dst = matrix + WIDTH,
                              .src = matrix,
                              .dst_pitch = PITCH,
                              .src_pitch = PITCH,
                              .width = WIDTH,
                              .height = ROWS,
                              .dst_device = t->device,
                              .src_device = t->device};
  cts_noise(bytes, sizeof bytes, 23);
  cts_put(t, NULL, matrix, bytes, sizeof bytes);
  CTS_OK(t, memory_copy_2d, NULL, &copy);
  cts_get(t, NULL, got, matrix, sizeof got);
  for (int row = 0; row < ROWS; row++) memcpy(bytes + row * PITCH + WIDTH, bytes + row * PITCH, WIDTH);
  cts_same(t, got, bytes, sizeof bytes, "a matrix of which one column was copied over another");
}

void cts_case_copy_rows(cts_t *t) {
  copy_shapes(t, NULL);
  copy_within_one(t);
}

void cts_case_copy_rows_wrong(cts_t *t) {
  uint8_t *const device = cts_alloc(t, 4096), *const bytes = cts_pinned(t, 4096), got[4096], expected[4096];
  const hal_copy_2d_t good = {.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                              .dst = device,
                              .src = bytes,
                              .dst_pitch = 64,
                              .src_pitch = 64,
                              .width = 64,
                              .height = 4,
                              .dst_device = t->device,
                              .src_device = HAL_HOST};
  hal_copy_2d_t copy = good;
  memset(expected, 0x3c, sizeof expected);
  cts_put(t, NULL, device, expected, sizeof expected);
  copy.dst_pitch = 63;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_copy_2d, NULL, &copy);
  copy = good, copy.src_pitch = 0;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_copy_2d, NULL, &copy);
  copy = good, copy.height = SIZE_MAX / 32;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_copy_2d, NULL, &copy);
  copy = good, copy.src_pitch = SIZE_MAX / 2;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_copy_2d, NULL, &copy);
  cts_get(t, NULL, got, device, sizeof got);
  cts_same(t, got, expected, sizeof got, "device memory after rectangles that were refused");
}

/* ---- several ranges ---- */

/* Elements of a newer host, which are longer. */
typedef struct element_s {
  hal_copy_t copy;
  uint8_t more[24];
} element_t;

static void copy_batch(cts_t *t, hal_plugin_stream_t *stream, size_t count) {
  enum { MOST = 100, STEP = 2048 };
  area_t to = make_area(t, 1);
  const area_t from = make_area(t, 0), other = make_area(t, 1);
  uint8_t *const expected = cts_host(t, ROOM), *const bytes = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  element_t *const list = (element_t *)(void *)cts_host(t, MOST * sizeof *list);
  char what[128];
  memset(list, 0xee, MOST * sizeof *list);
  cts_noise(expected, ROOM, 31);
  cts_noise(bytes, ROOM, 32);
  put(t, &to, expected);
  put(t, &from, bytes);
  put(t, &other, bytes);
  for (size_t i = 0; i < count; i++) {
    const size_t size = i * 19 % STEP, place = i * STEP + i % 7; /* the first is of nothing */
    const area_t *const source = i % 2 ? &from : &other;
    list[i].copy =
        (hal_copy_t){to.memory + place, source->memory + ROOM - STEP * (i + 1), size, to.device, source->device};
    memcpy(expected + place, bytes + ROOM - STEP * (i + 1), size < STEP - 7 ? size : STEP - 7);
    if (size > STEP - 7) list[i].copy.size = STEP - 7;
  }
  CTS_OK(t, memory_copy_batch, stream, &list->copy, count, sizeof *list);
  memset(list, 0, MOST * sizeof *list); /* it was borrowed for the call */
  cts_sync(t, stream);
  get(t, &to, got);
  snprintf(what, sizeof what, "memory after a batch of %zu copies whose elements lie %zu bytes apart", count,
           sizeof *list);
  cts_same(t, got, expected, ROOM, what);
  free_area(t, &to);
  free_area(t, &other);
}

void cts_case_copy_batch(cts_t *t) {
  static const size_t counts[] = {1, 2, 33, 100};
  for (int i = 0; i < 4; i++) copy_batch(t, NULL, counts[i]);
  CTS_JUDGE(t, memory_copy_batch, "A count of 0 is HAL_OK");
  CTS_STATUS(t, HAL_OK, memory_copy_batch, NULL, NULL, 0, sizeof(hal_copy_t));
}

void cts_case_copy_rows_streams(cts_t *t) {
  copy_shapes(t, cts_stream(t));
  CTS_JUDGE(t, memory_copy_batch, "Queues `count` copies");
  copy_batch(t, cts_stream(t), 100);
}
