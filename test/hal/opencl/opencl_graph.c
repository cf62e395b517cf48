/* Tests of the OpenCL plugin's graphs: programs as command buffers of the driver, and launch by launch if command
 * buffers do not work. hal/cts/suite/capture.c tests the contract of plugins. A layer below the loader counts
 * command buffers and makes them fail. */
#include <dlfcn.h>
#include <hal/log.h>
#include <hal/program.h>

#include "opencl_testing.h"

TestSuite(opencl_graph, .fini = close_opencl, .timeout = 120);

enum { COUNT = 300, BYTES = COUNT * 4 };

static int warnings;
static void count_warnings(int32_t level, const char *message, void *user_data) {
  (void)user_data;
  if (level == HAL_LOG_WARNING && strstr(message, "cl_khr_command_buffer")) warnings++;
}

/* The number of commands of a kind that the layer has counted. */
static long seen(const char *what) {
  void *const layer = dlopen(CL_LAYER, RTLD_NOW | RTLD_NOLOAD);
  const long *const count = layer ? dlsym(layer, what) : NULL;
  if (!count) skip("this loader takes no layers");
  return *count;
}

/* to[i] = from[i] * times + more */
#define SOURCE                                                                              \
  "__kernel void affine(__global uint *to, __global uint *from, uint times, uint more) {\n" \
  "  to[get_global_id(0)] = from[get_global_id(0)] * times + more;\n"                       \
  "}\n"

static void step(hal_kernel_t *kernel, hal_stream_t *stream, char *to, char *from, uint32_t times, uint32_t more) {
  const hal_arg_t args[] = {POINTER(to), POINTER(from), VALUE(times), VALUE(more)};
  assert_ok(launch_1d(kernel, stream, COUNT / 100, 100, args, 4));
}

static void expect(char *from, hal_stream_t *stream, uint32_t value) {
  uint32_t values[COUNT];
  assert_ok(hal_memory_copy(stream, values, HAL_HOST, from, 0, BYTES));
  assert_ok(hal_stream_synchronize(stream));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(values[i], value, "%u instead of %u at %d", values[i], value, i);
}

/* Records one kernel with changing arguments, a fill and a copy at unaligned addresses: a = a * 3 + 1; fill c with
 * 5; c + 1 byte = a; b = a + 10; a = b * 2. */
static hal_program_t *record(hal_stream_t *stream, char *a, char *b, char *c) {
  static const uint32_t five = 0x05050505;
  hal_program_t *program;
  hal_kernel_t *const kernel = make_kernel(0, SOURCE, "affine");
  assert_ok(hal_program_begin(stream, NULL, &program));
  step(kernel, stream, a, a, 3, 1);
  assert_ok(hal_memory_fill(stream, 0, c, &five, 4, BYTES + 4));
  assert_ok(hal_memory_copy(stream, c + 1, 0, a, 0, BYTES));
  step(kernel, stream, b, a, 1, 10);
  step(kernel, stream, a, b, 2, 0);
  assert_ok(hal_program_end(program));
  return program;
}

/* Runs it four times, on two streams, and compares with the results of C. Returns the launches and command buffers
   of the last two runs. */
static void run_all(long *out_launches, long *out_buffers) {
  hal_stream_t *stream, *other;
  const uint32_t start = 7;
  uint32_t a = start, before = 0;
  unsigned char bytes[BYTES + 4];
  hal_program_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_acquire(0, -1, &other)); /* of another priority, if the device supports priorities */
  char *const at_a = device_bytes(0, BYTES), *const at_b = device_bytes(0, BYTES),
              *const at_c = device_bytes(0, BYTES + 4);
  assert_ok(hal_memory_fill(stream, 0, at_a, &start, 4, BYTES));
  hal_program_t *const program = record(stream, at_a, at_b, at_c);
  for (int i = 0; i < 4; i++) {
    if (i == 2) *out_launches = seen("launches"), *out_buffers = seen("buffers_queued");
    assert_ok(hal_program_run(program, i == 3 ? other : stream));
    before = a * 3 + 1;
    a = (before + 10) * 2;
    if (i == 2) assert_ok(hal_stream_synchronize(stream));
  }
  assert_ok(hal_stream_synchronize(other));
  *out_launches = seen("launches") - *out_launches;
  *out_buffers = seen("buffers_queued") - *out_buffers;
  assert_ok(hal_program_info(program, &info));
  cr_assert(info.graphs == 1 && info.captured == 5, "%u graphs of %u commands", info.graphs, info.captured);
  expect(at_a, other, a);
  expect(at_b, other, before + 10);
  assert_ok(hal_memory_copy(other, bytes, HAL_HOST, at_c, 0, BYTES + 4));
  assert_ok(hal_stream_synchronize(other));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(memcmp(bytes + 1 + 4 * i, &before, 4), 0);
  cr_assert(bytes[0] == 5 && bytes[BYTES + 1] == 5 && bytes[BYTES + 3] == 5);
  hal_program_destroy(program);
}

static void open_with(const char *fault) {
  setenv("HAL_OPENCL_GRAPHS", "buffers", 0);
  setenv("OPENCL_LAYERS", CL_LAYER, 1);
  setenv("CL_FAIL_BUFFERS", fault, 1);
  hal_log_set_sink(count_warnings, NULL);
  open_opencl();
}

static int on_pocl(void) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_device_info(0, &info));
  return strstr(info.name, "pthread") != NULL;
}

Test(opencl_graph, a_run_is_one_command_of_the_driver_where_it_has_command_buffers) {
  long launches, buffers;
  open_with("0");
  run_all(&launches, &buffers);
  cr_assert_eq(warnings, 0);
  if (buffers || on_pocl()) cr_assert(buffers == 2 && !launches, "%ld buffers, %ld launches", buffers, launches);
}

Test(opencl_graph, a_cpu_receives_launches_one_by_one_by_default) {
  long launches, buffers;
  setenv("HAL_OPENCL_GRAPHS", "", 1);
  open_with("0");
  run_all(&launches, &buffers);
  if (on_pocl()) cr_assert(!buffers && launches == 10, "%ld buffers, %ld launches", buffers, launches);
}

static void expect_launches(const char *fault, int told) {
  long launches, buffers;
  open_with(fault);
  run_all(&launches, &buffers);
  if (on_pocl()) cr_assert(launches == 10 && warnings == told, "%ld launches, %d warnings", launches, warnings);
}

Test(opencl_graph, a_driver_that_loses_a_recorded_launch_gets_launches_one_by_one) { expect_launches("1", 1); }

Test(opencl_graph, a_driver_that_changes_the_order_gets_launches_one_by_one) { expect_launches("2", 1); }

Test(opencl_graph, a_driver_that_makes_no_command_buffer_gets_launches_one_by_one) { expect_launches("3", 1); }

Test(opencl_graph, a_queue_that_a_command_buffer_does_not_fit_gets_launches_one_by_one) { expect_launches("4", 0); }

Test(opencl_graph, a_launch_of_a_graph_that_fails_on_the_device_is_reported_once) {
  hal_stream_t *stream;
  setenv("CL_FAIL_CODE", "-5", 1);
  setenv("CL_FAIL_LATE", "1", 1);
  open_with("3");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  char *const a = device_bytes(0, BYTES), *const b = device_bytes(0, BYTES), *const c = device_bytes(0, BYTES + 4);
  hal_program_t *const program = record(stream, a, b, c);
  for (int i = 0; i < 3; i++) assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  char number[24];
  snprintf(number, sizeof number, "%ld", seen("launches") + 2);
  setenv("CL_FAIL_LAUNCH", number, 1);
  assert_ok(hal_program_run(program, stream));
  assert_fails(hal_stream_synchronize(stream), HAL_INTERNAL, "graph_launch");
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  hal_program_destroy(program);
}
