/* Tests of events between processes, with the HAL's functions on the CUDA plugin and with the mock driver directly. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "cuda_testing.h"
#include "shared_event_testing.h"

TestSuite(cuda_event, .init = begin_shared, .fini = close_opencl, .timeout = 120);

Test(cuda_event, an_event_of_one_process_is_waited_for_and_recorded_by_another) { share_an_event(open_cuda); }

Test(cuda_event, invalid_handles_and_those_of_this_process_are_refused) {
  hal_event_t *event = NULL, *opened = NULL;
  ipc_handle_t handle = {.size = 64};
  open_cuda();
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT,
               "check that the process is alive");
  assert_ok(hal_event_create(0, HAL_EVENT_INTERPROCESS | HAL_EVENT_BLOCKING, &event));
  assert_ok(hal_event_ipc_export(event, handle.bytes, sizeof handle.bytes, &handle.size));
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_INTERNAL, "is not this process");
  cr_assert_null(opened);
  hal_event_destroy(event);
}
