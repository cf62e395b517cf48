/* Tests of the OpenCL plugin on a driver that reports invalid properties (stub/). Each case is a device that works
 * or an error message, never a crash or a wrong byte. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "opencl_testing.h"

TestSuite(opencl_lies, .fini = close_opencl, .timeout = 60);

/* The plugin opens libOpenCL.so.1, which is already loaded in this process, and in the helper that counts the
   devices. */
static hal_status_t open_stub(const char *words) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv("CL_STUB", words, 1);
  setenv("LD_PRELOAD", CL_STUB_LIBRARY, 1);
  unsetenv("HAL_OPENCL_DEVICE");
  cr_assert_not_null(dlopen(CL_STUB_LIBRARY, RTLD_NOW | RTLD_GLOBAL), "%s", dlerror());
  if (strcmp(memory_kind(), "usm") == 0) skip("the stub has no usm");
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  const hal_status_t status = hal_registry_open("opencl");
  return status ? status : hal_device_info(0, &info);
}

/* There must be no device, and the message must contain `text`. */
static void assert_refused(const char *words, const char *text) {
  const hal_status_t status = open_stub(words);
  cr_assert_neq(status, HAL_OK, "a driver with '%s' was believed", words);
  cr_assert_not_null(strstr(hal_error_message(), text), "%s: %s", words, hal_error_message());
}

/* Bytes copied to the device and back must be unchanged. */
static void assert_copies(void) {
  char sent[1000], back[1000] = {0};
  hal_stream_t *stream;
  for (int i = 0; i < 1000; i++) sent[i] = (char)(i * 7);
  char *const first = device_bytes(0, 2000), *const second = device_bytes(0, 1000);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_copy(stream, first + 333, 0, sent, HAL_HOST, sizeof sent));
  assert_ok(hal_memory_copy(stream, second, 0, first + 333, 0, sizeof sent));
  assert_ok(hal_memory_copy(stream, back, HAL_HOST, second, 0, sizeof back));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_arr_eq(sent, back, sizeof sent);
  assert_ok(hal_device_synchronize(0));
}

#define REFUSED(name, words, text) \
  Test(opencl_lies, name) { assert_refused(words, text); }
#define WORKS(name, words)       \
  Test(opencl_lies, name) {      \
    assert_ok(open_stub(words)); \
    assert_copies();             \
  }

/* ---- numbers ---- */

WORKS(the_stub_is_a_device, "")
REFUSED(no_platform_is_no_device, "platforms=0", "no driver")
REFUSED(platforms_that_cannot_be_listed_are_no_device, "platforms-fail", "no driver")
REFUSED(no_device_is_no_device, "devices=0", "have no device")
REFUSED(a_device_that_answers_nothing_is_none, "info-fails", "have no device")
REFUSED(a_device_that_cannot_compile_is_none, "works=0", "have no device")
WORKS(more_platforms_than_were_written_are_not_looked_at, "platforms=4000000000")
WORKS(more_devices_than_were_written_are_not_looked_at, "devices=40")
REFUSED(groups_of_no_threads_are_refused, "threads=0", "reports 0 threads of a work-group")
REFUSED(groups_of_all_threads_are_refused, "threads=0xffffffffffffffff", "threads of a work-group")
REFUSED(no_compute_units_are_refused, "units=0", "reports 0 compute units")
REFUSED(compute_units_without_number_are_refused, "units=0xffffffff", "compute units")
REFUSED(no_memory_is_refused, "memory=0", "reports 0 bytes of memory")
REFUSED(all_memory_is_refused, "memory=0xffffffffffffffff", "bytes of memory")
REFUSED(allocations_of_nothing_are_refused, "allocation=0", "reports 0 bytes of an allocation")
REFUSED(an_alignment_that_is_no_power_of_two_is_refused, "align=3000", "bytes of alignment")
REFUSED(an_alignment_beyond_pages_is_refused, "align=0x80000000", "bytes of alignment")
WORKS(no_alignment_is_that_of_the_largest_type, "align=0")
WORKS(no_local_memory_is_a_device_that_copies, "local=0")
WORKS(subgroup_sizes_of_a_megabyte_are_none, "subgroups")

Test(opencl_lies, memory_beyond_the_machine_is_out_of_memory_when_it_is_taken) {
  hal_block_t *block;
  assert_ok(open_stub("memory=0x7fffffffffffffff allocation=0x7fffffffffffffff"));
  cr_assert_eq(hal_memory_allocate(0, NULL, (size_t)1 << 60, &block), HAL_RESOURCE_EXHAUSTED);
  assert_copies();
}

Test(opencl_lies, memory_at_a_crooked_address_is_refused) {
  hal_block_t *block;
  assert_ok(open_stub("crooked=8"));
  if (strcmp(memory_kind(), "buffer") == 0) return assert_copies(); /* these addresses are chosen by the plugin */
  assert_fails(hal_memory_allocate(0, NULL, 1000, &block), HAL_INTERNAL, "not a multiple of 128");
}

/* ---- texts ---- */

static void assert_named(const char *words, const char *name) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(open_stub(words));
  assert_ok(hal_device_info(0, &info));
  cr_assert_eq(strncmp(info.name, name, strlen(name)), 0, "%.64s", info.name);
  cr_assert_not_null(memchr(info.name, '\0', sizeof info.name));
  assert_copies();
}

Test(opencl_lies, a_device_without_a_name_gets_one) { assert_named("mute", "a device without a name"); }
Test(opencl_lies, a_name_without_an_end_is_cut) { assert_named("endless", "xxxxxxxx"); }

/* ---- invalid objects ---- */

REFUSED(no_context_is_refused, "null-context", "cannot create a context of 1 devices")
REFUSED(no_queue_is_refused, "null-queue", "cannot create a queue of 'stub device'")

static void assert_no_memory(const char *words) {
  hal_block_t *block;
  assert_ok(open_stub(words));
  cr_assert_eq(hal_memory_allocate(0, NULL, 1000, &block), HAL_RESOURCE_EXHAUSTED, "%s", hal_error_message());
}

Test(opencl_lies, invalid_memory_is_out_of_memory) { assert_no_memory("null-buffer null-svm"); }

Test(opencl_lies, commands_without_an_event_are_refused) {
  char byte = 1;
  hal_stream_t *stream;
  assert_ok(open_stub(""));
  char *const to = device_bytes(0, 64);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  int *const no_events = dlsym(RTLD_DEFAULT, "stub_no_events");
  cr_assert_not_null(no_events);
  *no_events = 1;
  assert_fails(hal_memory_copy(stream, to, 0, &byte, HAL_HOST, 1), HAL_INTERNAL, "CL_INVALID_EVENT");
  *no_events = 0;
  assert_copies();
}

/* The module is unloaded when the test ends. */
static hal_status_t get_kernel(const char *words, hal_module_t **out_module, hal_kernel_t **out_kernel) {
  assert_ok(open_stub(words));
  const hal_status_t status = load_source(0, "__kernel void any(__global uint *to) {}", "", out_module);
  if (status) return status;
  kept_modules[kept_count++] = *out_module;
  return hal_kernel_get(*out_module, "any", out_kernel);
}

static void assert_no_kernel(const char *words, hal_status_t status, const char *text) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  assert_fails(get_kernel(words, &module, &kernel), status, text);
  assert_copies();
}

#define NO_KERNEL(name, words, status, text) \
  Test(opencl_lies, name) { assert_no_kernel(words, status, text); }

NO_KERNEL(a_program_that_is_none_is_refused, "null-program", HAL_INTERNAL, "CL_INVALID_PROGRAM")
NO_KERNEL(a_kernel_that_is_none_is_refused, "null-kernel", HAL_INTERNAL, "CL_INVALID_KERNEL")
NO_KERNEL(a_log_of_no_bytes_is_told_as_such, "build-fails log=0", HAL_INVALID_ARGUMENT, "left no log")
NO_KERNEL(a_log_that_fails_is_told_as_such, "build-fails log-fails", HAL_INVALID_ARGUMENT, "left no log")
NO_KERNEL(a_log_of_all_bytes_is_not_read, "build-fails log=0xffffffffffffffff", HAL_INVALID_ARGUMENT, "left no log")
NO_KERNEL(a_log_longer_than_its_text_ends_with_the_text, "build-fails log=4000", HAL_INVALID_ARGUMENT, ": eeeeeeee")
NO_KERNEL(more_arguments_than_can_be_are_refused, "args=0xffffffff", HAL_INVALID_ARGUMENT, "takes 4294967295 arguments")

/* ---- kernels ---- */

Test(opencl_lies, a_kernel_of_no_threads_is_not_launched) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  assert_ok(get_kernel("kernel-threads=0", &module, &kernel));
  char *const to = device_bytes(0, 64);
  const hal_arg_t args[] = {POINTER(to)};
  assert_fails(launch_1d(kernel, NULL, 1, 1, args, 1), HAL_INVALID_ARGUMENT, "at most 0 threads");
}

Test(opencl_lies, a_kernel_has_no_more_threads_than_its_device) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  hal_kernel_info_t info = {.struct_size = sizeof info};
  assert_ok(get_kernel("kernel-threads=0xffffffffffff kernel-memory arg-nonsense", &module, &kernel));
  assert_ok(hal_kernel_info(kernel, 1, 0, &info));
  cr_assert_eq(info.max_block_threads, 256);
  cr_assert_eq(info.shared_bytes, UINT32_MAX);
  cr_assert_eq(info.max_shared, 0);
  char *const to = device_bytes(0, 64);
  const hal_arg_t args[] = {POINTER(to)};
  cr_assert_eq(launch_1d(kernel, NULL, 1, 257, args, 1), HAL_INVALID_ARGUMENT);
  assert_ok(launch_1d(kernel, NULL, 1, 256, args, 1));
}

static void assert_not_exported(const char *words, const char *text) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  size_t size = 0;
  assert_ok(get_kernel(words, &module, &kernel));
  assert_fails(hal_module_export(module, NULL, 0, &size), HAL_UNIMPLEMENTED, text);
}

Test(opencl_lies, a_binary_of_no_bytes_is_none) { assert_not_exported("binary=0", "does not export its binaries"); }
Test(opencl_lies, a_binary_of_all_bytes_is_none) { assert_not_exported("binary=0xfffffffffffffff0", "invalid size"); }
