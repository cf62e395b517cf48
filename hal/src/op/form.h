/* form.h: the structure of kernels that can be combined into one. Private to hal/src. */
#ifndef HAL_SRC_OP_FORM_H_
#define HAL_SRC_OP_FORM_H_

#include "device/device.h"
#include "kernels/pk_chain.h"
#include "op/internal.h"

/* An element-wise kernel: its arguments are the addresses of its operands (the result first), numbers, the number of
 * elements and, in the row variant, the block's size and the rows. Or a segment kernel, which reduces or normalizes
 * segments of adjacent elements: addresses (results first), then further arguments. */
typedef struct hal_op_form_s {
  char name[48];              /* "add_f32_contig" */
  uint32_t operands, numbers; /* arguments of these kinds; operands include results */
  uint32_t number_at;         /* the index of the first number among the arguments */
  uint32_t rows;              /* 1 = the row variant */
  uint32_t results;           /* 1, except for segment kernels */
  /* for segment kernels: the numbers of arguments, CHAIN_BEHIND of pk_chain.h; NULL: an element-wise kernel */
  const uint8_t *behind;
  uint8_t size[CHAIN_OPERANDS]; /* bytes of an element of each operand */
  uint8_t has[CHAIN_OPERANDS];  /* CHAIN_EACH_* of segment kernels */
  uint8_t accumulator;          /* bytes of an unfinished result (CHAIN_REDUCE) */
} hal_op_form_t;

/* Returns the dtype in which an operator accumulates numbers of `dtype`. */
hal_dtype_t hal_op_form_accumulator(const hal_op_info_t *info, hal_dtype_t dtype);

/* Returns whether a kernel that an operator of the device launched is such a kernel, with its form: 1 or 0. Searches
 * the operator's kernels, so it is called once per kernel. */
int hal_op_form_of(hal_device_t *device, uint32_t op, const hal_plugin_kernel_t *kernel, hal_op_form_t *out_form);

/* Returns the families of operators with such kernels: bit f = family number f. The second function returns those with
 * element-wise kernels. */
uint64_t hal_op_form_families(void);
uint64_t hal_op_form_elements(void);

/* Returns the kernel for a chain of them (kernels/pk_chain.h). HAL_UNIMPLEMENTED: the device's portable kernels have
 * none. */
hal_status_t hal_op_chain_kernel(hal_device_t *device, hal_plugin_kernel_t **out_kernel);

#endif /* HAL_SRC_OP_FORM_H_ */
