/* pk_chain.h: a chain of element-wise kernels as one launch of the host's: each block of elements goes through all of them before the
 * next, so that what only the chain reads stays in the cache and is never written to memory.
 *
 * All kernels of a chain compute the same number of elements, each its result in the order of memory. Steps are in the order of
 * their execution. The plan is made by the HAL and read by a plugin that may be older: its layout is the kernel's name, CHAIN_KERNEL. */
#ifndef PK_CHAIN_H_
#define PK_CHAIN_H_

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/pk_types.h"

#define CHAIN_KERNEL "chain_1"
#define CHAIN_POINTERS 10 /* arguments of 16 that a launch has */
#define CHAIN_STEPS 32    /* a plan is 11 KiB then */
#define CHAIN_NUMBERS 256 /* bytes of all numbers of a chain */
#define CHAIN_SCRATCH \
  65536 /* bytes of a thread's stack for what is never written: half of a core's second cache, at least */

enum {
  CHAIN_CONTIG = 0,
  CHAIN_RUN = 1,
  CHAIN_ROWS = 2
}; /* forms: contiguous; rows, whose operands are all contiguous; rows */

/* Where an operand lies: argument `index` of the launch, or scratch memory, from byte `index` * block on. */
typedef struct chain_operand_s {
  uint8_t scratch, size; /* size: of an element */
  uint16_t index;
} chain_operand_t;

typedef struct chain_step_s {
  char kernel[48];
  _Atomic(uintptr_t) fn;     /* of that kernel, found at the first run */
  uint8_t form;              /* CHAIN_* */
  uint8_t operands, numbers; /* the result counts */
  uint8_t reserved;
  chain_operand_t operand[PK_ROW_OPERANDS]; /* the result first */
  uint16_t number[2];                       /* places of the numbers */
  pk_rows_t rows;                           /* of CHAIN_ROWS */
} chain_step_t;

typedef struct chain_plan_s {
  uint32_t steps;
  uint32_t scratch; /* bytes per element of a block */
  uint64_t block;   /* elements */
  chain_step_t step[];
} chain_plan_t;

/* Arguments: CHAIN_POINTERS addresses, then these. An item of the launch is a block. */
enum {
  CHAIN_ARG_PLAN = CHAIN_POINTERS, /* const chain_plan_t *, host memory */
  CHAIN_ARG_NUMBERS,               /* CHAIN_NUMBERS bytes */
  CHAIN_ARG_COUNT,                 /* pk_u64: elements */
  CHAIN_ARGS
};

#endif /* PK_CHAIN_H_ */
