/* spirv.c: what a module in SPIR-V says of its kernels. Level Zero gives an argument as size and bytes; whether it is an address is in
 * the storage class of the parameter's type. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { OP_ENTRY_POINT = 15, OP_TYPE_POINTER = 32, OP_FUNCTION = 54, OP_FUNCTION_PARAMETER = 55 };
enum { MODEL_KERNEL = 6, HEADER_WORDS = 5, MAGIC = 0x07230203 };
enum { STORAGE_CONSTANT = 0, STORAGE_WORKGROUP = 4, STORAGE_CROSS_WORKGROUP = 5, STORAGE_NONE = 255 };

static int is_spirv(const uint32_t *words, size_t count) { return count >= HEADER_WORDS && words[0] == MAGIC; }

/* The name of an entry point of `length` words, NULL when it does not end within it. */
static const char *entry_name(const uint32_t *words, uint32_t length) {
  const char *const name = (const char *)&words[3];
  return length > 3 && memchr(name, '\0', (length - 3) * sizeof *words) ? name : NULL;
}

static int is_kernel(const uint32_t *words, uint32_t length) {
  return (words[0] & 0xffff) == OP_ENTRY_POINT && length > 3 && words[1] == MODEL_KERNEL && entry_name(words, length);
}

const char *spirv_kernel_name(const uint32_t *words, size_t count, uint32_t index) {
  if (!is_spirv(words, count)) return NULL;
  for (size_t at = HEADER_WORDS; at < count;) {
    const uint32_t length = words[at] >> 16;
    if (!length || length > count - at) return NULL;
    if (is_kernel(words + at, length) && index-- == 0) return entry_name(words + at, length);
    at += length;
  }
  return NULL;
}

static uint8_t parameter_of(uint8_t storage) {
  if (storage == STORAGE_WORKGROUP) return PARAMETER_LOCAL;
  return storage == STORAGE_CONSTANT || storage == STORAGE_CROSS_WORKGROUP ? PARAMETER_POINTER : PARAMETER_VALUE;
}

int spirv_signature(const uint32_t *words, size_t count, const char *name, signature_t *out_signature) {
  uint32_t entry = 0, function = 0;
  signature_t found = {.count = 0};
  if (!is_spirv(words, count)) return 0;
  const uint32_t bound = words[3];
  uint8_t *const storage = bound < count * 8 ? malloc(bound) : NULL; /* each word names few ids */
  if (!storage) return 0;
  memset(storage, STORAGE_NONE, bound);
  for (size_t at = HEADER_WORDS; at < count;) {
    const uint32_t *const word = words + at, op = word[0] & 0xffff, length = word[0] >> 16;
    if (!length || length > count - at) break;
    if (op == OP_TYPE_POINTER && length > 3 && word[1] < bound) storage[word[1]] = (uint8_t)word[2];
    if (is_kernel(word, length) && strcmp(entry_name(word, length), name) == 0) entry = word[2];
    if (op == OP_FUNCTION && length > 2) function = word[2];
    if (op == OP_FUNCTION_PARAMETER && entry && function == entry && found.count < MAX_ARGS && word[1] < bound)
      found.parameters[found.count++] = parameter_of(storage[word[1]]);
    at += length;
  }
  free(storage);
  *out_signature = found;
  return entry != 0;
}
