/* Tests of the OpenCL plugin's modules and launches: builds, binaries, arguments, threads. */
#define _GNU_SOURCE /* memmem */
#include <pthread.h>

#include "opencl_testing.h"

TestSuite(opencl_module, .init = open_opencl, .fini = close_opencl);

static const char source[] =
    "__kernel void scale(__global const float *from, __global float *to, float by, uint n) {\n"
    "  uint i = get_global_id(0); if (i < n) to[i] = (from ? from[i] : 1.0f) * by;\n"
    "}\n"
    "__kernel void reversed(__global uint *to, __local uint *scratch) {\n"
    "  uint l = get_local_id(0), n = get_local_size(0);\n"
    "  scratch[l] = get_group_id(0) * n + l;\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  to[get_global_id(0)] = scratch[n - 1 - l];\n"
    "}\n"
    "__kernel void places(__global uint *to) {\n"
    "  to[get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2))] =\n"
    "      get_group_id(0) + 100 * get_group_id(1) + 10000 * get_group_id(2);\n"
    "}\n";

/* A kernel that uses offsets, like the portable ones. */
static const char moving_source[] =
    "#ifdef PK_POINTER_OFFSETS\n"
    "__kernel void move(__global uint *to, ulong to_offset, __global const uint *from, ulong from_offset, uint n) {\n"
    "  to = (__global uint *)((__global char *)to + to_offset);\n"
    "  from = (__global const uint *)((__global const char *)from + from_offset);\n"
    "#else\n"
    "__kernel void move(__global uint *to, __global const uint *from, uint n) {\n"
    "#endif\n"
    "  uint i = get_global_id(0); if (i < n) to[i] = from[i];\n"
    "}\n";

Test(opencl_module, a_kernel_receives_its_arguments) {
  float from[100], back[100], by = 2.5f;
  const uint32_t n = 100;
  char *const a = device_bytes(0, sizeof from), *const b = device_bytes(0, sizeof back), *const none = NULL;
  hal_kernel_t *const scale = make_kernel(0, source, "scale");
  for (int i = 0; i < 100; i++) from[i] = (float)i;
  assert_ok(hal_memory_copy(NULL, a, 0, from, HAL_HOST, sizeof from));
  const hal_arg_t args[] = {POINTER(a), POINTER(b), VALUE(by), VALUE(n)};
  assert_ok(launch_1d(scale, NULL, 4, 32, args, 4));
  by = 0; /* arguments have been copied */
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (int i = 0; i < 100; i++) cr_assert_float_eq(back[i], 2.5f * (float)i, 0);
  by = 3.0f;
  const hal_arg_t missing[] = {POINTER(none), POINTER(b), VALUE(by), VALUE(n)};
  assert_ok(launch_1d(scale, NULL, 4, 32, missing, 4));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  cr_assert_float_eq(back[99], 3.0f, 0);
}

Test(opencl_module, local_memory_and_three_dimensions_reach_the_kernel) {
  uint32_t back[64];
  char *const to = device_bytes(0, sizeof back);
  const hal_arg_t reversed_args[] = {POINTER(to), {NULL, 16 * 4, HAL_ARG_LOCAL}};
  assert_ok(launch_1d(make_kernel(0, source, "reversed"), NULL, 4, 16, reversed_args, 2));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, to, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (uint32_t i = 0; i < 64; i++) cr_assert_eq(back[i], i / 16 * 16 + 15 - i % 16);
  const hal_arg_t args[] = {POINTER(to)};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {2, 2, 4}, .block = {2, 2, 1}, .arg_count = 1, .args = args};
  assert_ok(hal_kernel_launch(make_kernel(0, source, "places"), NULL, &launch));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, to, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (uint32_t i = 0; i < 64; i++)
    cr_assert_eq(back[i], i % 4 / 2 + 100 * (i / 4 % 4 / 2) + 10000 * (i / 16), "%u", (unsigned)i);
}

Test(opencl_module, addresses_inside_an_allocation_are_as_good_as_its_start) {
  enum { WORDS = 512 };
  uint32_t there[WORDS], back[WORDS];
  const uint32_t n = 5;
  char *const a = device_bytes(0, sizeof there), *const b = device_bytes(0, sizeof back);
  hal_kernel_t *const move = make_kernel(0, moving_source, "move");
  for (uint32_t i = 0; i < WORDS; i++) there[i] = i * i;
  assert_ok(hal_memory_copy(NULL, a, 0, there, HAL_HOST, sizeof there));
  for (uint32_t at = 0; at < 40; at += 3) {
    char *const from = a + 4 * at, *const to = b + 4 * (at + 1);
    const hal_arg_t args[] = {POINTER(to), POINTER(from), VALUE(n)};
    assert_ok(hal_memory_fill(NULL, 0, b, &(char){0}, 1, sizeof back));
    assert_ok(launch_1d(move, NULL, 1, 8, args, 3));
    assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, sizeof back));
    assert_ok(hal_device_synchronize(0));
    for (uint32_t i = 0; i < WORDS; i++)
      cr_assert_eq(back[i], i >= at + 1 && i < at + 1 + n ? there[i - 1] : 0, "at %u, word %u", (unsigned)at,
                   (unsigned)i);
  }
}

Test(opencl_module, a_kernel_without_offsets_gets_an_aligned_view_or_a_clear_refusal) {
  uint32_t back[256] = {0};
  const uint32_t zero = 0;
  char *const to = device_bytes(0, sizeof back);
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  assert_ok(hal_memory_fill(NULL, 0, to, &zero, 4, sizeof back));
  char *const aligned = to + 512, *const odd = to + 4;
  const hal_arg_t args[] = {POINTER(aligned)}, odd_args[] = {POINTER(odd)};
  assert_ok(launch_1d(add_one, NULL, 1, 2, args, 1));
  if (strcmp(memory_kind(), "buffer") == 0)
    assert_fails(launch_1d(add_one, NULL, 1, 1, odd_args, 1), HAL_INVALID_ARGUMENT, "PK_POINTER_OFFSETS");
  else
    assert_ok(launch_1d(add_one, NULL, 1, 1, odd_args, 1));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, to, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (uint32_t i = 0; i < 256; i++)
    cr_assert_eq(back[i], i == 128 || i == 129 || (i == 1 && strcmp(memory_kind(), "buffer") != 0), "%u", (unsigned)i);
}

Test(opencl_module, a_failed_build_returns_the_compilers_log) {
  hal_module_t *module;
  assert_fails(load_source(0, "__kernel void broken(__global int *to) { to[0] = missing_name; }", "", &module),
               HAL_INVALID_ARGUMENT, "missing_name");
  assert_fails(load_source(0, "", "", &module), HAL_INVALID_ARGUMENT, "0 bytes");
  assert_ok(load_source(0, "#ifndef FIVE\n#error no five\n#endif\n__kernel void k(void) {}", "-DFIVE=5", &module));
  hal_module_unload(module);
}

Test(opencl_module, an_unknown_kernel_and_an_unknown_dialect_are_named) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  assert_ok(load_source(0, source, "", &module));
  assert_fails(hal_kernel_get(module, "absent", &kernel), HAL_NOT_FOUND, "absent");
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "ptx", .options = "", .data = source, .size = 4};
  hal_module_unload(module);
  assert_fails(hal_module_load(0, &desc, &module), HAL_UNIMPLEMENTED, "ptx");
}

Test(opencl_module, wrong_launches_are_refused_and_right_ones_still_work) {
  uint64_t wide = 1;
  uint32_t back = 0, zero = 0;
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow"), *const add_one =
                                                                      make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t few[] = {POINTER(to)};
  assert_fails(launch_1d(slow, NULL, 1, 1, few, 1), HAL_INVALID_ARGUMENT, "takes 3");
  const hal_arg_t size[] = {POINTER(to), VALUE(wide), VALUE(zero)};
  assert_fails(launch_1d(slow, NULL, 1, 1, size, 3), HAL_INVALID_ARGUMENT, "argument 1 of 'slow'");
  const hal_arg_t kind[] = {VALUE(wide)}, local[] = {{NULL, 64, HAL_ARG_LOCAL}}, null[] = {{NULL, 8, HAL_ARG_POINTER}},
                  none[] = {{&to, 0, HAL_ARG_POINTER}}, alien[] = {{&to, sizeof to, 9}};
  assert_fails(launch_1d(add_one, NULL, 1, 1, kind, 1), HAL_INVALID_ARGUMENT, "argument 0 of 'add_one'");
  assert_fails(launch_1d(add_one, NULL, 1, 1, local, 1), HAL_INVALID_ARGUMENT, "argument 0 of 'add_one'");
  if (!getenv("HAL_LAYERS")) { /* a layer would report these */
    cr_assert_neq(launch_1d(add_one, NULL, 1, 1, null, 1), HAL_OK);
    cr_assert_neq(launch_1d(add_one, NULL, 1, 1, none, 1), HAL_OK);
    cr_assert_neq(launch_1d(add_one, NULL, 1, 1, alien, 1), HAL_OK);
  }
  assert_fails(launch_1d(add_one, NULL, 1, 1u << 30, few, 1), HAL_INVALID_ARGUMENT, "at most");
  assert_fails(launch_1d(add_one, NULL, 0, 1, few, 1), HAL_INVALID_ARGUMENT, "grid");
  assert_ok(hal_memory_fill(NULL, 0, to, &zero, 4, 4));
  assert_ok(launch_1d(add_one, NULL, 1, 1, few, 1));
  assert_ok(hal_memory_copy(NULL, &back, HAL_HOST, to, 0, 4));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(back, 1);
}

/* to[0] becomes the sum of `count` - 1 separate arguments. */
static hal_module_t *load_many(uint32_t count) {
  static char source[8192];
  hal_module_t *module;
  int at = snprintf(source, sizeof source, "__kernel void many(__global uint *to");
  for (uint32_t i = 1; i < count; i++)
    at += snprintf(source + at, sizeof source - (size_t)at, ", uint a%u", (unsigned)i);
  at += snprintf(source + at, sizeof source - (size_t)at, ") { to[0] = 0");
  for (uint32_t i = 1; i < count; i++) at += snprintf(source + at, sizeof source - (size_t)at, " + a%u", (unsigned)i);
  snprintf(source + at, sizeof source - (size_t)at, "; }");
  assert_ok(load_source(0, source, "", &module));
  return module;
}

Test(opencl_module, a_kernel_may_take_64_arguments_and_one_of_more_is_refused_with_their_number) {
  enum { MOST = 64 };
  hal_kernel_t *kernel;
  hal_arg_t args[MOST];
  uint32_t values[MOST], back = 0, sum = 0;
  char *const to = device_bytes(0, 4);
  hal_module_t *const fits = load_many(MOST), *const too_many = load_many(MOST + 1);
  args[0] = (hal_arg_t)POINTER(to);
  for (uint32_t i = 1; i < MOST; i++) {
    sum += values[i] = i * i;
    args[i] = (hal_arg_t)VALUE(values[i]);
  }
  assert_ok(hal_kernel_get(fits, "many", &kernel));
  assert_ok(launch_1d(kernel, NULL, 1, 1, args, MOST));
  assert_ok(hal_memory_copy(NULL, &back, HAL_HOST, to, 0, 4));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(back, sum);
  assert_fails(hal_kernel_get(too_many, "many", &kernel), HAL_INVALID_ARGUMENT,
               "takes 65 arguments; the maximum is 64");
  hal_module_unload(fits);
  hal_module_unload(too_many);
}

static hal_status_t load_binary(const char *data, size_t size, hal_module_t **out_module) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "binary", .options = "", .data = data, .size = size};
  return hal_module_load(0, &desc, out_module);
}

Test(opencl_module, an_exported_module_works_and_a_foreign_or_damaged_one_is_refused) {
  hal_module_t *module, *again;
  hal_kernel_t *kernel;
  size_t size = 0, written = 0;
  uint32_t back = 0, zero = 0;
  char *const to = device_bytes(0, 4);
  assert_ok(load_source(0, SLOW_SOURCE, "", &module));
  assert_ok(hal_module_export(module, NULL, 0, &size));
  char *const data = malloc(size);
  assert_ok(hal_module_export(module, data, size, &written));
  cr_assert_eq(size, written);
  assert_ok(load_binary(data, size, &again));
  assert_ok(hal_kernel_get(again, "add_one", &kernel));
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(hal_memory_fill(NULL, 0, to, &zero, 4, 4));
  assert_ok(launch_1d(kernel, NULL, 1, 1, args, 1));
  assert_ok(hal_memory_copy(NULL, &back, HAL_HOST, to, 0, 4));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(back, 1);
  hal_module_unload(again);
  assert_fails(load_binary(data, size - 1, &again), HAL_INVALID_ARGUMENT, "damaged");
  assert_fails(load_binary(data, 10, &again), HAL_INVALID_ARGUMENT, "not a result of module_export");
  data[size / 2] ^= 1;
  assert_fails(load_binary(data, size, &again), HAL_INVALID_ARGUMENT, "damaged");
  data[size / 2] ^= 1;
  char *const name = memmem(data, 400, "pthread", 7) ? memmem(data, 400, "pthread", 7) : data + 40;
  *name ^= 1;
  assert_fails(load_binary(data, size, &again), HAL_INVALID_ARGUMENT, "was made for");
  memset(data, 0, size);
  assert_fails(load_binary(data, size, &again), HAL_INVALID_ARGUMENT, "not a result of module_export");
  hal_module_unload(module);
  free(data);
}

enum { THREADS = 4, ROUNDS = 300 };

typedef struct worker_s {
  hal_kernel_t *kernel;
  char *to;
  uint32_t value, wrong;
} worker_t;

static void *work(void *data) {
  worker_t *const worker = data;
  hal_stream_t *stream;
  const uint32_t rounds = 1;
  uint32_t back = 0;
  if (hal_stream_acquire(0, 0, &stream)) return NULL;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    const uint32_t value = worker->value + i;
    const hal_arg_t args[] = {POINTER(worker->to), VALUE(value), VALUE(rounds)};
    const hal_status_t status = launch_1d(worker->kernel, stream, 1, 1, args, 3);
    worker->wrong += status || hal_memory_copy(stream, &back, HAL_HOST, worker->to, 0, 4) ||
                     hal_stream_synchronize(stream) || back != value;
  }
  return NULL;
}

Test(opencl_module, threads_that_launch_one_kernel_get_their_own_arguments) {
  pthread_t threads[THREADS];
  worker_t workers[THREADS];
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  for (uint32_t i = 0; i < THREADS; i++) {
    workers[i] = (worker_t){.kernel = slow, .to = device_bytes(0, 4), .value = 100000 * i};
    pthread_create(&threads[i], NULL, work, &workers[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) cr_assert_eq(workers[i].wrong, 0, "thread %d", i);
}

Test(opencl_module, a_kernel_reports_its_requirements) {
  hal_kernel_info_t info = {.struct_size = sizeof info};
  hal_device_info_t device = {.struct_size = sizeof device};
  hal_kernel_t *const kernel = make_kernel(0, source, "reversed");
  assert_ok(hal_device_info(0, &device));
  assert_ok(hal_kernel_info(kernel, 16, 0, &info));
  cr_assert_gt(info.max_block_threads, 0);
  cr_assert_leq(info.max_block_threads, device.max_block_threads);
  cr_assert_gt(info.blocks_per_unit, 0);
  assert_ok(hal_kernel_info(kernel, device.max_block_threads + 1, 0, &info));
  cr_assert_eq(info.blocks_per_unit, 0);
}

Test(opencl_module, each_device_has_its_own_modules_and_runs_its_own_kernels) {
  const int32_t count = hal_device_count();
  for (int32_t device = 0; device < count; device++) {
    uint32_t back = 0;
    const uint32_t start = 41 + (uint32_t)device;
    char *const to = device_bytes(device, 4);
    hal_kernel_t *const add_one = make_kernel(device, SLOW_SOURCE, "add_one");
    const hal_arg_t args[] = {POINTER(to)};
    hal_stream_t *stream;
    assert_ok(hal_stream_default(device, &stream));
    assert_ok(hal_memory_fill(stream, device, to, &start, 4, 4));
    assert_ok(launch_1d(add_one, stream, 1, 1, args, 1));
    assert_ok(hal_memory_copy(stream, &back, HAL_HOST, to, device, 4));
    assert_ok(hal_stream_synchronize(stream));
    cr_assert_eq(back, start + 1);
  }
}
