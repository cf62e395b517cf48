/* Tests of the OpenCL plugin in a process: the devices that it uses, settings, machines without a driver, and
   threads before and after. */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opencl_testing.h"

TestSuite(opencl_process, .fini = close_opencl);

static int threads_here(void) {
  int count = 0;
  DIR *const list = opendir("/proc/self/task");
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

Test(opencl_process, counting_the_devices_starts_no_driver_in_this_process) {
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  const int before = threads_here();
  if (hal_registry_open("opencl") || !hal_device_count()) cr_skip_test("no OpenCL device: %s", hal_error_message());
  cr_assert_eq(threads_here(), before);
  cr_assert_not(hal_device_is_initialized(0));
}

Test(opencl_process, without_a_driver_there_is_no_device_and_the_message_names_what_to_install) {
  setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_fails(hal_registry_open("opencl"), HAL_UNAVAILABLE, "install");
  cr_assert_eq(hal_device_count(), 0);
}

Test(opencl_process, a_wrong_choice_is_refused_with_its_value) {
  setenv("HAL_OPENCL_DEVICE", "no such thing", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  cr_assert_eq(hal_registry_open("opencl"), HAL_UNAVAILABLE);
  if (strstr(hal_error_message(), "no driver") || strstr(hal_error_message(), "libOpenCL")) cr_skip_test("no driver");
  cr_assert_not_null(strstr(hal_error_message(), "HAL_OPENCL_DEVICE=no such thing"), "%s", hal_error_message());
}

/* Opens in a child with a setting and two devices; returns the number of devices, or -1. */
static int count_with(const char *choice) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    setenv("HAL_OPENCL_DEVICE", choice, 1);
    setenv("POCL_DEVICES", "pthread pthread", 1);
    _exit(hal_registry_add_path(PLUGIN_DIR) || hal_registry_open("opencl") ? 100 : hal_device_count());
  }
  if (waitpid(child, &state, 0) != child || !WIFEXITED(state)) return -1;
  return WEXITSTATUS(state) == 100 ? 0 : WEXITSTATUS(state);
}

Test(opencl_process, devices_are_chosen_by_type_number_and_name) {
  if (count_with("portable computing") != 2) cr_skip_test("the driver is not PoCL");
  cr_assert_eq(count_with(""), 2);
  cr_assert_eq(count_with("cpu"), 2);
  cr_assert_eq(count_with("gpu"), 0);
  cr_assert_eq(count_with("pthread"), 2);
  cr_assert_eq(count_with("99"), 0);
  cr_assert_eq(count_with("0:99"), 0);
  cr_assert_eq(count_with("0:"), 0);
}

static void refuses(const char *setting, const char *value) {
  char quoted[32];
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv(setting, value, 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  if (hal_registry_open("opencl")) cr_skip_test("no OpenCL device: %s", hal_error_message());
  snprintf(quoted, sizeof quoted, "'%s'", value);
  assert_fails(hal_device_info(0, &info), HAL_INVALID_ARGUMENT, quoted);
}

Test(opencl_process, an_invalid_or_missing_kind_of_memory_is_refused_by_name) { refuses("HAL_OPENCL_MEMORY", "fast"); }

Test(opencl_process, an_invalid_form_of_kernels_is_refused_by_name) { refuses("HAL_OPENCL_FORM", "wide"); }

Test(opencl_process, an_invalid_kind_of_graphs_is_refused_by_name) { refuses("HAL_OPENCL_GRAPHS", "deep"); }

static uint64_t flags_in_form(const char *form) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv("HAL_OPENCL_FORM", form, 1);
  open_opencl();
  assert_ok(hal_device_info(0, &info));
  return info.flags;
}

Test(opencl_process, the_form_for_many_threads_can_be_selected) {
  cr_assert_not(flags_in_form("simt") & HAL_DEVICE_CPU);
}

Test(opencl_process, the_form_for_few_wide_cores_can_be_selected) { cr_assert(flags_in_form("cpu") & HAL_DEVICE_CPU); }

static void note(void *data) { *(int *)data = 1; }

Test(opencl_process, host_functions_run_on_a_driver_that_hangs_on_user_events, .timeout = 60) {
  hal_stream_t *stream;
  uint32_t got = 0;
  int ran = 0;
  setenv("POCL_DEVICES", "basic", 1);
  open_opencl();
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_fill(stream, 0, to, &got, 4, 4));
  assert_ok(hal_stream_host_call(stream, note, &ran));
  assert_ok(launch_1d(add_one, stream, 1, 1, args, 1));
  assert_ok(hal_memory_copy(stream, &got, HAL_HOST, to, 0, 4));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(ran, 1);
  cr_assert_eq(got, 1);
}

Test(opencl_process, a_forked_child_is_refused_and_ends_quietly) {
  open_opencl();
  device_bytes(0, 64);
  const pid_t child = fork();
  if (child == 0) {
    hal_block_t *block;
    const hal_status_t status = hal_memory_allocate(0, NULL, 64, &block);
    _exit(status == HAL_FAILED_PRECONDITION ? 0 : 1);
  }
  int state = 0;
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "state %d", state);
  device_bytes(0, 64); /* and the parent goes on */
}
