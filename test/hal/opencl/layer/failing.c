/* failing.c: a layer between the OpenCL loader and the driver (OPENCL_LAYERS) that lets the n-th launch fail, as hardware does on no
 * demand. CL_FAIL_LAUNCH=n, CL_FAIL_CODE=the driver's error; CL_FAIL_LATE=1: the launch is accepted and fails when it runs.
 * CL_FAIL_WAIT=1: no call can wait; CL_FAIL_WAIT=2: clFinish still can. CL_FAIL_FLUSH=1: clFlush fails. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>

static const cl_icd_dispatch *below;
static cl_icd_dispatch own;
static long launches;
static cl_event failed; /* kept for as long as the process lives */

static long setting(const char *name) {
  const char *const text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

static CL_API_ENTRY cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                              const size_t *offset, const size_t *global, const size_t *local,
                                              cl_uint count, const cl_event *list, cl_event *event) {
  const int chosen = ++launches == setting("CL_FAIL_LAUNCH"), late = setting("CL_FAIL_LATE") != 0;
  if (chosen && !late) return (cl_int)setting("CL_FAIL_CODE");
  const cl_int code =
      below->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, list, event);
  if (chosen && !code && event) {
    failed = *event;
    below->clRetainEvent(failed);
  }
  return code;
}

static CL_API_ENTRY cl_int CL_API_CALL event_info(cl_event event, cl_event_info what, size_t room, void *value,
                                                  size_t *size) {
  const cl_int code = below->clGetEventInfo(event, what, room, value, size);
  if (code || what != CL_EVENT_COMMAND_EXECUTION_STATUS || !failed || event != failed || !value) return code;
  const cl_int told = (cl_int)setting("CL_FAIL_CODE");
  memcpy(value, &told, sizeof told);
  return CL_SUCCESS;
}

static CL_API_ENTRY cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event *events) {
  return setting("CL_FAIL_WAIT") ? CL_OUT_OF_RESOURCES : below->clWaitForEvents(count, events);
}

static CL_API_ENTRY cl_int CL_API_CALL finish(cl_command_queue queue) {
  return setting("CL_FAIL_WAIT") == 1 ? CL_OUT_OF_RESOURCES : below->clFinish(queue);
}

static CL_API_ENTRY cl_int CL_API_CALL flush(cl_command_queue queue) {
  return setting("CL_FAIL_FLUSH") ? CL_OUT_OF_HOST_MEMORY : below->clFlush(queue);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t room, void *value, size_t *size) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  if (what != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (value && room < sizeof version) return CL_INVALID_VALUE;
  if (value) memcpy(value, &version, sizeof version);
  if (size) *size = sizeof version;
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch *target, cl_uint *own_count,
                                            const cl_icd_dispatch **layer) {
  if (!target || !own_count || !layer || count < sizeof own / sizeof(void *)) return CL_INVALID_VALUE;
  below = target;
  own.clEnqueueNDRangeKernel = launch; /* what is NULL goes straight on */
  own.clGetEventInfo = event_info;
  own.clWaitForEvents = wait_for_events;
  own.clFinish = finish;
  own.clFlush = flush;
  *own_count = sizeof own / sizeof(void *);
  *layer = &own;
  return CL_SUCCESS;
}
