/* stub.h: an OpenCL library without a device. It accepts commands and executes only copies and fills, so that
 * counters show the plugin's own work. It reports invalid properties on request: CL_STUB is a list of words, each
 * may have "=number".
 *
 * It replaces libOpenCL.so.1 itself, without the system's loader. Commands of all queues complete in their order,
 * `PENDING` commands after they were queued or when a caller waits. Only one thread may use it at a time. */
#ifndef TEST_HAL_OPENCL_STUB_H_
#define TEST_HAL_OPENCL_STUB_H_

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY(type) CL_API_ENTRY type CL_API_CALL

enum { PENDING = 32 };

/* Returns whether CL_STUB has the word; writes its number, or 1, to `out_number` if that is not NULL. */
int stub_says(const char *word, unsigned long long *out_number);

/* The result of a function that creates objects: NULL and CL_SUCCESS if CL_STUB has "null=<what>". */
void *stub_made(const char *what, void *object, cl_int *code);

/* Returns `size` bytes from an information query. */
cl_int stub_answer(const void *answer, size_t size, size_t room, void *value, size_t *out_size);

/* Returns the event of a command that was just queued. */
cl_int stub_queued(cl_event *event);

/* 1: commands are queued without an event. This is not a word of CL_STUB, because the lookup takes longer than a
   launch. */
extern int stub_no_events;

struct _cl_mem {
  char *bytes;
  size_t size;
  int references, view;
};

#endif /* TEST_HAL_OPENCL_STUB_H_ */
