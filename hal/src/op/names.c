/* names.c: the list of operators: those of codegen/operators, followed by those that libraries define. */
#include <string.h>

#include "base/text.h"
#include "op/define.h"
#include "op/table.h"

uint32_t hal_op_count(void) { return HAL_OP_BUILTIN_COUNT + hal_op_defined_count(); }

const char *hal_op_name(uint32_t op) {
  if (op < HAL_OP_BUILTIN_COUNT) return hal_op_infos[op].name;
  const hal_op_defined_t *const defined = hal_op_defined(op);
  return defined ? defined->info.name : NULL;
}

const char *hal_op_error_name(uint32_t op) {
  const char *const name = op < HAL_OP_BUILTIN_COUNT ? hal_op_infos[op].error_name : NULL;
  return name ? name : hal_op_name(op);
}

const char *hal_op_argument(uint32_t op, uint32_t argument) {
  return op < HAL_OP_BUILTIN_COUNT && argument < hal_op_infos[op].argument_count + hal_op_infos[op].further_count
             ? hal_op_infos[op].arguments[argument]
             : NULL;
}

/* Returns whether a list "mm, bmm" contains a name. */
static int lists(const char *text, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = text; (at = strstr(at, name)) != NULL; at += length)
    if ((at == text || at[-1] == ' ') && (!at[length] || at[length] == ',')) return 1;
  return 0;
}

void hal_op_names_of_kernel(const char *kernel, char *text, size_t size) {
  size_t longest = 0;
  text[0] = '\0';
  for (uint32_t op = 0; op < HAL_OP_BUILTIN_COUNT; op++) {
    const size_t length = hal_op_infos[op].launch ? strlen(hal_op_infos[op].kernel) : 0;
    if (!length || length < longest || strncmp(kernel, hal_op_infos[op].kernel, length) || kernel[length] != '_')
      continue;
    if (length > longest) text[0] = '\0'; /* "max" is not a kernel of "max_pool_f32_rows" */
    longest = length;
    const char *const name = hal_op_error_name(op);
    if (!lists(text, name)) hal_text_append(text, size, "%s%s", text[0] ? ", " : "", name);
  }
}

hal_status_t hal_op_id(const char *name, uint32_t *out_op) {
  for (uint32_t op = 0; name && op < HAL_OP_BUILTIN_COUNT; op++)
    if (strcmp(name, hal_op_infos[op].name) == 0) {
      *out_op = op;
      return HAL_OK;
    }
  if (name && hal_op_defined_find(name, out_op)) return HAL_OK;
  return hal_error_set(HAL_NOT_FOUND,
                       "unknown operator \"%s\"; expected a name such as \"sort.stable\" of codegen/operators, or the "
                       "name of an operator that a library defined",
                       name ? name : "(null)");
}
