/* queue.c: contexts, queues, events and launches of the stub. An event is its command's number. */
#include "stub.h"

struct _cl_context {
  int unused;
};
struct _cl_command_queue {
  int unused;
};
struct _cl_event {
  uint64_t number; /* 0: a user event */
  cl_int status;   /* of a user event */
};

enum { EVENTS = 1 << 16 };

static struct _cl_context the_context;
static struct _cl_event events[EVENTS];
static uint64_t queued, done;

int stub_no_events;

cl_int stub_queued(cl_event *event) {
  queued++;
  if (queued > done + PENDING) done = queued - PENDING;
  if (!event) return CL_SUCCESS;
  *event = &events[queued % EVENTS];
  (*event)->number = queued;
  if (stub_no_events) *event = NULL;
  return CL_SUCCESS;
}

ENTRY(cl_context)
clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                void (*told)(const char *, const void *, size_t, void *), void *user_data, cl_int *code) {
  (void)properties, (void)count, (void)devices, (void)told, (void)user_data;
  return stub_made("context", &the_context, code);
}

ENTRY(cl_int) clReleaseContext(cl_context context) { return context ? CL_SUCCESS : CL_INVALID_CONTEXT; }

ENTRY(cl_command_queue)
clCreateCommandQueueWithProperties(cl_context context, cl_device_id device, const cl_queue_properties *list,
                                   cl_int *code) {
  (void)context, (void)device, (void)list;
  return stub_made("queue", malloc(sizeof(struct _cl_command_queue)), code);
}

ENTRY(cl_command_queue)
clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *code) {
  (void)properties;
  return clCreateCommandQueueWithProperties(context, device, NULL, code);
}

ENTRY(cl_int) clReleaseCommandQueue(cl_command_queue queue) {
  free(queue);
  return CL_SUCCESS;
}

ENTRY(cl_int) clFlush(cl_command_queue queue) { return queue ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE; }

ENTRY(cl_int) clFinish(cl_command_queue queue) {
  done = queued;
  return queue ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

ENTRY(cl_int) clRetainEvent(cl_event event) { return event ? CL_SUCCESS : CL_INVALID_EVENT; }
ENTRY(cl_int) clReleaseEvent(cl_event event) { return event ? CL_SUCCESS : CL_INVALID_EVENT; }

ENTRY(cl_int) clGetEventInfo(cl_event event, cl_event_info what, size_t room, void *value, size_t *size) {
  if (!event) return CL_INVALID_EVENT;
  if (what != CL_EVENT_COMMAND_EXECUTION_STATUS) return CL_INVALID_VALUE;
  if (room < sizeof(cl_int) || !value || size) return CL_INVALID_VALUE; /* no caller does this */
  *(cl_int *)value = event->number ? (event->number <= done ? CL_COMPLETE : CL_QUEUED) : event->status;
  return CL_SUCCESS;
}

ENTRY(cl_int)
clGetEventProfilingInfo(cl_event event, cl_profiling_info what, size_t room, void *value, size_t *size) {
  if (!event) return CL_INVALID_EVENT;
  cl_ulong time = event->number * 1000 + (what == CL_PROFILING_COMMAND_END ? 500 : 0);
  if (stub_says("time-backwards", NULL)) time = (cl_ulong)1 << 40 >> (event->number & 15);
  return stub_answer(&time, sizeof time, room, value, size);
}

ENTRY(cl_int) clWaitForEvents(cl_uint count, const cl_event *list) {
  for (cl_uint i = 0; i < count; i++) {
    if (!list[i]) return CL_INVALID_EVENT;
    if (list[i]->number > done) done = list[i]->number;
  }
  return CL_SUCCESS;
}

ENTRY(cl_event) clCreateUserEvent(cl_context context, cl_int *code) {
  (void)context;
  cl_event event = malloc(sizeof *event);
  if (event) *event = (struct _cl_event){.status = CL_SUBMITTED};
  return stub_made("user-event", event, code);
}

ENTRY(cl_int) clSetUserEventStatus(cl_event event, cl_int status) {
  if (!event) return CL_INVALID_EVENT;
  event->status = status;
  return CL_SUCCESS;
}

ENTRY(cl_int)
clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)count, (void)list;
  return stub_queued(event);
}

ENTRY(cl_int)
clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)count, (void)list;
  return stub_queued(event);
}

ENTRY(cl_int)
clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                       const size_t *global, const size_t *local, cl_uint count, const cl_event *list,
                       cl_event *event) {
  (void)queue, (void)kernel, (void)dimensions, (void)offset, (void)global, (void)local, (void)count, (void)list;
  return stub_queued(event);
}
