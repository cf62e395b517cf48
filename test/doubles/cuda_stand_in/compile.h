/* compile.h: CUDA C to a shared object of this machine: what the stand-in has in NVRTC's place, and in that of the driver's compiler of PTX. */
#ifndef CUDA_STAND_IN_COMPILE_H_
#define CUDA_STAND_IN_COMPILE_H_

#include <stddef.h>

enum { COMPILE_GOOD = 0, COMPILE_WRONG = 1, COMPILE_BAD_OPTION = 2, COMPILE_BROKEN = 3 };

/* What options say. */
typedef struct compile_options_s {
  unsigned architecture; /* 90 */
  int real;              /* 1: of a device (sm_90), else virtual (compute_90) */
  int fmad;
} compile_options_t;

/* Gives text that stands for PTX; `*out_log` are the compiler's words. Both are released by free; they may stay NULL. Returns COMPILE_*. */
int stand_in_compile(const char *source, const char *name, int count, const char *const *options,
                     compile_options_t *out_options, char **out_ptx, char **out_log);

/* Makes a shared object of such text for an architecture that is not below the text's. */
int stand_in_assemble(const char *ptx, unsigned architecture, char **out_binary, size_t *out_size, char **out_log);

#endif /* CUDA_STAND_IN_COMPILE_H_ */
