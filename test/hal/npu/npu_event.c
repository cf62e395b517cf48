/* Tests of events between processes on the Level Zero plugin, whose driver supports them for one record only. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "npu_testing.h"
#include "plugin/call.h"
#include "shared_event_testing.h"

TestSuite(npu_event, .init = begin_shared, .fini = close_opencl, .timeout = 120);

Test(npu_event, an_event_of_one_process_is_waited_for_and_recorded_by_another) { share_an_event(open_npu); }

Test(npu_event, a_wait_for_a_process_that_has_exited_fails_and_later_work_runs) { wait_for_the_ended(open_npu); }

Test(npu_event, invalid_handles_and_those_of_this_process_are_refused) { refuse_invalid_events(open_npu); }

Test(npu_event, streams_are_spread_over_the_queues_of_the_device) {
  open_npu();
  for (int i = 0; i < 4; i++) {
    hal_stream_t *stream;
    assert_ok(hal_stream_acquire(0, 0, &stream));
  }
  cr_assert_eq(queues_used(), 0xFu);
}

Test(npu_event, a_stream_takes_the_queue_that_its_descriptor_names) {
  hal_stream_desc_t desc = HAL_STREAM_DESC(0);
  hal_plugin_stream_t *stream = NULL;
  open_npu();
  assert_ok(hal_device_ensure(0));
  hal_plugin_t *const plugin = &hal_registry.plugins[0];
  const uint32_t before = queues_used();
  cr_assert_eq(before & 8u, 0);
  desc.flags = HAL_STREAM_QUEUE, desc.queue = 3;
  assert_ok(hal_call_stream_create(plugin, 0, &desc, &stream));
  cr_assert_eq(queues_used(), before | 8u);
  assert_ok(hal_call_stream_destroy(plugin, stream));
  desc.queue = 4;
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_stream_create, hal_call_stream_create(plugin, 0, &desc, &stream)),
               HAL_INVALID_ARGUMENT, "invalid queue 4");
}
