/* Tests of HAL_VISIBLE_DEVICES and <NAME>_VISIBLE_DEVICES: which devices of a plugin a process uses, in which order. */
#include "support.h"

#include <hal/memory.h>
#include <string.h>

static void assert_refused(const char *list, hal_status_t status, const char *text) {
  setenv("HAL_VISIBLE_DEVICES", list, 1);
  assert_fails(hal_registry_open(FIXTURE("later")), status, text); /* it has three devices */
  cr_assert(strchr(hal_error_message(), ';'), "no cure in: %s", hal_error_message());
  cr_assert_eq(hal_device_count(), 0);
}

Test(visible_devices, invalid_lists_are_refused) {
  assert_refused("", HAL_UNAVAILABLE, "HAL_VISIBLE_DEVICES is empty, so later has no visible device");
  assert_refused("all", HAL_INVALID_ARGUMENT, "HAL_VISIBLE_DEVICES: 'all' is not a device's number");
  assert_refused("0,", HAL_INVALID_ARGUMENT, "'' is not a device's number");
  assert_refused("0,,1", HAL_INVALID_ARGUMENT, "'' is not a device's number");
  assert_refused("0 , ,1", HAL_INVALID_ARGUMENT, "'' is not a device's number");
  assert_refused(" ", HAL_INVALID_ARGUMENT, "'' is not a device's number");
  assert_refused("0 1", HAL_INVALID_ARGUMENT, "'0 1' is not a device's number");
  assert_refused("0,\n1", HAL_INVALID_ARGUMENT, "is not a device's number");
  assert_refused("+1", HAL_INVALID_ARGUMENT, "'+1' is not a device's number");
  assert_refused("-1", HAL_INVALID_ARGUMENT, "'-1' is not a device's number");
  assert_refused("1,1", HAL_INVALID_ARGUMENT, "device 1 is listed twice");
  assert_refused("0,3", HAL_OUT_OF_RANGE, "invalid device 3: later has 3; expected numbers in [0, 3)");
  assert_refused("99999999999999999999", HAL_OUT_OF_RANGE, "invalid device 99999999999999999999: later has 3");
}

Test(visible_devices, blanks_around_numbers_are_ignored) {
  setenv("HAL_VISIBLE_DEVICES", " 2 ,\t0", 1);
  assert_ok(hal_registry_open(FIXTURE("later")));
  cr_assert_eq(hal_device_count(), 2);
}

Test(visible_devices, a_plugins_own_list_takes_precedence) {
  setenv("HAL_VISIBLE_DEVICES", "1", 1);
  setenv("LATER_VISIBLE_DEVICES", "2,0", 1);
  assert_ok(hal_registry_open(FIXTURE("later") "," FIXTURE("five")));
  cr_assert_eq(hal_device_count(), 3);
  assert_fails(hal_device_ensure(3), HAL_OUT_OF_RANGE, "this process has 3 (later 0 to 1, five 2)");
  hal_stream_t *stream;
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_fails(hal_memory_allocate(2, stream, 64, &(hal_block_t *){NULL}), HAL_INVALID_ARGUMENT,
               "the stream of device later:2 (index 0) cannot be used for device five:1 (index 2)");
}

Test(visible_devices, memory_belongs_to_the_index_of_its_device) {
  const uint32_t five = 5;
  setenv("HAL_FAKE_DEVICES", "3", 1);
  setenv("FAKE_VISIBLE_DEVICES", "2,1", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
  cr_assert_eq(hal_device_count(), 2);
  for (int32_t device = 0; device < 2; device++) {
    hal_block_t *block;
    uint32_t number = 0;
    int32_t found = -1;
    assert_ok(hal_memory_allocate(device, NULL, 64, &block));
    void *const address = hal_memory_block_address(block);
    assert_ok(hal_memory_find(address, &found));
    cr_assert_eq(found, device);
    assert_ok(hal_memory_fill(NULL, device, address, &five, 4, 64));
    assert_ok(hal_memory_copy(NULL, &number, HAL_HOST, address, device, 4));
    assert_ok(hal_device_synchronize(device));
    cr_assert_eq(number, 5);
    hal_memory_release(block);
    found = -1;
    assert_ok(hal_memory_find(address, &found)); /* in no block: the plugin knows */
    cr_assert_eq(found, device);
  }
}
