/* host_table.c: the kernels compiled for the host, found by name (hal/plugin_kernels.h). The table is filled once, with
 * the widest instruction set that this CPU has and HAL_HOST_ISA permits. Products of bfloat16 are filled at the first
 * request for one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_amx.h"

#define X(name, unit, grain) extern const pk_host_entry_t name##_entry;
#include "pk_table.inc"
#undef X

static const struct {
  const pk_host_entry_t *entry;
  uint32_t unit, grain;
} rows[] = {
#define X(name, unit, grain) {&name##_entry, unit, grain},
#include "pk_table.inc"
#undef X
};
#define COUNT (sizeof(rows) / sizeof(rows[0]))

static hal_host_kernel_t table[COUNT];
static pthread_once_t table_once = PTHREAD_ONCE_INIT, products_once = PTHREAD_ONCE_INIT, isa_once = PTHREAD_ONCE_INIT;

/* ---- instruction sets -------------------------------------------------------------------------------------------- */
static const char *const isa_names[PK_ISA_COUNT] = {"base", "avx2", "avx512", "avx512_bf16", "amx", "amx_model"};
static int host_isa, wanted_isa = PK_ISA_AMX;

/* Lines for the log, until they are written. */
static char setting_line[320], products_line[320];
static int products_warn;
static _Atomic(const char *) setting_note, products_note;

static int cpu_isa(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return PK_ISA_BASE;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") ? PK_ISA_AVX512_BF16
                                                                                        : PK_ISA_AVX512;
  return PK_ISA_AVX2;
#else
  return PK_ISA_BASE;
#endif
}

static void isa_find(void) {
  const char *const setting = getenv("HAL_HOST_ISA");
  host_isa = cpu_isa();
  if (!setting || !*setting) return;
  int isa = 0;
  while (isa < PK_ISA_COUNT && strcmp(setting, isa_names[isa]) != 0) isa++;
  if (isa < PK_ISA_COUNT) {
    wanted_isa = isa;
    if (isa < host_isa) host_isa = isa;
    return;
  }
  snprintf(
      setting_line, sizeof setting_line,
      "HAL_HOST_ISA=%.80s is not an instruction set and is ignored; choose base, avx2, avx512, avx512_bf16, amx or "
      "amx_model",
      setting);
  atomic_store(&setting_note, setting_line);
}

int pk_host_isa(void) {
  pthread_once(&isa_once, isa_find);
  return host_isa;
}

const char *hal_host_kernel_options(void) {
#if defined(__x86_64__)
#define AVX2 PK_FLOATING_OPTIONS " -mavx2 -mfma"
#define AVX512 AVX2 " -mavx512f -mavx512bw -mavx512dq -mavx512vl"
  static const char *const options[] = {PK_FLOATING_OPTIONS, AVX2, AVX512, AVX512};
#undef AVX2
#undef AVX512
  return options[pk_host_isa()];
#else
  return PK_FLOATING_OPTIONS;
#endif
}

/* ---- products of bfloat16 ---------------------------------------------------------------------------------------- */
static int products_isa;

static void products_find(void) {
  pk_host_isa();
  products_isa = pk_amx_choose(&pk_amx_this_machine, wanted_isa, products_line, sizeof products_line, &products_warn);
  const size_t length = strlen(products_line);
  snprintf(products_line + length, sizeof products_line - length, "%sbfloat16 products of the host use %s",
           length ? "; " : "", isa_names[products_isa ? products_isa : host_isa]);
  atomic_store(&products_note, products_line);
}

int pk_amx_isa(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, products_find);
  return products_isa;
}

const char *hal_host_kernel_note(int32_t *out_warns) {
  const char *note = atomic_exchange(&setting_note, NULL);
  *out_warns = 1;
  if (note) return note;
  note = atomic_exchange(&products_note, NULL);
  *out_warns = note && products_warn;
  return note;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
static int is_product(const pk_host_entry_t *entry) { return entry->fn[PK_ISA_AMX_MODEL] != NULL; }

hal_host_kernel_fn_t pk_host_entry_fn(const pk_host_entry_t *entry) {
  int isa = pk_host_isa();
  const int amx = is_product(entry) ? pk_amx_isa() : 0;
  if (amx) return entry->fn[amx];
  while (!entry->fn[isa]) isa--; /* the base always exists */
  return entry->fn[isa];
}

static void table_fill(void) {
  for (size_t i = 0; i < COUNT; i++) {
    const pk_host_entry_t *const entry = rows[i].entry;
    table[i] = (hal_host_kernel_t){.name = entry->name,
                                   .fn = is_product(entry) ? NULL : pk_host_entry_fn(entry),
                                   .arg_count = entry->arg_count,
                                   .unit = rows[i].unit,
                                   .grain = rows[i].grain};
  }
}

/* Fills the functions of products: finding AMX changes the process, so it happens at the first use. */
static void products_fill(void) {
  for (size_t i = 0; i < COUNT; i++)
    if (is_product(rows[i].entry)) table[i].fn = pk_host_entry_fn(rows[i].entry);
}

size_t hal_host_kernel_count(void) { return COUNT; }

const hal_host_kernel_t *hal_host_kernel_at(size_t index) {
  pthread_once(&table_once, table_fill);
  if (index >= COUNT) return NULL;
  if (is_product(rows[index].entry)) pthread_once(&products_once, products_fill);
  return &table[index];
}

static size_t find(const char *name) {
  size_t low = 0, high = COUNT;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = strcmp(name, rows[middle].entry->name);
    if (order == 0) return middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return COUNT;
}

const hal_host_kernel_t *hal_host_kernel_find(const char *name) { return hal_host_kernel_at(find(name)); }

hal_host_kernel_fn_t pk_host_kernel_fn(const char *name, int isa) {
  const size_t index = find(name);
  if (index == COUNT || isa < 0 || isa >= PK_ISA_COUNT) return NULL;
  if (isa == PK_ISA_AMX && pk_amx_isa() != PK_ISA_AMX) return NULL;
  return isa < PK_ISA_AMX && isa > pk_host_isa() ? NULL : rows[index].entry->fn[isa];
}
