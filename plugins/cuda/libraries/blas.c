/* blas.c: cuBLASLt as one of the vendor's libraries (library.h). */
#include "blas.h"

blas_table_t blas;
static cublasLtHandle_t handles[CUDA_MAX_DEVICES]; /* each has the lifetime of the device's context */

#define ROW(name, result, parameters) {#name, offsetof(blas_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {BLAS_CALLS(ROW)};

/* Reads the version by its parts, because the number of cublasLtGetVersion has two formats. The major version is
 * CUDA's. */
static void version(cuda_library_version_t *out) {
  blas.cublasLtGetProperty(MAJOR_VERSION, &out->major);
  blas.cublasLtGetProperty(MINOR_VERSION, &out->minor);
  blas.cublasLtGetProperty(PATCH_LEVEL, &out->patch);
  out->cuda = out->major;
}

static int serve(int32_t device) {
  const cublasStatus_t code = blas.cublasLtCreate(&handles[device]);
  return (int)(code || handles[device] ? code : CUBLAS_STATUS_NOT_INITIALIZED);
}

static void forget(int32_t device, int lost) {
  if (handles[device] && !lost) blas.cublasLtDestroy(handles[device]);
  handles[device] = NULL;
}

static const char *code_name(int code) {
  switch (code) {
#define NAME(name, number) \
  case name:               \
    return #name;
    BLAS_STATUSES(NAME)
    default:
      return "a status without a name";
  }
}

cuda_library_t cuda_blas = {
    .opened = {.plugin = "cuda",
               .advice =
                   "for NVIDIA's matrix products install cuBLAS 11.4 or later (a toolkit's libcublasLt, or the Python "
                   "package nvidia-cublas), and set HAL_CUDA_CUBLASLT to its file if it is not found; without it "
                   "the portable kernels compute them",
               CUDA_LIBRARY_CALLS(symbols, blas)},
    .name = "cuBLAS",
    .work = "matrix products",
    .setting = "HAL_CUDA_CUBLASLT",
    .linked = "libcublasLt.so",
    .files = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
    .cuda_of_file = 13,
    .oldest = 1104,
    .version = version,
    .serve = serve,
    .code_name = code_name,
    .forget = forget,
    .lock = PTHREAD_MUTEX_INITIALIZER};

cublasLtHandle_t cuda_blas_handle(int32_t device) { return handles[device]; }
