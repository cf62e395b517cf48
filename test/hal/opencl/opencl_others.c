/* Tests of the OpenCL plugin with other plugins in one process: copies among fake, opencl and a plugin of five
 * functions, in all directions, at any alignment. */
#include "opencl_testing.h"

TestSuite(opencl_others, .fini = close_opencl, .timeout = 120);

Test(opencl_others, copies_go_from_each_device_to_each_at_any_alignment) {
  enum { BYTES = 5000, DEVICES = 16 };
  static const size_t offsets[] = {0, 1, 130}, sizes[] = {1, 127, 4099};
  char sent[BYTES], back[BYTES], *memory[DEVICES];
  open_plugins("opencl,fake," FIXTURE("five"));
  const int32_t count = hal_device_count();
  cr_assert(count >= 3 && count <= DEVICES, "%d devices", (int)count);
  for (int32_t device = 0; device < count; device++) memory[device] = device_bytes(device, BYTES);
  for (int32_t from = 0; from < count; from++)
    for (int32_t to = 0; to < count; to++)
      for (size_t k = 0; k < 9 && from != to; k++) {
        const size_t size = sizes[k / 3], there = offsets[k % 3], here = offsets[(k + 1) % 3];
        for (size_t i = 0; i < BYTES; i++) sent[i] = (char)(i * 7 + k + (size_t)from);
        memset(back, 0x55, sizeof back);
        assert_ok(hal_memory_copy(NULL, memory[to], to, back, HAL_HOST, BYTES));
        assert_ok(hal_memory_copy(NULL, memory[from], from, sent, HAL_HOST, BYTES));
        assert_ok(hal_device_synchronize(from));
        assert_ok(hal_device_synchronize(to));
        assert_ok(hal_memory_copy(NULL, memory[to] + there, to, memory[from] + here, from, size));
        assert_ok(hal_device_synchronize(from));
        assert_ok(hal_memory_copy(NULL, back, HAL_HOST, memory[to], to, BYTES));
        assert_ok(hal_device_synchronize(to));
        for (size_t i = 0; i < BYTES; i++)
          cr_assert_eq(back[i], i >= there && i < there + size ? sent[i - there + here] : 0x55,
                       "from %d to %d, %zu bytes, byte %zu", (int)from, (int)to, size, i);
      }
}
