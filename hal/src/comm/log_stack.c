/* log_stack.c: the stacks of the log's entries. Collectives of a training loop come from few places, so entries with
 * the same stack share its text. Copies would take megabytes, which each collective would read and write again. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>

#include "base/host_malloc.h"
#include "comm/log_internal.h"

/* Recent stacks, in sets by the length of the text. The log's lock guards them. */
enum { SETS = 32, WAYS = 4 };
static struct {
  hal_comm_log_stack_t *stacks[WAYS]; /* with a reference */
  uint32_t next;                      /* the way that is replaced next */
} recent[SETS];

static hal_comm_log_stack_t *make(const char *text, size_t size) {
  hal_comm_log_stack_t *const stack = hal_malloc(sizeof *stack + size + 1);
  if (!stack) return NULL;
  stack->references = 1;
  stack->size = size;
  memcpy(stack->text, text, size + 1);
  return stack;
}

hal_comm_log_stack_t *hal_comm_log_stack_take(const char *text) {
  const size_t size = text ? strlen(text) : 0;
  if (!size) return NULL;
  hal_comm_log_stack_t **const ways = recent[size % SETS].stacks;
  for (int i = 0; i < WAYS; i++) {
    if (!ways[i] || ways[i]->size != size || memcmp(ways[i]->text, text, size) != 0) continue;
    ways[i]->references++;
    return ways[i];
  }
  hal_comm_log_stack_t *const stack = make(text, size);
  if (!stack) return NULL;
  hal_comm_log_stack_t **const place = &ways[recent[size % SETS].next++ % WAYS];
  hal_comm_log_stack_release(*place);
  *place = stack;
  stack->references++;
  return stack;
}

void hal_comm_log_stack_release(hal_comm_log_stack_t *stack) {
  if (stack && --stack->references == 0) hal_free(stack);
}

void hal_comm_log_stacks_clear(void) {
  for (int set = 0; set < SETS; set++)
    for (int i = 0; i < WAYS; i++) {
      hal_comm_log_stack_release(recent[set].stacks[i]);
      recent[set].stacks[i] = NULL;
    }
}
