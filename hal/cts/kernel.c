/* kernel.c: see kernel.h. */
#include "kernel.h"

#include <stdio.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#include "hal/status.h"

enum { BLOCK = 64 };

static void ramp(const hal_host_range_t *range, void *const *args) {
  int32_t *const to = *(int32_t *const *)args[0];
  const int32_t value = *(const int32_t *)args[1], count = *(const int32_t *)args[2];
  for (uint64_t i = range->begin; i < range->end; i++)
    if ((int64_t)i < count) to[i] = value + 3 * (int32_t)i;
}

static void add(const hal_host_range_t *range, void *const *args) {
  int32_t *const to = *(int32_t *const *)args[0];
  const int32_t value = *(const int32_t *)args[1], count = *(const int32_t *)args[2];
  for (uint64_t i = range->begin; i < range->end; i++)
    if ((int64_t)i < count) to[i] = to[i] * 2 + value;
}

static void values(const hal_host_range_t *range, void *const *args) {
  int64_t *const to = *(int64_t *const *)args[0];
  if (range->begin) return;
  to[0] = *(const int8_t *)args[1], to[1] = *(const int16_t *)args[2], to[2] = *(const int32_t *)args[3];
  to[3] = *(const int64_t *)args[4], to[4] = (int64_t)(*(const float *)args[5] * 4);
}

static void spin(const hal_host_range_t *range, void *const *args) {
  uint32_t *const to = *(uint32_t *const *)args[0];
  const int64_t value = *(const int64_t *)args[1];
  const int32_t count = *(const int32_t *)args[2], rounds = (int32_t)(value & INT32_MAX);
  for (uint64_t i = range->begin; i < range->end && (int64_t)i < count; i++) {
    uint32_t x = (uint32_t)(value >> 32) + (uint32_t)i;
    for (int32_t round = 0; round < rounds; round++) x = x * 1664525u + 1013904223u;
    to[i] = x;
  }
}

static void in_double(const hal_host_range_t *range, void *const *args) {
  double *const to = *(double *const *)args[0];
  const double value = *(const double *)args[1];
  const int32_t count = *(const int32_t *)args[2];
  for (uint64_t i = range->begin; i < range->end; i++)
    if ((int64_t)i < count) to[i] = value + (double)i;
}

static const hal_host_kernel_t host_kernels[] = {
    {.name = "cts_add", .fn = add, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256},
    {.name = "cts_double", .fn = in_double, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256},
    {.name = "cts_ramp", .fn = ramp, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256},
    {.name = "cts_spin", .fn = spin, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256},
    {.name = "cts_values", .fn = values, .arg_count = 6, .unit = HAL_HOST_ITEMS, .grain = 256}};

/* Dialects are separated by commas. */
int cts_takes_dialect(const cts_t *t, const char *dialect) {
  char list[sizeof t->info.dialects + 2], word[34];
  snprintf(list, sizeof list, ",%.63s", t->info.dialects);
  for (char *at = list; *at; at++)
    if (*at == ' ' || *at == ';') *at = ',';
  const size_t length = strlen(list);
  list[length] = ',', list[length + 1] = '\0';
  snprintf(word, sizeof word, ",%.31s,", dialect);
  return strstr(list, word) != NULL;
}

const cts_language_t *cts_language_of(const cts_t *t) {
  const cts_language_t *language = cts_languages;
  while (language->dialect && !cts_takes_dialect(t, language->dialect)) language++;
  return language->dialect ? language : NULL;
}

static int is_of_processor(const cts_t *t) { return cts_takes_dialect(t, "host") || cts_takes_dialect(t, "native"); }

static int find_kernels(cts_t *t, int with_doubles, hal_module_desc_t *out_desc) {
  const cts_language_t *const language = cts_language_of(t);
  *out_desc = (hal_module_desc_t){.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size), .options = ""};
  if (language) {
    out_desc->dialect = language->dialect, out_desc->data = with_doubles ? language->doubles : language->source;
    out_desc->size = strlen(out_desc->data);
  } else if (is_of_processor(t)) { /* a CPU that accepts the portable kernels may accept these, too */
    out_desc->dialect = "host", out_desc->data = host_kernels, out_desc->size = sizeof host_kernels;
  } else if (t->compiler) {
    *out_desc = cts_compile(t, with_doubles ? cts_languages[0].doubles : cts_languages[0].source);
  } else {
    return cts_unpack(t, with_doubles, out_desc);
  }
  return 1;
}

int cts_has_kernels(cts_t *t) {
  hal_module_desc_t desc;
  return t->compiler || find_kernels(t, 0, &desc);
}

hal_module_desc_t cts_kernels_describe(cts_t *t, int with_doubles) {
  hal_module_desc_t desc;
  if (!find_kernels(t, with_doubles, &desc)) cts_skip(t, CTS_NO_LANGUAGE, t->info.dialects);
  return desc;
}

hal_plugin_module_t *cts_module_of(cts_t *t, const hal_module_desc_t *desc) {
  hal_plugin_module_t *module = NULL;
  const hal_status_t status = cts_module_load(t, t->device, desc, &module);
  if (status == HAL_UNIMPLEMENTED && !cts_takes_dialect(t, desc->dialect))
    cts_skip(t, CTS_NO_LANGUAGE, t->info.dialects);
  cts_expect_ok(t, HAL_SLOT_module_load, status);
  CTS_CHECK(t, module, "module_load returned HAL_OK and no module");
  return module;
}

hal_plugin_module_t *cts_kernels_load(cts_t *t) {
  const hal_module_desc_t desc = cts_kernels_describe(t, 0);
  return cts_module_of(t, &desc);
}

hal_plugin_kernel_t *cts_kernel_find(cts_t *t, hal_plugin_module_t *module, const char *name) {
  hal_plugin_kernel_t *kernel = NULL;
  CTS_OK(t, kernel_get, module, name, &kernel);
  CTS_CHECK(t, kernel, "kernel_get returned HAL_OK and no kernel");
  return kernel;
}

void cts_launch_make(cts_launch_t *out, void *to, const void *value, uint32_t value_size, int32_t count,
                     uint32_t blocks, uint32_t threads) {
  *out = (cts_launch_t){.to = to,
                        .count = count,
                        .args = {{&out->to, sizeof out->to, HAL_ARG_POINTER},
                                 {&out->value, value_size, HAL_ARG_VALUE},
                                 {&out->count, sizeof out->count, HAL_ARG_VALUE}},
                        .launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, reserved),
                                   .grid = {blocks, 1, 1},
                                   .block = {threads, 1, 1},
                                   .arg_count = 3,
                                   .args = out->args}};
  memcpy(&out->value, value, value_size);
}

void cts_ramp_launch(cts_t *t, hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream, void *to, int32_t value,
                     int32_t count) {
  cts_launch_t with;
  cts_launch_make(&with, to, &value, sizeof value, count, ((uint32_t)count + BLOCK - 1) / BLOCK, BLOCK);
  CTS_OK(t, kernel_launch, kernel, stream, &with.launch);
  memset(&with, 0, sizeof with);
  __asm__ volatile("" : : "r"(&with) : "memory"); /* the stores happen */
}

void cts_ramp_check(cts_t *t, const void *device, int32_t value, int32_t factor, int32_t more, const char *what) {
  int32_t *const got = (int32_t *)(void *)cts_host(t, CTS_RAMP * 4), *const expected =
                                                                         (int32_t *)(void *)cts_host(t, CTS_RAMP * 4);
  for (int32_t i = 0; i < CTS_RAMP; i++) expected[i] = (value + 3 * i) * factor + more;
  cts_get(t, NULL, got, device, CTS_RAMP * 4);
  cts_same(t, got, expected, CTS_RAMP * 4, what);
}
