/* form.c: see form.h. */
#include "op/form.h"

#include <stdio.h>
#include <string.h>

#include "kernels/pk_chain.h"
#include "op/table.h"

/* The families whose kernels compute each element of the result from one element of each operand. */
typedef struct family_s {
  const char *name;
  uint8_t operands; /* including the result */
  uint8_t numbers;  /* number arguments after them */
} family_t;
static const family_t families[] = {{"unary", 2, 1}, {"binary", 3, 1}, {"ternary", 4, 1},
                                    {"where", 4, 0}, {"copy", 2, 0},   {"fill", 1, 1}};

/* The kernels that compute on whole segments. `has` of an operand: e = each element, s = each segment, p = each
 * position. */
typedef struct segments_s {
  const char *family, *variant, *has;
  uint8_t results;
  uint8_t behind[CHAIN_BEHIND];
} segments_t;
static const segments_t kernels_of_segments[] = {
    {"softmax", "rows", "ee", 1, {CHAIN_KEPT, CHAIN_COUNT, CHAIN_PER_GROUP, CHAIN_LENGTH}},
    {"softmax_backward", "rows", "eee", 1, {CHAIN_KEPT, CHAIN_COUNT, CHAIN_PER_GROUP, CHAIN_LENGTH}},
    {"reduce", "rows", "se", 1, {CHAIN_KEPT, CHAIN_COUNT, CHAIN_PER_GROUP, CHAIN_REDUCE, CHAIN_NUMBER}},
    {"layer_norm",
     "forward",
     "essepp",
     3,
     {CHAIN_COUNT, CHAIN_PER_GROUP, CHAIN_LENGTH, CHAIN_NUMBER, CHAIN_FLAG, CHAIN_FLAG, CHAIN_FLAG}},
    {"layer_norm_backward",
     "backward",
     "eeessp",
     1,
     {CHAIN_COUNT, CHAIN_PER_GROUP, CHAIN_LENGTH, CHAIN_FLAG, CHAIN_FLAG}},
};

static const family_t *family_of(const hal_op_info_t *info) {
  const char *const name = info->launch ? hal_op_families[info->family] : "";
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].name, name) == 0) return &families[i];
  return NULL;
}

/* Returns the segment kernel of a variant; NULL = none. */
static const segments_t *segments_of(const hal_op_info_t *info, const char *variant) {
  for (size_t i = 0; i < sizeof kernels_of_segments / sizeof *kernels_of_segments; i++) {
    const segments_t *const one = &kernels_of_segments[i];
    if (strcmp(one->family, hal_op_families[info->family]) == 0 && strcmp(one->variant, variant) == 0) return one;
  }
  return NULL;
}

static int is_of_segments(const char *family) {
  for (size_t i = 0; i < sizeof kernels_of_segments / sizeof *kernels_of_segments; i++)
    if (strcmp(kernels_of_segments[i].family, family) == 0) return 1;
  return 0;
}

_Static_assert(HAL_OP_FAMILY_COUNT <= 64, "families fit into a mask");
uint64_t hal_op_form_elements(void) {
  uint64_t mask = 0;
  for (uint32_t family = 0; family < HAL_OP_FAMILY_COUNT; family++)
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
      if (strcmp(families[i].name, hal_op_families[family]) == 0) mask |= UINT64_C(1) << family;
  return mask;
}

uint64_t hal_op_form_families(void) {
  uint64_t mask = hal_op_form_elements();
  for (uint32_t family = 0; family < HAL_OP_FAMILY_COUNT; family++)
    if (is_of_segments(hal_op_families[family])) mask |= UINT64_C(1) << family;
  return mask;
}

static hal_dtype_t dtype_of(uint32_t slot) {
  hal_dtype_t dtype = 0;
  while (hal_op_dtype_slots[dtype] != slot) dtype++; /* finds the dtype of the slot */
  return dtype;
}

/* Finds slot and variant of the kernel. Returns 0 if it is not a kernel of the operator. */
static int find(const hal_op_entry_t *entry, const hal_plugin_kernel_t *kernel, uint32_t *out_slot,
                uint32_t *out_variant) {
  const uint32_t variants = entry->info->variant_count;
  for (uint32_t i = 0; i < HAL_OP_DTYPE_SLOTS * variants; i++)
    if (atomic_load_explicit(&entry->handles[i], memory_order_acquire) == kernel) {
      *out_slot = i / variants;
      *out_variant = i % variants;
      return 1;
    }
  return 0;
}

/* Two variants each, by the source's dtype; then those from float8, and as many to float8 (hal/ops/copy/copy.c). */
static void set_sizes_of_copy(uint32_t pairs, uint32_t pair, hal_dtype_t dtype, hal_op_form_t *form) {
  const uint32_t float8 = (pairs - HAL_OP_DTYPE_SLOTS) / 2;
  if (pair < HAL_OP_DTYPE_SLOTS)
    form->size[1] = (uint8_t)hal_op_dtype_size(dtype_of(pair));
  else if (pair < HAL_OP_DTYPE_SLOTS + float8)
    form->size[1] = 1;
  else
    form->size[0] = 1, form->size[1] = (uint8_t)hal_op_dtype_size(dtype);
}

static void set_sizes(const hal_op_info_t *info, uint32_t slot, uint32_t variant, hal_op_form_t *form) {
  const hal_dtype_t dtype = dtype_of(slot);
  const char *const family = hal_op_families[info->family];
  for (uint32_t i = 0; i < PK_ROW_OPERANDS; i++) form->size[i] = (uint8_t)hal_op_dtype_size(dtype);
  if (strcmp(family, "where") == 0)
    form->size[1] = 1;
  else if (strcmp(family, "copy") == 0)
    set_sizes_of_copy(info->variant_count / 2, variant / 2, dtype, form);
  else if (info->result != HAL_OP_RESULT_ANY)
    form->size[0] = (uint8_t)hal_op_dtype_size(hal_op_result_dtype(info, dtype));
}

static void set_elements(const family_t *family, const hal_op_info_t *info, uint32_t slot, uint32_t variant,
                         hal_op_form_t *form) {
  const char *const name = info->variants[variant];
  const size_t length = strlen(name);
  const uint32_t number = length > 2 && strcmp(name + length - 2, "_s") == 0; /* 1: the second operand is a number */
  form->operands = form->number_at = family->operands - number;
  form->numbers = family->numbers + number;
  form->rows = strstr(name, "rows") != NULL;
  form->results = 1;
  set_sizes(info, slot, variant, form);
}

hal_dtype_t hal_op_form_accumulator(const hal_op_info_t *info, hal_dtype_t dtype) {
  if (dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16) return HAL_FLOAT32;
  return strcmp(info->kernel, "count") == 0 ? HAL_INT64 : dtype;
}

static void set_segments(const segments_t *kernel, const hal_op_info_t *info, uint32_t slot, hal_op_form_t *form) {
  const hal_dtype_t dtype = dtype_of(slot), accumulator = hal_op_form_accumulator(info, dtype);
  const uint8_t size = (uint8_t)hal_op_dtype_size(dtype), wide = (uint8_t)hal_op_dtype_size(accumulator);
  const int reduces = strcmp(kernel->family, "reduce") == 0;
  form->results = kernel->results;
  form->behind = kernel->behind;
  form->accumulator = wide;
  for (uint32_t k = 0; k < CHAIN_OPERANDS && kernel->has[k]; k++) {
    const char has = kernel->has[k];
    form->operands = k + 1;
    form->has[k] = has == 'e' ? CHAIN_EACH_ELEMENT : has == 's' ? CHAIN_EACH_SEGMENT : CHAIN_EACH_PLACE;
    form->size[k] = has == 'e' ? size : wide; /* weights: at most */
  }
  if (reduces && accumulator != HAL_INT64) form->size[0] = size; /* a count has the accumulator of int64 */
  form->number_at = form->operands;
  while (form->number_at < form->operands + CHAIN_BEHIND &&
         kernel->behind[form->number_at - form->operands] != CHAIN_NUMBER)
    form->number_at++;
  form->numbers = form->number_at < form->operands + CHAIN_BEHIND;
}

int hal_op_form_of(hal_device_t *device, uint32_t op, const hal_plugin_kernel_t *kernel, hal_op_form_t *out_form) {
  uint32_t slot, variant;
  if (op >= HAL_OP_BUILTIN_COUNT) return 0;
  const hal_op_entry_t *const entry = hal_op_entry(hal_op_table_of(device), op);
  const hal_op_info_t *const info = entry->info;
  if (!info->launch || !find(entry, kernel, &slot, &variant)) return 0;
  const family_t *const family = family_of(info);
  const segments_t *const segments = segments_of(info, info->variants[variant]);
  if (!family && !segments) return 0;
  *out_form = (hal_op_form_t){.operands = 0};
  snprintf(out_form->name, sizeof out_form->name, "%s_%s_%s", info->kernel, hal_op_dtype_tokens[slot],
           info->variants[variant]);
  if (family)
    set_elements(family, info, slot, variant, out_form);
  else
    set_segments(segments, info, slot, out_form);
  return strlen(out_form->name) + 1 < sizeof out_form->name;
}

hal_status_t hal_op_chain_kernel(hal_device_t *device, hal_plugin_kernel_t **out_kernel) {
  hal_op_table_t *const table = hal_op_table_of(device);
  if (!table->provider.native) return HAL_UNIMPLEMENTED;
  hal_mutex_lock_and_defer(&table->lock);
  const hal_status_t status = hal_provider_kernel(&table->provider, 0, CHAIN_KERNEL, out_kernel);
  hal_mutex_unlock_and_run(&table->lock);
  return status;
}
