/* module_image.h: the format of the mock driver's modules: a shared object of this machine, built by compile.c,
 * which exports `cuda_mock_image`. The end of prelude.hpp declares the same in C++. */
#ifndef MODULE_IMAGE_H_
#define MODULE_IMAGE_H_

typedef struct module_range_s {
  unsigned grid[3], block[3];
  void *shared; /* that the launch requested */
  /* Runs `body` for all threads of a block, with barriers between them. */
  void (*fibres)(unsigned count, void (*body)(void *data, unsigned index), void *data);
} module_range_t;

typedef struct module_kernel_s {
  const char *name;
  void (*run)(const module_range_t *range, void **arguments);
  const unsigned *sizes; /* of the arguments, in bytes */
  unsigned count;
} module_kernel_t;

typedef struct module_image_s {
  unsigned version;      /* 1 */
  unsigned architecture; /* 90 */
  void (**yield)(void);  /* to be set before a kernel runs */
  const module_kernel_t *kernels;
  unsigned count;
} module_image_t;

#endif /* MODULE_IMAGE_H_ */
