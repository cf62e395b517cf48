/* spirv.c: reads the signatures of kernels in modules in SPIR-V (hal/plugin_spirv.h). Instructions of types precede the
 * functions that use them, so one pass is sufficient. */
#include "hal/plugin_spirv.h"

#include <stdlib.h>
#include <string.h>

enum {
  OP_ENTRY_POINT = 15,
  OP_TYPE_INT = 21,
  OP_TYPE_FLOAT = 22,
  OP_TYPE_VECTOR = 23,
  OP_TYPE_POINTER = 32,
  OP_FUNCTION = 54,
  OP_FUNCTION_PARAMETER = 55
};
enum { MODEL_KERNEL = 6, HEADER_WORDS = 5, MAGIC = 0x07230203 };
enum { STORAGE_CONSTANT = 0, STORAGE_WORKGROUP = 4, STORAGE_CROSS_WORKGROUP = 5 };

/* The known properties of an id of a type. */
typedef struct type_s {
  uint8_t kind; /* HAL_ARG_* */
  uint8_t size; /* 0 = not known */
} type_t;

/* Returns the name of an entry point of `length` words, NULL if it is not a kernel's or does not end within them. */
static const char *kernel_name(const uint32_t *word, uint32_t length) {
  const char *const name = (const char *)&word[3];
  if ((word[0] & 0xffff) != OP_ENTRY_POINT || length < 4 || word[1] != MODEL_KERNEL) return NULL;
  return memchr(name, '\0', (length - 3) * sizeof *word) ? name : NULL;
}

static type_t pointer_to(uint32_t storage) {
  if (storage == STORAGE_WORKGROUP) return (type_t){HAL_ARG_LOCAL, 0};
  if (storage == STORAGE_CONSTANT || storage == STORAGE_CROSS_WORKGROUP)
    return (type_t){HAL_ARG_POINTER, sizeof(void *)};
  return (type_t){HAL_ARG_VALUE, 0}; /* a struct by value */
}

/* Records a type. Every id is below `bound`. */
static void note_type(const uint32_t *word, uint32_t length, type_t *types, uint32_t bound) {
  const uint32_t op = word[0] & 0xffff;
  if (length < 3 || word[1] >= bound) return;
  if (op == OP_TYPE_INT || op == OP_TYPE_FLOAT) types[word[1]] = (type_t){HAL_ARG_VALUE, (uint8_t)(word[2] / 8)};
  if (op == OP_TYPE_VECTOR && length > 3 && word[2] < bound)
    types[word[1]] = (type_t){HAL_ARG_VALUE, (uint8_t)(types[word[2]].size * (word[3] == 3 ? 4 : word[3]))};
  if (op == OP_TYPE_POINTER && length > 3) types[word[1]] = pointer_to(word[2]);
}

static void note_parameter(hal_spirv_signature_t *signature, type_t type) {
  const uint32_t index = signature->count++;
  if (index >= HAL_SPIRV_ARGS) return;
  signature->kinds[index] = type.kind;
  signature->sizes[index] = type.size;
}

/* Returns the length of the instruction at a position; 0 = it is not completely within the words. */
static uint32_t length_at(const uint32_t *words, size_t count, size_t at) {
  const uint32_t length = words[at] >> 16;
  return length <= count - at ? length : 0;
}

const char *hal_spirv_kernel_name(const uint32_t *words, size_t count, uint32_t index) {
  if (count < HEADER_WORDS || words[0] != MAGIC) return NULL;
  for (size_t at = HEADER_WORDS; at < count;) {
    const uint32_t length = length_at(words, count, at);
    if (!length) return NULL;
    const char *const name = kernel_name(words + at, length);
    if (name && index-- == 0) return name;
    at += length;
  }
  return NULL;
}

int hal_spirv_signature(const uint32_t *words, size_t count, const char *name, hal_spirv_signature_t *out_signature) {
  hal_spirv_signature_t found = {.count = 0};
  uint32_t entry = 0, function = 0;
  if (count < HEADER_WORDS || words[0] != MAGIC) return 0;
  const uint32_t bound = words[3];
  type_t *const types =
      bound && bound <= 1u << 24 ? calloc(bound, sizeof *types) : NULL; /* damaged words may have any value */
  if (!types) return 0;
  for (size_t at = HEADER_WORDS, length; at < count && (length = length_at(words, count, at)); at += length) {
    const uint32_t *const word = words + at, op = word[0] & 0xffff;
    const char *const here = kernel_name(word, (uint32_t)length);
    if (here && strcmp(here, name) == 0) entry = word[2];
    if (op >= OP_TYPE_INT && op <= OP_TYPE_POINTER) note_type(word, (uint32_t)length, types, bound);
    if (op == OP_FUNCTION && length > 2) function = word[2];
    if (op == OP_FUNCTION_PARAMETER && length > 2 && entry && function == entry && word[1] < bound)
      note_parameter(&found, types[word[1]]);
  }
  free(types);
  *out_signature = found;
  return entry != 0;
}
