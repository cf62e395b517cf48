/* fake_virtual.c: virtual memory of the fake device: addresses without memory, memory without addresses, other
   processes. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "fake_support.h"

static size_t page;

static void setup(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  open_mode(1, 1);
}

TestSuite(fake_virtual, .init = setup, .fini = close_plugin);

static char *reserve(size_t pages) {
  void *ptr = NULL;
  must(fake_api.virtual_reserve(0, pages * page, &ptr));
  return ptr;
}

static hal_plugin_physical_t *create(size_t pages) {
  hal_plugin_physical_t *memory = NULL;
  must(fake_api.virtual_create(0, pages * page, HAL_HANDLE_FILE, &memory));
  return memory;
}

static size_t free_bytes(void) {
  size_t available = 0, total = 0;
  must(fake_api.memory_info(0, &available, &total));
  return available;
}

Test(fake_virtual, a_segment_grows_in_place) {
  const size_t before = free_bytes();
  char *const range = reserve(4);
  hal_plugin_physical_t *const first = create(1), *const second = create(2);
  cr_assert_eq(free_bytes(), before - 3 * page);
  must(fake_api.virtual_map(0, range, page, first));
  memset(range, 1, page);
  must(fake_api.virtual_map(0, range + page, 2 * page, second));
  cr_assert_eq(range[page - 1], 1);
  const char pattern = 7;
  must(fake_api.memory_fill(NULL, 0, range + page, &pattern, 1, 2 * page));
  cr_assert_eq(range[3 * page - 1], 7);
  must(fake_api.virtual_unmap(0, range, page));
  must(fake_api.virtual_unmap(0, range + page, 2 * page));
  must(fake_api.virtual_release(0, first));
  must(fake_api.virtual_release(0, second));
  must(fake_api.virtual_unreserve(0, range, 4 * page));
  cr_assert_eq(free_bytes(), before);
}

Test(fake_virtual, memory_keeps_its_contents_from_one_address_to_another) {
  char *const range = reserve(2);
  hal_plugin_physical_t *const memory = create(1);
  must(fake_api.virtual_map(0, range, page, memory));
  strcpy(range, "kept");
  must(fake_api.virtual_unmap(0, range, page));
  must(fake_api.virtual_map(0, range + page, page, memory));
  cr_assert_str_eq(range + page, "kept");
}

Test(fake_virtual, a_mapping_is_known_as_memory_of_its_device) {
  char *const range = reserve(1);
  hal_pointer_info_t info = {.struct_size = sizeof info};
  must_fail(fake_api.memory_pointer_info(range, &info), HAL_NOT_FOUND, "not in an allocation");
  must(fake_api.virtual_map(0, range, page, create(1)));
  must(fake_api.memory_pointer_info(range + 5, &info));
  cr_assert(info.base == range && info.size == page && info.device == 0 && info.kind == HAL_POINTER_DEVICE);
  must_fail(fake_api.memory_free(0, range), HAL_INVALID_ARGUMENT, "not the start of such an allocation");
  must(fake_api.memory_pointer_info(range, &info));
  must_fail(fake_api.virtual_unmap(0, range, 2 * page), HAL_INVALID_ARGUMENT, "pass a whole range of virtual_map");
  must(fake_api.virtual_unmap(0, range, page));
}

static void write_byte(void *address) { *(volatile char *)address = 1; }

/* Returns whether a child process that writes there is terminated. */
static int faults(void *address) {
  const pid_t child = fork();
  int status = 0;
  if (!child) {
    signal(SIGSEGV, SIG_DFL);
    write_byte(address);
    _exit(0);
  }
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

Test(fake_virtual, reserved_addresses_without_memory_cannot_be_accessed) {
  char *const range = reserve(1);
  cr_assert(faults(range));
  must(fake_api.virtual_map(0, range, page, create(1)));
  cr_assert_not(faults(range));
  must(fake_api.virtual_access(0, range, page, 0, HAL_ACCESS_READ));
  cr_assert(faults(range));
  must(fake_api.virtual_access(0, range, page, 0, HAL_ACCESS_READ_WRITE));
  must(fake_api.virtual_unmap(0, range, page));
  cr_assert(faults(range));
}

Test(fake_virtual, exported_memory_is_the_same_memory_where_it_is_imported) {
  hal_memory_handle_t handle;
  hal_plugin_physical_t *const memory = create(1), *imported = NULL;
  const size_t before = free_bytes();
  must(fake_api.virtual_export(0, memory, HAL_HANDLE_FILE, &handle));
  cr_assert_eq(handle.kind, HAL_HANDLE_FILE);
  must(fake_api.virtual_import(0, &handle, page, &imported));
  cr_assert_eq(close(handle.file), 0, "the descriptor belongs to the caller");
  cr_assert_eq(free_bytes(), before, "it counts where it was made");
  char *const range = reserve(2);
  must(fake_api.virtual_map(0, range, page, memory));
  must(fake_api.virtual_map(0, range + page, page, imported));
  strcpy(range, "shared");
  cr_assert_str_eq(range + page, "shared");
}

Test(fake_virtual, what_cannot_be_is_refused) {
  void *ptr = NULL;
  hal_plugin_physical_t *memory = NULL;
  hal_memory_handle_t handle = {.kind = HAL_HANDLE_FILE, .file = -1};
  must_fail(fake_api.virtual_reserve(0, 100, &ptr), HAL_INVALID_ARGUMENT, "multiple of the page size");
  must_fail(fake_api.virtual_create(0, (size_t)1 << 62, 0, &memory), HAL_RESOURCE_EXHAUSTED, "out of memory");
  cr_assert_eq(fake_api.virtual_create(0, page, HAL_HANDLE_FABRIC, &memory), HAL_UNIMPLEMENTED);
  must_fail(fake_api.virtual_import(0, &handle, page, &memory), HAL_INVALID_ARGUMENT, "no such memory");
  must_fail(fake_api.virtual_map(0, reserve(2), 2 * page, create(1)), HAL_INVALID_ARGUMENT, "mapped as a whole");
}
