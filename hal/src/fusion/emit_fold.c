/* emit_fold.c: a group that ends with a reduction as one kernel in the portable dialect: element-wise operators where
 * the reduction reads its elements, followed by those of one number for each segment. The order of the sums is that of
 * the reduction alone (ops/reduce): both are PK_SEGMENT. */
#include "fusion/emit.h"

uint32_t hal_fuse_fold_of(const hal_fuse_group_t *group) {
  for (uint32_t i = 0; i < group->steps; i++)
    if (group->step[i].segment) return i;
  return HAL_FUSE_STEPS;
}

int hal_fuse_suits_fold(const hal_fuse_group_t *group) {
  const hal_fuse_step_t *const fold = &group->step[hal_fuse_fold_of(group)];
  return !fold->dropped && (fold->reduce.final || !fold->readers);
}

/* Adds the function that returns the contribution of element `i`; it also writes results that are kept. */
static void add_element(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t fold, uint32_t pointers,
                        const uint32_t store[HAL_FUSE_STEPS]) {
  char instance[HAL_FUSE_NAME];
  hal_fuse_instance(&group->step[fold], instance);
  hal_fuse_text_add(text, "PK_FN %saccumulator_t fused_at(", instance);
  hal_fuse_add_arguments(text, group, pointers, HAL_FUSE_DECLARED);
  hal_fuse_text_add(text, "pk_u64 i) {\n");
  hal_fuse_add_steps(text, group, 0, fold, store);
  hal_fuse_text_add(text, "  return %stake(", instance);
  hal_fuse_add_operand(text, &group->step[fold], fold, 1);
  hal_fuse_text_add(text, ", b%u);\n}\n", (unsigned)fold);
}

/* Adds the statements after the accumulation, for the accumulators t[0] of segment `i`. */
static void add_behind(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t fold,
                       const uint32_t store[HAL_FUSE_STEPS]) {
  char instance[HAL_FUSE_NAME];
  const unsigned number = (unsigned)fold;
  hal_fuse_instance(&group->step[fold], instance);
  if (group->step[fold].reduce.final) {
    hal_fuse_text_add(text, "  const %saccumulator_t whole = divisor < 0 ? t[0] : %sfinish(t[0], divisor, b%u);\n",
                      instance, instance, number);
    hal_fuse_text_add(text, "  const %sresult_t v%u = %sput(whole);\n", instance, number, instance);
  }
  hal_fuse_add_steps(text, group, fold + 1, group->steps, store);
  if (group->step[fold].dead) return;
  if (group->step[fold].reduce.final)
    hal_fuse_add_store(text, group, fold, store[fold]);
  else
    hal_fuse_text_add(text, "  ((PK_GLOBAL %saccumulator_t *)p%u)[i] = t[0];\n", instance, (unsigned)store[fold]);
}

void hal_fuse_add_fold(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t pointers,
                       const uint32_t store[HAL_FUSE_STEPS]) {
  const uint32_t fold = hal_fuse_fold_of(group);
  char instance[HAL_FUSE_NAME];
  hal_fuse_instance(&group->step[fold], instance);
  add_element(text, group, fold, pointers, store);
  hal_fuse_text_add(text, "#define FUSED_ARGS(X) ");
  hal_fuse_add_arguments(text, group, pointers, HAL_FUSE_LISTED);
  hal_fuse_text_add(text,
                    "X(VALUE, pk_u64, n), X(VALUE, pk_u64, segment), X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, "
                    "divisor)\n");
  hal_fuse_text_add(text, "#define FUSED_HERE(block, end) const pk_u64 here = begin + (pk_u64)(block);\n");
  hal_fuse_text_add(text, "#define FUSED_AT(k) fused_at(");
  hal_fuse_add_arguments(text, group, pointers, HAL_FUSE_CALLED);
  hal_fuse_text_add(text, "here + (pk_u64)(k))\n");
  hal_fuse_text_add(text, "PK_KERNEL(FUSED_NAME, FUSED_ARGS) { PK_PROLOGUE(FUSED_ARGS)\n");
  hal_fuse_text_add(text, " PK_LOCAL_ARRAY(%saccumulator_t, t, PK_LSIZE);\n PK_GROUP(g) {\n", instance);
  hal_fuse_text_add(text, "  PK_PRIV(%saccumulator_t, x); PK_PRIV(%saccumulator_t, y);\n", instance, instance);
  hal_fuse_text_add(text, "  const pk_u64 units = n / segment + (n %% segment != 0);\n");
  hal_fuse_text_add(text, "  const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;\n");
  hal_fuse_text_add(text, "  for (pk_u64 i = g * per_group; i < last; i++) {\n   const pk_u64 begin = i * segment;\n");
  hal_fuse_text_add(text, "   const pk_i64 length = (pk_i64)(n - begin < segment ? n - begin : segment);\n");
  hal_fuse_text_add(text, "   PK_SEGMENT(%saccumulator_t, x, y, length, %sfirst(), %scombine, FUSED_HERE, FUSED_AT)\n",
                    instance, instance, instance);
  hal_fuse_text_add(text, "   PK_EACH(l) { t[l] = PK_P(y, l); }\n   PK_SYNC();\n   PK_FOLD(t, %scombine)\n", instance);
  hal_fuse_text_add(text, "   PK_EACH(l) { if (l == 0) {\n");
  add_behind(text, group, fold, store);
  hal_fuse_text_add(text, "   } }\n   PK_SYNC();\n  }\n }\n}\n");
}
