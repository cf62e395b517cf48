/* cubin.h: real cubins, which load and are recorded but do not run: the driver's file CUDA_MOCK_CUBINS. */
#ifndef CUBIN_H_
#define CUBIN_H_

#include "driver_api.h"
#include "module_image.h"

typedef struct cubin_s cubin_t;

/* Returns whether an image is a file of NVIDIA's machine. */
int cubin_is_one(const void *image);

/* Reads a cubin and records that it was loaded. CUDA_ERROR_NO_BINARY_FOR_GPU: of another architecture, or cubins are
   not enabled. Released by cubin_close. */
CUresult cubin_open(const void *image, unsigned capability, cubin_t **out_cubin);
void cubin_close(cubin_t *cubin); /* NULL is allowed */
const module_image_t *cubin_image(const cubin_t *cubin);

/* Returns whether a kernel of the cubin accepts blocks of this size. */
int cubin_takes(const cubin_t *cubin, const module_kernel_t *kernel, const unsigned block[3]);
/* Appends a launch to the file; `attributes` are those of the launch, as text. */
void cubin_record(const module_kernel_t *kernel, const module_range_t *range, unsigned shared_bytes,
                  const char *attributes, void *const *arguments);

#endif /* CUBIN_H_ */
