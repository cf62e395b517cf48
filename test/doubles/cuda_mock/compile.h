/* compile.h: compiles CUDA C to a shared object of this machine: the mock driver's implementation of NVRTC, and of
   the driver's compiler of PTX. */
#ifndef CUDA_MOCK_COMPILE_H_
#define CUDA_MOCK_COMPILE_H_

#include <stddef.h>

enum { COMPILE_GOOD = 0, COMPILE_WRONG = 1, COMPILE_BAD_OPTION = 2, COMPILE_BROKEN = 3 };

/* The values of options. */
typedef struct compile_options_s {
  unsigned architecture; /* 90 */
  int real;              /* 1: of a device (sm_90), else virtual (compute_90) */
  int fmad;
} compile_options_t;

/* Returns the text in place of PTX; `*out_log` receives the compiler's log. The caller releases both by free; they
   may remain NULL. Returns COMPILE_*. */
int mock_compile(const char *source, const char *name, int count, const char *const *options,
                 compile_options_t *out_options, char **out_ptx, char **out_log);

/* Compiles such text to a shared object for an architecture that is not older than the text's. */
int mock_assemble(const char *ptx, unsigned architecture, char **out_binary, size_t *out_size, char **out_log);

#endif /* CUDA_MOCK_COMPILE_H_ */
