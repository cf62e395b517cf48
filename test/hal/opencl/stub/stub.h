/* stub.h: an OpenCL library without a device. Its commands are accepted and do next to nothing but copies and fills, so that what is
 * counted is the plugin's own work; and it says wrong things on request: CL_STUB is a list of words, each may have "=number".
 *
 * It is libOpenCL.so.1 itself and no driver below a loader: nothing of the system is between. Commands of all queues end in their order,
 * `PENDING` commands after they were queued or when somebody waits. One thread may use it at a time. */
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

/* Whether CL_STUB has the word; its number, or 1, in `out_number` if that is not NULL. */
int stub_says(const char *word, unsigned long long *out_number);

/* What an object-making entry gives: NULL and CL_SUCCESS where CL_STUB has "null=<what>". */
void *stub_made(const char *what, void *object, cl_int *code);

/* Answers an information query with `size` bytes. */
cl_int stub_answer(const void *answer, size_t size, size_t room, void *value, size_t *out_size);

/* Gives the event of a command that was just queued. */
cl_int stub_queued(cl_event *event);

/* 1: commands are queued, and have no event. No word of CL_STUB, since looking there costs more than a launch. */
extern int stub_no_events;

struct _cl_mem {
  char *bytes;
  size_t size;
  int references, view;
};

#endif /* TEST_HAL_OPENCL_STUB_H_ */
