/* failing.c: a layer between the OpenCL loader and the driver (OPENCL_LAYERS) that makes the n-th launch fail, which
 * hardware does not do on request.
 * CL_FAIL_LAUNCH=n, CL_FAIL_CODE=the driver's error. CL_FAIL_LATE=1: the launch is accepted and fails when it runs.
 * CL_FAIL_WAIT=1: no call can wait; CL_FAIL_WAIT=2: only clFinish can. CL_FAIL_FLUSH=1: clFlush fails.
 * Command buffers: CL_FAIL_BUFFERS=1: one is replayed without its first launch; 2: with its second launch first; 3:
 * none can be created; 4: after the first two, no queue is compatible. The layer counts the requests.
 * CL_FAIL_BUILD=n: the compiler terminates the process in the n-th build, after its work. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cl_icd_dispatch *below;
static cl_icd_dispatch own;
long launches, buffers_queued;
static cl_event failed; /* retained until the process exits */

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
  cl_int status;
  memcpy(&status, value, sizeof status);
  if (status > CL_COMPLETE)
    return code; /* a failed command no longer writes: a caller that is notified may free its memory */
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

static CL_API_ENTRY cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *devices,
                                             const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                             void *data) {
  static long builds;
  const cl_int code = below->clBuildProgram(program, count, devices, options, notify, data);
  if (++builds == setting("CL_FAIL_BUILD")) _exit(86);
  return code;
}

/* ---- command buffers ---- */
static clCreateCommandBufferKHR_fn create_below;
static clCommandNDRangeKernelKHR_fn record_below;
static clEnqueueCommandBufferKHR_fn enqueue_below;
static long recorded; /* in the command buffer that was created last */
static cl_kernel held;
static size_t held_global[3], held_local[3];

static CL_API_ENTRY cl_command_buffer_khr CL_API_CALL create(cl_uint count, const cl_command_queue *queues,
                                                             const cl_command_buffer_properties_khr *properties,
                                                             cl_int *code) {
  recorded = 0;
  if (setting("CL_FAIL_BUFFERS") != 3) return create_below(count, queues, properties, code);
  *code = CL_INVALID_PROPERTY;
  return NULL;
}

static CL_API_ENTRY cl_int CL_API_CALL record(cl_command_buffer_khr buffer, cl_command_queue queue,
                                              const cl_ndrange_kernel_command_properties_khr *properties,
                                              cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                              const size_t *global, const size_t *local, cl_uint count,
                                              const cl_sync_point_khr *list, cl_sync_point_khr *point,
                                              cl_mutable_command_khr *command) {
  const long number = ++recorded, how = setting("CL_FAIL_BUFFERS");
  if (number == 1 && (how == 1 || how == 2)) {
    held = kernel;
    memcpy(held_global, global, sizeof held_global);
    memcpy(held_local, local, sizeof held_local);
    return CL_SUCCESS;
  }
  const cl_int code =
      record_below(buffer, queue, properties, kernel, dimensions, offset, global, local, count, list, point, command);
  if (code || number != 2 || how != 2) return code;
  return record_below(buffer, queue, properties, held, 1, NULL, held_global, held_local, count, list, point, command);
}

static CL_API_ENTRY cl_int CL_API_CALL enqueue(cl_uint count, cl_command_queue *queues, cl_command_buffer_khr buffer,
                                               cl_uint wait_count, const cl_event *list, cl_event *event) {
  const cl_int incompatible = -1139; /* CL_INCOMPATIBLE_COMMAND_QUEUE_KHR */
  if (++buffers_queued > 2 && setting("CL_FAIL_BUFFERS") == 4) return incompatible;
  return enqueue_below(count, queues, buffer, wait_count, list, event);
}

static CL_API_ENTRY void *CL_API_CALL extension(cl_platform_id platform, const char *name) {
  void *const found = below->clGetExtensionFunctionAddressForPlatform(platform, name);
  union {
    void *address;
    clCreateCommandBufferKHR_fn create;
    clCommandNDRangeKernelKHR_fn record;
    clEnqueueCommandBufferKHR_fn enqueue;
  } of = {found}, by = {found}; /* ISO C has no cast between the two */
  if (!found) return found;
  if (strcmp(name, "clCreateCommandBufferKHR") == 0) create_below = of.create, by.create = create;
  if (strcmp(name, "clCommandNDRangeKernelKHR") == 0) record_below = of.record, by.record = record;
  if (strcmp(name, "clEnqueueCommandBufferKHR") == 0) enqueue_below = of.enqueue, by.enqueue = enqueue;
  return by.address;
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
  own.clEnqueueNDRangeKernel = launch; /* NULL is passed to the driver */
  own.clGetEventInfo = event_info;
  own.clWaitForEvents = wait_for_events;
  own.clFinish = finish;
  own.clFlush = flush;
  own.clBuildProgram = build;
  own.clGetExtensionFunctionAddressForPlatform = extension;
  *own_count = sizeof own / sizeof(void *);
  *layer = &own;
  return CL_SUCCESS;
}
