/* rewrite.h: rewrites constructs of preprocessed CUDA C that C++ lacks (rewrite.c). */
#ifndef CUDA_MOCK_REWRITE_H_
#define CUDA_MOCK_REWRITE_H_

#include <stdio.h>

enum { MOST_KERNELS = 256, NAME_BYTES = 256 };

typedef struct rewritten_s {
  char kernels[MOST_KERNELS][NAME_BYTES];
  unsigned kernel_count;
  int has_barrier;
  char problem[256]; /* "" = none */
} rewritten_t;

/* Writes the text in C++, and returns its kernels. */
void rewrite(const char *text, FILE *to, rewritten_t *out);

#endif /* CUDA_MOCK_REWRITE_H_ */
