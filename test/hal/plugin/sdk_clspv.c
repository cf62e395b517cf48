/* Tests of the reader of clspv's reflection (hal/plugin_spirv.h): the arguments of a kernel, and damaged words. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "hal/plugin_spirv.h"

#ifdef ADD_NUMBER_SPIRV
static const uint32_t words[] = {
#include ADD_NUMBER_SPIRV
};
static const size_t WORDS = sizeof words / sizeof *words;
#else
static const uint32_t words[] = {0};
static const size_t WORDS = 0;
#endif

static void require_words(void) {
  if (!WORDS) cr_skip_test("no spirv-as");
}

TestSuite(sdk_clspv, .init = require_words);

Test(sdk_clspv, the_arguments_of_a_kernel_are_read) {
  hal_clspv_kernel_t kernel;
  cr_assert_eq(hal_clspv_kernel(words, WORDS, "add_number", &kernel), HAL_OK);
  cr_assert_eq(kernel.count, 6);
  cr_assert_eq(kernel.bindings, 2);
  cr_assert_eq(kernel.push_size, 24);
  cr_assert_eq(kernel.pod_size, 0);
  cr_assert_eq(kernel.block_ids[2], 2);
  cr_assert_eq(kernel.arguments[0].place, HAL_CLSPV_BUFFER);
  cr_assert_eq(kernel.arguments[2].binding, 1);
  cr_assert_eq(kernel.arguments[3].place, HAL_CLSPV_POD_PUSH);
  cr_assert_eq(kernel.arguments[3].offset, 8);
  cr_assert_eq(kernel.arguments[5].size, 4);
}

/* Returns the words with one more instruction of the reflection at the end; the caller frees them. */
static uint32_t *with_instruction(uint32_t number) {
  enum { OP_EXT_INST = 12, LENGTH = 7 };
  uint32_t import = 0;
  for (size_t at = 5; at < WORDS && !import; at += words[at] >> 16)
    if ((words[at] & 0xffff) == 11 && strstr((const char *)&words[at + 2], "ClspvReflection")) import = words[at + 1];
  const uint32_t instruction[LENGTH] = {LENGTH << 16 | OP_EXT_INST, 1, words[3] - 1, import, number, 1, 1};
  uint32_t *const more = malloc(4 * (WORDS + LENGTH));
  memcpy(more, words, 4 * WORDS);
  memcpy(more + WORDS, instruction, sizeof instruction);
  return more;
}

Test(sdk_clspv, the_size_of_a_local_array_is_no_argument_and_constant_data_are_unsupported) {
  static const struct {
    uint32_t number;
    hal_status_t status;
  } cases[] = {{42, HAL_OK}, {13, HAL_UNIMPLEMENTED}};
  for (int i = 0; i < 2; i++) {
    hal_clspv_kernel_t kernel;
    uint32_t *const more = with_instruction(cases[i].number);
    cr_assert_eq(hal_clspv_kernel(more, WORDS + 7, "add_number", &kernel), cases[i].status);
    free(more);
  }
}

Test(sdk_clspv, other_names_and_words_have_no_kernel) {
  hal_clspv_kernel_t kernel;
  const uint32_t none[5] = {0};
  cr_assert_eq(hal_clspv_kernel(words, WORDS, "add", &kernel), HAL_NOT_FOUND);
  cr_assert_eq(hal_clspv_kernel(words, 4, "add_number", &kernel), HAL_NOT_FOUND);
  cr_assert_eq(hal_clspv_kernel(none, 5, "add_number", &kernel), HAL_NOT_FOUND);
}

Test(sdk_clspv, strings_are_listed) {
  cr_assert_str_eq(hal_spirv_string(words, WORDS, 0), "torch_backend.fold=65535");
  cr_assert_str_eq(hal_spirv_string(words, WORDS, 1), "add_number");
  cr_assert_null(hal_spirv_string(words, WORDS, 3));
}

/* Every word is damaged, and the module ends after every word: no access is outside (with AddressSanitizer). */
Test(sdk_clspv, damaged_words_are_read_safely) {
  static const uint32_t values[] = {0, 1, 0xffff, 0x10000, 0xffff0000, UINT32_MAX};
  hal_clspv_kernel_t kernel;
  for (size_t count = 0; count < WORDS; count++) {
    uint32_t *const copy = malloc(4 * WORDS);
    memcpy(copy, words, 4 * count);
    uint32_t *const cut = realloc(copy, count ? 4 * count : 1);
    hal_clspv_kernel(cut, count, "add_number", &kernel);
    hal_spirv_string(cut, count, 9);
    free(cut);
  }
  for (size_t at = 0; at < WORDS; at++)
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      if (at == 3 && values[v] > 0xffffff) continue; /* an invalid bound, not a large allocation */
      uint32_t *const copy = malloc(4 * WORDS);
      memcpy(copy, words, 4 * WORDS);
      copy[at] = values[v];
      if (hal_clspv_kernel(copy, WORDS, "add_number", &kernel) == HAL_OK) {
        cr_assert_leq(kernel.count, HAL_SPIRV_ARGS);
        cr_assert_leq(kernel.bindings, HAL_SPIRV_ARGS);
      }
      free(copy);
    }
}
