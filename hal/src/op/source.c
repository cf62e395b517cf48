/* source.c: the sources of the portable kernels. A kernel's source is the concatenation of three lists of pieces:
 * headers, macros of its instance, template; each piece is stored once in this library (codegen/kernel_sources.py). */
#include "op/source.h"

#include <stdint.h>
#include <string.h>

#include "base/host_malloc.h"
#include "hal/status.h"

#define LISTS 3 /* per kernel */

typedef struct source_kernel_s {
  uint32_t name; /* offset in source_names */
  uint16_t lists[LISTS];
} source_kernel_t;

/* Piece i is the text from source_pieces[i] to source_pieces[i + 1]; list i is the numbers of pieces from
 * source_lists[i] on; the kernels are sorted by name. */
#include "hal_op_source.inc"

#define KERNELS (sizeof source_kernels / sizeof *source_kernels)

static const source_kernel_t *find_in(const char *name, const source_kernel_t *rows, size_t count, const char *names) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = strcmp(name, names + rows[middle].name);
    if (order == 0) return &rows[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

static const source_kernel_t *find(const char *name) { return find_in(name, source_kernels, KERNELS, source_names); }

/* Writes the pieces of a list, unless `to` is NULL. Returns their size. */
static size_t put_list(uint32_t list, char *to) {
  size_t size = 0;
  for (uint32_t item = source_lists[list]; item < source_lists[list + 1]; item++) {
    const uint32_t piece = source_items[item], begin = source_pieces[piece], length = source_pieces[piece + 1] - begin;
    if (to) memcpy(to + size, source_text + begin, length);
    size += length;
  }
  return size;
}

/* Writes the text of a kernel, unless `to` is NULL. Returns its size. */
static size_t put(const source_kernel_t *kernel, char *to) {
  size_t size = 0;
  for (int i = 0; i < LISTS; i++) size += put_list(kernel->lists[i], to ? to + size : NULL);
  return size;
}

hal_status_t hal_op_source(const char *kernel, char **out_text, size_t *out_size) {
  const source_kernel_t *const row = find(kernel);
  if (!row) return hal_error_set(HAL_NOT_FOUND, "unknown portable kernel \"%s\"", kernel);
  const size_t size = put(row, NULL);
  char *const text = hal_malloc(size + 1);
  if (!text)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no memory for the %zu bytes of source of the kernel \"%s\"", size + 1,
                         kernel);
  put(row, text);
  text[size] = '\0';
  *out_text = text;
  *out_size = size;
  return HAL_OK;
}

size_t hal_op_source_step(const char *instance, char *to) {
  const source_kernel_t *const row =
      find_in(instance, source_steps, sizeof source_steps / sizeof *source_steps, step_names);
  return row ? put(row, to) : 0;
}

int hal_op_source_step_is_plain(const char *instance) {
  const source_kernel_t *const row =
      find_in(instance, source_steps, sizeof source_steps / sizeof *source_steps, step_names);
  return row && step_plain[row - source_steps];
}

hal_status_t hal_op_source_of_text(const char *text, int host, char **out_text, size_t *out_size) {
  const uint32_t dialect = host ? SOURCE_HOST : SOURCE_DIALECT;
  const size_t before = put_list(dialect, NULL), length = strlen(text);
  char *const whole = hal_malloc(before + length + 1);
  if (!whole)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no memory for the %zu bytes of a kernel's source",
                         before + length + 1);
  put_list(dialect, whole);
  memcpy(whole + before, text, length + 1);
  *out_text = whole;
  *out_size = before + length;
  return HAL_OK;
}

void hal_op_source_version(uint64_t out_version[2]) {
  static const uint64_t version[2] = SOURCE_VERSION;
  memcpy(out_version, version, sizeof version);
}

size_t hal_op_source_count(void) { return KERNELS; }

const char *hal_op_source_name(size_t index) {
  return index < KERNELS ? source_names + source_kernels[index].name : NULL;
}
