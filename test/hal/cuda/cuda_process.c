/* Tests of the CUDA plugin in a process: the libraries that it loads, machines with a missing or old library, device
   properties, forks. */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../plugins/cuda/driver_api.h"
#include "cuda_testing.h"

TestSuite(cuda_process, .fini = close_opencl);

Test(cuda_process, a_driver_without_a_device_is_reported_with_what_to_check) {
  assert_fails(open_cuda_with("CUDA_MOCK_DEVICES", "0"), HAL_UNAVAILABLE, "nvidia-smi");
  cr_assert_eq(hal_device_count(), 0);
}

Test(cuda_process, a_driver_that_does_not_start_is_reported_with_the_reason) {
  assert_fails(open_cuda_with("CUDA_MOCK_INIT", "803"), HAL_UNAVAILABLE, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

Test(cuda_process, a_driver_without_a_function_that_is_needed_names_it_and_the_version_to_install) {
  assert_fails(open_cuda_with("CUDA_MOCK_MISSING", "cuMemAlloc"), HAL_UNAVAILABLE,
               "cuMemAlloc; install NVIDIA's driver");
}

/* Returns the exit status of a child that opens the plugin with a driver that lacks a function: 0 = the error names
   the function. */
static int open_without(const char *name) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDA_MOCK_MISSING", name, 1);
    const int refused = !hal_registry_add_path(PLUGIN_DIR) && hal_registry_open("cuda") == HAL_UNAVAILABLE &&
                        strstr(hal_error_message(), name);
    _exit(refused ? 0 : 1);
  }
  return waitpid(child, &state, 0) == child && WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

Test(cuda_process, each_function_that_is_needed_is_named_when_it_is_missing) {
  needs_mock("missing functions");
#define NAME(name, version, parameters) #name,
  static const char *const names[] = {CUDA_CALLS(NAME)};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) cr_assert_eq(open_without(names[i]), 0, "%s", names[i]);
}

Test(cuda_process, an_old_driver_is_refused_with_the_version_to_install) {
  assert_fails(open_cuda_with("CUDA_MOCK_VERSION", "10020"), HAL_UNAVAILABLE, "465");
}

Test(cuda_process, a_driver_without_the_later_functions_works) {
  hal_kernel_info_t needs = {.struct_size = sizeof needs};
  uint32_t back = 0;
  assert_ok(open_cuda_with("CUDA_MOCK_VERSION", "11030"));
  char *const to = device_bytes(0, 4);
  assert_ok(hal_memory_fill(NULL, 0, to, &(char){0}, 1, 4));
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(launch_1d(add_one, NULL, 1, 1, args, 1));
  assert_ok(hal_memory_copy(NULL, &back, HAL_HOST, to, 0, 4));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(back, 1);
}

Test(cuda_process, the_plugins_version_names_the_drivers_file_and_the_device_name_shows_the_mock) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(open_cuda_with("CUDA_MOCK_MEMORY", "123000000"));
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_not_null(strstr(entry.version, "cuda_mock/libcuda.so.1 of CUDA 13.0"), "%s", entry.version);
  cr_assert_str_eq(entry.name, "nvgpu");
  assert_ok(hal_device_info(0, &info));
  cr_assert_not_null(strstr(info.name, "test double"), "%s", info.name);
  cr_assert_str_eq(info.dialects, "cuda-c,ptx,cubin,binary");
  cr_assert_eq(info.total_memory, 123000000);
  cr_assert_eq(info.flags, HAL_DEVICE_ASYNC | HAL_DEVICE_FP64 | HAL_DEVICE_RAW_POINTERS);
}

Test(cuda_process, a_kernel_writes_page_locked_host_memory_without_a_copy) {
  char *host = NULL;
  void *there = NULL;
  uint32_t value = 41;
  assert_ok(open_cuda_with(NULL, NULL));
  assert_ok(hal_host_allocate(0, 64, (void **)&host));
  memcpy(host + 8, &value, sizeof value);
  assert_ok(hal_host_device_pointer(host + 8, 0, &there));
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t args[] = {{&there, sizeof there, HAL_ARG_POINTER}};
  assert_ok(launch_1d(add_one, NULL, 1, 1, args, 1));
  assert_ok(hal_device_synchronize(0));
  memcpy(&value, host + 8, sizeof value);
  cr_assert_eq(value, 42);
}

Test(cuda_process, a_device_is_described_by_driver_and_nvml) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv("CUDA_MOCK_DEVICES", "2", 1);
  assert_ok(open_cuda_with("CUDA_MOCK_NUMA", "0"));
  assert_ok(hal_device_info(1, &info));
  cr_assert_str_eq(info.architecture, "sm_90");
  cr_assert_str_eq(info.driver_version, "580.65.06");
  cr_assert_str_eq(info.firmware_version, "96.00.74.00.02");
  cr_assert(info.l2_bytes == 50 << 20 && info.copy_engines == 3, "%llu bytes, %u engines",
            (unsigned long long)info.l2_bytes, info.copy_engines);
  cr_assert(info.known == HAL_DEVICE_KNOWS_NUMA_NODE && info.numa_node == 0, "0x%x, %d", info.known, info.numa_node);
  cr_assert_not(hal_device_is_initialized(1));
}

Test(cuda_process, what_driver_and_nvml_do_not_know_is_unknown) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv("NVML_MOCK", "versions=0", 1);
  setenv("CUDA_MOCK_NUMA", "7", 1);
  assert_ok(open_cuda_with("CUDA_MOCK_VERSION", "12010")); /* which lacks HOST_NUMA_ID */
  assert_ok(hal_device_info(0, &info));
  cr_assert_str_empty(info.driver_version);
  cr_assert_str_empty(info.firmware_version);
  cr_assert_neq(info.numa_node, 7);
  setenv("NVML_MOCK", "init=18", 1); /* no NVML is no failure */
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_device_info(0, &info));
}

Test(cuda_process, without_a_compiler_the_device_rejects_cuda_c_and_names_what_to_install) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_module_t *module;
  assert_ok(open_cuda_with("HAL_CUDA_NVRTC", "/nonexistent/libnvrtc.so"));
  assert_ok(hal_device_info(0, &info));
  cr_assert_str_eq(info.dialects, "ptx,cubin,binary");
  assert_fails(load_source(0, SLOW_SOURCE, "", &module), HAL_UNAVAILABLE, "nvidia-cuda-nvrtc");
}

static int threads_here(void) {
  int count = 0;
  DIR *const list = opendir("/proc/self/task");
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

Test(cuda_process, counting_the_devices_starts_no_driver_in_this_process) {
  int count = 0, (*ask)(int *) = NULL;
  const int before = threads_here();
  assert_ok(open_cuda_with("CUDA_MOCK_DEVICES", "2"));
  cr_assert_eq(hal_device_count(), 2);
  cr_assert_eq(threads_here(), before);
  void *const symbol = driver_symbol("cuDeviceGetCount");
  memcpy(&ask, &symbol, sizeof symbol);
  cr_assert_eq(ask(&count), 3, "CUDA_ERROR_NOT_INITIALIZED");
}

/* As torch.cuda may have done. */
Test(cuda_process, devices_are_counted_if_other_code_has_initialized_the_driver) {
  unsigned (*start)(unsigned) = NULL;
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW), *const symbol = dlsym(driver, "cuInit");
  needs_mock("two devices");
  setenv("CUDA_MOCK_DEVICES", "2", 1);
  memcpy(&start, &symbol, sizeof symbol);
  cr_assert_eq(start(0), 0);
  assert_ok(open_cuda_with(NULL, NULL));
  cr_assert_eq(hal_device_count(), 2);
  device_bytes(1, 4);
}

Test(cuda_process, a_forked_child_gets_an_error_that_names_spawn_and_the_parent_continues) {
  int state = 0;
  open_cuda();
  device_bytes(0, 4);
  const pid_t child = fork();
  if (child == 0) {
    hal_block_t *block;
    const hal_status_t status = hal_memory_allocate(0, NULL, 4, &block);
    _exit(status && strstr(hal_error_message(), "spawn") ? 0 : 1);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  device_bytes(0, 4);
}

Test(cuda_process, a_device_allocates_no_more_memory_than_it_has) {
  hal_block_t *block;
  assert_ok(open_cuda_with("CUDA_MOCK_MEMORY", "67108864"));
  assert_fails(hal_memory_allocate(0, NULL, 65 << 20, &block), HAL_RESOURCE_EXHAUSTED, "total 64.00 MiB");
  assert_ok(hal_memory_allocate(0, NULL, 32 << 20, &block));
}

/* The caller may also use CUDA directly; its current context must not change. */
Test(cuda_process, the_callers_current_context_is_as_before_every_call) {
  unsigned (*get)(void **) = NULL, (*set)(void *) = NULL;
  void *of_0 = NULL, *now = NULL;
  uint32_t number = 7;
  open_cuda();
  needs_two_devices(hal_device_count());
  char *const on_0 = device_bytes(0, 4), *const on_1 = device_bytes(1, 4);
  void *symbol = driver_symbol("cuCtxGetCurrent");
  memcpy(&get, &symbol, sizeof symbol);
  symbol = driver_symbol("cuCtxSetCurrent");
  memcpy(&set, &symbol, sizeof symbol);
  assert_ok(hal_memory_fill(NULL, 0, on_0, &number, 4, 4)); /* a thread without a context may get that of device 0 */
  cr_assert_eq(get(&of_0), 0);
  assert_ok(hal_memory_copy(NULL, on_1, 1, on_0, 0, 4));
  assert_ok(hal_device_synchronize(1));
  device_bytes(1, 64 << 20);
  cr_assert_eq(get(&now), 0);
  cr_assert_eq(now, of_0);
  set(NULL);
  assert_ok(hal_memory_fill(NULL, 1, on_1, &number, 4, 4));
  cr_assert_eq(get(&now), 0);
  cr_assert_null(now);
}
