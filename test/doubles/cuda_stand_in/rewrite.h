/* rewrite.h: what C++ has no word for, in preprocessed CUDA C (rewrite.c). */
#ifndef CUDA_STAND_IN_REWRITE_H_
#define CUDA_STAND_IN_REWRITE_H_

#include <stdio.h>

enum { MOST_KERNELS = 256, NAME_BYTES = 256 };

typedef struct rewritten_s {
  char kernels[MOST_KERNELS][NAME_BYTES];
  unsigned kernel_count;
  int has_barrier;
  char problem[256]; /* "" = none */
} rewritten_t;

/* Writes the text in C++, and says which kernels there are. */
void rewrite(const char *text, FILE *to, rewritten_t *out);

#endif /* CUDA_STAND_IN_REWRITE_H_ */
