/* Tests of device.h: device numbering, first use, the thread's current device, forks. */
#include "support.h"

#include "device/numa.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

Test(device, an_index_out_of_range_names_index_and_count) {
  hal_device_info_t info = {.struct_size = sizeof info};
  open_fixture("five");
  assert_fails(hal_device_ensure(2), HAL_OUT_OF_RANGE, "device 2 is out of range: this process has 2 (five 0 to 1)");
  assert_fails(hal_device_ensure(-1), HAL_OUT_OF_RANGE, "device -1 is out of range");
  assert_fails(hal_device_ensure(-1), HAL_OUT_OF_RANGE, "expected an index in [0, 2)"); /* right below and above */
  assert_fails(hal_device_ensure(2), HAL_OUT_OF_RANGE, "expected an index in [0, 2)");
  assert_fails(hal_device_info(64, &info), HAL_OUT_OF_RANGE, "device 64");
  assert_fails(hal_device_set_current(2), HAL_OUT_OF_RANGE, "device 2");
  assert_fails(hal_device_synchronize(1000), HAL_OUT_OF_RANGE, "device 1000");
}

Test(device, the_plugin_is_initialized_by_the_first_use) {
  open_fixture("tally");
  cr_assert_not(hal_device_is_initialized(0));
  assert_ok(hal_device_ensure(1));
  cr_assert(hal_device_is_initialized(1));
  cr_assert_not(hal_device_is_initialized(0));
  assert_ok(hal_device_ensure(1));
}

Test(device, statistics_of_an_unused_device_are_zero_and_do_not_initialize_it) {
  hal_memory_stats_t stats;
  memset(&stats, 0xff, sizeof stats);
  stats.struct_size = sizeof stats;
  open_fixture("tally");
  assert_ok(hal_memory_stats(1, &stats));
  cr_assert_eq(stats.allocated_bytes[HAL_POOL_ALL].current, 0);
  cr_assert_eq(stats.num_ooms, 0);
  assert_ok(hal_memory_reset_peak_stats(1));
  assert_ok(hal_memory_reset_accumulated_stats(1));
  cr_assert_not(hal_device_is_initialized(1));
  assert_fails(hal_memory_stats(2, &stats), HAL_OUT_OF_RANGE, "device 2");
  assert_fails(hal_memory_reset_peak_stats(-1), HAL_OUT_OF_RANGE, "device -1");
}

Test(device, a_failed_init_is_reported_at_every_use) {
  open_fixture("no_driver");
  cr_assert_eq(hal_device_count(), 1);
  for (int i = 0; i < 2; i++)
    assert_fails(hal_device_ensure(0), HAL_UNAVAILABLE, "the driver is not running; start it");
  cr_assert_not(hal_device_is_initialized(0));
  cr_assert_eq(hal_device_flags(0), 0);
}

Test(device, info_comes_from_the_plugin_or_its_default) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  assert_ok(hal_device_info(1, &info));
  cr_assert_str_eq(info.name, "tally 1");
  cr_assert_str_eq(info.dialects, "tally");
  cr_assert_eq(hal_device_flags(1), HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_FP64);
  info.struct_size = sizeof info;
  assert_ok(hal_device_info(3, &info));
  cr_assert_str_eq(info.name, "device 1");
  cr_assert_eq(info.flags, 0);
  cr_assert_eq(hal_device_flags(99), 0);
}

Test(device, info_is_filled_only_as_far_as_the_caller_knows_it) {
  hal_device_info_t info;
  open_fixture("tally");
  memset(&info, 0xA5, sizeof info);
  info.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, name);
  assert_ok(hal_device_info(0, &info));
  cr_assert_str_eq(info.name, "tally 0");
  cr_assert_eq(info.flags, UINT64_C(0xA5A5A5A5A5A5A5A5));
}

Test(device, info_is_whole_before_and_after_the_first_use) {
  hal_device_info_t before = {.struct_size = sizeof before}, after = before;
  setenv("HAL_FAKE_DEVICES", "1", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
  assert_ok(hal_device_info(0, &before));
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_device_info(0, &after));
  cr_assert_str_eq(before.driver_version, "0.1.0");
  cr_assert_arr_eq(&before, &after, HAL_STRUCT_SIZE(hal_device_info_t, max_binding));
}

/* A folder that describes one device in the format of Linux. */
static void describe_device(char *folder, const char *address, const char *node) {
  char path[256];
  cr_assert_not_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/%s", folder, address);
  cr_assert_eq(mkdir(path, 0700), 0);
  strcat(path, "/numa_node");
  FILE *const file = fopen(path, "w");
  cr_assert_not_null(file);
  fputs(node, file);
  fclose(file);
}

Test(device, a_numa_node_comes_from_the_address_if_the_plugin_reports_none) {
  char folder[] = "/tmp/hal_numa_XXXXXX", single[] = "/tmp/hal_numa_XXXXXX";
  describe_device(folder, "0001:c1:0b.3", "2\n");
  describe_device(single, "0001:c1:0b.3", "-1\n");
  const hal_device_info_t at = {.pci_domain = 1, .pci_bus = 0xc1, .pci_device = 11, .pci_function = 3};
  hal_device_info_t info = at;
  hal_numa_complete(folder, &info);
  cr_assert(info.known == HAL_DEVICE_KNOWS_NUMA_NODE && info.numa_node == 2, "0x%x, %d", info.known, info.numa_node);
  info = at, info.known = HAL_DEVICE_KNOWS_NUMA_NODE, info.numa_node = 5; /* the plugin's stays */
  hal_numa_complete(folder, &info);
  cr_assert_eq(info.numa_node, 5);
  info = at;
  hal_numa_complete(single, &info); /* a machine with one node */
  cr_assert(!info.known && !info.numa_node);
  info = at, info.pci_function = 0; /* another device */
  hal_numa_complete(folder, &info);
  cr_assert_not(info.known);
  info = (hal_device_info_t){.struct_size = sizeof info}; /* no address */
  hal_numa_complete(folder, &info);
  cr_assert_not(info.known);
}

static void *use_another_device(void *unused) {
  (void)unused;
  cr_assert_eq(hal_device_current(), 0);
  hal_device_set_current(1);
  return NULL;
}

Test(device, every_thread_has_its_own_current_device) {
  pthread_t thread;
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  assert_ok(hal_device_set_current(3));
  pthread_create(&thread, NULL, use_another_device, NULL);
  pthread_join(thread, NULL);
  cr_assert_eq(hal_device_current(), 3);
}

Test(device, exchange_returns_the_previous_device_and_ignores_an_index_out_of_range) {
  open_fixture("five");
  cr_assert_eq(hal_device_exchange(1), 0);
  cr_assert_eq(hal_device_exchange(7), 1);
  cr_assert_eq(hal_device_current(), 1);
  cr_assert_eq(hal_device_exchange(-1), 1);
  cr_assert_eq(hal_device_current(), 1);
}

Test(device, peers_of_one_plugin_are_queried_and_others_have_no_access) {
  int32_t accessible = -1;
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  assert_ok(hal_device_can_access_peer(0, 1, &accessible));
  cr_assert_eq(accessible, 1);
  assert_ok(hal_device_can_access_peer(1, 0, &accessible));
  cr_assert_eq(accessible, 0);
  assert_ok(hal_device_can_access_peer(0, 2, &accessible));
  cr_assert_eq(accessible, 0);
  assert_ok(hal_device_can_access_peer(1, 1, &accessible));
  cr_assert_eq(accessible, 1);
  assert_fails(hal_device_can_access_peer(0, 4, &accessible), HAL_OUT_OF_RANGE, "device 4");
}

Test(device, synchronize_works_with_and_without_streams) {
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  for (int32_t device = 0; device < 4; device++) assert_ok(hal_device_synchronize(device));
}

/* Runs `check` in a forked child and returns its exit status. */
static int in_child(int (*check)(void)) {
  int status = -1;
  fflush(NULL);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) _exit(check());
  cr_assert_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int device_works(void) { return hal_device_ensure(0) != HAL_OK || hal_device_in_bad_fork(); }

static int device_is_refused(void) {
  static const char sentence[] =
      "Cannot re-initialize tally in forked subprocess. To use tally with multiprocessing, you must "
      "use the 'spawn' start method";
  hal_stream_t *stream;
  if (!hal_device_in_bad_fork()) return 1;
  if (hal_device_ensure(0) != HAL_FAILED_PRECONDITION) return 2;
  if (strcmp(hal_error_message(), sentence)) return 3;
  if (hal_stream_current(0, &stream) != HAL_FAILED_PRECONDITION) return 4; /* the parent has used this device */
  if (hal_device_ensure(1) != HAL_FAILED_PRECONDITION) return 5;           /* and not this one */
  if (hal_device_count() != 2 || hal_device_is_initialized(0)) return 6;
  hal_registry_close(); /* must not reach the driver */
  return 0;
}

Test(device, a_child_forked_before_the_first_use_may_use_devices) {
  open_fixture("tally");
  cr_assert_eq(in_child(device_works), 0);
  assert_ok(hal_device_ensure(0));
}

Test(device, a_child_forked_after_the_first_use_is_refused_with_torchs_sentence) {
  open_fixture("tally");
  assert_ok(hal_device_ensure(0));
  cr_assert_eq(in_child(device_is_refused), 0);
  cr_assert_not(hal_device_in_bad_fork());
  assert_ok(hal_device_ensure(0));
}
