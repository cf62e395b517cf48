/* host_table.c: the kernels compiled for the host, found by name (hal/plugin_kernels.h). The table is filled once, with
 * the widest instruction set that this CPU has. */
#include <pthread.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_host.h"

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
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

int pk_host_isa(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return PK_ISA_BASE;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512bf16") ? PK_ISA_AVX512_BF16 : PK_ISA_AVX512;
  return PK_ISA_AVX2;
#else
  return PK_ISA_BASE;
#endif
}

hal_host_kernel_fn_t pk_host_entry_fn(const pk_host_entry_t *entry) {
  int isa = pk_host_isa();
  while (!entry->fn[isa]) isa--; /* the base is always there */
  return entry->fn[isa];
}

static void table_fill(void) {
  for (size_t i = 0; i < COUNT; i++) {
    table[i] = (hal_host_kernel_t){.name = rows[i].entry->name,
                                   .fn = pk_host_entry_fn(rows[i].entry),
                                   .arg_count = rows[i].entry->arg_count,
                                   .unit = rows[i].unit,
                                   .grain = rows[i].grain};
  }
}

size_t hal_host_kernel_count(void) { return COUNT; }

const hal_host_kernel_t *hal_host_kernel_at(size_t index) {
  pthread_once(&table_once, table_fill);
  return index < COUNT ? &table[index] : NULL;
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
  if (index == COUNT || isa < 0 || isa > pk_host_isa()) return NULL;
  return rows[index].entry->fn[isa];
}
