/* Tests of the Vulkan plugin's kernels: launches at any address and of any size, wrong launches, damaged modules, and
   the file with compiled pipelines. The module is assembled from add_number.spvasm. */
#include <dirent.h>
#include <unistd.h>

#include "hal/plugin_spirv.h"
#include "vulkan_testing.h"

#ifdef ADD_NUMBER_SPIRV
static const uint32_t words[] = {
#include ADD_NUMBER_SPIRV
};
enum { WORDS = sizeof words / sizeof *words };
#else
static const uint32_t words[] = {0};
enum { WORDS = 0 };
#endif

enum { NUMBERS = 200000 };

static hal_module_t *module;

static void open_kernels(void) {
  if (!WORDS) cr_skip_test("no spirv-as");
  open_vulkan();
}

static void close_kernels(void) {
  hal_module_unload(module);
  close_vulkan();
}

TestSuite(vulkan_kernel, .init = open_kernels, .fini = close_kernels);

static hal_kernel_t *make_kernel(void) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "spirv-vulkan", .options = "", .data = words, .size = sizeof words};
  hal_kernel_t *kernel = NULL;
  assert_ok(hal_module_load(0, &desc, &module));
  assert_ok(hal_kernel_get(module, "add_number", &kernel));
  return kernel;
}

static hal_status_t launch(hal_kernel_t *kernel, hal_stream_t *stream, char *out, char *a, int32_t s, uint32_t n,
                           uint32_t block) {
  const hal_arg_t args[] = {{&out, sizeof out, HAL_ARG_POINTER},
                            {&a, sizeof a, HAL_ARG_POINTER},
                            {&s, sizeof s, HAL_ARG_VALUE},
                            {&n, sizeof n, HAL_ARG_VALUE}};
  const hal_launch_t desc = {.struct_size = sizeof desc,
                             .grid = {(n + block - 1) / block, 1, 1},
                             .block = {block, 1, 1},
                             .arg_count = 4,
                             .args = args};
  return hal_kernel_launch(kernel, stream, &desc);
}

/* Adds 7 to 0, 1, 2 ... at the given offsets in bytes, and compares all bytes of the result. */
static void check(size_t out_offset, size_t a_offset, uint32_t n, uint32_t block) {
  hal_stream_t *stream;
  hal_kernel_t *const kernel = make_kernel();
  char *const out = device_bytes(0, 4 * NUMBERS + 256), *const a = device_bytes(0, 4 * NUMBERS + 256);
  int32_t *const numbers = malloc(4 * (size_t)n + 8);
  for (uint32_t i = 0; i < n; i++) numbers[i] = (int32_t)i;
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_fill(stream, 0, out, "\xff", 1, 4 * NUMBERS + 256));
  assert_ok(hal_memory_copy(stream, a + a_offset, 0, numbers, HAL_HOST, 4 * (size_t)n));
  assert_ok(launch(kernel, stream, out + out_offset, a + a_offset, 7, n, block));
  assert_ok(hal_memory_copy(stream, numbers, HAL_HOST, out + out_offset, 0, 4 * (size_t)n + 4));
  assert_ok(hal_stream_synchronize(stream));
  for (uint32_t i = 0; i < n; i++) cr_assert_eq(numbers[i], (int32_t)i + 7, "number %u is %d", i, numbers[i]);
  cr_assert_eq(numbers[n], -1, "the number after the last one was written");
  free(numbers);
}

Test(vulkan_kernel, a_launch_computes) { check(0, 0, 1000, 64); }

Test(vulkan_kernel, operands_begin_at_any_address) { check(4, 12, 1000, 64); }

/* Devices may limit a grid to 65535 blocks in a direction. */
Test(vulkan_kernel, a_grid_beyond_the_limit_is_computed_completely) { check(0, 4, 3 * 65535 + 17, 1); }

Test(vulkan_kernel, a_grid_of_whole_rows_is_computed_completely) { check(4, 0, 2 * 65535, 1); }

Test(vulkan_kernel, wrong_launches_are_refused) {
  hal_stream_t *stream;
  hal_kernel_t *const kernel = make_kernel();
  char *const memory = device_bytes(0, 4096);
  char here[64];
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_fails(launch(kernel, stream, here, memory, 1, 4, 64), HAL_INVALID_ARGUMENT, "argument 0");
  assert_fails(launch(kernel, stream, memory, memory + 4, 1, 4, 1 << 20), HAL_INVALID_ARGUMENT, "threads");
  const hal_launch_t few = {.struct_size = sizeof few, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  assert_fails(hal_kernel_launch(kernel, stream, &few), HAL_INVALID_ARGUMENT, "0 arguments");
  assert_ok(hal_stream_synchronize(stream));
}

Test(vulkan_kernel, a_module_that_is_not_for_vulkan_is_refused) {
  hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "opencl-c", .options = "", .data = "x", .size = 1};
  assert_fails(hal_module_load(0, &desc, &module), HAL_UNIMPLEMENTED, "spirv-vulkan");
  desc.dialect = "spirv-vulkan";
  assert_fails(hal_module_load(0, &desc, &module), HAL_INVALID_ARGUMENT, "words");
}

Test(vulkan_kernel, compiled_pipelines_are_kept_in_a_file) {
  char folder[] = "/tmp/vulkan_kernel.XXXXXX", kept[64];
  cr_assert_not_null(mkdtemp(folder));
  setenv("HAL_CACHE_DIR", folder, 1);
  check(0, 0, 1000, 64);
  close_kernels();
  module = NULL;
  snprintf(kept, sizeof kept, "%s/vulkan", folder);
  DIR *const list = opendir(kept);
  int files = 0;
  for (const struct dirent *entry; list && (entry = readdir(list));) {
    if (entry->d_name[0] == '.') continue;
    files++;
    cr_assert_eq(unlinkat(dirfd(list), entry->d_name, 0), 0);
  }
  if (list) closedir(list);
  rmdir(kept), rmdir(folder);
  cr_assert_eq(files, 1);
}

/* The second and later runs are command buffers. */
Test(vulkan_kernel, runs_of_a_program_compute_what_its_commands_do) {
  enum { COUNT = 1000, RUNS = 5 };
  hal_stream_t *streams[2];
  hal_program_t *program;
  hal_program_info_t info = {.struct_size = sizeof info};
  hal_kernel_t *const kernel = make_kernel();
  char *const a = device_bytes(0, 4 * COUNT), *const b = device_bytes(0, 4 * COUNT + 4), *const c = device_bytes(0, 64);
  int32_t numbers[COUNT] = {0}, filled[16];
  for (int i = 0; i < 2; i++) assert_ok(hal_stream_acquire(0, 0, &streams[i]));
  assert_ok(hal_memory_copy(streams[0], a, 0, numbers, HAL_HOST, sizeof numbers));
  assert_ok(hal_stream_synchronize(streams[0]));
  assert_ok(hal_program_begin(streams[0], NULL, &program));
  assert_ok(launch(kernel, streams[0], b + 4, a, 3, COUNT, 64));
  assert_ok(hal_memory_fill(streams[0], 0, c, "abcdefgh", 8, 64));
  assert_ok(hal_memory_fill(streams[0], 0, c + 1, "x", 1, 2));
  assert_ok(launch(kernel, streams[0], a, b + 4, 4, COUNT, 32));
  assert_ok(hal_memory_copy(streams[0], c + 8, 0, a, 0, 8));
  assert_ok(hal_program_end(program));
  for (int i = 0; i < RUNS; i++) assert_ok(hal_program_run(program, streams[i % 2]));
  for (int i = 0; i < 2; i++) assert_ok(hal_stream_synchronize(streams[i]));
  assert_ok(hal_memory_copy(streams[0], numbers, HAL_HOST, a, 0, sizeof numbers));
  assert_ok(hal_memory_copy(streams[0], filled, HAL_HOST, c, 0, sizeof filled));
  assert_ok(hal_stream_synchronize(streams[0]));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(numbers[i], 7 * RUNS, "number %d is %d", i, numbers[i]);
  cr_assert_arr_eq(filled, "axxdefgh", 8);
  cr_assert(filled[2] == 7 * RUNS && filled[3] == 7 * RUNS);
  cr_assert_arr_eq(&filled[4], "abcdefgh", 8);
  assert_ok(hal_program_info(program, &info));
  cr_assert(info.graphs == 1 && info.captured == 5, "%u graphs of %u commands", info.graphs, info.captured);
  hal_program_destroy(program);
}
