/* command_buffer.c: graphs by cl_khr_command_buffer, one call for all launches of a recording. Only launches are
 * recorded, on an in-order queue, because their functions are the same in all versions of the extension. The driver's
 * implementation is tested once per device. */
#include <string.h>

#include "graph.h"

/* The functions of the extension's first version, 0.9.0; created by the platform, so that one table serves all devices.
 * */
typedef struct calls_s {
  clCreateCommandBufferKHR_fn create;
  clCommandNDRangeKernelKHR_fn launch;
  clFinalizeCommandBufferKHR_fn finalize;
  clEnqueueCommandBufferKHR_fn enqueue;
  clReleaseCommandBufferKHR_fn release;
} calls_t;
static const char *const names[] = {"clCreateCommandBufferKHR", "clCommandNDRangeKernelKHR",
                                    "clFinalizeCommandBufferKHR", "clEnqueueCommandBufferKHR",
                                    "clReleaseCommandBufferKHR"};

static calls_t calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { UNKNOWN, WORKS, NONE } states[OCL_MAX_DEVICES];

static int find_calls(void) {
  void *symbols[sizeof names / sizeof *names];
  _Static_assert(sizeof symbols == sizeof calls, "the names are those of calls_t, in its order");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(symbols[i] = icd.clGetExtensionFunctionAddressForPlatform(ocl.platform, names[i]))) return 0;
  memcpy(&calls, symbols, sizeof calls); /* ISO C has no cast to a function pointer */
  return 1;
}

/* Returns whether the driver supports simultaneous use of a graph, and this plugin's queues, which are in order, with
 * profiling. */
static int has_what_is_needed(const ocl_device_t *device) {
  cl_device_command_buffer_capabilities_khr can = 0;
  cl_command_queue_properties needed = 0;
  return ocl_device_has(device->id, "cl_khr_command_buffer") &&
         !icd.clGetDeviceInfo(device->id, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR, sizeof can, &can, NULL) &&
         (can & CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR) &&
         (icd.clGetDeviceInfo(device->id, CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR, sizeof needed,
                              &needed, NULL) ||
          !(needed & ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE));
}

static cl_int make(const hal_plugin_graph_t *graph, cl_command_buffer_khr *out_buffer) {
  static const cl_command_buffer_properties_khr properties[] = {CL_COMMAND_BUFFER_FLAGS_KHR,
                                                                CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0};
  cl_command_queue queue = ocl.devices[graph->device].queue;
  cl_int code = CL_SUCCESS;
  cl_command_buffer_khr buffer = calls.create(1, &queue, properties, &code);
  if (!code && !buffer) code = CL_INVALID_COMMAND_BUFFER_KHR;
  if (code) return code;
  for (uint32_t i = 0; i < graph->count && !code; i++) {
    const ocl_node_t *const node = &graph->nodes[i];
    code = calls.launch(buffer, NULL, NULL, node->handle, node->dimensions, NULL, node->global, node->local, 0, NULL,
                        NULL, NULL);
  }
  if (!code) code = calls.finalize(buffer);
  if (code)
    calls.release(buffer);
  else
    *out_buffer = buffer;
  return code;
}

cl_int ocl_command_buffer_enqueue(cl_command_buffer_khr buffer, cl_command_queue queue, cl_event *event) {
  return calls.enqueue(1, &queue, buffer, 0, NULL, event);
}

void ocl_command_buffer_release(cl_command_buffer_khr buffer) {
  if (buffer) calls.release(buffer);
}

/* ---- the test --------------------------------------------------------------------------------------------------- */

enum { TRIAL_BYTES = 4096, TRIAL_RUNS = 2 };

static hal_status_t add_fill(hal_plugin_graph_t *graph, void *to, unsigned char value) {
  ocl_own_launch_t own;
  const hal_status_t status = ocl_own_fill(graph->device, to, &value, 1, TRIAL_BYTES, &own);
  return status ? status : ocl_graph_add(graph, own.kernel, &own.launch);
}

static hal_status_t add_copy(hal_plugin_graph_t *graph, void *to, const void *from) {
  ocl_own_launch_t own;
  const hal_status_t status = ocl_own_copy(graph->device, to, from, TRIAL_BYTES, &own);
  return status ? status : ocl_graph_add(graph, own.kernel, &own.launch);
}

/* Records: second = first; first = 1; third = first; first = 2. One kernel with several arguments; the results depend
 * on the order. */
static hal_status_t record_trial(hal_plugin_graph_t *graph, unsigned char *memory) {
  hal_status_t status = add_copy(graph, memory + TRIAL_BYTES, memory);
  if (!status) status = add_fill(graph, memory, 1);
  if (!status) status = add_copy(graph, memory + 2 * TRIAL_BYTES, memory);
  return status ? status : add_fill(graph, memory, 2);
}

static int holds(int32_t device, const unsigned char *memory, unsigned char value) {
  unsigned char bytes[TRIAL_BYTES];
  if (hal_plugin_memory_copy(NULL, bytes, HAL_HOST, memory, device, sizeof bytes)) return 0;
  for (size_t i = 0; i < sizeof bytes; i++)
    if (bytes[i] != value) return 0;
  return 1;
}

static cl_int run_trial(int32_t device, cl_command_buffer_khr buffer) {
  cl_event done[TRIAL_RUNS] = {NULL};
  cl_int code = CL_SUCCESS;
  const cl_command_queue queue = ocl.devices[device].queue;
  for (int i = 0; i < TRIAL_RUNS && !code; i++) code = ocl_command_buffer_enqueue(buffer, queue, &done[i]);
  if (!code && !done[TRIAL_RUNS - 1]) code = CL_INVALID_EVENT;
  if (!code) code = ocl_event_wait(done[TRIAL_RUNS - 1], queue); /* the wait that streams use */
  for (int i = 0; i < TRIAL_RUNS; i++)
    if (done[i]) icd.clReleaseEvent(done[i]);
  return code;
}

/* Returns whether two launches of a recorded test, queued together, have the expected results. */
static int passes_trial(int32_t device) {
  void *memory = NULL;
  unsigned char *at;
  cl_command_buffer_khr buffer = NULL;
  hal_plugin_graph_t *const graph = ocl_graph_create(device);
  int works = graph && !ocl_memory_alloc(device, 3 * TRIAL_BYTES, 0, &memory);
  at = memory;
  works = works && !hal_plugin_memory_fill(NULL, device, at, "\3", 1, 3 * TRIAL_BYTES) && !record_trial(graph, at) &&
          !make(graph, &buffer) && !run_trial(device, buffer);
  works = works && holds(device, at, 2) && holds(device, at + TRIAL_BYTES, 2) && holds(device, at + 2 * TRIAL_BYTES, 1);
  ocl_command_buffer_release(buffer);
  if (graph) ocl_graph_release(graph);
  if (memory) hal_plugin_memory_free(device, memory);
  return works;
}

static int works_on(int32_t device) {
  pthread_mutex_lock(&lock);
  if (states[device] == UNKNOWN) {
    const int offered = ocl.devices[device].wants_buffers && has_what_is_needed(&ocl.devices[device]) && find_calls();
    states[device] = offered && passes_trial(device) ? WORKS : NONE;
    if (offered && states[device] == NONE)
      hal_host->log(HAL_LOG_WARNING,
                    "opencl: the driver offers cl_khr_command_buffer, which does not work here; graphs queue their "
                    "launches one by one");
  }
  const int works = states[device] == WORKS;
  pthread_mutex_unlock(&lock);
  return works;
}

void ocl_command_buffer_create(const hal_plugin_graph_t *graph, cl_command_buffer_khr *out_buffer) {
  *out_buffer = NULL;
  if (graph->count && works_on(graph->device) && make(graph, out_buffer)) *out_buffer = NULL;
}
