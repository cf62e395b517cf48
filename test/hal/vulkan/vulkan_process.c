/* Tests of the Vulkan plugin in a process: the devices that it uses, settings, machines without a driver, threads, and
   forks. */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vulkan_testing.h"

TestSuite(vulkan_process, .fini = close_vulkan);

static int threads_here(void) {
  int count = 0;
  DIR *const list = opendir("/proc/self/task");
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

Test(vulkan_process, counting_the_devices_starts_no_driver_in_this_process) {
  const int before = threads_here();
  open_vulkan();
  cr_assert_eq(threads_here(), before);
  cr_assert_not(hal_device_is_initialized(0));
}

Test(vulkan_process, without_a_driver_there_is_no_device_and_the_message_names_what_to_install) {
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_fails(hal_registry_open("vulkan"), HAL_UNAVAILABLE, "install");
  cr_assert_eq(hal_device_count(), 0);
}

Test(vulkan_process, a_wrong_choice_is_refused_with_its_value) {
  setenv("HAL_VULKAN_DEVICE", "no such thing", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  cr_assert_eq(hal_registry_open("vulkan"), HAL_UNAVAILABLE);
  if (strstr(hal_error_message(), "install")) cr_skip_test("no driver: %s", hal_error_message());
  cr_assert_not_null(strstr(hal_error_message(), "HAL_VULKAN_DEVICE=no such thing"), "%s", hal_error_message());
}

Test(vulkan_process, an_invalid_number_of_repeats_is_refused_with_its_value) {
  setenv("HAL_VULKAN_REPEAT", "many", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_fails(hal_registry_open("vulkan"), HAL_UNAVAILABLE, "'many'");
}

/* Opens in a child with two settings; returns the number of devices, or -1. */
static int count_with(const char *choice, const char *repeat) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    setenv("HAL_VULKAN_DEVICE", choice, 1);
    setenv("HAL_VULKAN_REPEAT", repeat, 1);
    _exit(hal_registry_add_path(PLUGIN_DIR) || hal_registry_open("vulkan") ? 100 : hal_device_count());
  }
  if (waitpid(child, &state, 0) != child || !WIFEXITED(state)) return -1;
  return WEXITSTATUS(state) == 100 ? 0 : WEXITSTATUS(state);
}

Test(vulkan_process, devices_are_chosen_by_type_and_name_and_repeated) {
  if (count_with("llvmpipe", "") != 1) cr_skip_test("the driver is not Mesa's lavapipe");
  cr_assert_eq(count_with("LLVMPIPE", "3"), 3);
  cr_assert_eq(count_with("cpu", ""), 1);
  cr_assert_eq(count_with("no such thing", ""), 0);
}

static void refuses(const char *setting, const char *value) {
  char quoted[32];
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv(setting, value, 1);
  open_vulkan();
  snprintf(quoted, sizeof quoted, "'%s'", value);
  assert_fails(hal_device_info(0, &info), HAL_INVALID_ARGUMENT, quoted);
}

Test(vulkan_process, an_invalid_kind_of_memory_is_refused_by_name) { refuses("HAL_VULKAN_MEMORY", "fast"); }

Test(vulkan_process, an_invalid_choice_of_sharing_is_refused_by_name) { refuses("HAL_VULKAN_SHARE", "yes"); }

Test(vulkan_process, an_invalid_form_of_kernels_is_refused_by_name) { refuses("HAL_VULKAN_FORM", "wide"); }

static uint64_t flags_with(const char *setting, const char *value) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv(setting, value, 1);
  open_vulkan();
  assert_ok(hal_device_info(0, &info));
  return info.flags;
}

Test(vulkan_process, the_form_of_kernels_can_be_selected) {
  cr_assert(flags_with("HAL_VULKAN_FORM", "cpu") & HAL_DEVICE_CPU);
}

Test(vulkan_process, memory_that_the_host_cannot_access_can_be_selected) {
  cr_assert_not(flags_with("HAL_VULKAN_MEMORY", "device") & HAL_DEVICE_HOST_VISIBLE);
}

Test(vulkan_process, a_forked_child_is_refused_and_ends_quietly) {
  open_vulkan();
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
