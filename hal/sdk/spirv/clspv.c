/* clspv.c: reads the reflection that clspv writes into its modules: instructions of the extended instruction set
 * NonSemantic.ClspvReflection, whose operands are ids of strings and constants (hal/plugin_spirv.h). The words may be
 * damaged: every id and length is checked. */
#include <stdlib.h>
#include <string.h>

#include "hal/plugin_spirv.h"

enum { HEADER_WORDS = 5, MAGIC = 0x07230203, MOST_IDS = 1 << 24, MOST_BYTES = 1 << 16 };
enum { OP_STRING = 7, OP_EXT_INST_IMPORT = 11, OP_EXT_INST = 12, OP_CONSTANT = 43 };
/* Instructions of the reflection. */
enum {
  KERNEL = 1,
  ARGUMENT_INFO = 2,
  STORAGE_BUFFER = 3,
  POD_STORAGE_BUFFER = 5,
  POD_PUSH_CONSTANT = 7,
  WORKGROUP = 11,
  BLOCK_IDS = 12,
  REQUIRED_BLOCK = 24,
  SUBGROUP_SIZE = 25,
  LOCAL_ARRAY_SIZE = 42 /* of an array that the kernel declares */
};

/* What is known of the ids of a module. */
typedef struct reader_s {
  const uint32_t *words;
  size_t count;
  uint32_t bound, import;
  uint32_t *numbers;   /* by id: the value of a constant of 32 bits */
  uint32_t *strings;   /* by id: the position of the words of a string; 0 = it is not one */
  uint32_t kernel;     /* id of the kernel's description */
  hal_status_t status; /* HAL_UNIMPLEMENTED: something is not supported */
  hal_clspv_kernel_t *found;
} reader_t;

/* Returns the length of the instruction at a position; 0 = it is not completely within the words. */
static uint32_t length_at(const uint32_t *words, size_t count, size_t at) {
  const uint32_t length = words[at] >> 16;
  return length <= count - at ? length : 0;
}

/* Returns the text of `length` words; NULL if it does not end within them. */
static const char *text_of(const uint32_t *words, size_t length) {
  return memchr(words, '\0', length * sizeof *words) ? (const char *)words : NULL;
}

const char *hal_spirv_string(const uint32_t *words, size_t count, uint32_t index) {
  if (count < HEADER_WORDS || words[0] != MAGIC) return NULL;
  for (size_t at = HEADER_WORDS, length; at < count && (length = length_at(words, count, at)); at += length) {
    const char *const text =
        (words[at] & 0xffff) == OP_STRING && length > 2 ? text_of(words + at + 2, length - 2) : NULL;
    if (text && index-- == 0) return text;
  }
  return NULL;
}

/* ---- strings and constants -------------------------------------------------------------------------------------- */

static void note(reader_t *reader, const uint32_t *word, uint32_t length) {
  static const char set[] = "NonSemantic.ClspvReflection";
  const uint32_t op = word[0] & 0xffff;
  if (length < 3) return;
  if (op == OP_EXT_INST_IMPORT) {
    const char *const text = text_of(word + 2, length - 2);
    if (text && strncmp(text, set, sizeof set - 1) == 0) reader->import = word[1];
  }
  if (op == OP_STRING && word[1] < reader->bound && text_of(word + 2, length - 2))
    reader->strings[word[1]] = (uint32_t)(word + 2 - reader->words);
  if (op == OP_CONSTANT && length > 3 && word[2] < reader->bound) reader->numbers[word[2]] = word[3];
}

/* ---- the reflection --------------------------------------------------------------------------------------------- */

/* The operands of one instruction, which are ids. */
typedef struct operands_s {
  const reader_t *reader;
  const uint32_t *ids;
  uint32_t count;
} operands_t;

/* Returns the value of an operand; 0 if there is none. */
static uint32_t number(const operands_t *operands, uint32_t index) {
  if (index >= operands->count || operands->ids[index] >= operands->reader->bound) return 0;
  return operands->reader->numbers[operands->ids[index]];
}

static const char *string(const operands_t *operands, uint32_t index) {
  if (index >= operands->count || operands->ids[index] >= operands->reader->bound) return "";
  const uint32_t at = operands->reader->strings[operands->ids[index]];
  return at ? (const char *)(operands->reader->words + at) : "";
}

static void raise(uint32_t *most, uint32_t value) {
  if (value > *most) *most = value;
}

static void read_argument(reader_t *reader, uint32_t what, const operands_t *operands) {
  hal_clspv_kernel_t *const found = reader->found;
  const uint32_t index = number(operands, 1), push = what == POD_PUSH_CONSTANT;
  if (index >= HAL_SPIRV_ARGS || (!push && number(operands, 2))) { /* another descriptor set than 0 */
    reader->status = HAL_UNIMPLEMENTED;
    return;
  }
  hal_clspv_argument_t *const argument = &found->arguments[index];
  const uint32_t first = push ? 2 : 4;
  if (!push) argument->binding = number(operands, 3);
  if (argument->binding >= HAL_SPIRV_ARGS) reader->status = HAL_UNIMPLEMENTED;
  if (!push) raise(&found->bindings, argument->binding + 1);
  if (what == STORAGE_BUFFER) {
    argument->place = HAL_CLSPV_BUFFER;
    return;
  }
  argument->place = push ? HAL_CLSPV_POD_PUSH : HAL_CLSPV_POD_BUFFER;
  argument->offset = number(operands, first);
  argument->size = number(operands, first + 1);
  if (argument->offset > MOST_BYTES || argument->size > MOST_BYTES) {
    reader->status = HAL_UNIMPLEMENTED;
    return;
  }
  if (!push) found->pod_binding = argument->binding;
  raise(push ? &found->push_size : &found->pod_size, argument->offset + argument->size);
}

static void read_kernel(reader_t *reader, const char *name, uint32_t id, const operands_t *operands) {
  if (strcmp(string(operands, 1), name) != 0) return;
  reader->kernel = id;
  reader->found->count = number(operands, 2);
  if (reader->found->count > HAL_SPIRV_ARGS) reader->status = HAL_UNIMPLEMENTED;
}

static void read_instruction(reader_t *reader, const char *name, const uint32_t *word, uint32_t length) {
  const operands_t operands = {reader, word + 5, length - 5};
  const uint32_t what = word[4];
  if (what == KERNEL) {
    read_kernel(reader, name, word[2], &operands);
  } else if (what == BLOCK_IDS) {
    for (uint32_t i = 0; i < 3; i++) reader->found->block_ids[i] = number(&operands, i);
  } else if (what > ARGUMENT_INFO && what < BLOCK_IDS) {
    if (!reader->kernel || !operands.count || operands.ids[0] != reader->kernel) return;
    if (what == STORAGE_BUFFER || what == POD_STORAGE_BUFFER || what == POD_PUSH_CONSTANT)
      read_argument(reader, what, &operands);
    else
      reader->status = HAL_UNIMPLEMENTED;
  } else if (what == REQUIRED_BLOCK) {
    if (!reader->kernel || !operands.count || operands.ids[0] != reader->kernel) return;
    for (uint32_t i = 0; i < 3; i++) reader->found->block[i] = number(&operands, i + 1);
  } else if (what != ARGUMENT_INFO && what != SUBGROUP_SIZE && what != LOCAL_ARRAY_SIZE) {
    reader->status = HAL_UNIMPLEMENTED; /* of the module: constant data, global sizes and offsets */
  }
}

static void read_module(reader_t *reader, const char *name) {
  for (int pass = 0; pass < 2; pass++)
    for (size_t at = HEADER_WORDS, length; at < reader->count && (length = length_at(reader->words, reader->count, at));
         at += length) {
      const uint32_t *const word = reader->words + at;
      if (pass == 0)
        note(reader, word, (uint32_t)length);
      else if ((word[0] & 0xffff) == OP_EXT_INST && length >= 5 && reader->import && word[3] == reader->import)
        read_instruction(reader, name, word, (uint32_t)length);
    }
}

hal_status_t hal_clspv_kernel(const uint32_t *words, size_t count, const char *name, hal_clspv_kernel_t *out_kernel) {
  hal_clspv_kernel_t found = {.count = 0};
  if (count < HEADER_WORDS || words[0] != MAGIC || !words[3] || words[3] > MOST_IDS) return HAL_NOT_FOUND;
  reader_t reader = {.words = words, .count = count, .bound = words[3], .found = &found};
  reader.numbers = calloc(reader.bound, sizeof *reader.numbers);
  reader.strings = calloc(reader.bound, sizeof *reader.strings);
  hal_status_t status = HAL_RESOURCE_EXHAUSTED;
  if (reader.numbers && reader.strings) {
    read_module(&reader, name);
    status = reader.kernel ? reader.status : HAL_NOT_FOUND;
  }
  free(reader.numbers);
  free(reader.strings);
  if (!status) *out_kernel = found;
  return status;
}
