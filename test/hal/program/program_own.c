/* program_own.c: a plugin's own operators in recordings. The plugin is the fixture takes_ops. */
#include "support.h"

TestSuite(program_own, .timeout = 60);

static float *memory;
static hal_stream_t *stream;
static int library_calls;

/* The computation of a library if the plugin is not called. */
static hal_status_t answer(void *state, int32_t device, hal_stream_t *on, const hal_op_call_t *call) {
  (void)state, (void)device, (void)on, (void)call;
  library_calls++;
  return HAL_OK;
}

static void setup(void) {
  hal_block_t *block = NULL;
  open_fixture("takes_ops");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_allocate(0, NULL, 4096, &block));
  memory = hal_memory_block_address(block);
}

/* Runs an operator with a call struct that is out of scope afterwards. "test::even" accepts even numbers of rows. */
static hal_status_t call_op(const char *name, int64_t rows, hal_draw_t draw) {
  uint32_t op = 0;
  int64_t sizes[2] = {rows, 3}, strides[2] = {3, 1}, list[2] = {4, 5};
  double numbers[2] = {1, 2};
  char text[] = "text";
  hal_tensor_t tensor = {.struct_size = sizeof tensor,
                         .data = memory,
                         .sizes = sizes,
                         .strides = strides,
                         .ndim = 2,
                         .dtype = HAL_FLOAT32};
  const hal_tensor_t *tensors[2] = {&tensor, NULL}, *results[1] = {&tensor};
  hal_value_t scalars[1] = {{.tag = HAL_VALUE_INT, .u.i = 3}};
  hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensor},
                        {.tag = HAL_VALUE_TENSOR_LIST, .count = 2, .u.tl = tensors},
                        {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = list},
                        {.tag = HAL_VALUE_DOUBLE_LIST, .count = 2, .u.dl = numbers},
                        {.tag = HAL_VALUE_STRING, .u.s = text},
                        {.tag = HAL_VALUE_SCALAR_LIST, .count = 1, .u.vl = scalars},
                        {.tag = HAL_VALUE_COMPLEX, .u.dl = numbers}};
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = name, .argument_count = 7, .fn = answer};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 7,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = draw.seed,
                        .offset = draw.offset,
                        .random_state = draw.random_state};
  if (hal_op_id(name, &op)) assert_ok(hal_op_define(&desc, &op));
  const hal_status_t status = hal_op_run(0, op, stream, &call);
  memset(sizes, 0x5a, sizeof sizes), memset(strides, 0x5a, sizeof strides), memset(args, 0x5a, sizeof args);
  memset(&tensor, 0x5a, sizeof tensor), memset(text, 0x5a, sizeof text), memset(results, 0x5a, sizeof results);
  return status;
}

static hal_program_t *recorded(const char *name, int64_t rows) {
  hal_program_t *program;
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .flags = HAL_PROGRAM_DESCRIBED};
  assert_ok(hal_program_begin(stream, &desc, &program));
  assert_ok(call_op(name, rows, (hal_draw_t){.seed = 0}));
  assert_ok(hal_program_end(program));
  return program;
}

static uint32_t own_ops(const hal_program_t *program) {
  hal_program_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_program_info(program, &info));
  return info.own_ops;
}

Test(program_own, an_operator_that_accepts_is_recorded_with_all_that_its_call_points_to, .init = setup) {
  static const char *const names[] = {"test::even", "test::always"};
  for (int i = 0; i < 2; i++) {
    hal_program_t *const program = recorded(names[i], 4);
    cr_expect_eq(own_ops(program), 1);
    for (int turn = 0; turn < 2; turn++) {
      *memory = 0;
      assert_ok(hal_program_run(program, stream));
      assert_ok(hal_stream_synchronize(stream));
      cr_expect_eq(*memory, 7, "the number of arguments that it was shown");
    }
    hal_program_destroy(program);
  }
  cr_expect_eq(library_calls, 0);
}

Test(program_own, an_operator_that_may_still_decline_is_not_called, .init = setup) {
  hal_program_t *program = recorded("test::strided", 4); /* has no query */
  cr_expect_eq(own_ops(program), 0);
  hal_program_destroy(program);
  program = recorded("test::even", 3); /* its query declines */
  cr_expect_eq(own_ops(program), 0);
  hal_program_destroy(program);
  cr_expect_eq(library_calls, 2);
}

Test(program_own, its_random_numbers_are_those_of_the_run, .init = setup) {
  hal_generator_t *generator;
  hal_program_t *program;
  hal_draw_t draw;
  assert_ok(hal_generator_create(1, &generator));
  hal_generator_set_offset(generator, 100);
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(hal_generator_draw(generator, stream, 5, &draw));
  assert_ok(hal_generator_draw(generator, stream, 5, &draw));
  assert_ok(call_op("test::sampled", 4, draw));
  assert_ok(hal_program_end(program));
  cr_expect_eq(own_ops(program), 1);
  for (int run = 0; run < 3; run++) {
    assert_ok(hal_program_run(program, stream));
    assert_ok(hal_stream_synchronize(stream));
    cr_expect_eq(*memory, (float)(100 + 10 * run + 5));
  }
  hal_program_destroy(program);
  hal_generator_destroy(generator);
}

/* A tensor of the recording, written before the operator, read after it, and released before any work runs. */
static void scribbles_between(size_t bytes) {
  hal_block_t *kept = NULL, *block = NULL;
  hal_lazy_t *lazy;
  const uint32_t seven = 7;
  assert_ok(hal_memory_allocate(0, stream, bytes, &kept));
  assert_ok(hal_lazy_begin(stream, NULL, &lazy));
  assert_ok(hal_memory_allocate(0, stream, bytes, &block));
  assert_ok(hal_memory_fill(stream, 0, hal_memory_block_address(block), &seven, sizeof seven, bytes));
  assert_ok(call_op("test::scribbles", 4, (hal_draw_t){.seed = 0}));
  assert_ok(hal_memory_copy(stream, hal_memory_block_address(kept), 0, hal_memory_block_address(block), 0, bytes));
  hal_memory_release(block);
  assert_ok(hal_lazy_end(lazy));
  assert_ok(hal_stream_synchronize(stream));
  const uint32_t *const words = hal_memory_block_address(kept);
  cr_expect(words[0] == 7 && words[bytes / sizeof *words - 1] == 7, "%zu bytes: %u", bytes, (unsigned)words[0]);
  hal_memory_release(kept);
}

Test(program_own, its_scratch_memory_is_not_memory_that_deferred_work_reads, .init = setup) {
  for (size_t bytes = 512; bytes <= (size_t)4 << 20; bytes *= 2) scribbles_between(bytes);
}

/* The fixture unlucky_pooled allocates each block separately. */
Test(program_own, memory_of_a_plugin_that_pools_is_freed_when_the_deferred_work_is_queued) {
  hal_lazy_t *lazy;
  hal_block_t *blocks[2];
  hal_lazy_info_t info = {.struct_size = sizeof info};
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  open_fixture("unlucky_pooled");
  assert_ok(hal_lazy_begin(NULL, NULL, &lazy));
  for (int i = 0; i < 2; i++) assert_ok(hal_memory_allocate(0, NULL, 1000, &blocks[i]));
  assert_ok(
      hal_memory_copy(NULL, hal_memory_block_address(blocks[1]), 0, hal_memory_block_address(blocks[0]), 0, 1000));
  for (int i = 0; i < 2; i++) hal_memory_release(blocks[i]);
  assert_ok(hal_lazy_info(lazy, &info));
  assert_ok(hal_memory_stats(0, &stats));
  cr_expect_eq(info.flushes, 0u, "a release does not flush");
  cr_expect_eq(stats.num_device_free, 0u);
  cr_expect_eq(stats.allocated_bytes[0].current, 0);
  assert_ok(hal_lazy_flush(lazy));
  assert_ok(hal_memory_stats(0, &stats));
  cr_expect_eq(stats.num_device_free, 2u);
  cr_expect_eq(stats.reserved_bytes[0].current, 0);
  assert_ok(hal_lazy_end(lazy));
}

Test(program_own, the_text_shows_lists_and_numbers, .init = setup) {
  char text[2048];
  size_t size;
  hal_program_t *const program = recorded("test::always", 4);
  assert_ok(hal_program_text(program, HAL_PROGRAM_LINES, text, sizeof text, &size));
  cr_expect_not_null(
      strstr(text,
             "test::always(float32[4,3], {float32[4,3], none}, [4,5], list of 2, \"text\", list of 1, 1+2i) "
             "-> float32[4,3], plugin\n  %0 = operator of the plugin\n"),
      "%s", text);
  hal_program_destroy(program);
}
