/* entry.c: the functions by their names and versions, and the names of errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mock.h"

/* The version of CUDA that the library reports: functions of later versions are missing. */
static int version(void) { return (int)setting("CUDA_MOCK_VERSION", 13000); }

API CUresult cuDriverGetVersion(int *out) {
  *out = version();
  return CUDA_SUCCESS;
}

typedef void (*any_fn)(void);
typedef struct row_s {
  const char *name;
  any_fn function;
  int version;
} row_t;
#define FUNCTION_OF(name) (any_fn) name
#define ROW(name, version, parameters) {#name, FUNCTION_OF(name), version},
static const row_t rows[] = {CUDA_CALLS(ROW) CUDA_LATER_CALLS(ROW)};

/* CUDA_MOCK_MISSING=cuMemAlloc,cuInit: missing functions. */
static int is_missing(const char *name) {
  const char *const list = getenv("CUDA_MOCK_MISSING");
  const size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
  return 0;
}

static any_fn find(const char *name, int wanted) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].name, name) == 0)
      return rows[i].version <= wanted && rows[i].version <= version() && !is_missing(name) ? rows[i].function : NULL;
  return NULL;
}

/* Of 11.3; that of 12.0, with one more parameter, is exported as cuGetProcAddress_v2. */
API CUresult cuGetProcAddress(const char *symbol, void **function, int wanted, cuuint64_t flags);
CUresult cuGetProcAddress(const char *symbol, void **function, int wanted, cuuint64_t flags) {
  if (!symbol || !function || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  const any_fn found = find(symbol, wanted);
  memcpy(function, &found, sizeof found); /* ISO C has no cast from a function pointer */
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int wanted, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *found);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int wanted, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found) {
  const CUresult code = cuGetProcAddress(symbol, function, wanted, flags);
  if (found) *found = (CUdriverProcAddressQueryResult)(code ? 1 : CU_GET_PROC_ADDRESS_SUCCESS);
  return code;
}

/* NVIDIA's own libraries look up private functions of the driver by this one. NVRTC 13.2 calls it without a check. */
API CUresult cuGetExportTable(const void **table, const void *id);
CUresult cuGetExportTable(const void **table, const void *id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetErrorName(CUresult error, const char **text) {
  switch (error) {
#define NAME(name, number) \
  case name:               \
    *text = #name;         \
    return CUDA_SUCCESS;
    CUDA_RESULTS(NAME)
    default:
      *text = NULL;
      return CUDA_ERROR_INVALID_VALUE;
  }
}
