/* stack.h: call stacks of the threads that submit work, for the reports of plugins (hal_stacks_t). Private to hal/src.
 *
 * A stack is stored once and never freed, so that its address identifies it: a program has few different ones. */
#ifndef HAL_SRC_STACK_H_
#define HAL_SRC_STACK_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the stack of the calling thread; NULL = unknown, because the host has no memory, or the program has more than
 * HAL_STACKS_MOST different ones. A thread that defers callbacks may hold a lock of the HAL, so it gets the stack of
 * its last hal_stack_remember. Any thread may call it. */
const void *hal_stack_capture(void);

extern atomic_int hal_stack_wanted; /* 1: a plugin has captured stacks */
void hal_stack_remember_now(void);
/* Stores the stack of the calling thread for sections that defer callbacks. Costs a load if no plugin captures stacks.
 */
static inline void hal_stack_remember(void) {
  if (__builtin_expect(atomic_load_explicit(&hal_stack_wanted, memory_order_relaxed), 0)) hal_stack_remember_now();
}

/* Writes a stack to `text`, one frame per line, innermost first. Returns the number of bytes without the NUL, which is
 * at least `size` if the text was truncated. */
size_t hal_stack_describe(const void *stack, char *text, size_t size);

/* Returns whether hal_stack_set_unchecked is on for the calling thread. */
int32_t hal_stack_is_unchecked(void);

enum { HAL_STACKS_MOST = 1 << 16, HAL_STACK_FRAMES = 24 };

#endif /* HAL_SRC_STACK_H_ */
