/* Tests of the Vulkan plugin between processes: handles and pages of any content are refused and open no other file,
   segments that cannot be shared, and events of processes that end. The conformance suite (ipc) tests the rest. */
#define _GNU_SOURCE /* memfd_create */
#include <dirent.h>
#include <fcntl.h>
#include <hal/plugin_shared_event.h>
#include <sys/resource.h>

#include "plugin/call.h"
#include "plugin/plugin.h"
#include "shared_event_testing.h"
#include "vulkan_testing.h"

enum { SIZE = 300000, PAGES = 400 };

TestSuite(vulkan_ipc, .init = begin_shared, .fini = close_vulkan, .timeout = 120);

static hal_plugin_t *plugin; /* of open_sharing */

static void skip_unless_shared(void) {
  ipc_handle_t handle;
  void *const segment = device_bytes(0, SIZE);
  const hal_status_t status =
      hal_call_ipc_export(plugin, 0, segment, 0, handle.bytes, sizeof handle.bytes, &handle.size);
  if (status == HAL_UNIMPLEMENTED) cr_skip_test("the driver shares no memory between processes");
}

static void open_sharing(void) {
  open_vulkan();
  plugin = &hal_registry.plugins[0];
  skip_unless_shared();
}

static char *allocate(void) {
  void *ptr = NULL;
  assert_ok(hal_call_memory_alloc(plugin, 0, SIZE, 0, &ptr));
  return ptr;
}

static ipc_handle_t export(void *ptr) {
  ipc_handle_t handle = {.size = 0};
  assert_ok(hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  return handle;
}

static hal_status_t open_handle(const ipc_handle_t *handle, void **out_ptr) {
  return hal_error_plugin(plugin, HAL_SLOT_ipc_open,
                          hal_call_ipc_open(plugin, 0, handle->bytes, handle->size, 0, out_ptr));
}

static char *open_it(const ipc_handle_t *handle) {
  void *ptr = NULL;
  assert_ok(open_handle(handle, &ptr));
  return ptr;
}

static void refuse(const ipc_handle_t *handle, hal_status_t status, const char *text) {
  void *ptr = NULL;
  assert_fails(open_handle(handle, &ptr), status, text);
  cr_assert_null(ptr);
}

static void put(char *to, const char *text) {
  assert_ok(hal_call_memory_copy(plugin, NULL, to, 0, text, HAL_HOST, strlen(text) + 1));
}

static void expect(const char *from, const char *text) {
  char got[32];
  assert_ok(hal_call_memory_copy(plugin, NULL, got, HAL_HOST, from, 0, sizeof got));
  cr_assert_str_eq(got, text);
}

static int count_files(void) {
  int count = 0;
  DIR *const list = opendir("/proc/self/fd");
  for (const struct dirent *entry; list && (entry = readdir(list));) count++;
  if (list) closedir(list);
  return count;
}

/* ---- memory ---- */

Test(vulkan_ipc, memory_is_opened_any_number_of_times_and_outlives_its_owner) {
  size_t before = 0, after = 0, total = 0;
  open_sharing();
  const int files = count_files();
  char *const memory = allocate();
  put(memory + SIZE - 32, "kept");
  assert_ok(hal_call_memory_info(plugin, 0, &before, &total));
  const ipc_handle_t handle = export(memory), again = export(memory);
  cr_assert(handle.size == again.size && !memcmp(handle.bytes, again.bytes, handle.size));
  char *const first = open_it(&handle), *const second = open_it(&again);
  cr_assert(first != second && first != memory);
  expect(first + SIZE - 32, "kept");
  assert_ok(hal_call_memory_info(plugin, 0, &after, &total));
  cr_assert_eq(before, after, "opened memory counts where it was allocated");
  put(first, "seen by all");
  expect(memory, "seen by all");
  assert_ok(hal_call_ipc_close(plugin, 0, first));
  assert_ok(hal_call_memory_free(plugin, 0, memory));
  expect(second, "seen by all");
  refuse(&handle, HAL_NOT_FOUND, "has not freed the memory");
  assert_ok(hal_call_ipc_close(plugin, 0, second));
  cr_assert_eq(count_files(), files, "%d files were open before, and %d are now", files, count_files());
}

static void not_exported(void *ptr) {
  ipc_handle_t handle;
  assert_fails(
      hal_error_plugin(plugin, HAL_SLOT_ipc_export,
                       hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size)),
      HAL_INVALID_ARGUMENT, "not the start of memory");
}

Test(vulkan_ipc, only_segments_of_the_process_are_exported_and_only_opened_ones_closed) {
  void *pinned = NULL;
  open_sharing();
  char *const memory = allocate();
  const ipc_handle_t handle = export(memory);
  char *const opened = open_it(&handle);
  assert_ok(hal_call_host_alloc(plugin, 0, SIZE, 0, &pinned));
  not_exported(opened);
  not_exported(memory + 256);
  not_exported(pinned);
  not_exported(&pinned);
  cr_assert_eq(hal_call_memory_free(plugin, 0, opened), HAL_INVALID_ARGUMENT);
  cr_assert_eq(hal_call_ipc_close(plugin, 0, memory), HAL_INVALID_ARGUMENT);
  assert_ok(hal_call_ipc_close(plugin, 0, opened));
  cr_assert_eq(hal_call_ipc_close(plugin, 0, opened), HAL_INVALID_ARGUMENT);
  assert_ok(hal_call_host_free(plugin, 0, pinned));
  assert_ok(hal_call_memory_free(plugin, 0, memory));
}

/* ---- handles of any content ---- */

static ipc_handle_t forged(const ipc_handle_t *handle, int32_t process, int32_t file) {
  ipc_handle_t other = *handle;
  memcpy(other.bytes + offsetof(hal_shared_handle_t, process), &process, sizeof process);
  memcpy(other.bytes + offsetof(hal_shared_handle_t, file), &file, sizeof file);
  return other;
}

Test(vulkan_ipc, a_handle_opens_no_file_but_the_memory_that_it_is_of) {
  hal_shared_handle_t own;
  open_sharing();
  char *const memory = allocate();
  const ipc_handle_t handle = export(memory);
  memcpy(&own, handle.bytes, sizeof own);
  for (int32_t file = 0; file < 64; file++) {
    const ipc_handle_t wrong = forged(&handle, getpid(), file);
    if (file != own.file) refuse(&wrong, HAL_NOT_FOUND, "cannot be opened");
  }
  ipc_handle_t wrong = forged(&handle, 1, own.file);
  refuse(&wrong, HAL_NOT_FOUND, "memory of process 1 cannot be opened");
  wrong = forged(&handle, -1, own.file);
  refuse(&wrong, HAL_INVALID_ARGUMENT, "invalid IPC handle");
  wrong = handle;
  wrong.bytes[handle.size - 1] ^= 1;
  refuse(&wrong, HAL_NOT_FOUND, "cannot be opened");
  wrong = (ipc_handle_t){.size = handle.size};
  refuse(&wrong, HAL_INVALID_ARGUMENT, "invalid IPC handle");
  expect(open_it(&handle), "");
}

/* The number of the driver's file was given to another one: that is not opened. */
Test(vulkan_ipc, a_file_that_took_the_place_of_the_memory_is_not_opened) {
  struct {
    unsigned char before[32];
    int32_t process, file;
  } content;
  hal_shared_handle_t parcel;
  size_t size = 0;
  int file = -1;
  open_sharing();
  const ipc_handle_t handle = export(allocate());
  memcpy(&parcel, handle.bytes, sizeof parcel);
  assert_ok(hal_shared_file_open("vk.mem", &parcel, &file, &size));
  cr_assert_eq(pread(file, &content, sizeof content, 0), (ssize_t)sizeof content);
  cr_assert_eq(content.process, getpid());
  const int other = memfd_create("other", MFD_CLOEXEC);
  cr_assert(other >= 0 && !ftruncate(other, 2 * SIZE));
  cr_assert_eq(dup2(other, content.file), content.file);
  refuse(&handle, HAL_NOT_FOUND, "cannot be opened");
}

/* A process of the user can write any page, as one with another version of the plugin does. */
Test(vulkan_ipc, pages_of_any_content_are_an_error_or_open_the_memory) {
  hal_shared_handle_t parcel;
  size_t size = 0;
  int file = -1, opened = 0, refused = 0;
  uint64_t state = 88172645463325252u;
  open_sharing();
  const ipc_handle_t handle = export(allocate());
  memcpy(&parcel, handle.bytes, sizeof parcel);
  assert_ok(hal_shared_file_open("vk.mem", &parcel, &file, &size));
  const unsigned char *const content = hal_shared_file_map(file, size);
  for (int i = 0; i < PAGES; i++) {
    ipc_handle_t other = {.size = handle.size};
    void *ptr = NULL;
    int copy = -1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    assert_ok(hal_shared_file_create("vk.mem", i % 50 ? size : 1 + state % (2 * size), &copy, &parcel));
    unsigned char *const page_of_it = hal_shared_file_map(copy, size);
    memcpy(page_of_it, content, size);
    unsigned char *const byte = &page_of_it[(size_t)i % size];
    *byte = (unsigned char)(i % 3 ? state : *byte ^ UINT64_C(1) << state % 8);
    memcpy(other.bytes, &parcel, sizeof parcel);
    const hal_status_t status = open_handle(&other, &ptr);
    cr_assert(status ? !ptr && *hal_error_message() : ptr != NULL, "page %d: status %d", i, (int)status);
    opened += !status, refused += status != HAL_OK;
    if (ptr) assert_ok(hal_call_ipc_close(plugin, 0, ptr));
    hal_shared_file_unmap(page_of_it, size);
    close(copy);
  }
  cr_assert(opened > 10 && refused > 100, "%d opened, %d refused", opened, refused);
}

static void export_and_stay(void (*open)(void)) {
  open();
  char *const memory = allocate();
  put(memory, "there");
  page->handle = export(memory);
  reach(1);
  for (;;) nap();
}

Test(vulkan_ipc, memory_of_a_process_that_has_ended) {
  const pid_t child = start_there(export_and_stay, open_sharing);
  open_sharing();
  await(1);
  char *const opened = open_it(&page->handle);
  expect(opened, "there");
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  expect(opened, "there");
  refuse(&page->handle, HAL_NOT_FOUND, "check that the process is alive");
  assert_ok(hal_call_ipc_close(plugin, 0, opened));
}

/* ---- memory that is not shared ---- */

Test(vulkan_ipc, sharing_can_be_disabled) {
  ipc_handle_t handle;
  setenv("HAL_VULKAN_SHARE", "0", 1);
  open_vulkan();
  plugin = &hal_registry.plugins[0];
  char *const memory = device_bytes(0, SIZE);
  assert_fails(
      hal_error_plugin(plugin, HAL_SLOT_ipc_export,
                       hal_call_ipc_export(plugin, 0, memory, 0, handle.bytes, sizeof handle.bytes, &handle.size)),
      HAL_UNIMPLEMENTED, "HAL_VULKAN_SHARE is 0");
}

/* Drivers for CPUs keep a file open for each segment, and the process has other uses for files. */
Test(vulkan_ipc, more_segments_than_files_are_allocated_and_not_shared) {
  enum { FILES = 120 };
  struct rlimit files = {0};
  ipc_handle_t handle;
  hal_status_t status = HAL_OK;
  cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = FILES;
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
  open_sharing();
  for (int i = 0; i < 2 * FILES && !status; i++)
    status = hal_call_ipc_export(plugin, 0, allocate(), 0, handle.bytes, sizeof handle.bytes, &handle.size);
  if (!status) cr_skip_test("the driver keeps no files");
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_ipc_export, status), HAL_UNIMPLEMENTED, "ulimit -n");
  for (int i = 0; i < FILES; i++) allocate();
  const int more = open("/dev/null", O_RDONLY | O_CLOEXEC);
  cr_assert_geq(more, 0, "no file is left");
  close(more);
}

/* ---- events ---- */

Test(vulkan_ipc, an_event_of_one_process_is_waited_for_and_recorded_by_another) { share_an_event(open_vulkan); }

Test(vulkan_ipc, a_wait_for_a_process_that_has_exited_fails_and_later_work_runs) { wait_for_the_ended(open_vulkan); }

Test(vulkan_ipc, invalid_handles_of_events_and_those_of_this_process_are_refused) {
  refuse_invalid_events(open_vulkan);
}

Test(vulkan_ipc, an_event_between_processes_is_not_part_of_a_graph) {
  hal_plugin_event_t *event = NULL;
  hal_plugin_stream_t *stream = NULL;
  hal_plugin_graph_t *graph = NULL;
  open_sharing();
  assert_ok(hal_call_stream_create(plugin, 0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  assert_ok(hal_call_event_create(plugin, 0, HAL_EVENT_INTERPROCESS, &event));
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_THREAD, 0));
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_event_record, hal_call_event_record(plugin, event, stream)),
               HAL_UNIMPLEMENTED, "event_record on a stream that is captured");
  cr_assert_eq(hal_call_capture_end(plugin, stream, &graph), HAL_ABORTED);
  cr_assert_eq(hal_call_event_query(plugin, event), HAL_OK, "the record was not taken back");
  assert_ok(hal_call_event_record(plugin, event, stream));
  assert_ok(hal_call_event_synchronize(plugin, event));
  assert_ok(hal_call_event_destroy(plugin, event));
  assert_ok(hal_call_stream_destroy(plugin, stream));
}
