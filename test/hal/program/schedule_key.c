/* schedule_key.c: the key of a command list distinguishes launches that differ in any input of a kernel. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "hal/host_memory.h"
#include "lazy/schedule.h"

enum {
  ARGS = 70,
  BIG = 100
}; /* more arguments than there are codes in a word; a value of many words, with a
                                  partial one */

/* A launch with arguments of each kind, which the tests change one at a time. */
static struct {
  unsigned char value[ARGS][BIG];
  hal_arg_t args[ARGS];
  hal_launch_t launch;
  hal_command_t command[2];
  hal_program_op_t op[2];
  hal_command_list_t list;
} made;

static hal_fuse_t fuse;
static hal_words_t key, numbers, before;

static void make(void) {
  static const hal_arg_t kinds[] = {{.size = 8, .kind = HAL_ARG_POINTER}, {.size = 8, .kind = HAL_ARG_VALUE},
                                    {.size = 4, .kind = HAL_ARG_VALUE},   {.size = BIG, .kind = HAL_ARG_VALUE},
                                    {.size = 1, .kind = HAL_ARG_VALUE},   {.size = 64, .kind = HAL_ARG_LOCAL}};
  memset(&made, 0, sizeof made);
  for (uint32_t i = 0; i < ARGS; i++) {
    made.args[i] = kinds[i % (sizeof kinds / sizeof kinds[0])];
    if (made.args[i].kind != HAL_ARG_LOCAL) made.args[i].value = made.value[i];
  }
  made.launch = (hal_launch_t){.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {2, 2, 2},
                               .block = {2, 2, 2},
                               .arg_count = ARGS,
                               .args = made.args};
  for (uint32_t i = 0; i < 2; i++)
    made.command[i] =
        (hal_command_t){.kind = HAL_COMMAND_LAUNCH, .op = HAL_NO_OP, .u.launch = {.launch = &made.launch}};
  made.list = (hal_command_list_t){.commands = made.command, .ops = made.op, .command_count = 2, .op_count = 2};
}

static void end(void) {
  hal_free(key.word);
  hal_free(numbers.word);
  hal_free(before.word);
}

TestSuite(schedule_key, .init = make, .fini = end, .timeout = 60);

static void take_key(void) { cr_assert(hal_schedule_key(&fuse, &made.list, &key, &numbers)); }

static void keep_key(void) {
  take_key();
  hal_free(before.word);
  before = key;
  key = (hal_words_t){.word = NULL};
}

static int is_kept_key(void) {
  take_key();
  return key.count == before.count && !memcmp(key.word, before.word, key.count * sizeof *key.word);
}

/* The key must change with a number, and be restored with it. */
static void expect_in_key(uint32_t *number, const char *what, uint32_t i) {
  keep_key();
  *number += 1;
  cr_expect(!is_kept_key(), "%s of %u is not in the key", what, (unsigned)i);
  *number -= 1;
  cr_expect(is_kept_key(), "%s of %u", what, (unsigned)i);
}

Test(schedule_key, each_byte_of_each_argument_is_in_the_key) {
  keep_key();
  for (uint32_t i = 0; i < ARGS; i++)
    for (uint32_t byte = 0; made.args[i].value && byte < made.args[i].size; byte++) {
      made.value[i][byte] = 1;
      cr_expect(!is_kept_key(), "byte %u of argument %u is not in the key", (unsigned)byte, (unsigned)i);
      made.value[i][byte] = 0;
    }
  cr_expect(is_kept_key());
}

Test(schedule_key, each_argument_is_distinguished_from_one_of_another_kind_or_size) {
  for (uint32_t i = 0; i < ARGS; i++) {
    const hal_arg_t argument = made.args[i];
    keep_key();
    if (argument.size == 8) {
      made.args[i].kind = argument.kind == HAL_ARG_POINTER ? HAL_ARG_VALUE : HAL_ARG_POINTER;
      cr_expect(!is_kept_key(), "the kind of argument %u", (unsigned)i);
    }
    made.args[i] = argument;
    made.args[i].size = argument.size == 4 ? 8 : argument.size / 2;
    if (argument.kind != HAL_ARG_POINTER) cr_expect(!is_kept_key(), "the size of argument %u", (unsigned)i);
    made.args[i] = argument;
  }
}

Test(schedule_key, geometry_and_kernel_are_in_the_key) {
  for (uint32_t i = 0; i < 3; i++) {
    expect_in_key(&made.launch.grid[i], "the grid", i);
    expect_in_key(&made.launch.block[i], "the block", i);
  }
  expect_in_key(&made.launch.shared_bytes, "the shared memory", 0);
  keep_key();
  made.command[0].u.launch.kernel = (hal_plugin_kernel_t *)&made;
  cr_expect(!is_kept_key());
  made.command[0].u.launch.kernel = NULL;
  made.launch.arg_count--;
  cr_expect(!is_kept_key());
}

Test(schedule_key, operators_and_their_accesses_are_in_the_key) {
  static hal_span_t spans[2] = {{.low = 64, .high = 128}, {.low = 256, .high = 512, .writes = 1}};
  made.command[0].op = 0; /* a copy, so that no kernel is looked up */
  made.command[0].kind = made.command[1].kind = HAL_COMMAND_COPY;
  made.op[0] = (hal_program_op_t){.op = 7, .spans = spans, .span_count = 2};
  expect_in_key(&made.op[0].op, "the operator", 0);
  expect_in_key(&spans[1].writes, "what is written", 1);
  expect_in_key(&spans[0].dense, "what is dense", 0);
  keep_key();
  made.op[0].span_count = 1;
  cr_expect(!is_kept_key(), "the accesses of an operator");
  made.op[0].span_count = 0;
  keep_key();
  made.op[0].spans = NULL;
  cr_expect(!is_kept_key(), "an operator without accesses, and one with unknown accesses");
  keep_key();
  made.command[1].op = 0;
  cr_expect(!is_kept_key(), "a second command of the same operator");
}

Test(schedule_key, a_command_list_that_is_too_long_has_none) {
  made.launch.arg_count = 64;
  const uint32_t count = 4000;
  hal_command_t *const commands = hal_malloc(count * sizeof *commands);
  cr_assert_not_null(commands);
  for (uint32_t i = 0; i < count; i++) commands[i] = made.command[0];
  made.list.commands = commands;
  made.list.command_count = 1;
  cr_expect(hal_schedule_key(&fuse, &made.list, &key, &numbers));
  made.list.command_count = count;
  cr_expect_not(hal_schedule_key(&fuse, &made.list, &key, &numbers));
  hal_free(commands);
}

Test(schedule_key, consecutive_words_produce_the_same_key_as_arguments_one_by_one) {
  static uint64_t words[HAL_ARG_CODES];
  static const hal_arg_t kinds[] = {
      {.size = 8, .kind = HAL_ARG_POINTER}, {.size = 8, .kind = HAL_ARG_VALUE}, {.size = 4, .kind = HAL_ARG_VALUE}};
  uint64_t codes = 0;
  made.list.command_count = 1;
  for (uint32_t count = 1; count <= HAL_ARG_CODES; count++) {
    hal_arg_t *const last = &made.args[count - 1];
    words[count - 1] = UINT64_C(0x1000000) + count;
    *last = kinds[count % 3];
    last->value = &words[count - 1];
    codes = codes << 2 | hal_arg_code(last->size, last->kind);
    made.launch.arg_count = count;
    made.command[0].u.launch.codes = 0;
    keep_key();
    made.command[0].u.launch.codes = codes;
    cr_expect(is_kept_key(), "%u arguments", (unsigned)count);
    words[count - 1]++;
    cr_expect(!is_kept_key(), "the last of %u", (unsigned)count);
  }
}

static uint64_t hash_of(uint64_t *words, size_t count) {
  return hal_schedule_hash(&(hal_words_t){.word = words, .count = count});
}

Test(schedule_key, each_bit_of_each_word_is_in_the_hash) {
  uint64_t words[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (size_t count = 1; count <= 9; count++) {
    const uint64_t hash = hash_of(words, count);
    for (size_t i = 0; i < count; i++)
      for (uint32_t bit = 0; bit < 64; bit++) {
        words[i] ^= UINT64_C(1) << bit;
        cr_expect_neq(hash_of(words, count), hash, "bit %u of word %zu of %zu", (unsigned)bit, i, count);
        words[i] ^= UINT64_C(1) << bit;
      }
    cr_expect_neq(hash_of(words, count - 1), hash, "the number of words");
  }
}
