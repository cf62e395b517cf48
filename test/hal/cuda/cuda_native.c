/* Tests of the native handles of streams (hal_stream_native) on the CUDA plugin: work that users queue on them is
 * work of the stream. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "cuda_testing.h"
#include "native_testing.h"

static atomic_int open_gate;

static void wait_for_gate(void *unused) {
  (void)unused;
  while (!atomic_load(&open_gate)) native_nap(1);
}

static void hold(void *native) {
  int (*launch)(void *stream, void (*function)(void *), void *user_data);
  *(void **)&launch = driver_symbol("cuLaunchHostFunc");
  atomic_store(&open_gate, 0);
  cr_assert_eq(launch(native, wait_for_gate, NULL), 0);
}
static void release(void) { atomic_store(&open_gate, 1); }

Test(cuda_native, work_that_a_user_queues_on_the_handle_is_work_of_the_stream, .timeout = 60) {
  open_cuda();
  native_check(&(native_user_t){hold, release});
  close_opencl();
}
