/* bytes.c: copies and fills of bytes as steps of a group: as launches of equivalent kernels. */
#include <stdio.h>
#include <string.h>

#include "fusion/fuse.h"

/* Integers of each size: their kernels move bits. */
static const char *const tokens[HAL_FUSE_BYTES_SIZES] = {"u8", "i16", "i32", "i64"};

void hal_fuse_name_bytes(hal_fuse_t *fuse) {
  for (uint32_t i = 0; i < HAL_FUSE_BYTES_SIZES; i++) {
    const uint8_t size = (uint8_t)(1u << i);
    hal_op_form_t *const copy = &fuse->copy[i].form, *const fill = &fuse->fill[i].form;
    *copy = (hal_op_form_t){.operands = 2, .results = 1, .number_at = 2, .size = {size, size}};
    *fill = (hal_op_form_t){.operands = 1, .results = 1, .numbers = 1, .number_at = 1, .size = {size}};
    snprintf(copy->name, sizeof copy->name, "copy_%s_%s_contig", tokens[i], tokens[i]);
    snprintf(fill->name, sizeof fill->name, "fill_%s_contig", tokens[i]);
    fuse->copy[i].fits = fuse->fill[i].fits = 1;
  }
}

const hal_fuse_kernel_t *hal_fuse_copy_of(const hal_fuse_t *fuse, uint32_t size) {
  for (uint32_t i = 0; i < HAL_FUSE_BYTES_SIZES; i++)
    if (size == 1u << i) return &fuse->copy[i];
  return NULL;
}

/* Returns the index of the size with which `bytes` are `n` elements that are aligned at all addresses whose bits are
 * `addresses`; the number of sizes if there is none. */
static uint32_t size_of(uint64_t bytes, uint64_t n, uintptr_t addresses) {
  uint32_t i = 0;
  while (i < HAL_FUSE_BYTES_SIZES && (bytes % n || bytes / n != UINT64_C(1) << i)) i++;
  return i < HAL_FUSE_BYTES_SIZES && addresses % (UINT64_C(1) << i) ? HAL_FUSE_BYTES_SIZES : i;
}

static const hal_fuse_kernel_t *copy_of(const hal_fuse_t *fuse, const hal_command_t *command, uint64_t n,
                                        hal_fuse_bytes_t *bytes) {
  const uintptr_t to = (uintptr_t)command->u.copy.dst, from = (uintptr_t)command->u.copy.src;
  const int32_t ordinal = fuse->device->ordinal;
  if (command->u.copy.dst_device != ordinal || command->u.copy.src_device != ordinal) return NULL;
  const uint32_t at = size_of(command->u.copy.size, n, to | from);
  if (at == HAL_FUSE_BYTES_SIZES) return NULL;
  bytes->to = command->u.copy.dst;
  bytes->from = command->u.copy.src;
  bytes->args[1] = (hal_arg_t){.value = &bytes->from, .size = sizeof bytes->from, .kind = HAL_ARG_POINTER};
  return &fuse->copy[at];
}

static const hal_fuse_kernel_t *fill_of(const hal_fuse_t *fuse, const hal_command_t *command, uint64_t n,
                                        hal_fuse_bytes_t *bytes) {
  const uint32_t pattern = command->u.fill.pattern_size;
  const uint32_t at = size_of(command->u.fill.size, n, (uintptr_t)command->u.fill.dst), size = 1u << at;
  if (at == HAL_FUSE_BYTES_SIZES || size % pattern) return NULL;
  bytes->to = command->u.fill.dst;
  for (uint32_t i = 0; i < size; i += pattern) memcpy(bytes->number + i, command->u.fill.pattern, pattern);
  bytes->args[1] = (hal_arg_t){.value = bytes->number, .size = size, .kind = HAL_ARG_VALUE};
  return &fuse->fill[at];
}

const hal_fuse_kernel_t *hal_fuse_bytes(const hal_fuse_t *fuse, const hal_command_t *command, uint64_t n,
                                        hal_fuse_bytes_t *bytes) {
  const hal_fuse_kernel_t *const kernel =
      command->kind == HAL_COMMAND_COPY ? copy_of(fuse, command, n, bytes) : fill_of(fuse, command, n, bytes);
  if (!kernel) return NULL;
  bytes->n = n;
  bytes->args[0] = (hal_arg_t){.value = &bytes->to, .size = sizeof bytes->to, .kind = HAL_ARG_POINTER};
  bytes->args[2] = (hal_arg_t){.value = &bytes->n, .size = sizeof bytes->n, .kind = HAL_ARG_VALUE};
  bytes->launch =
      (hal_launch_t){.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args), .arg_count = 3, .args = bytes->args};
  return kernel;
}
