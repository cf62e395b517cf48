/* pk_args.h: the arguments of a kernel, described once. A list, in a header that the kernel and its launcher include,
 *
 *   #define SCALE_ARGS(X) X(OUT, E, y), X(IN, E, x), X(VALUE, double, factor), X(VALUE, pk_u64, n)
 *
 * defines the kernel's parameters, PK_KERNEL(PK_NAME(scale), SCALE_ARGS) { ... }, and the function that launches it,
 * PK_LAUNCHER(launch_scale, items, SCALE_ARGS): a wrong number or type of arguments does not compile. Kinds:
 *   IN, OUT, BOTH   an address in device memory that is read, written, or both; `type` is that of an element. Each
 *                   address is a separate argument, so that a device without addresses can bind a buffer and an offset
 *   VALUE           a number of a fixed type
 *   STRUCT          a struct of such numbers, whose address is passed; copied at the launch
 *   NUMBER          a number whose type depends on the instance (T); launchers pass its bytes as a pk_number_t */
#ifndef PK_ARGS_H_
#define PK_ARGS_H_

#include "pk_types.h"

#if !defined(PK_OPENCL) && !defined(PK_CUDA)
typedef struct pk_number_s {
  const void *value;
  uint32_t size; /* bytes */
} pk_number_t;

/* Parameters of a launching function, and the hal_arg_t for each of them. */
#define PK_GIVEN(kind, type, name) PK_GIVEN_##kind(type, name)
#define PK_GIVEN_IN(type, name) const void *name
#define PK_GIVEN_OUT(type, name) void *name
#define PK_GIVEN_BOTH(type, name) void *name
#define PK_GIVEN_VALUE(type, name) type name
#define PK_GIVEN_STRUCT(type, name) const type *name
#define PK_GIVEN_NUMBER(type, name) pk_number_t name
#define PK_ARGUMENT(kind, type, name) PK_ARGUMENT_##kind(type, name)
#define PK_ARGUMENT_POINTER(name) \
  { &(name), (uint32_t)sizeof(void *), HAL_ARG_POINTER }
#define PK_ARGUMENT_IN(type, name) PK_ARGUMENT_POINTER(name)
#define PK_ARGUMENT_OUT(type, name) PK_ARGUMENT_POINTER(name)
#define PK_ARGUMENT_BOTH(type, name) PK_ARGUMENT_POINTER(name)
#define PK_ARGUMENT_VALUE(type, name) \
  { &(name), (uint32_t)sizeof(type), HAL_ARG_VALUE }
#define PK_ARGUMENT_STRUCT(type, name) \
  { (name), (uint32_t)sizeof(type), HAL_ARG_VALUE }
#define PK_ARGUMENT_NUMBER(type, name) \
  { (name).value, (name).size, HAL_ARG_VALUE }

/* Defines function(kernel, stream, units, arguments ...), which queues a kernel over `units` items or groups
 * (hal/kernel.h). */
#define PK_LAUNCHER(function, unit, args)                                                                            \
  PK_FN hal_status_t function(hal_kernel_t *pk_kernel, hal_stream_t *pk_stream, uint64_t pk_units, args(PK_GIVEN)) { \
    const hal_arg_t pk_args[] = {args(PK_ARGUMENT)};                                                                 \
    return hal_kernel_launch_##unit(pk_kernel, pk_stream, pk_units, pk_args,                                         \
                                    (uint32_t)(sizeof pk_args / sizeof *pk_args));                                   \
  }
#endif

#endif /* PK_ARGS_H_ */
