/* Tests of the native handles of streams (hal_stream_native) on the OpenCL plugin: work that users queue on them is
 * work of the stream. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>

#include "native_testing.h"
#include "opencl_testing.h"

static cl_event gate;

static void *function(const char *name) {
  void *const loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_NOLOAD), *const found =
                                                                             loader ? dlsym(loader, name) : NULL;
  cr_assert_not_null(found, "%s", name);
  return found;
}

static void hold(void *native) {
  __typeof__(clGetCommandQueueInfo) *get_info;
  __typeof__(clCreateUserEvent) *create;
  __typeof__(clEnqueueBarrierWithWaitList) *barrier;
  *(void **)&get_info = function("clGetCommandQueueInfo");
  *(void **)&create = function("clCreateUserEvent");
  *(void **)&barrier = function("clEnqueueBarrierWithWaitList");
  cl_context context = NULL;
  cl_int code = get_info(native, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
  cr_assert_eq(code, CL_SUCCESS);
  gate = create(context, &code);
  cr_assert_eq(code, CL_SUCCESS);
  cr_assert_eq(barrier(native, 1, &gate, NULL), CL_SUCCESS);
}

static void release(void) {
  __typeof__(clSetUserEventStatus) *set;
  __typeof__(clReleaseEvent) *release_event;
  *(void **)&set = function("clSetUserEventStatus");
  *(void **)&release_event = function("clReleaseEvent");
  cr_assert_eq(set(gate, CL_COMPLETE), CL_SUCCESS);
  release_event(gate);
}

Test(opencl_native, work_that_a_user_queues_on_the_handle_is_work_of_the_stream, .timeout = 120) {
  open_plugins("opencl");
  native_check(&(native_user_t){hold, release});
  close_opencl();
}
