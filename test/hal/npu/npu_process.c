/* Tests of the Level Zero plugin in a process: the devices that it uses, settings, machines without a driver, and
   its device properties. */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npu_testing.h"

TestSuite(npu_process, .fini = close_opencl);

static hal_status_t open_with(const char *name, const char *value) {
  if (name) setenv(name, value, 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  return hal_registry_open("npu");
}

Test(npu_process, without_a_driver_there_is_no_device_and_the_message_names_what_to_install) {
  unsetenv("ZE_ENABLE_ALT_DRIVERS");
  assert_fails(open_with("LD_LIBRARY_PATH", ""), HAL_UNAVAILABLE, "install");
  cr_assert_eq(hal_device_count(), 0);
}

Test(npu_process, an_invalid_driver_has_no_device_and_the_message_names_the_setting) {
  assert_fails(open_with("ZE_ENABLE_ALT_DRIVERS", "/nonexistent/libdriver.so"), HAL_UNAVAILABLE,
               "ZE_ENABLE_ALT_DRIVERS");
}

Test(npu_process, a_driver_without_a_device_is_reported) {
  use_double("0");
  assert_fails(open_with(NULL, NULL), HAL_UNAVAILABLE, "no device");
}

Test(npu_process, a_wrong_choice_is_refused_with_its_value) {
  use_double("1");
  assert_fails(open_with("HAL_NPU_DEVICE", "no such thing"), HAL_UNAVAILABLE, "HAL_NPU_DEVICE=no such thing");
}

/* Opens in a child with a setting and two devices; returns the number of devices, or -1 on failure. */
static int count_with(const char *choice) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    use_double("2");
    setenv("HAL_NPU_DEVICE", choice, 1);
    _exit(hal_registry_add_path(PLUGIN_DIR) || hal_registry_open("npu") ? 100 : hal_device_count());
  }
  if (waitpid(child, &state, 0) != child || !WIFEXITED(state)) return -1;
  return WEXITSTATUS(state) == 100 ? 0 : WEXITSTATUS(state);
}

Test(npu_process, devices_are_chosen_by_type_and_name) {
  cr_assert_eq(count_with(""), 2);
  cr_assert_eq(count_with("npu"), 2);
  cr_assert_eq(count_with("gpu"), 0);
  cr_assert_eq(count_with("TEST DOUBLE) 1"), 1);
}

Test(npu_process, a_device_is_described_by_the_driver_and_its_system_management) {
  hal_device_info_t info = {.struct_size = sizeof info};
  use_double("2");
  assert_ok(open_with(NULL, NULL));
  assert_ok(hal_device_info(1, &info));
  cr_assert(info.pci_bus == 0xf1 && info.pci_device == 11 && info.pci_function == 3, "%x:%x.%x", info.pci_bus,
            info.pci_device, info.pci_function);
  cr_assert_eq(info.l2_bytes, 8 << 20); /* the larger of two caches */
  cr_assert_eq(info.copy_engines, 0);   /* its only group of queues also computes */
  cr_assert_str_eq(info.driver_version, "1.3.26241");
  cr_assert_str_eq(info.firmware_version, "DG02_1.3170");
  cr_assert_not(info.known & HAL_DEVICE_KNOWS_PARTITION);
}

Test(npu_process, a_device_without_bus_and_system_management_is_described_without_them) {
  hal_device_info_t info = {.struct_size = sizeof info};
  use_double("1");
  assert_ok(open_with("ZE_CPU_WITHOUT", "pci,sysman"));
  assert_ok(hal_device_info(0, &info));
  cr_assert(!info.pci_bus && !info.pci_device && !info.pci_function && !info.known);
  cr_assert_str_empty(info.firmware_version);
  cr_assert_str_eq(info.driver_version, "1.3.26241");
}

static void assert_wrong(const char *name, const char *value) {
  hal_device_info_t info = {.struct_size = sizeof info};
  use_double("1");
  assert_ok(open_with(name, value));
  assert_fails(hal_device_info(0, &info), HAL_INVALID_ARGUMENT, value);
}

Test(npu_process, a_wrong_kind_of_memory_is_an_error_at_the_first_use_with_its_value) {
  assert_wrong("HAL_NPU_MEMORY", "fast");
}
Test(npu_process, a_wrong_form_is_an_error_at_the_first_use_with_its_value) { assert_wrong("HAL_NPU_FORM", "round"); }

Test(npu_process, a_device_reports_its_memory_and_the_mock_driver_identifies_itself) {
  hal_device_info_t info = {.struct_size = sizeof info};
  use_double("1");
  setenv("HAL_NPU_MEMORY", "shared", 1);
  assert_ok(open_with("ZE_CPU_MEMORY", "123000000"));
  assert_ok(hal_device_info(0, &info));
  cr_assert(info.flags & HAL_DEVICE_HOST_VISIBLE);
  cr_assert(info.flags & HAL_DEVICE_ASYNC);
  cr_assert_eq(info.total_memory, 123000000);
  cr_assert_not_null(strstr(info.name, "test double"), "%s", info.name);
  cr_assert_not_null(strstr(info.dialects, "spirv"), "%s", info.dialects);
}

Test(npu_process, the_plugins_version_names_the_files_of_loader_and_driver) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  use_double("1");
  assert_ok(open_with(NULL, NULL));
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_not_null(strstr(entry.version, "libze_loader.so"), "%s", entry.version);
  cr_assert_not_null(strstr(entry.version, ZE_DRIVER), "%s", entry.version);
}

static int threads_here(void) {
  int count = 0;
  DIR *const list = opendir("/proc/self/task");
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

Test(npu_process, counting_the_devices_starts_no_driver_in_this_process) {
  use_double("2");
  const int before = threads_here();
  assert_ok(open_with(NULL, NULL));
  cr_assert_eq(hal_device_count(), 2);
  cr_assert_eq(threads_here(), before);
  cr_assert_null(dlopen(ZE_DRIVER, RTLD_NOW | RTLD_NOLOAD));
}

Test(npu_process, a_forked_child_gets_an_error_that_names_spawn_and_the_parent_continues) {
  int state = 0;
  open_npu();
  device_bytes(0, 4);
  const pid_t child = fork();
  if (child == 0) {
    hal_block_t *block;
    _exit(hal_memory_allocate(0, NULL, 4, &block) ? 0 : 1);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  device_bytes(0, 4);
}

Test(npu_process, a_device_allocates_no_more_memory_than_it_has) {
  hal_block_t *block;
  use_double("1");
  assert_ok(open_with("ZE_CPU_MEMORY", "67108864"));
  assert_fails(hal_memory_allocate(0, NULL, 65 << 20, &block), HAL_RESOURCE_EXHAUSTED, "total 64.00 MiB");
  assert_ok(hal_memory_allocate(0, NULL, 32 << 20, &block));
}
