/* schedule_key.c: the key of a command list: everything that determines its launches, as words. */
#include <string.h>

#include "hal/host_memory.h"
#include "lazy/schedule.h"

enum {
  MOST_WORDS = 1 << 16, /* of a key: some hundred operators have 5000 */
  HEAD = 10             /* most words of a command without its arguments and spans */
};

static int fits(hal_words_t *words, size_t more) {
  const size_t wanted = words->count + more;
  if (wanted <= words->room) return 1;
  if (wanted > MOST_WORDS) return 0;
  uint64_t *const grown = hal_malloc(2 * wanted * sizeof *grown);
  if (!grown) return 0;
  if (words->count) memcpy(grown, words->word, words->count * sizeof *grown);
  hal_free(words->word);
  words->word = grown;
  words->room = 2 * wanted;
  return 1;
}

static inline void put(hal_words_t *words, uint64_t word) { words->word[words->count++] = word; }

static inline void put_address(hal_words_t *words, const void *address) { put(words, (uint64_t)(uintptr_t)address); }

static inline void put_bytes(hal_words_t *words, const void *bytes, size_t size) {
  const size_t count = (size + 7) / 8;
  if (!count) return;
  words->word[words->count + count - 1] = 0;
  memcpy(&words->word[words->count], bytes, size);
  words->count += count;
}

/* Appends an operator and its memory accesses. */
static int put_op(hal_words_t *key, const hal_program_op_t *op) {
  if (!fits(key, 1 + 3 * (size_t)op->span_count)) return 0;
  put(key, (uint64_t)op->op << 32 | (op->spans ? op->span_count : UINT32_MAX));
  for (uint32_t i = 0; i < op->span_count; i++) {
    const hal_span_t *const span = &op->spans[i];
    put(key, span->low);
    put(key, span->high);
    put(key, (uint64_t)span->writes << 32 | span->dense);
  }
  return 1;
}

static inline uint64_t word_of(const hal_arg_t *argument) {
  uint64_t word = 0;
  if (HAL_LIKELY(argument->size == 8))
    memcpy(&word, argument->value, 8);
  else
    memcpy(&word, argument->value, 4);
  return word;
}

/* Appends an argument without a code, with a word for its kind and size. Reserves `more` words. */
static __attribute__((noinline)) int put_other(hal_words_t *key, hal_words_t *to, const hal_arg_t *argument,
                                               size_t more) {
  const size_t size = argument->kind == HAL_ARG_LOCAL     ? 0
                      : argument->kind == HAL_ARG_POINTER ? sizeof(void *)
                                                          : argument->size;
  put(key, (uint64_t)argument->kind << 32 | argument->size);
  if (!fits(to, (size + 7) / 8 + more) || !fits(key, more)) return 0;
  put_bytes(to, argument->value, size);
  return 1;
}

static inline void put_words(hal_words_t *to, const uint64_t *words, uint32_t count) {
  memcpy(&to->word[to->count], words, count * sizeof *words);
  to->count += count;
}

/* Appends arguments of any kind; those from `first` to `last` go to `numbers`. The caller has reserved three words for
 * each. */
static int put_arguments(hal_words_t *key, hal_words_t *numbers, const hal_launch_t *launch, uint32_t first,
                         uint32_t last) {
  const uint32_t count = launch->arg_count;
  for (uint32_t i = 0; i < count;) {
    const size_t place = key->count++;
    uint64_t codes = 0;
    for (const uint32_t end = count - i < HAL_ARG_CODES ? count : i + HAL_ARG_CODES; i < end; i++) {
      const hal_arg_t *const argument = &launch->args[i];
      hal_words_t *const to = i >= first && i < last ? numbers : key;
      const uint64_t code = hal_arg_code(argument->size, argument->kind);
      codes = codes << 2 | code;
      if (HAL_LIKELY(code))
        put(to, word_of(argument));
      else if (!put_other(key, to, argument, 3 * (size_t)(count - i)))
        return 0;
    }
    key->word[place] = codes;
  }
  return 1;
}

/* Appends a launch; the arguments from `first` to `last`, the scalars of an element-wise kernel, go to `numbers`. */
static int put_launch(hal_words_t *key, hal_words_t *numbers, const hal_command_t *command, uint32_t first,
                      uint32_t last) {
  const hal_launch_t *const launch = command->u.launch.launch;
  const uint32_t count = launch->arg_count;
  const int has_attributes = HAL_HAS_FIELD(launch, attribute_count) && launch->attribute_count;
  if (!fits(key, 4 + 3 * (size_t)count) || !fits(numbers, count)) return 0;
  put(key, (uint64_t)launch->grid[0] << 32 | launch->grid[1]);
  put(key, (uint64_t)launch->grid[2] << 32 | launch->block[0]);
  put(key, (uint64_t)launch->block[1] << 32 | launch->block[2]);
  put(key, (uint64_t)launch->shared_bytes << 32 | count << 1 | (uint32_t)has_attributes);
  if (HAL_UNLIKELY(!command->u.launch.codes || last > count)) return put_arguments(key, numbers, launch, first, last);
  const uint64_t *const words = launch->args->value;
  put(key, command->u.launch.codes);
  put_words(key, words, first);
  put_words(numbers, words + first, last - first);
  put_words(key, words + last, count - last);
  return 1;
}

/* Appends a command. A command that is replayed on its own has its own scalars, so these do not matter. The caller has
 * reserved HEAD words. */
static int put_command(hal_fuse_t *fuse, const hal_command_list_t *list, const hal_command_t *command, hal_words_t *key,
                       hal_words_t *numbers) {
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH: {
      const hal_fuse_kernel_t *const kernel =
          command->op == HAL_NO_OP ? NULL : hal_fuse_kernel(fuse, list->ops[command->op].op, command->u.launch.kernel);
      const hal_op_form_t *const form = kernel && !kernel->form.behind ? &kernel->form : NULL;
      put_address(key, command->u.launch.kernel);
      return put_launch(key, numbers, command, form ? form->number_at : 0, form ? form->number_at + form->numbers : 0);
    }
    case HAL_COMMAND_COPY: /* an upload's address differs in each list and does not matter */
      put_address(key, command->u.copy.dst);
      put_address(key, command->u.copy.src_device == HAL_HOST ? NULL : command->u.copy.src);
      put(key, command->u.copy.size);
      put(key, (uint64_t)(uint32_t)command->u.copy.dst_device << 32 | (uint32_t)command->u.copy.src_device);
      return 1;
    case HAL_COMMAND_FILL:
      put_address(key, command->u.fill.dst);
      put(key, command->u.fill.size);
      put(key, command->u.fill.pattern_size);
      put_bytes(key, command->u.fill.pattern, command->u.fill.pattern_size);
      return 1;
    case HAL_COMMAND_RANDOM:
      put_address(key, command->u.random->dst);
      put(key, command->u.random->count);
      put(key, (uint64_t)command->u.random->dtype);
      return 1;
    case HAL_COMMAND_FREED:
      put_address(key, command->u.freed.address);
      put(key, command->u.freed.size);
      return 1;
    default:
      return 1; /* barriers: with unknown memory effects */
  }
}

static int put_all(hal_fuse_t *fuse, const hal_command_list_t *list, hal_words_t *key, hal_words_t *numbers) {
  uint32_t last = HAL_NO_OP;
  for (uint32_t i = 0; i < list->command_count; i++) {
    const hal_command_t *const command = &list->commands[i];
    const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &list->ops[command->op];
    if (!fits(key, HEAD)) return 0;
    put(key, (uint64_t)command->kind << 32 | command->op);
    if (op && command->op != last && !put_op(key, op)) return 0;
    last = command->op;
    if (!fits(key, HEAD) || !put_command(fuse, list, command, key, numbers)) return 0;
  }
  return 1;
}

int hal_schedule_key(hal_fuse_t *fuse, const hal_command_list_t *list, hal_words_t *key, hal_words_t *numbers) {
  key->count = numbers->count = 0;
  hal_lock(&fuse->lock);
  const int done = put_all(fuse, list, key, numbers);
  hal_unlock(&fuse->lock);
  return done;
}

/* Four sums, so that consecutive words do not depend on each other. Collisions are found when the keys are compared. */
uint64_t hal_schedule_hash(const hal_words_t *words) {
  const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15), *const word = words->word;
  const size_t count = words->count;
  uint64_t a = count * factor, b = 0, c = 0, d = 0;
  size_t i = 0;
  for (; i + 3 < count; i += 4) {
    a = (a ^ word[i]) * factor;
    b = (b ^ word[i + 1]) * factor;
    c = (c ^ word[i + 2]) * factor;
    d = (d ^ word[i + 3]) * factor;
  }
  for (; i < count; i++) a = (a ^ word[i]) * factor;
  a = (a ^ a >> 32 ^ b) * factor;
  a = (a ^ a >> 32 ^ c) * factor;
  a = (a ^ a >> 32 ^ d) * factor;
  return a ^ a >> 32;
}
