/* chain.c: see pk_chain.h. */
#include <stdalign.h>
#include <stddef.h>

#include "kernels/pk_chain.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_host.h"

/* One block on its way through the chain. */
typedef struct block_s {
  void *const *args;
  uint64_t number, begin, count, size; /* size: of a whole block */
  char *scratch;
} block_t;

static hal_host_kernel_fn_t function_of(chain_step_t *step) {
  uintptr_t fn = atomic_load_explicit(&step->fn, memory_order_relaxed);
  if (!fn) { /* two threads find the same */
    fn = (uintptr_t)hal_host_kernel_find(step->kernel)->fn;
    atomic_store_explicit(&step->fn, fn, memory_order_relaxed);
  }
  return (hal_host_kernel_fn_t)fn;
}

/* The address of an operand: of the block's first element, or, where the kernel finds the block itself, of the operand's. */
static char *address_of(const block_t *block, const chain_operand_t *operand, int whole) {
  if (operand->scratch) {
    char *const own = block->scratch + operand->index * block->size;
    return whole ? (char *)((uintptr_t)own - block->begin * operand->size) : own;
  }
  char *const base = *(char *const *)block->args[operand->index];
  return whole ? base : base + block->begin * operand->size;
}

static void run_step(const block_t *block, chain_step_t *step) {
  const hal_host_kernel_fn_t fn = function_of(step);
  const int whole = step->form == CHAIN_ROWS;
  char *address[PK_ROW_OPERANDS];
  void *args[PK_ROW_OPERANDS + 5];
  uint32_t count = 0;
  const pk_rows_t run = {.ndim = 1, .size = {(pk_i64)block->count}, .stride = {{1}, {1}, {1}, {1}}};
  uint64_t n = whole ? *(const pk_u64 *)block->args[CHAIN_ARG_COUNT] : block->count;
  uint64_t size = block->size;
  for (uint32_t i = 0; i < step->operands; i++) {
    address[i] = address_of(block, &step->operand[i], whole);
    args[count++] = &address[i];
  }
  for (uint32_t i = 0; i < step->numbers; i++) args[count++] = (char *)block->args[CHAIN_ARG_NUMBERS] + step->number[i];
  args[count++] = &n;
  args[count++] = &size;
  args[count++] =
      whole ? (void *)&step->rows : (void *)(uintptr_t)&run; /* kernels of the contiguous form read no further than n */
  const hal_host_range_t items = {.begin = 0, .end = block->count}, rows = {.begin = 0, .end = 1},
                         here = {.begin = block->number, .end = block->number + 1};
  fn(step->form == CHAIN_CONTIG ? &items : whole ? &here : &rows, args);
}

static void chain(const hal_host_range_t *range, void *const *args) {
  chain_plan_t *const plan = *(chain_plan_t *const *)args[CHAIN_ARG_PLAN];
  const uint64_t n = *(const pk_u64 *)args[CHAIN_ARG_COUNT];
  alignas(64) char scratch[CHAIN_SCRATCH];
  for (uint64_t number = range->begin; number < range->end; number++) {
    const uint64_t begin = number * plan->block;
    if (begin >= n) return; /* launches are whole blocks of threads */
    const uint64_t left = n - begin;
    const block_t block = {.args = args,
                           .number = number,
                           .begin = begin,
                           .count = left < plan->block ? left : plan->block,
                           .size = plan->block,
                           .scratch = scratch};
    for (uint32_t i = 0; i < plan->steps; i++) run_step(&block, &plan->step[i]);
  }
}

extern const pk_host_entry_t chain_1_entry;
const pk_host_entry_t chain_1_entry = {CHAIN_KERNEL, CHAIN_ARGS, {chain, 0, 0, 0}};
