/* pk_chain.h: a chain of kernels as one launch of the host. Each block of elements goes through all of them before the
 * next block, so that intermediate values that only the chain reads stay in the cache and are never written to memory.
 *
 * All kernels of a chain compute the same number of elements, each its result in the order of memory. If elements form
 * segments of one length, as the rows of a matrix do, a kernel may also compute a value for each segment; a block is
 * then whole segments. Steps are in the order of their execution. The HAL creates the plan, and a plugin that may be
 * older reads it: the kernel's name, CHAIN_KERNEL, identifies the layout. */
#ifndef PK_CHAIN_H_
#define PK_CHAIN_H_

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/pk_types.h"

#define CHAIN_KERNEL "chain_2"
#define CHAIN_POINTERS 10 /* of the 16 arguments of a launch */
#define CHAIN_STEPS 32    /* a plan is then 15 KiB */
#define CHAIN_NUMBERS 256 /* bytes of all numbers of a chain */
#define CHAIN_OPERANDS 6  /* of a step, including results */
#define CHAIN_BEHIND 8    /* other arguments of a segment kernel */
#define CHAIN_FLAGS 3
/* Size of a thread's stack memory for intermediate values: a quarter of the second-level cache of current cores. */
#define CHAIN_SCRATCH 131072

/* Forms: contiguous; rows whose operands are all contiguous; rows; kernels of whole segments. */
enum { CHAIN_CONTIG = 0, CHAIN_RUN = 1, CHAIN_ROWS = 2, CHAIN_SEGMENTS = 3 };

/* Arguments of a segment kernel after its operands. */
enum {
  CHAIN_END = 0,
  CHAIN_KEPT,      /* pk_rows_t: the positions of the segments */
  CHAIN_COUNT,     /* pk_u64: number of segments */
  CHAIN_PER_GROUP, /* pk_u64: number of segments per item */
  CHAIN_LENGTH,    /* pk_i64: of a segment */
  CHAIN_REDUCE,    /* pk_reduce_t */
  CHAIN_NUMBER,    /* the step's next number */
  CHAIN_FLAG       /* pk_i32: the step's next flag */
};

/* An operand has a number for each element, for each segment, or for each position within all segments. */
enum { CHAIN_EACH_ELEMENT = 0, CHAIN_EACH_SEGMENT = 1, CHAIN_EACH_PLACE = 2 };

/* The location of an operand: argument `index` of the launch, or scratch memory, from byte `index` * block on. */
typedef struct chain_operand_s {
  uint8_t scratch, size; /* size: of a number */
  uint8_t has;           /* CHAIN_EACH_* */
  uint8_t reserved;
  uint16_t index;
} chain_operand_t;

typedef struct chain_step_s {
  char kernel[48];
  _Atomic(uintptr_t) fn;                   /* function of that kernel, found at the first run */
  uint8_t form;                            /* CHAIN_* */
  uint8_t operands, numbers;               /* operands include results */
  uint8_t narrow;                          /* 1 = an element-wise kernel of one number per segment */
  chain_operand_t operand[CHAIN_OPERANDS]; /* results first */
  uint16_t number[2];                      /* positions of the numbers */
  uint8_t behind[CHAIN_BEHIND];            /* of CHAIN_SEGMENTS */
  int32_t flag[CHAIN_FLAGS];               /* their CHAIN_FLAG */
  int32_t final;                           /* pk_reduce_t of their CHAIN_REDUCE */
  int64_t divisor;
  pk_rows_t rows; /* of CHAIN_ROWS */
} chain_step_t;

typedef struct chain_plan_s {
  uint32_t steps;
  uint32_t scratch; /* bytes per element of a block */
  uint64_t block;   /* elements; a multiple of `segment` */
  uint64_t segment; /* number of elements of a segment; 1 = there are no segments */
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
