/* chain.c: see pk_chain.h. */
#include <stdalign.h>
#include <stddef.h>

#include "kernels/pk_chain.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_host.h"

/* One block of a chain. */
typedef struct block_s {
  void *const *args;
  uint64_t number, begin, count, size; /* numbers of elements; size: of a complete block */
  uint64_t segment;                    /* the length of one, */
  uint64_t first, segments;            /* the first one of the block, and their number; the last one may be shorter */
  char *scratch;
} block_t;

static hal_host_kernel_fn_t function_of(chain_step_t *step) {
  uintptr_t fn = atomic_load_explicit(&step->fn, memory_order_relaxed);
  if (!fn) { /* two threads find the same function */
    fn = (uintptr_t)hal_host_kernel_find(step->kernel)->fn;
    atomic_store_explicit(&step->fn, fn, memory_order_relaxed);
  }
  return (hal_host_kernel_fn_t)fn;
}

/* Returns the address of an operand: of the block's part, or of the whole if the kernel finds the block itself. */
static char *address_of(const block_t *block, const chain_operand_t *operand, int whole) {
  const uint64_t begin = operand->has == CHAIN_EACH_ELEMENT   ? block->begin
                         : operand->has == CHAIN_EACH_SEGMENT ? block->first
                                                              : 0;
  if (operand->scratch) {
    char *const own = block->scratch + operand->index * block->size;
    return whole ? (char *)((uintptr_t)own - begin * operand->size) : own;
  }
  char *const base = *(char *const *)block->args[operand->index];
  return whole ? base : base + begin * operand->size;
}

static void *number_of(const block_t *block, const chain_step_t *step, uint32_t i) {
  return (char *)block->args[CHAIN_ARG_NUMBERS] + step->number[i];
}

/* Runs an element-wise kernel. */
static void run_elements(const block_t *block, chain_step_t *step) {
  const hal_host_kernel_fn_t fn = function_of(step);
  const int whole = step->form == CHAIN_ROWS;
  const uint64_t segment = step->narrow ? block->segment : 1, total = *(const pk_u64 *)block->args[CHAIN_ARG_COUNT];
  const uint64_t here_count = step->narrow ? block->segments : block->count;
  char *address[CHAIN_OPERANDS];
  void *args[CHAIN_OPERANDS + 5];
  uint32_t count = 0;
  const pk_rows_t run = {.ndim = 1, .size = {(pk_i64)here_count}, .stride = {{1}, {1}, {1}, {1}}};
  uint64_t n = whole ? total / segment + (total % segment != 0) : here_count;
  uint64_t size = block->size / segment;
  for (uint32_t i = 0; i < step->operands; i++) {
    address[i] = address_of(block, &step->operand[i], whole);
    args[count++] = &address[i];
  }
  for (uint32_t i = 0; i < step->numbers; i++) args[count++] = number_of(block, step, i);
  args[count++] = &n;
  args[count++] = &size;
  args[count++] =
      whole ? (void *)&step->rows : (void *)(uintptr_t)&run; /* kernels of the contiguous form read no argument after
                                                              * n */
  const hal_host_range_t items = {.begin = 0, .end = here_count}, rows = {.begin = 0, .end = 1},
                         here = {.begin = block->number, .end = block->number + 1};
  fn(step->form == CHAIN_CONTIG ? &items : whole ? &here : &rows, args);
}

/* Runs a segment kernel as if the block's segments were the only ones. */
static void run_segments(const block_t *block, chain_step_t *step) {
  char *address[CHAIN_OPERANDS];
  void *args[CHAIN_OPERANDS + CHAIN_BEHIND];
  uint64_t segments = block->segments;
  int64_t length = (int64_t)block->segment;
  pk_rows_t kept = {.ndim = 1, .size = {(pk_i64)segments}};
  pk_reduce_t reduce = {.n = (pk_i64)block->count,
                        .stride = 1,
                        .chunk = length,
                        .chunks = (pk_i64)segments,
                        .divisor = step->divisor,
                        .final = step->final};
  uint32_t count = 0, number = 0, flag = 0;
  for (uint32_t i = 0; i < step->operands; i++) {
    address[i] = address_of(block, &step->operand[i], 0);
    if (i < PK_ROW_OPERANDS) kept.stride[i][0] = step->operand[i].has == CHAIN_EACH_ELEMENT ? length : 1;
    args[count++] = &address[i];
  }
  for (uint32_t i = 0; i < CHAIN_BEHIND && step->behind[i] != CHAIN_END; i++) switch (step->behind[i]) {
      case CHAIN_KEPT:
        args[count++] = &kept;
        break;
      case CHAIN_COUNT:
      case CHAIN_PER_GROUP:
        args[count++] = &segments;
        break;
      case CHAIN_LENGTH:
        args[count++] = &length;
        break;
      case CHAIN_REDUCE: /* segments are parts of a dimension, the last of which may be shorter */
        kept.ndim = 0;
        args[count++] = &reduce;
        break;
      case CHAIN_NUMBER:
        args[count++] = number_of(block, step, number++);
        break;
      default:
        args[count++] = &step->flag[flag++];
        break;
    }
  const hal_host_range_t one = {.begin = 0, .end = 1};
  function_of(step)(&one, args);
}

static void chain(const hal_host_range_t *range, void *const *args) {
  chain_plan_t *const plan = *(chain_plan_t *const *)args[CHAIN_ARG_PLAN];
  const uint64_t n = *(const pk_u64 *)args[CHAIN_ARG_COUNT], segment = plan->segment;
  alignas(64) char scratch[CHAIN_SCRATCH];
  for (uint64_t number = range->begin; number < range->end; number++) {
    const uint64_t begin = number * plan->block;
    if (begin >= n) return; /* launches are whole blocks of threads */
    const uint64_t count = n - begin < plan->block ? n - begin : plan->block;
    const block_t block = {.args = args,
                           .number = number,
                           .begin = begin,
                           .count = count,
                           .size = plan->block,
                           .segment = segment,
                           .first = begin / segment,
                           .segments = count / segment + (count % segment != 0),
                           .scratch = scratch};
    for (uint32_t i = 0; i < plan->steps; i++)
      (plan->step[i].form == CHAIN_SEGMENTS ? run_segments : run_elements)(&block, &plan->step[i]);
  }
}

extern const pk_host_entry_t chain_2_entry;
const pk_host_entry_t chain_2_entry = {CHAIN_KERNEL, CHAIN_ARGS, {chain, 0, 0, 0}};
