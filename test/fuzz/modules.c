/* modules.c: SPIR-V and LLVM IR as a damaged file has them. The first byte selects the reader. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "freeze.h"
#include "hal/plugin_spirv.h"
#include "hal/status.h"

static void require(int holds) {
  if (!holds) abort();
}

static void read_signatures(const uint32_t *words, size_t count) {
  for (uint32_t i = 0; i < 8; i++) {
    const char *const name = hal_spirv_kernel_name(words, count, i);
    hal_spirv_signature_t signature;
    if (!name) return;
    if (!hal_spirv_signature(words, count, name, &signature)) continue;
    for (uint32_t k = 0; k < signature.count && k < HAL_SPIRV_ARGS; k++) require(signature.sizes[k] != UINT32_MAX);
  }
}

static void read_reflection(const uint32_t *words, size_t count) {
  for (uint32_t i = 0; i < 8; i++) {
    const char *const name = hal_spirv_string(words, count, i);
    hal_clspv_kernel_t kernel;
    if (!name) return;
    if (hal_clspv_kernel(words, count, name, &kernel) != HAL_OK) continue;
    require(kernel.count <= HAL_SPIRV_ARGS);
    for (uint32_t k = 0; k < kernel.count; k++) require(kernel.arguments[k].place <= HAL_CLSPV_POD_PUSH);
  }
}

static void thaw(const uint8_t *data, size_t size) {
  char *const text = malloc(size + 1);
  if (!text) return;
  memcpy(text, data, size);
  text[size] = '\0';
  const size_t length = strlen(text);
  hal_thaw(text);
  require(strlen(text) == length);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  if (data[0] % 3 == 0) {
    thaw(data + 1, size - 1);
    return 0;
  }
  const size_t count = (size - 1) / sizeof(uint32_t);
  uint32_t *const words = malloc(count ? count * sizeof *words : 1); /* exact, so that a read past the end is found */
  if (!words) return 0;
  memcpy(words, data + 1, count * sizeof *words);
  (data[0] % 3 == 1 ? read_signatures : read_reflection)(words, count);
  free(words);
  return 0;
}
