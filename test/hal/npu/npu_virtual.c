/* Tests of the Level Zero plugin: memory shared between processes, and drivers without it or without virtual memory.
   hal-cts tests the rest. */
#include <sys/wait.h>
#include <unistd.h>

#include "ipc_handle.h"
#include "npu_testing.h"
#include "plugin/call.h"
#include "plugin/plugin.h"

enum { SIZE = 100000 };

static hal_plugin_t *open_plugin(void) {
  hal_device_info_t info = {.struct_size = sizeof info};
  use_double("2");
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  const hal_status_t status = hal_registry_open("npu");
  if (status == HAL_UNAVAILABLE) skip(hal_error_message());
  assert_ok(status);
  assert_ok(hal_device_info(0, &info));
  return &hal_registry.plugins[0];
}

static void copy(hal_plugin_t *plugin, void *dst, int32_t to, const void *src, int32_t from) {
  assert_ok(hal_call_memory_copy(plugin, NULL, dst, to, src, from, SIZE));
}

/* The other process: reverses the data that it reads. Neither process is forked from one that has initialized the
   driver. */
static void change_there(int from) {
  ipc_handle_t handle;
  unsigned char bytes[SIZE];
  void *ptr = NULL;
  hal_plugin_t *const plugin = open_plugin();
  cr_assert_eq(read(from, &handle, sizeof handle), (ssize_t)sizeof handle);
  assert_ok(hal_call_ipc_open(plugin, 1, handle.bytes, handle.size, 0, &ptr));
  copy(plugin, bytes, HAL_HOST, ptr, 1);
  for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)~bytes[i];
  copy(plugin, ptr, 1, bytes, HAL_HOST);
  assert_ok(hal_call_ipc_close(plugin, 1, ptr));
}

static void cross(const char *kind) {
  static unsigned char bytes[SIZE];
  ipc_handle_t handle;
  int ends[2], state = 1;
  void *ptr = NULL;
  setenv("ZE_CPU_IPC", kind, 1);
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    change_there(ends[0]);
    _exit(0);
  }
  hal_plugin_t *const plugin = open_plugin();
  for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i % 251);
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  copy(plugin, ptr, 0, bytes, HAL_HOST);
  assert_ok(hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  cr_assert_eq(write(ends[1], &handle, sizeof handle), (ssize_t)sizeof handle);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
  copy(plugin, bytes, HAL_HOST, ptr, 0);
  for (int i = 0; i < SIZE; i++) cr_assert_eq(bytes[i], (unsigned char)~(i % 251), "byte %d", i);
  assert_ok(hal_call_memory_free(plugin, 0, ptr));
}

Test(npu_virtual, memory_crosses_where_handles_hold_a_file_of_the_process) { cross("file"); }
Test(npu_virtual, memory_crosses_where_handles_cross_as_they_are) { cross("process"); }

Test(npu_virtual, a_handle_of_a_process_that_has_exited_is_an_error) {
  static ipc_handle_t handle;
  int ends[2], state = 1;
  void *ptr = NULL;
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    hal_plugin_t *const plugin = open_plugin();
    if (hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr) ||
        hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size))
      _exit(1);
    _exit(write(ends[1], &handle, sizeof handle) != (ssize_t)sizeof handle);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  hal_plugin_t *const plugin = open_plugin();
  cr_assert_eq(read(ends[0], &handle, sizeof handle), (ssize_t)sizeof handle);
  assert_fails(
      hal_error_plugin(plugin, HAL_SLOT_ipc_open, hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &ptr)),
      HAL_UNAVAILABLE, "check that the process is alive");
}

Test(npu_virtual, an_invalid_handle_and_an_address_that_is_not_open_are_refused) {
  const ipc_handle_t handle = {64, {1, 2, 3}};
  void *ptr = NULL;
  hal_plugin_t *const plugin = open_plugin();
  cr_assert_neq(hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &ptr), HAL_OK);
  cr_assert_null(ptr);
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  cr_assert_neq(hal_call_ipc_close(plugin, 0, ptr), HAL_OK);
  ipc_handle_t made;
  cr_assert_neq(hal_call_ipc_export(plugin, 0, (char *)ptr + 64, 0, made.bytes, sizeof made.bytes, &made.size), HAL_OK);
}

/* Bytes that another process may write: a number in the first four bytes, and a mark that remains as exported. */
static hal_status_t open_with_file(hal_plugin_t *plugin, const ipc_handle_t *made, int32_t file) {
  ipc_handle_t handle = *made;
  void *ptr = NULL;
  memcpy(handle.bytes, &file, sizeof file);
  const hal_status_t status =
      hal_error_plugin(plugin, HAL_SLOT_ipc_open, hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &ptr));
  cr_assert_null(ptr);
  return status;
}

Test(npu_virtual, a_handle_that_names_another_file_than_device_memory_is_refused) {
  char name[] = "/tmp/hal-dmabuf-XXXXXX";
  ipc_handle_t handle;
  void *ptr = NULL;
  int ends[2];
  hal_plugin_t *const plugin = open_plugin();
  const int file = mkstemp(name);
  cr_assert_geq(file, 0);
  unlink(name);
  cr_assert_eq(ftruncate(file, 4096 * (SIZE / 4096 + 1)), 0); /* as large as the memory */
  cr_assert_eq(pipe(ends), 0);
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  assert_ok(hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  assert_fails(open_with_file(plugin, &handle, file), HAL_INVALID_ARGUMENT, "is not device memory");
  assert_fails(open_with_file(plugin, &handle, ends[0]), HAL_INVALID_ARGUMENT, "is not device memory");
  assert_fails(open_with_file(plugin, &handle, -1), HAL_UNAVAILABLE, "cannot duplicate the file of memory");
}

Test(npu_virtual, a_handle_without_a_process_names_no_file_of_this_one) {
  ipc_handle_t handle;
  int32_t file = 0;
  void *ptr = NULL;
  hal_plugin_t *const plugin = open_plugin();
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  assert_ok(hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  memcpy(&file, handle.bytes, sizeof file);
  memset(handle.bytes + handle.size - 8, 0, 8); /* mark and process */
  assert_fails(open_with_file(plugin, &handle, file), HAL_INVALID_ARGUMENT, "without a process");
}

Test(npu_virtual, a_driver_that_lacks_both_is_reported) {
  ipc_handle_t handle;
  hal_device_info_t info = {.struct_size = sizeof info};
  void *ptr = NULL;
  setenv("ZE_CPU_WITHOUT", "ipc,virtual", 1);
  hal_plugin_t *const plugin = open_plugin();
  assert_ok(hal_device_info(0, &info));
  cr_assert_eq(info.virtual_granularity, 0);
  cr_assert_eq(hal_call_virtual_reserve(plugin, 0, 1 << 20, &ptr), HAL_UNIMPLEMENTED);
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  cr_assert_eq(hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size),
               HAL_UNIMPLEMENTED);
}

Test(npu_virtual, wrong_sizes_accesses_and_handles_are_refused_with_their_numbers) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_plugin_physical_t *memory = NULL;
  void *base = NULL;
  hal_plugin_t *const plugin = open_plugin();
  assert_ok(hal_device_info(0, &info));
  const size_t size = (size_t)info.virtual_granularity;
  cr_assert_gt(size, 0);
#define REFUSED(slot, code, text, ...) \
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_##slot, hal_call_##slot(plugin, __VA_ARGS__)), code, text)
  REFUSED(virtual_reserve, HAL_INVALID_ARGUMENT, "virtual_granularity", 0, size + 1, &base);
  REFUSED(virtual_create, HAL_UNIMPLEMENTED, "0x1", 0, size, HAL_HANDLE_FILE, &memory);
  assert_ok(hal_call_virtual_create(plugin, 0, size, HAL_HANDLE_NONE, &memory));
  assert_ok(hal_call_virtual_reserve(plugin, 0, 2 * size, &base));
  REFUSED(virtual_map, HAL_INVALID_ARGUMENT, "can only be mapped as a whole", 0, base, 2 * size, memory);
  REFUSED(virtual_map, HAL_INVALID_ARGUMENT, "of device 0", 1, base, size, memory);
  assert_ok(hal_call_virtual_map(plugin, 0, base, size, memory));
  REFUSED(virtual_access, HAL_UNIMPLEMENTED, "one access for all devices", 0, base, size, 1, HAL_ACCESS_READ);
  assert_ok(hal_call_virtual_access(plugin, 0, base, size, 1, HAL_ACCESS_READ_WRITE));
  assert_ok(hal_call_virtual_unmap(plugin, 0, base, size));
  assert_ok(hal_call_virtual_release(plugin, 0, memory));
  assert_ok(hal_call_virtual_unreserve(plugin, 0, base, 2 * size));
}
