/* Tests of the CUDA plugin's modules and launches: CUDA C, PTX, binaries, arguments, shared memory, attributes,
   requirements of kernels. */
#include <elf.h>

#include "cuda_testing.h"

TestSuite(cuda_module, .init = open_cuda, .fini = close_opencl);
TestSuite(cuda_capability, .fini = close_opencl);

static const char source[] =
    "extern \"C\" __global__ void scale(const float *from, float *to, float by, unsigned n) {\n"
    "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) to[i] = (from ? from[i] : 1.0f) * by;\n"
    "}\n"
    "extern \"C\" __global__ void reversed(unsigned *to) {\n"
    "  extern __shared__ unsigned shared[];\n"
    "  shared[threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  __syncthreads();\n"
    "  to[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void places(unsigned *to) {\n"
    "  unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
    "  unsigned z = blockIdx.z * blockDim.z + threadIdx.z, wide = gridDim.x * blockDim.x, high = gridDim.y * "
    "blockDim.y;\n"
    "  to[x + wide * (y + high * z)] = blockIdx.x + 100 * blockIdx.y + 10000 * blockIdx.z;\n"
    "}\n"
    "extern \"C\" __global__ void sums(unsigned *to, unsigned n) {\n"
    "  __shared__ unsigned part[64];\n"
    "  part[threadIdx.x] = threadIdx.x + n;\n"
    "  for (unsigned step = 32; step; step /= 2) {\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];\n"
    "  }\n"
    "  if (!threadIdx.x) to[blockIdx.x] = part[0];\n"
    "}\n"
    "extern \"C\" __global__ void halves(unsigned short *to, float from) {\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(to[0]) : \"f\"(from));\n"
    "}\n";

static hal_status_t load_text(const char *dialect, const char *text, size_t size, const char *options,
                              hal_module_t **out_module) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = dialect, .options = options, .data = text, .size = size};
  return hal_module_load(0, &desc, out_module);
}

static hal_module_t *module_of(const char *text) {
  hal_module_t *module;
  assert_ok(load_text("cuda-c", text, strlen(text), "", &module));
  cr_assert_lt(kept_count, 16);
  kept_modules[kept_count++] = module;
  return module;
}

static hal_kernel_t *kernel_of(const char *name) {
  static hal_module_t *module;
  hal_kernel_t *kernel;
  if (!module) module = module_of(source);
  assert_ok(hal_kernel_get(module, name, &kernel));
  return kernel;
}

static void read_back(void *to, const char *from, size_t size) {
  assert_ok(hal_memory_copy(NULL, to, HAL_HOST, from, 0, size));
  assert_ok(hal_device_synchronize(0));
}

static hal_launch_t launch_of(uint32_t grid, uint32_t block, const hal_arg_t *args, uint32_t count) {
  return (hal_launch_t){.struct_size = sizeof(hal_launch_t),
                        .grid = {grid, 1, 1},
                        .block = {block, 1, 1},
                        .arg_count = count,
                        .args = args};
}

Test(cuda_module, a_kernel_receives_its_arguments_as_they_were_at_the_launch) {
  float from[100], back[100], by = 2.5f;
  const uint32_t n = 100;
  char *const a = device_bytes(0, sizeof from), *const b = device_bytes(0, sizeof back), *const none = NULL;
  for (int i = 0; i < 100; i++) from[i] = (float)i;
  assert_ok(hal_memory_copy(NULL, a, 0, from, HAL_HOST, sizeof from));
  const hal_arg_t args[] = {POINTER(a), POINTER(b), VALUE(by), VALUE(n)};
  assert_ok(launch_1d(kernel_of("scale"), NULL, 4, 32, args, 4));
  by = 0;
  read_back(back, b, sizeof back);
  for (int i = 0; i < 100; i++) cr_assert_float_eq(back[i], 2.5f * (float)i, 0);
  by = 3.0f;
  const hal_arg_t missing[] = {POINTER(none), POINTER(b), VALUE(by), VALUE(n)};
  assert_ok(launch_1d(kernel_of("scale"), NULL, 4, 32, missing, 4));
  read_back(back, b, sizeof back);
  cr_assert_float_eq(back[99], 3.0f, 0);
}

Test(cuda_module, shared_memory_of_a_launch_and_of_a_kernel_and_three_dimensions) {
  uint32_t back[64], n = 5;
  char *const to = device_bytes(0, sizeof back);
  const hal_arg_t args[] = {POINTER(to), VALUE(n)};
  hal_launch_t launch = launch_of(4, 16, args, 1);
  launch.shared_bytes = 16 * 4;
  assert_ok(hal_kernel_launch(kernel_of("reversed"), NULL, &launch));
  read_back(back, to, sizeof back);
  for (uint32_t i = 0; i < 64; i++) cr_assert_eq(back[i], i / 16 * 16 + 15 - i % 16);
  launch = launch_of(2, 2, args, 1);
  launch.grid[1] = 2, launch.grid[2] = 4, launch.block[1] = 2;
  assert_ok(hal_kernel_launch(kernel_of("places"), NULL, &launch));
  read_back(back, to, sizeof back);
  for (uint32_t i = 0; i < 64; i++)
    cr_assert_eq(back[i], i % 4 / 2 + 100 * (i / 4 % 4 / 2) + 10000 * (i / 16), "%u", i);
  assert_ok(launch_1d(kernel_of("sums"), NULL, 3, 64, args, 2));
  read_back(back, to, 12);
  for (uint32_t i = 0; i < 3; i++) cr_assert_eq(back[i], 63 * 64 / 2 + 64 * 5);
}

Test(cuda_module, more_than_the_default_shared_memory_is_enabled_and_too_much_is_refused_with_the_limit) {
  uint32_t back[16];
  char *const to = device_bytes(0, sizeof back);
  const hal_arg_t args[] = {POINTER(to)};
  hal_launch_t launch = launch_of(1, 16, args, 1);
  launch.shared_bytes = 90 << 10;
  assert_ok(hal_kernel_launch(kernel_of("reversed"), NULL, &launch));
  read_back(back, to, sizeof back);
  cr_assert_eq(back[0], 15);
  launch.shared_bytes = 300 << 10;
  assert_fails(hal_kernel_launch(kernel_of("reversed"), NULL, &launch), HAL_INVALID_ARGUMENT,
               is_on_mock() ? "the maximum is 101376" : "the maximum is ");
}

Test(cuda_module, an_instruction_in_asm_computes) {
  uint16_t back = 0;
  const float from = 1.5f;
  char *const to = device_bytes(0, 4);
  const hal_arg_t args[] = {POINTER(to), VALUE(from)};
  assert_ok(launch_1d(kernel_of("halves"), NULL, 1, 1, args, 2));
  read_back(&back, to, sizeof back);
  cr_assert_eq(back, 0x3e00);
}

Test(cuda_module, wrong_launches_are_refused_and_right_ones_still_work) {
  uint64_t wide = 1;
  uint32_t back = 0, n = 1;
  char *const to = device_bytes(0, 256);
  hal_kernel_t *const scale = kernel_of("scale"), *const sums = kernel_of("sums");
  const hal_arg_t few[] = {POINTER(to)}, right[] = {POINTER(to), VALUE(n)}, size[] = {POINTER(to), VALUE(wide)},
                  local[] = {POINTER(to), {NULL, 64, HAL_ARG_LOCAL}};
  assert_fails(launch_1d(scale, NULL, 1, 1, few, 1), HAL_INVALID_ARGUMENT, "with 1 arguments; it takes 4");
  assert_fails(launch_1d(sums, NULL, 1, 64, size, 2), HAL_INVALID_ARGUMENT,
               "argument 1 of 'sums' is a value of 8 bytes");
  assert_fails(launch_1d(sums, NULL, 1, 64, local, 2), HAL_INVALID_ARGUMENT, "shared_bytes");
  assert_fails(launch_1d(sums, NULL, 1, 1u << 30, right, 2), HAL_INVALID_ARGUMENT, "at most 1024 threads");
  assert_fails(launch_1d(sums, NULL, 0, 1, right, 2), HAL_INVALID_ARGUMENT, "at least 1");
  hal_launch_t launch = launch_of(1, 64, right, 2);
  launch.grid[1] = 65536;
  assert_fails(hal_kernel_launch(sums, NULL, &launch), HAL_INVALID_ARGUMENT, "(2147483647, 65535, 65535) blocks");
  assert_ok(launch_1d(sums, NULL, 1, 64, right, 2));
  read_back(&back, to, 4);
  cr_assert_eq(back, 63 * 64 / 2 + 64);
}

Test(cuda_module, hints_are_passed_over_where_the_device_has_no_such_thing_and_what_is_required_is_refused) {
  uint32_t n = 1, back = 0;
  char *const to = device_bytes(0, 64);
  const hal_arg_t args[] = {POINTER(to), VALUE(n)};
  hal_launch_attribute_t attributes[] = {{.kind = HAL_LAUNCH_CLUSTER, .x = 2, .y = 1, .z = 1},
                                         {.kind = HAL_LAUNCH_PRIORITY, .x = 1}};
  hal_launch_t launch = launch_of(2, 64, args, 2);
  launch.attributes = attributes, launch.attribute_count = 2;
  assert_ok(hal_kernel_launch(kernel_of("sums"), NULL, &launch));
  read_back(&back, to, 4);
  cr_assert_eq(back, 63 * 64 / 2 + 64);
  attributes[0].required = 1;
  const hal_status_t clustered = hal_kernel_launch(kernel_of("sums"), NULL, &launch);
  if (is_on_mock()) cr_assert_eq(clustered, HAL_UNIMPLEMENTED, "%s", hal_error_message());
  attributes[0] = (hal_launch_attribute_t){.kind = HAL_LAUNCH_COOPERATIVE, .required = 1, .x = 1};
  launch.grid[0] = 1;
  assert_ok(hal_kernel_launch(kernel_of("sums"), NULL, &launch));
}

Test(cuda_module, a_kernel_reports_its_requirements) {
  hal_kernel_info_t needs = {.struct_size = sizeof needs};
  assert_ok(hal_kernel_info(kernel_of("sums"), 64, 0, &needs));
  cr_assert_eq(needs.max_block_threads, 1024);
  cr_assert_eq(needs.subgroup_size, 32);
  cr_assert_gt(needs.registers, 0);
  cr_assert_geq(needs.max_shared, 48 << 10);
  if (is_on_mock()) cr_assert_eq(needs.max_shared, 99 << 10);
  cr_assert_gt(needs.blocks_per_unit, 0);
  assert_ok(hal_kernel_info(kernel_of("sums"), 2000, 0, &needs));
  cr_assert_eq(needs.blocks_per_unit, 0);
}

Test(cuda_module, a_failed_build_returns_the_compilers_log) {
  hal_module_t *module;
  static const char broken[] = "extern \"C\" __global__ void broken(int *to) { to[0] = missing_name; }";
  assert_fails(load_text("cuda-c", broken, sizeof broken - 1, "", &module), HAL_INVALID_ARGUMENT, "missing_name");
  assert_fails(load_text("cuda-c", "", 0, "", &module), HAL_INVALID_ARGUMENT, "0 bytes");
  static const char five[] = "#ifndef FIVE\n#error no five\n#endif\nextern \"C\" __global__ void k() {}";
  assert_fails(load_text("cuda-c", five, sizeof five - 1, "", &module), HAL_INVALID_ARGUMENT, "no five");
  assert_ok(load_text("cuda-c", five, sizeof five - 1, "-DFIVE=5 --fmad=false", &module));
  hal_module_unload(module);
  assert_fails(load_text("cuda-c", five, sizeof five - 1, "-DFIVE=5 --no-such-option", &module), HAL_INVALID_ARGUMENT,
               "--no-such-option");
}

Test(cuda_module, an_unknown_kernel_an_unknown_dialect_and_what_is_no_ptx_are_named) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  assert_fails(hal_kernel_get(module_of(source), "absent", &kernel), HAL_NOT_FOUND, "absent");
  assert_fails(load_text("opencl-c", "x", 1, "", &module), HAL_UNIMPLEMENTED, "unsupported dialect 'opencl-c'");
  assert_fails(load_text("ptx", "this is no PTX", 14, "", &module), HAL_INVALID_ARGUMENT,
               is_on_mock() ? "this is not PTX" : "CUDA_ERROR_INVALID_IMAGE");
}

/* The driver receives no size, so the plugin checks the tables that the header names. */
Test(cuda_module, a_cubin_that_is_no_complete_elf_file_and_one_for_another_device_are_refused) {
  hal_module_t *module;
  Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1}, .e_machine = 190, .e_shoff = 64};
  assert_fails(load_text("cubin", "this is no ELF file", 19, "", &module), HAL_INVALID_ARGUMENT, "19 bytes");
  head.e_shnum = 1, head.e_shentsize = 64;
  assert_fails(load_text("cubin", (const char *)&head, sizeof head, "", &module), HAL_INVALID_ARGUMENT,
               "not a complete ELF file");
  head.e_shnum = 0;
  head.e_phoff = UINT64_MAX;
  assert_fails(load_text("cubin", (const char *)&head, sizeof head, "", &module), HAL_INVALID_ARGUMENT,
               "not a complete ELF file");
  head.e_phoff = 0;
  assert_fails(load_text("cubin", (const char *)&head, sizeof head, "", &module), HAL_INVALID_ARGUMENT, "CUDA_ERROR_");
}

Test(cuda_module, an_exported_module_works_and_a_foreign_or_damaged_one_is_refused) {
  hal_module_t *module, *again;
  hal_kernel_t *kernel;
  size_t size = 0, written = 0;
  uint32_t back = 0, n = 1;
  char *const to = device_bytes(0, 4);
  const hal_arg_t args[] = {POINTER(to), VALUE(n)};
  module = module_of(source);
  assert_ok(hal_module_export(module, NULL, 0, &size));
  char *const data = malloc(size);
  assert_ok(hal_module_export(module, data, size, &written));
  cr_assert_eq(size, written);
  assert_ok(load_text("binary", data, size, "", &again));
  assert_ok(hal_kernel_get(again, "sums", &kernel));
  assert_ok(launch_1d(kernel, NULL, 1, 64, args, 2));
  read_back(&back, to, 4);
  cr_assert_eq(back, 63 * 64 / 2 + 64);
  hal_module_unload(again);
  assert_fails(load_text("binary", data, size - 1, "", &again), HAL_INVALID_ARGUMENT, "damaged");
  assert_fails(load_text("binary", data, 10, "", &again), HAL_INVALID_ARGUMENT, "not a result of module_export");
  data[size / 2] ^= 1;
  assert_fails(load_text("binary", data, size, "", &again), HAL_INVALID_ARGUMENT, "damaged");
  free(data);
}

/* A device that is newer than the compiler receives PTX of the latest architecture that the compiler supports, which
   its driver compiles. */
Test(cuda_capability, a_device_that_the_compiler_does_not_know_runs_ptx) {
  uint32_t back = 0, n = 2;
  needs_mock("another compute capability");
  setenv("CUDA_MOCK_CAPABILITY", "103", 1);
  open_cuda();
  char *const to = device_bytes(0, 4);
  const hal_arg_t args[] = {POINTER(to), VALUE(n)};
  assert_ok(launch_1d(kernel_of("sums"), NULL, 1, 64, args, 2));
  read_back(&back, to, 4);
  cr_assert_eq(back, 63 * 64 / 2 + 128);
}

Test(cuda_capability, a_device_older_than_the_compiler_supports_is_reported_with_what_to_install) {
  hal_module_t *module;
  needs_mock("another compute capability");
  setenv("CUDA_MOCK_CAPABILITY", "61", 1);
  open_cuda();
  assert_fails(load_text("cuda-c", source, sizeof source - 1, "", &module), HAL_UNAVAILABLE,
               "has 6.1; install an older one");
}

/* to[0] becomes the sum of `count` - 1 separate arguments. */
static hal_module_t *load_many(uint32_t count) {
  static char text[8192];
  int at = snprintf(text, sizeof text, "extern \"C\" __global__ void many(unsigned *to");
  for (uint32_t i = 1; i < count; i++) at += snprintf(text + at, sizeof text - (size_t)at, ", unsigned a%u", i);
  at += snprintf(text + at, sizeof text - (size_t)at, ") { to[0] = 0");
  for (uint32_t i = 1; i < count; i++) at += snprintf(text + at, sizeof text - (size_t)at, " + a%u", i);
  snprintf(text + at, sizeof text - (size_t)at, "; }");
  return module_of(text);
}

Test(cuda_module, a_kernel_may_take_64_arguments_and_one_of_more_is_refused_with_their_number) {
  enum { MOST = 64 };
  hal_kernel_t *kernel;
  hal_arg_t args[MOST];
  uint32_t values[MOST], back = 0, sum = 0;
  char *const to = device_bytes(0, 4);
  args[0] = (hal_arg_t)POINTER(to);
  for (uint32_t i = 1; i < MOST; i++) {
    sum += values[i] = i * i;
    args[i] = (hal_arg_t)VALUE(values[i]);
  }
  assert_ok(hal_kernel_get(load_many(MOST), "many", &kernel));
  assert_ok(launch_1d(kernel, NULL, 1, 1, args, MOST));
  read_back(&back, to, 4);
  cr_assert_eq(back, sum);
  assert_fails(hal_kernel_get(load_many(MOST + 1), "many", &kernel), HAL_INVALID_ARGUMENT,
               "takes 65 arguments; the maximum is 64");
}
