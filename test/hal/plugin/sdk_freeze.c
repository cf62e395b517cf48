/* Tests of the removal of `freeze` from LLVM IR: it is removed if its operand is a definite number. Otherwise, or if
   that is unknown, the text is unchanged. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "freeze.h"

static char text[8192];

/* A function whose %x is defined by these lines and then frozen. */
static int thawed(const char *lines) {
  snprintf(text, sizeof text,
           "define spir_kernel void @other(i32 %%0) {\n  %%x = fptosi float 0x0 to i32\n  ret void\n}\n\n"
           "define spir_kernel void @k(i32 noundef %%n, i32 addrspace(1)* noundef %%to) #0 {\nentry:\n%s"
           "  %%y = freeze i32 %%x\n  %%z = sdiv i32 %%y, 8\n  ret void\n}\n\n"
           "define spir_kernel void @third(i32 %%0) {\n  %%x = fptosi float 0x0 to i32\n  ret void\n}\n",
           lines);
  const size_t length = strlen(text);
  const int count = hal_thaw(text);
  if (count) {
    cr_assert_null(strstr(text, "freeze"), "%s", text);
    cr_assert_not_null(strstr(text, "  %y = add i32 %x, 0\n  %z = sdiv"), "%s", text);
    cr_assert_eq(strlen(text), length);
  }
  return count;
}

Test(sdk_freeze, goes_where_arithmetic_on_arguments_places_and_memory_is_held) {
  cr_expect_eq(thawed("  %x = add nsw i32 %n, 7\n"), 1);
  cr_expect_eq(
      thawed("  %i = tail call spir_func i64 @_Z12get_local_idj(i32 noundef 0) #8\n  %x = trunc i64 %i to i32\n"), 1);
  cr_expect_eq(thawed("  %v = load i32, i32 addrspace(1)* %to, align 4, !tbaa !7\n  %x = shl nuw i32 %v, 3\n"), 1);
  cr_expect_eq(thawed("  %c = icmp slt i32 %n, 0\n  %x = select i1 %c, i32 %n, i32 5\n"), 1);
}

Test(sdk_freeze, goes_where_a_loop_counts) {
  cr_expect_eq(thawed("  br label %l\nl:\n  %x = phi i32 [ %n, %entry ], [ %m, %l ]\n  %m = add nsw i32 %x, 64\n"), 1);
}

Test(sdk_freeze, stays_where_a_value_is_undefined_or_may_be) {
  static const char *const lines[] = {
      "  %x = add i32 %n, undef\n",
      "  %x = phi i32 [ undef, %entry ], [ %n, %l ]\n",
      "  %x = phi i32 [ poison, %entry ], [ %n, %l ]\n",
      "  %x = shl i32 1, %n\n",
      "  %f = sitofp i32 %n to float\n  %x = fptosi float %f to i32\n",
      "  %p = alloca i32, align 4\n  %x = load i32, i32* %p, align 4\n",
      "  %p = load i32, i32 addrspace(3)* @local, align 4\n  %x = add i32 %p, 1\n",
      "  %x = call spir_func i32 @mine(i32 %n)\n",
      "  %x = extractelement <4 x i32> %v, i64 0\n",
      "  %c = fcmp nnan olt float 0x0, 0x0\n  %x = select i1 %c, i32 1, i32 2\n",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) cr_expect_eq(thawed(lines[i]), 0, "%s", lines[i]);
}

/* Found by test/fuzz/modules.c. */
Test(sdk_freeze, a_text_that_ends_after_the_word_is_read_to_its_end) {
  static const char ends[] = "  %y = freeze ";
  for (size_t length = 1; length <= strlen(ends); length++) {
    char *const text_end = malloc(length + 1); /* exact, for the sanitizer */
    memcpy(text_end, ends, length);
    text_end[length] = '\0';
    cr_expect_eq(hal_thaw(text_end), 0);
    free(text_end);
  }
}

Test(sdk_freeze, stays_where_it_holds_no_integer) {
  char floats[] = "define void @k(float %x) {\n  %y = freeze float %x\n  ret void\n}\n";
  char vectors[] = "define void @k(<4 x i32> %x) {\n  %y = freeze <4 x i32> %x\n  ret void\n}\n";
  cr_expect_eq(hal_thaw(floats), 0);
  cr_expect_eq(hal_thaw(vectors), 0);
}

Test(sdk_freeze, takes_none_when_one_of_several_stays) {
  char both[] =
      "define void @k(i32 %n) {\n  %a = freeze i32 %n\n  %u = add i32 %n, undef\n  %b = freeze i32 %u\n  ret void\n}\n";
  cr_expect_eq(hal_thaw(both), 0);
}

Test(sdk_freeze, does_not_confuse_names_that_begin_alike) {
  char alike[] =
      "define void @k(i32 %n) {\n  %1 = add i32 %n, 1\n  %12 = add i32 %n, undef\n  %2 = freeze i32 %1\n  ret "
      "void\n}\n";
  char other[] =
      "define void @k(i32 %n) {\n  %1 = add i32 %n, 1\n  %12 = add i32 %n, undef\n  %2 = freeze i32 %12\n  ret "
      "void\n}\n";
  cr_expect_eq(hal_thaw(alike), 1);
  cr_expect_eq(hal_thaw(other), 0);
}

Test(sdk_freeze, ends_in_text_that_is_cut_off_anywhere) {
  static const char whole[] = "define void @k(i32 %n) {\n  %1 = add i32 %n, 1\n  %2 = freeze i32 %1\n  ret void\n}\n";
  for (size_t length = 0; length < sizeof whole; length++) {
    char cut[sizeof whole] = "";
    memcpy(cut, whole, length);
    hal_thaw(cut);
    cr_assert_eq(strnlen(cut, sizeof cut), strnlen(cut, sizeof cut - 1), "the end is kept");
  }
}

Test(sdk_freeze, leaves_text_without_it_alone) {
  char none[] = "define void @k(i32 %n) {\n  ret void\n}\n", copy[sizeof none];
  memcpy(copy, none, sizeof none);
  cr_expect_eq(hal_thaw(none), 0);
  cr_expect_str_eq(none, copy);
}
