/* emit.h: the source text of a group's kernel. Private to hal/src. */
#ifndef HAL_SRC_FUSION_EMIT_H_
#define HAL_SRC_FUSION_EMIT_H_

#include <stddef.h>

#include "fusion/fuse.h"

enum { HAL_FUSE_NAME = 48 }; /* bytes of an instance's name */

/* Text that grows; `failed` is set if there was no memory. */
typedef struct hal_fuse_text_s {
  char *data;
  size_t size, room;
  int failed;
} hal_fuse_text_t;

/* Reserves `size` bytes and a 0 after the text. Returns their address; NULL = there is no memory. */
char *hal_fuse_text_room(hal_fuse_text_t *text, size_t size);

/* Adds a line of at most 511 bytes, or a part of one. */
void hal_fuse_text_add(hal_fuse_text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The instance of a step's kernel: "add_f32_" of "add_f32_contig_s". */
void hal_fuse_instance(const hal_fuse_step_t *step, char instance[HAL_FUSE_NAME]);

/* The form of the arguments of a group's kernel: the list that defines its parameters, the parameters of a function, or
 * those of its call. */
enum { HAL_FUSE_LISTED = 0, HAL_FUSE_DECLARED = 1, HAL_FUSE_CALLED = 2 };

/* Adds addresses, and for each step its numbers and its rows, each followed by a comma. */
void hal_fuse_add_arguments(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t pointers, int how);

/* Adds the functions of the steps, each instance once, and those by which they read other steps' results.
 * HAL_UNIMPLEMENTED: a step has none. */
hal_status_t hal_fuse_add_functions(hal_fuse_text_t *text, const hal_fuse_group_t *group);

/* Returns whether the first of a step's numbers is of the kernel's dtype, and not one of a struct. */
int hal_fuse_has_first(const hal_fuse_step_t *step);

/* Names a group's kernel by its text, prepends the definition of FUSED_NAME, and returns both, which the caller frees
 * with hal_free; NULL = no memory. */
char *hal_fuse_named(const hal_fuse_text_t *text, char name[HAL_FUSE_NAME]);

/* Adds the statements that compute element `i` of steps [begin, end) as v<number of the step>, and then write the kept
 * ones to their addresses. The stores come after all loads, because an address may be read as one operand and written
 * as another. */
void hal_fuse_add_steps(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t begin, uint32_t end,
                        const uint32_t store[HAL_FUSE_STEPS]);

/* Adds the expression for operand k of a step: a value, or element `i` in memory. */
void hal_fuse_add_operand(hal_fuse_text_t *text, const hal_fuse_step_t *step, uint32_t number, uint32_t k);

/* Adds the statement that writes the result of a step to memory. */
void hal_fuse_add_store(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t number, uint32_t pointer);

/* ---- groups that end with a reduction (emit_fold.c) ---- */

/* Returns the step that reduces; HAL_FUSE_STEPS: none does. */
uint32_t hal_fuse_fold_of(const hal_fuse_group_t *group);

/* Returns whether the reduction is needed, and finished if steps read it. */
int hal_fuse_suits_fold(const hal_fuse_group_t *group);

/* Adds the kernel of such a group. */
void hal_fuse_add_fold(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t pointers,
                       const uint32_t store[HAL_FUSE_STEPS]);

#endif /* HAL_SRC_FUSION_EMIT_H_ */
