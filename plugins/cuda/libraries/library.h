/* library.h: NVIDIA's libraries of operators, which are opened at run time if they are installed: their files, their
 * versions, the supported devices, and their results for queued work. */
#ifndef LIBRARY_H_
#define LIBRARY_H_

#include <hal/plugin_library.h>

#include "cuda_plugin.h"
#include "library_api.h"

/* The last name is the toolkit's file; a library with `package` has one file less. */
enum { CUDA_LIBRARY_FILES = HAL_LIBRARY_NAMES - 1, CUDA_LIBRARY_PATH = 4096 };

typedef struct cuda_library_version_s {
  int major, minor, patch;
  int cuda; /* the major version of CUDA that the library is built for: the driver's must not be an earlier one */
} cuda_library_version_t;

/* A library; a static variable that is never destroyed. Members up to `forget` are initialized, the others are zero. */
typedef struct cuda_library_s {
  hal_library_t opened;                  /* without names */
  const char *name;                      /* "cuBLAS" */
  const char *work;                      /* "matrix products": the work that the portable kernels do without it */
  const char *setting;                   /* the environment variable for its file */
  const char *linked;                    /* "libcublasLt.so": the file's name without its version */
  const char *files[CUDA_LIBRARY_FILES]; /* names with versions, the latest first */
  int cuda_of_file;    /* the major version of CUDA of the first file, each further one is one less; 0 = unknown */
  const char *package; /* NULL, or the file in a Python package, relative to the folder of packages */
  const char *without; /* NULL, or the text before `work` in messages instead of "the portable kernels compute" */
  int oldest;          /* minimum version: major * 100 + minor */
  void (*version)(cuda_library_version_t *out);
  int (*serve)(
      int32_t device); /* initializes it for a device, whose context is current; returns 0 or the library's status */
  const char *(*code_name)(int code);
  void (*forget)(int32_t device,
                 int lost); /* NULL, or destroys the objects of serve and its calls; as cuda_libraries_forget */
  pthread_mutex_t lock;     /* guards the members below */
  uint64_t served, refused; /* bit d: device d */
  int named;
  char in_toolkit[CUDA_LIBRARY_PATH], in_package[CUDA_LIBRARY_PATH];
} cuda_library_t;
_Static_assert(CUDA_MAX_DEVICES <= 64, "a bit for each device");

/* Initializes the library for a device; the first call opens it. Thread-safe. Errors: HAL_NOT_FOUND = there is none, or
 * it was refused before. HAL_UNAVAILABLE = the configured file is not such a library, is too old or too new for the
 * driver, or does not support the device; the message describes what to do. Also those of cuda_enter. */
hal_status_t cuda_library_serve(cuda_library_t *library, int32_t device);

/* Ends the use for a device; the next use initializes the library again; see cuda_libraries_forget. */
void cuda_library_forget(cuda_library_t *library, int32_t device, int lost);

/* Ends a command of the library, which returned `code`. Errors: HAL_INTERNAL = it refused `what`, which it had offered
 * to compute; those of cuda_submit_end. */
hal_status_t cuda_library_submitted(const cuda_library_t *library, cuda_submit_t *submit, int code, const char *what);

/* HAL_RESOURCE_EXHAUSTED: the library has no host memory for the operator. */
hal_status_t cuda_library_no_memory(const cuda_library_t *library, const char *op, int code);

#endif /* LIBRARY_H_ */
