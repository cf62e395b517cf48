/* binary.c: sealed binaries (hal/plugin_binary.h). */
#include "hal/plugin_binary.h"

#include <stdio.h>
#include <string.h>

typedef struct seal_s {
  char magic[8];
  uint64_t bytes; /* after the seal */
  uint64_t sum;   /* of them */
  char maker[HAL_BINARY_MAKER];
} seal_t;

_Static_assert(sizeof(seal_t) == HAL_BINARY_SEAL, "the header promises the size of the seal");

static const char magic[8] = "HALBIN1";

static uint64_t sum_of(const unsigned char *data, size_t size) { /* FNV-1a */
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; i++) sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
  return sum;
}

void hal_binary_seal(void *data, size_t size, const char *maker) {
  seal_t seal = {.bytes = size, .sum = sum_of((const unsigned char *)data + sizeof seal, size)};
  memcpy(seal.magic, magic, sizeof magic);
  snprintf(seal.maker, sizeof seal.maker, "%s", maker);
  memcpy(data, &seal, sizeof seal);
}

hal_status_t hal_binary_open(const char *plugin, const hal_module_desc_t *desc, const char *maker,
                             const void **out_data, size_t *out_size) {
  char message[1024];
  seal_t seal;
  message[0] = '\0';
  if (desc->size <= sizeof seal || !desc->data || memcmp(desc->data, magic, sizeof magic) != 0) {
    snprintf(message, sizeof message,
             "%s: a module of %zu bytes in 'binary' is not a result of module_export; compile it from source", plugin,
             desc->size);
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, message);
  }
  memcpy(&seal, desc->data, sizeof seal);
  seal.maker[sizeof seal.maker - 1] = '\0';
  const unsigned char *const code = (const unsigned char *)desc->data + sizeof seal;
  const size_t size = desc->size - sizeof seal;
  if (strncmp(seal.maker, maker, sizeof seal.maker - 1) != 0)
    snprintf(message, sizeof message,
             "%s: a module in 'binary' was made for %s, and this is %s; compile it from source", plugin, seal.maker,
             maker);
  else if (seal.bytes != size || seal.sum != sum_of(code, size))
    snprintf(message, sizeof message, "%s: a module of %zu bytes in 'binary' is damaged; compile it from source",
             plugin, desc->size);
  if (message[0]) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, message);
  *out_data = code;
  *out_size = size;
  return HAL_OK;
}
