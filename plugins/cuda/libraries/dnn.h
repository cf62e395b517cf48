/* dnn.h: convolutions and normalization of batches by cuDNN (attention: attention.h): the library, its handles, and its
 * descriptors of images (dnn.c); convolutions (convolution.c) and their algorithms (algorithm.c), which
 * convolution_op.c and batch_norm.c use for operators. */
#ifndef DNN_H_
#define DNN_H_

#include "dnn_api.h"
#include "library.h"

#define DNN_DECLARE_CALL(name, result, parameters) result(*name) parameters;
typedef struct dnn_table_s {
  DNN_CALLS(DNN_DECLARE_CALL)
} dnn_table_t;
extern dnn_table_t dnn;
extern cuda_library_t cuda_dnn;

/* Returns the version of a library that is in use, as 92800. */
int cuda_dnn_version(void);

/* Returns a hash of bytes for caches; includes `more`. */
uint32_t cuda_dnn_hash(const void *data, size_t size, uint32_t more);

/* ---- handles: one thread at a time uses each -------------------------------------------------------------------- */

/* Takes an unused handle of the device, whose context is current, or creates one. */
cudnnStatus_t cuda_dnn_take(int32_t device, cudnnHandle_t *out_handle);
void cuda_dnn_give(int32_t device, cudnnHandle_t handle);

/* Removes the attention plans of a device's handles (attention.c); as cuda_libraries_forget. */
void cuda_attention_forget(int32_t device, int lost);

/* Return whether a status means that the library is out of memory, or that it does not support the call, in the numbers
 * of both versions. */
int cuda_dnn_has_no_memory(cudnnStatus_t code);
int cuda_dnn_is_unsupported(cudnnStatus_t code);

/* ---- images ----------------------------------------------------------------------------------------------------- */

enum { DNN_DIMS = 5, DNN_SPATIAL = DNN_DIMS - 2 };

/* Batch, channels and two or three spatial dimensions. The library has no images of one dimension; these get a first
 * one of size 1. */
typedef struct dnn_image_s {
  int ndim, sizes[DNN_DIMS];
} dnn_image_t;

/* Returns whether a tensor is dense in that memory format, at an address that the library's fast kernels support. */
int cuda_dnn_lies_in(const hal_tensor_t *tensor, cudnnTensorFormat_t format);

/* Returns which of the library's two memory formats all tensors have, ignoring NULL; -1 = neither. */
int cuda_dnn_format(const hal_tensor_t *const *tensors, size_t count);

/* Returns 0 if the library does not support such an image: without elements, with more dimensions or elements than it
 * counts. */
int cuda_dnn_image(const hal_tensor_t *tensor, dnn_image_t *out);

/* Returns the bytes of a dense image of that dtype. */
size_t cuda_dnn_bytes(hal_dtype_t dtype, const dnn_image_t *image);

cudnnDataType_t cuda_dnn_type(hal_dtype_t dtype);

/* Returns the pointer for alpha and beta of 0 or 1. */
const void *cuda_dnn_factor(hal_dtype_t dtype, int number);

/* Creates a descriptor of an image that is dense in that memory format, or has those strides. */
cudnnStatus_t cuda_dnn_describe(hal_dtype_t dtype, cudnnTensorFormat_t format, const dnn_image_t *image,
                                cudnnTensorDescriptor_t *out);
cudnnStatus_t cuda_dnn_describe_strided(hal_dtype_t dtype, const dnn_image_t *image, const int *strides,
                                        cudnnTensorDescriptor_t *out);

/* Returns the image with one number per channel. */
dnn_image_t cuda_dnn_channels(const dnn_image_t *image);

/* ---- convolutions ----------------------------------------------------------------------------------------------- */

/* Windows slide over the large image; the small one has an element for each window. */
typedef enum dnn_direction_e {
  DNN_SMALL, /* computes the small image */
  DNN_LARGE, /* computes the large one */
  DNN_FILTER /* computes the weights */
} dnn_direction_t;

/* Contains only numbers of one size, because it is compared as bytes. */
typedef struct dnn_convolution_s {
  int device, dtype, format, groups;
  dnn_image_t large, small, filter;
  int pad[DNN_SPATIAL], step[DNN_SPATIAL], dilation[DNN_SPATIAL];
} dnn_convolution_t;

/* Indices of the memory of a call's tensors: operands in the order of its arguments, results. */
enum { DNN_OPERANDS = 3, DNN_TENSORS = 5 };

typedef struct dnn_pass_s {
  dnn_direction_t direction;
  int large, small, filter; /* indices of their memory */
} dnn_pass_t;

/* An operand in a layout that the library does not support: passes read its dense copy in scratch memory. */
typedef struct dnn_copy_s {
  int operand;           /* its index */
  dnn_image_t image, of; /* the copy; its source: a dimension that repeats has size 1 */
  int strides[DNN_DIMS];
} dnn_copy_t;

enum { DNN_PASSES = 2 };

/* A call: its passes, and the bias that is added to the image of the first one, or the bias's gradient. */
typedef struct dnn_work_s {
  const char *op; /* string literal: the operator */
  dnn_convolution_t convolution;
  dnn_pass_t passes[DNN_PASSES];
  dnn_copy_t copies[DNN_OPERANDS];
  int pass_count, copy_count;
  void *memory[DNN_TENSORS];
  const void *bias;    /* or NULL */
  void *bias_gradient; /* or NULL; of the first operand, the gradient of the results */
  int gradient_is_large;
} dnn_work_t;

/* How a pass is computed. */
typedef struct dnn_choice_s {
  unsigned algorithm;
  cudnnMathType_t math;
  size_t workspace;
} dnn_choice_t;

/* The arguments of the library's queries. */
typedef struct dnn_plan_s {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t large, small, channels;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t convolution;
  dnn_choice_t choices[DNN_PASSES];
} dnn_plan_t;

/* Chooses an algorithm, or returns a cached choice. CUDNN_STATUS_NOT_SUPPORTED = the library has no suitable one.
 * Thread-safe. */
cudnnStatus_t cuda_dnn_choose(const dnn_plan_t *plan, const dnn_convolution_t *convolution, dnn_direction_t direction,
                              dnn_choice_t *out);

/* Returns whether the library supports it: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing. */
hal_status_t cuda_convolution_query(const dnn_work_t *work);

/* Queues it, with scratch memory of `call`; passes then read copies. Errors: HAL_UNIMPLEMENTED = the library has no
 * algorithm for it, no result is changed; those of cuda_submit_begin, scratch_alloc and cuda_library_submitted. */
hal_status_t cuda_convolution_queue(const hal_op_call_t *call, dnn_work_t *work);

#endif /* DNN_H_ */
