/* Tests of the CUDA plugin's virtual memory, and of memory shared with other processes. */
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_plugin_testing.h"
#include "ipc_handle.h"

TestSuite(cuda_virtual, .init = open_plugin);
TestSuite(cuda_processes);

static size_t granularity(void) {
  hal_device_info_t info = {.struct_size = sizeof info};
  OK(api.device_info(0, &info));
  cr_assert_gt(info.virtual_granularity, 0);
  return (size_t)info.virtual_granularity;
}

Test(cuda_virtual, memory_grows_in_place_and_a_kernel_writes_across_its_pieces) {
  const size_t size = granularity();
  hal_plugin_physical_t *first = NULL, *second = NULL;
  void *base = NULL;
  OK(api.virtual_reserve(0, 2 * size, &base));
  OK(api.virtual_create(0, size, HAL_HANDLE_NONE, &first));
  OK(api.virtual_map(0, base, size, first));
  OK(api.virtual_create(0, size, HAL_HANDLE_NONE, &second));
  OK(api.virtual_map(0, (char *)base + size, size, second));
  OK(api.memory_fill(NULL, 0, base, &(char){7}, 1, 2 * size));
  uint32_t *const at = (uint32_t *)(void *)((char *)base + size);
  OK(queue_add(adder(0), NULL, at, 1));
  cr_assert_eq(word_at(0, at), 0x07070708);
  cr_assert_eq(word_at(0, at - 1), 0x07070707);
  cr_assert_neq(api.virtual_unreserve(0, base, 2 * size), HAL_OK); /* something is mapped */
  OK(api.virtual_unmap(0, base, size));
  OK(api.virtual_unmap(0, at, size));
  OK(api.virtual_release(0, first));
  OK(api.virtual_release(0, second));
  OK(api.virtual_unreserve(0, base, 2 * size));
}

Test(cuda_virtual, wrong_sizes_and_handles_are_refused_with_their_numbers) {
  const size_t size = granularity();
  hal_plugin_physical_t *memory = NULL;
  hal_memory_handle_t handle = {.file = -1};
  void *base = NULL;
  FAILS(api.virtual_reserve(0, size + 1, &base), HAL_INVALID_ARGUMENT, "virtual_granularity");
  FAILS(api.virtual_create(0, size, HAL_HANDLE_FABRIC, &memory), HAL_UNIMPLEMENTED, "0x2");
  OK(api.virtual_create(0, size, HAL_HANDLE_NONE, &memory));
  OK(api.virtual_reserve(0, 2 * size, &base));
  FAILS(api.virtual_map(0, base, 2 * size, memory), HAL_INVALID_ARGUMENT, "can only be mapped as a whole");
  if (device_count > 1) FAILS(api.virtual_map(1, base, size, memory), HAL_INVALID_ARGUMENT, "of device 0");
  cr_assert_neq(api.virtual_export(0, memory, HAL_HANDLE_FILE, &handle), HAL_OK); /* made for no handle */
  FAILS(api.virtual_export(0, memory, HAL_HANDLE_FABRIC, &handle), HAL_UNIMPLEMENTED, "kind 2");
  OK(api.virtual_map(0, base, size, memory));
  OK(api.virtual_access(0, base, size, device_count > 1, HAL_ACCESS_READ_WRITE));
}

/* A query must not create a context, which takes time and memory. */
Test(cuda_virtual, an_address_can_be_queried_without_initializing_a_device) {
  hal_pointer_info_t info = {.struct_size = sizeof info};
  hal_plugin_stream_t *stream = NULL;
  int (*set)(const char *) = NULL;
  needs_mock("failures");
  void *const symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuda_mock_fault_set");
  memcpy(&set, &symbol, sizeof set);
  cr_assert_eq(set("context=1"), 0);
  FAILS(api.memory_pointer_info(&info, &info), HAL_NOT_FOUND, "not in an allocation");
  cr_assert_neq(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream),
                HAL_OK); /* the first call that needs a context */
  OK(api.stream_create(1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  FAILS(api.memory_pointer_info(&info, &info), HAL_NOT_FOUND, "not in an allocation");
  OK(api.memory_pointer_info(words_on(1, 64), &info));
  cr_assert_eq(info.device, 1);
}

Test(cuda_virtual, a_handle_of_this_process_is_refused) {
  ipc_handle_t handle;
  void *ptr = NULL;
  OK(api.ipc_export(0, words_on(0, 4096), 0, handle.bytes, sizeof handle.bytes, &handle.size));
  FAILS(api.ipc_open(0, handle.bytes, handle.size, 0, &ptr), HAL_INTERNAL, "is not this process");
  cr_assert_neq(api.ipc_close(0, words_on(0, 64)), HAL_OK);
}

/* The other process: opens the memory of the handle that it receives, and adds 1. Neither process is forked from one
   that has initialized the driver. */
static void add_one_there(int from) {
  ipc_handle_t handle;
  void *ptr = NULL;
  open_plugin();
  cr_assert_eq(read(from, &handle, sizeof handle), (ssize_t)sizeof handle);
  OK(api.ipc_open(0, handle.bytes, handle.size, 0, &ptr));
  OK(queue_add(adder(0), NULL, ptr, 1));
  OK(api.ipc_close(0, ptr));
}

Test(cuda_processes, memory_of_one_process_is_written_by_another) {
  ipc_handle_t handle;
  int ends[2], state = 1;
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    add_one_there(ends[0]);
    _exit(0);
  }
  open_plugin();
  uint32_t *const words = words_on(0, 4096);
  OK(queue_add(adder(0), NULL, words, 41));
  OK(api.ipc_export(0, words, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  cr_assert_eq(write(ends[1], &handle, sizeof handle), (ssize_t)sizeof handle);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
  cr_assert_eq(word_at(0, words), 42);
}
