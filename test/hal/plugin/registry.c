/* Tests of registry.h: which plugins become active, and the reports about the others. */
#include "support.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/event_internal.h"

#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)
#define THIS_MINOR TEXT(HAL_ABI_MINOR) /* of the version of the plugin ABI */

/* Asserts that only the plugin is refused, with code and text, and that another plugin in the same list still loads. */
static void assert_refused(const char *path, hal_status_t code, const char *text) {
  char list[2 * PATH_MAX];
  assert_fails(hal_registry_open(path), code, text);
  cr_assert_not_null(strstr(hal_error_message(), ";"), "no cure in: %s", hal_error_message());
  cr_assert_not(hal_registry_is_open());
  snprintf(list, sizeof list, "%s,%s", path, FIXTURE("five"));
  assert_ok(hal_registry_open(list));
  cr_assert_eq(hal_registry_plugin_count(), 1);
  cr_assert_eq(hal_device_count(), 2);
  cr_assert_not_null(strstr(hal_registry_report(), text), "report: %s", hal_registry_report());
}

static void write_file(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file);
  cr_assert_eq(fwrite(data, 1, size, file), size);
  fclose(file);
}

/* Copies the first bytes of a plugin to a file in a new directory, whose name is retained until the test's process
   exits. */
static const char *copy_part(const char *from, double part, const char *name) {
  static char directory[64], path[PATH_MAX];
  static char data[4 << 20];
  FILE *file = fopen(from, "rb");
  cr_assert_not_null(file);
  const size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  strcpy(directory, "/tmp/hal-registry-XXXXXX");
  cr_assert_not_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/%s", directory, name);
  write_file(path, data, (size_t)((double)size * part));
  return path;
}

/* A directory with links to some of the test plugins. */
static void link_fixtures(const char *const names[], char directory[64]) {
  strcpy(directory, "/tmp/hal-registry-XXXXXX");
  cr_assert_not_null(mkdtemp(directory));
  for (; *names; names++) {
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/libhal_%s.so", FIXTURE_DIR, *names);
    snprintf(to, sizeof to, "%s/libhal_%s.so", directory, *names);
    cr_assert_eq(symlink(from, to), 0);
  }
}

Test(registry, nothing_is_open_at_first) {
  cr_assert_not(hal_registry_is_open());
  cr_assert_eq(hal_device_count(), 0);
  assert_fails(hal_device_ensure(0), HAL_OUT_OF_RANGE, "no plugin is open");
}

Test(registry, a_plugin_is_opened_by_absolute_path) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  open_fixture("five");
  cr_assert(hal_registry_is_open());
  cr_assert_eq(hal_device_count(), 2);
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_str_eq(entry.name, "five");
  cr_assert_str_eq(entry.vendor, "tests");
  cr_assert_eq(entry.first_device, 0);
  cr_assert_eq(entry.device_count, 2);
  cr_assert_eq(entry.provided_count, 5, "five functions are the author's own, not %u", entry.provided_count);
  cr_assert_str_empty(hal_registry_report());
  cr_assert_not(hal_device_is_initialized(0));
  assert_fails(hal_registry_plugin(1, &entry), HAL_OUT_OF_RANGE, "1 are open");
}

Test(registry, an_entry_is_filled_only_as_far_as_the_caller_knows_it) {
  struct {
    hal_registry_entry_t entry;
  } room;
  open_fixture("five");
  memset(&room, 0xA5, sizeof room);
  room.entry.struct_size = HAL_STRUCT_SIZE(hal_registry_entry_t, path);
  assert_ok(hal_registry_plugin(0, &room.entry));
  cr_assert_str_eq(room.entry.name, "five");
  cr_assert_eq(room.entry.first_device, (int32_t)0xA5A5A5A5);
}

Test(registry, provides_distinguishes_the_plugins_own_functions_from_defaults) {
  int provided = 0;
  open_fixture("five");
  for (uint32_t slot = 0; hal_registry_slot_name(slot); slot++) {
    static const char *const own[] = {"info", "device_count", "memory_alloc", "memory_free", "memory_copy"};
    int wanted = 0;
    for (size_t i = 0; i < 5; i++) wanted |= strcmp(own[i], hal_registry_slot_name(slot)) == 0;
    cr_expect_eq(hal_registry_provides(0, slot), wanted, "%s", hal_registry_slot_name(slot));
    provided += hal_registry_provides(0, slot);
  }
  cr_assert_eq(provided, 5);
}

Test(registry, a_name_is_searched_in_HAL_PLUGIN_PATH) {
  setenv("HAL_PLUGIN_PATH", "relative:/nonexistent:" FIXTURE_DIR, 1);
  assert_ok(hal_registry_open("five"));
  cr_assert_eq(hal_device_count(), 2);
}

Test(registry, added_directories_come_first_and_the_newest_one_of_all) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  const char *const copy = copy_part(FIXTURE("five"), 1, "libhal_tally.so"); /* the file name is misleading: the
                                                                                plugin is five */
  char directory[PATH_MAX];
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(copy, '/') - copy), copy);
  setenv("HAL_PLUGIN_PATH", FIXTURE_DIR, 1);
  assert_ok(hal_registry_add_path(FIXTURE_DIR));
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open("tally"));
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_str_eq(entry.name, "five");
  assert_fails(hal_registry_add_path("plugins"), HAL_INVALID_ARGUMENT, "not an absolute path");
}

Test(registry, an_unknown_plugin_is_reported_with_the_directories_searched) {
  setenv("HAL_PLUGIN_PATH", FIXTURE_DIR, 1);
  assert_refused("warp", HAL_NOT_FOUND, "there is no libhal_warp.so in " FIXTURE_DIR);
}

Test(registry, an_unknown_plugin_without_any_directory_is_reported_with_the_setting) {
  unsetenv("HAL_PLUGIN_PATH");
  assert_fails(hal_registry_open("warp"), HAL_NOT_FOUND, "set HAL_PLUGIN_PATH");
}

Test(registry, a_name_with_a_slash_or_capitals_is_refused) {
  assert_refused("../five", HAL_INVALID_ARGUMENT, "cannot name a plugin");
}

Test(registry, a_list_without_names_is_refused) {
  assert_fails(hal_registry_open(" , "), HAL_INVALID_ARGUMENT, "is empty");
}

Test(registry, a_missing_file_is_refused) {
  assert_refused("/nonexistent/libhal_x.so", HAL_NOT_FOUND, "cannot be found");
}

Test(registry, a_text_file_is_refused) {
  char path[] = "/tmp/hal-registry-XXXXXX";
  const int file = mkstemp(path);
  cr_assert_geq(file, 0);
  cr_assert_eq(write(file, "not a plugin", 12), 12);
  close(file);
  assert_refused(path, HAL_INCOMPATIBLE, "is not a shared object");
  unlink(path);
}

Test(registry, an_empty_file_is_refused) {
  assert_refused(copy_part(FIXTURE("five"), 0, "libhal_five.so"), HAL_INCOMPATIBLE, "0 bytes");
}

Test(registry, a_file_cut_short_is_refused) {
  assert_refused(copy_part(FIXTURE("tally"), 0.4, "libhal_tally.so"), HAL_INCOMPATIBLE, "damaged or truncated");
}

Test(registry, libraries_of_the_program_are_checked) {
  assert_ok(hal_registry_check_library(FIXTURE("tally")));
  assert_fails(hal_registry_check_library(copy_part(FIXTURE("tally"), 0.4, "libhal_tally.so")), HAL_INCOMPATIBLE,
               "damaged or truncated");
  assert_fails(hal_registry_check_library("/nonexistent/liballoc.so"), HAL_NOT_FOUND, "/nonexistent/liballoc.so");
  assert_fails(hal_registry_check_library("/tmp"), HAL_INCOMPATIBLE, "not a regular file");
  assert_fails(hal_registry_check_library(""), HAL_INVALID_ARGUMENT, "pass the path");
  assert_fails(hal_registry_check_library(NULL), HAL_INVALID_ARGUMENT, "pass the path");
}

Test(registry, a_plugin_for_another_processor_is_refused) {
  const char *const path = copy_part(FIXTURE("five"), 1, "libhal_five.so");
  const int file = open(path, O_WRONLY);
  cr_assert_eq(pwrite(file, "\x08\x00", 2, 18), 2); /* e_machine: MIPS */
  close(file);
  assert_refused(path, HAL_INCOMPATIBLE, "another processor (ELF machine 8");
}

Test(registry, a_plugin_for_another_word_size_is_refused) {
  const char *const path = copy_part(FIXTURE("five"), 1, "libhal_five.so");
  const int file = open(path, O_WRONLY);
  cr_assert_eq(pwrite(file, "\x01", 1, 4), 1); /* EI_CLASS: 32 bits */
  close(file);
  assert_refused(path, HAL_INCOMPATIBLE, "another processor");
}

Test(registry, a_directory_is_refused) { assert_refused(FIXTURE_DIR, HAL_INCOMPATIBLE, "not a regular file"); }
Test(registry, a_shared_object_without_entry_is_refused) {
  assert_refused(FIXTURE("no_entry"), HAL_INCOMPATIBLE, "exports no hal_plugin_entry");
}
Test(registry, a_plugin_that_refuses_our_major_version_is_refused) {
  assert_refused(FIXTURE("other_major"), HAL_INCOMPATIBLE,
                 "built for plugin ABI 7." THIS_MINOR " and this is 0." THIS_MINOR ",");
}
Test(registry, a_plugin_of_another_major_version_is_refused) {
  assert_refused(FIXTURE("lying_major"), HAL_INCOMPATIBLE,
                 "built for plugin ABI 7." THIS_MINOR " and this is 0." THIS_MINOR);
}
Test(registry, a_plugin_of_0_2_which_refuses_this_host_is_to_be_rebuilt) {
  assert_refused(FIXTURE("older_minor"), HAL_INCOMPATIBLE,
                 "built for plugin ABI 0.2 and this is 0." THIS_MINOR
                 ", which loads 0.3 and later minor versions; rebuild it");
}
Test(registry, a_plugin_of_0_1_which_accepts_this_host_is_refused) {
  assert_refused(FIXTURE("lying_minor"), HAL_INCOMPATIBLE, "built for plugin ABI 0.1 and this is 0." THIS_MINOR ",");
}
Test(registry, a_plugin_of_a_later_minor_version_is_loaded) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  open_fixture("later_minor");
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_eq(entry.abi_minor, 99);
}
Test(registry, half_a_slot_is_refused) {
  assert_refused(FIXTURE("odd_size"), HAL_INCOMPATIBLE, "not a multiple of a slot");
}
Test(registry, a_missing_mandatory_function_is_refused_by_name) {
  assert_refused(FIXTURE("hole"), HAL_INCOMPATIBLE, "has no hal_plugin_memory_free");
}
Test(registry, a_plugin_built_with_a_sanitizer_that_the_process_lacks_is_refused) {
  assert_refused(FIXTURE("sanitized"), HAL_INCOMPATIBLE, "sanitizer and this process was not");
}
Test(registry, half_of_the_stream_group_is_refused_naming_the_rest) {
  assert_refused(
      FIXTURE("half_stream"), HAL_INCOMPATIBLE,
      "implements the group 'streams' in part: it has stream_create but not device_synchronize, stream_destroy, "
      "stream_synchronize");
}
Test(registry, streams_without_device_synchronize_are_refused) {
  assert_refused(FIXTURE("half_companion"), HAL_INCOMPATIBLE, "but not device_synchronize;");
}
Test(registry, half_of_the_event_group_is_refused_naming_the_rest) {
  assert_refused(FIXTURE("half_event"), HAL_INCOMPATIBLE,
                 "it has event_record but not event_create, event_destroy, event_synchronize, event_elapsed");
}
Test(registry, a_cross_stream_wait_needs_streams_and_events) {
  assert_refused(FIXTURE("half_wait"), HAL_INCOMPATIBLE,
                 "it has stream_wait_event but not device_synchronize, stream_create");
}
Test(registry, half_of_the_module_group_is_refused_naming_the_rest) {
  assert_refused(FIXTURE("half_module"), HAL_INCOMPATIBLE,
                 "it has module_load but not module_unload, kernel_get, kernel_launch");
}
Test(registry, memory_between_processes_needs_virtual_memory) {
  assert_refused(FIXTURE("half_share"), HAL_INCOMPATIBLE,
                 "it has virtual_export, virtual_import but not virtual_reserve, virtual_unreserve, virtual_create");
}
Test(registry, device_synchronize_may_be_provided_without_streams) { open_fixture("companion_alone"); }

Test(registry, a_device_name_that_begins_with_cuda_is_refused) {
  assert_refused(FIXTURE("name_cuda"), HAL_INCOMPATIBLE, "has the name 'cudalike', which torch reserves");
}
Test(registry, a_name_of_torchs_own_is_refused) {
  assert_refused(FIXTURE("name_xpu"), HAL_INCOMPATIBLE, "'xpu', which");
}
Test(registry, a_name_that_only_c10s_enum_has_is_refused) {
  assert_refused(FIXTURE("name_hpu"), HAL_INCOMPATIBLE, "'hpu', which torch reserves");
}
Test(registry, a_name_that_c10_reserved_long_ago_is_refused) {
  assert_refused(FIXTURE("name_opencl"), HAL_INCOMPATIBLE, "'opencl', which torch reserves");
}
Test(registry, a_name_of_private_use_is_refused) {
  assert_refused(FIXTURE("name_privateuse2"), HAL_INCOMPATIBLE, "'privateuse2', which torch reserves");
}
Test(registry, a_malformed_name_is_refused) {
  assert_refused(FIXTURE("name_bad"), HAL_INCOMPATIBLE, "has the name 'Bad-Name'");
}
Test(registry, a_plugin_without_devices_is_refused) {
  assert_refused(FIXTURE("no_devices"), HAL_UNAVAILABLE, "no_devices found no device");
}
Test(registry, a_plugin_whose_probe_fails_is_refused_with_its_reason) {
  assert_refused(FIXTURE("absent"), HAL_UNAVAILABLE, "absent, probe: no card is plugged in");
}

Test(registry, a_plugin_that_crashes_while_it_is_loaded_is_refused) {
  assert_refused(FIXTURE("faults"), HAL_INCOMPATIBLE, "crashes while it is loaded (signal 11, ");
}
Test(registry, a_plugin_that_aborts_while_it_is_loaded_is_refused) {
  assert_refused(FIXTURE("crashes"), HAL_INCOMPATIBLE, "crashes while it is loaded (signal 6, ");
}
Test(registry, a_plugin_that_ends_the_process_while_it_is_loaded_is_refused) {
  assert_refused(FIXTURE("exits"), HAL_INCOMPATIBLE, "ends the process while it is loaded (exit status 0)");
}
Test(registry, the_trial_of_loading_can_be_turned_off, .signal = SIGABRT) {
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  cr_assert_eq(hal_registry_open(FIXTURE("crashes")), HAL_OK);
}
Test(registry, a_search_for_hardware_skips_a_plugin_that_crashes) {
  char directory[64];
  unsetenv("TORCH_BACKEND");
  link_fixtures((const char *const[]){"crashes", "tally", NULL}, directory);
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open(NULL));
  cr_assert_eq(hal_device_count(), 2);
}

Test(registry, a_folder_added_twice_is_searched_and_named_once) {
  unsetenv("HAL_PLUGIN_PATH");
  assert_ok(hal_registry_add_path("/nonexistent/a"));
  assert_ok(hal_registry_add_path("/nonexistent/b"));
  assert_ok(hal_registry_add_path("/nonexistent/a"));
  assert_fails(hal_registry_open("warp"), HAL_NOT_FOUND, "libhal_warp.so in /nonexistent/a, /nonexistent/b; check");
}

Test(registry, when_none_can_be_opened_each_is_named_with_its_cause) {
  assert_fails(hal_registry_open(FIXTURE("absent") "," FIXTURE("half_event")), HAL_UNAVAILABLE,
               "no card is plugged in");
  cr_assert_not_null(strstr(hal_error_message(), "event_record"));
}

Test(registry, a_plugin_named_twice_is_active_once) {
  assert_ok(hal_registry_open(FIXTURE("five") "," FIXTURE("five") "," FIXTURE("five_again")));
  cr_assert_eq(hal_registry_plugin_count(), 1);
  cr_assert_not_null(strstr(hal_registry_report(), "active already"));
}

Test(registry, devices_of_several_plugins_share_one_range_in_the_order_of_the_list) {
  int32_t plugin, ordinal;
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  assert_ok(hal_registry_open(FIXTURE("tally") ", " FIXTURE("five") "," FIXTURE("tally_two")));
  cr_assert_eq(hal_device_count(), 6);
  assert_ok(hal_device_locate(3, &plugin, &ordinal));
  cr_assert_eq(plugin, 1);
  cr_assert_eq(ordinal, 1);
  assert_ok(hal_registry_plugin(2, &entry));
  cr_assert_str_eq(entry.name, "tally_two");
  cr_assert_eq(entry.first_device, 4);
}

Test(registry, a_process_has_at_most_64_devices) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  assert_ok(hal_registry_open(FIXTURE("many") "," FIXTURE("many_more") "," FIXTURE("five")));
  cr_assert_eq(hal_device_count(), HAL_MAX_DEVICES);
  cr_assert_eq(hal_registry_plugin_count(), 2);
  assert_ok(hal_registry_plugin(1, &entry));
  cr_assert_eq(entry.device_count, 24);
  assert_ok(hal_device_ensure(63));
  cr_assert_not_null(strstr(hal_registry_report(), "at most"));
}

Test(registry, a_second_open_with_the_same_list_is_ok_and_another_is_refused) {
  open_fixture("five");
  open_fixture("five");
  assert_ok(hal_registry_open(NULL));
  assert_fails(hal_registry_open(FIXTURE("tally")), HAL_FAILED_PRECONDITION, "is open already");
  cr_assert_eq(hal_device_count(), 2);
}

Test(registry, a_failed_open_can_be_followed_by_another) {
  cr_assert_neq(hal_registry_open(FIXTURE("half_event")), HAL_OK);
  open_fixture("five");
  cr_assert_str_empty(hal_registry_report());
}

Test(registry, TORCH_BACKEND_is_the_list_when_none_is_given) {
  setenv("TORCH_BACKEND", FIXTURE("five"), 1);
  assert_ok(hal_registry_open(NULL));
  cr_assert_eq(hal_device_count(), 2);
}

Test(registry, without_a_list_the_first_plugin_that_is_of_use_is_taken) {
  char directory[64];
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  unsetenv("TORCH_BACKEND");
  /* in the order of names: absent reports no hardware, half_event is refused, no_devices has none, on_request is
     used only if named */
  link_fixtures((const char *const[]){"absent", "half_event", "on_request", "no_devices", "tally", NULL}, directory);
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open(NULL));
  cr_assert_eq(hal_registry_plugin_count(), 1);
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_str_eq(entry.name, "tally");
  cr_assert_not_null(strstr(hal_registry_report(), "on request only; set TORCH_BACKEND=on_request"));
  cr_assert_not(hal_device_is_initialized(0));
}

Test(registry, a_plugin_on_request_is_selected_by_the_name_of_its_file) {
  char directory[64], from[PATH_MAX], to[PATH_MAX];
  unsetenv("TORCH_BACKEND");
  link_fixtures((const char *const[]){"five", NULL}, directory);
  snprintf(from, sizeof from, "%s/libhal_on_request.so", FIXTURE_DIR); /* its device type is on_request */
  snprintf(to, sizeof to, "%s/libhal_chosen.so", directory);
  cr_assert_eq(symlink(from, to), 0);
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open(NULL));
  cr_assert_not_null(strstr(hal_registry_report(), "on_request is used on request only; set TORCH_BACKEND=chosen"),
                     "%s", hal_registry_report());
}

Test(registry, without_any_plugin_of_use_there_are_no_devices_and_a_list_may_follow) {
  char directory[64];
  unsetenv("TORCH_BACKEND");
  unsetenv("HAL_PLUGIN_PATH");
  link_fixtures((const char *const[]){"on_request", NULL}, directory);
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open(NULL));
  cr_assert(hal_registry_is_open());
  cr_assert_eq(hal_device_count(), 0);
  assert_ok(hal_registry_open("on_request"));
  cr_assert_eq(hal_device_count(), 1);
}

Test(registry, close_shuts_down_and_later_use_is_refused) {
  open_fixture("tally");
  hal_stream_t *stream;
  hal_event_t *event;
  static void *plugins_event; /* it cannot be destroyed after the shutdown; it is reachable, so the sanitizer reports
                                 no leak */
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_event_create(0, 0, &event));
  plugins_event = event->handle;
  hal_registry_close();
  hal_registry_close();
  assert_fails(hal_device_ensure(0), HAL_FAILED_PRECONDITION, "shut down");
  assert_fails(hal_event_query(event), HAL_FAILED_PRECONDITION, "shut down");
  hal_event_destroy(event);
  cr_assert_not_null(plugins_event);
  assert_fails(hal_registry_open(FIXTURE("five")), HAL_FAILED_PRECONDITION, "shut down");
}
