/* form.h: what the element-wise kernels are, for those who put several into one. Private to hal/src. */
#ifndef HAL_SRC_OP_FORM_H_
#define HAL_SRC_OP_FORM_H_

#include "device/device.h"
#include "kernels/pk_types.h"

/* An element-wise kernel: its arguments are the addresses of its operands, the result first, numbers, the count of elements, and in the row
 * form the block's size and the rows. */
typedef struct hal_op_form_s {
  char name[48];                 /* "add_f32_contig" */
  uint32_t operands, numbers;    /* arguments of these kinds; the result counts */
  uint32_t rows;                 /* 1 = the row form */
  uint8_t size[PK_ROW_OPERANDS]; /* bytes of an element of each operand */
} hal_op_form_t;

/* Tells whether a kernel that an operator of the device launched is such a one, and what it is: 1 or 0. Looks through the operator's
 * kernels: for the first time that one is met. */
int hal_op_form_of(hal_device_t *device, uint32_t op, const hal_plugin_kernel_t *kernel, hal_op_form_t *out_form);

/* The families of element-wise operators: bit f = family number f. */
uint64_t hal_op_form_families(void);

/* Gives the kernel of a chain of them (kernels/pk_chain.h). HAL_UNIMPLEMENTED: the device's portable kernels have none. */
hal_status_t hal_op_chain_kernel(hal_device_t *device, hal_plugin_kernel_t **out_kernel);

#endif /* HAL_SRC_OP_FORM_H_ */
