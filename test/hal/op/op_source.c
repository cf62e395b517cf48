/* The sources of the portable kernels that the library contains for devices with compilers. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/host_malloc.h"
#include "hal/status.h"
#include "op/source.h"

static size_t count(const char *text, const char *what) {
  size_t n = 0;
  for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) n++;
  return n;
}

/* Returns whether a text has kernels of one name only; alternatives may be under preprocessor conditions. */
static int has_one_kernel(const char *text) {
  const char *const head = "\nPK_KERNEL(", *const first = strstr(text, head);
  if (!first) return 0;
  const size_t size = strcspn(first + 1, ",") + 1;
  for (const char *at = first; at; at = strstr(at + 1, head))
    if (strncmp(at, first, size + 1) != 0) return 0;
  return 1;
}

Test(op_source, every_kernel_has_a_text_of_its_own_with_nothing_to_include) {
  cr_assert_gt(hal_op_source_count(), 2000);
  for (size_t i = 0; i < hal_op_source_count(); i++) {
    const char *const name = hal_op_source_name(i);
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(hal_op_source(name, &text, &size), HAL_OK, "%s", name);
    cr_assert_eq(strlen(text), size, "%s", name);
    cr_assert_eq(text[size - 1], '\n', "%s", name);
    cr_assert(has_one_kernel(text), "%s", name);
    cr_assert_eq(count(text, "#include"), 0, "%s", name);
    cr_assert_eq(count(text, "#if "), count(text, "#endif"), "%s", name);
    cr_assert_eq(count(text, "#define PK_PREFIX "), 1, "%s", name);
    hal_free(text);
  }
}

Test(op_source, names_are_in_order_and_end) {
  for (size_t i = 1; i < hal_op_source_count(); i++)
    cr_assert_lt(strcmp(hal_op_source_name(i - 1), hal_op_source_name(i)), 0, "%s", hal_op_source_name(i));
  cr_assert_null(hal_op_source_name(hal_op_source_count()));
}

Test(op_source, an_unknown_name_is_not_found) {
  static const char *const names[] = {"", "add_f32", "add_f32_contig_", "add_f32_conti", "zzz", "!"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *text = NULL;
    size_t size = 7;
    cr_assert_eq(hal_op_source(names[i], &text, &size), HAL_NOT_FOUND, "%s", names[i]);
    cr_assert_null(text);
    cr_assert_eq(size, 7);
    cr_assert_not_null(strstr(hal_error_message(), names[i]));
  }
}

Test(op_source, without_memory_it_returns_an_error) {
  char *text = NULL;
  size_t size = 0;
  hal_malloc_fail_after(1);
  const hal_status_t status = hal_op_source("add_f32_contig", &text, &size);
  hal_malloc_fail_after(0);
  cr_assert_eq(status, HAL_RESOURCE_EXHAUSTED);
  cr_assert_null(text);
}
