/* kernel.h: the suite's kernels, in one of the dialects "opencl-c", "cuda-c", or "host" for devices that are the host's
 * CPU; in other dialects by a compiler or from a pack. A case that needs them is skipped on other devices. Private to
 * hal/cts. */
#ifndef HAL_CTS_KERNEL_H_
#define HAL_CTS_KERNEL_H_

#include "cts.h"
#include "kernel_text.h"

enum { CTS_RAMP = 5000 /* elements of cts_ramp's result in the cases */ };

#define CTS_NO_LANGUAGE                                                                                           \
  "the suite has kernels in \"opencl-c\", \"cuda-c\" and \"host\", the device takes \"%s\", and no pack next to " \
  "the plugin has the suite's kernels; create one by torch-backend pack, or pass --compiler COMMAND"

/* Returns the first one that the device lists, NULL = none. */
const cts_language_t *cts_language_of(const cts_t *t);

/* Compiles the suite's kernels by the command of --compiler; the case is skipped if it fails. */
hal_module_desc_t cts_compile(cts_t *t, const char *source);

/* Finds them in a pack next to the plugin; returns 0 if there is none. */
int cts_unpack(cts_t *t, int with_doubles, hal_module_desc_t *out_desc);

/* Returns whether the suite has kernels for the device. */
int cts_has_kernels(cts_t *t);

int cts_takes_dialect(const cts_t *t, const char *dialect);
/* Describes the module below, or the one of cts_double (memory of doubles, double value, int count: element i becomes
 * value + i). The case is skipped if the device accepts no dialect of the suite's. */
hal_module_desc_t cts_kernels_describe(cts_t *t, int with_doubles);
hal_plugin_module_t *cts_module_of(cts_t *t, const hal_module_desc_t *desc);
/* Loads a module with cts_ramp and cts_add (memory, int value, int count), cts_spin (memory, long value, int count:
 * computes for as many rounds as the low half of the value) and cts_values (see kernel.c). */
hal_plugin_module_t *cts_kernels_load(cts_t *t);
hal_plugin_kernel_t *cts_kernel_find(cts_t *t, hal_plugin_module_t *module, const char *name);
/* A launch of a kernel of memory, one value and a count. It points only into itself. */
typedef struct cts_launch_s {
  void *to;
  uint64_t value; /* its first bytes */
  int32_t count;
  hal_arg_t args[3];
  hal_launch_t launch;
} cts_launch_t;
void cts_launch_make(cts_launch_t *out, void *to, const void *value, uint32_t value_size, int32_t count,
                     uint32_t blocks, uint32_t threads);
/* Queues cts_ramp (element i becomes value + 3 i) or cts_add (twice the element, plus value), and overwrites the
 * arguments of the call after it has returned. */
void cts_ramp_launch(cts_t *t, hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream, void *to, int32_t value,
                     int32_t count);
/* Fails unless element i of CTS_RAMP is (value + 3 i) * factor + more. */
void cts_ramp_check(cts_t *t, const void *device, int32_t value, int32_t factor, int32_t more, const char *what);

#endif /* HAL_CTS_KERNEL_H_ */
