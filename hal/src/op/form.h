/* form.h: what the kernels are that several can be put into one. Private to hal/src. */
#ifndef HAL_SRC_OP_FORM_H_
#define HAL_SRC_OP_FORM_H_

#include "device/device.h"
#include "kernels/pk_chain.h"
#include "op/internal.h"

/* An element-wise kernel: its arguments are the addresses of its operands, the result first, numbers, the count of elements, and in the row
 * form the block's size and the rows. Or a kernel of segments, which reduces or normalizes so many neighboring elements: addresses, results
 * first, and after them the arguments that `behind` counts. */
typedef struct hal_op_form_s {
  char name[48];              /* "add_f32_contig" */
  uint32_t operands, numbers; /* arguments of these kinds; results count */
  uint32_t number_at;         /* the place of the first number among the arguments */
  uint32_t rows;              /* 1 = the row form */
  uint32_t results;           /* 1, but for kernels of segments */
  const uint8_t *behind; /* of kernels of segments: CHAIN_BEHIND numbers of pk_chain.h; NULL: an element-wise kernel */
  uint8_t size[CHAIN_OPERANDS]; /* bytes of a number of each operand */
  uint8_t has[CHAIN_OPERANDS];  /* CHAIN_EACH_* of kernels of segments */
  uint8_t accumulator;          /* bytes of a result that is not finished (CHAIN_REDUCE) */
} hal_op_form_t;

/* The dtype in which an operator adds up numbers of `dtype`. */
hal_dtype_t hal_op_form_accumulator(const hal_op_info_t *info, hal_dtype_t dtype);

/* Returns whether a kernel that an operator of the device launched is such a kernel, and its form: 1 or 0. Searches the operator's
 * kernels, so it is called once for a kernel. */
int hal_op_form_of(hal_device_t *device, uint32_t op, const hal_plugin_kernel_t *kernel, hal_op_form_t *out_form);

/* The families of operators with such kernels: bit f = family number f; and of these, those with element-wise ones. */
uint64_t hal_op_form_families(void);
uint64_t hal_op_form_elements(void);

/* Returns the kernel of a chain of them (kernels/pk_chain.h). HAL_UNIMPLEMENTED: the device's portable kernels have none. */
hal_status_t hal_op_chain_kernel(hal_device_t *device, hal_plugin_kernel_t **out_kernel);

#endif /* HAL_SRC_OP_FORM_H_ */
