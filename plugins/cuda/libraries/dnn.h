/* dnn.h: convolutions and normalisation of batches by cuDNN (attention: attention.h): the library, its handles, and images in its words (dnn.c); convolutions in its
 * words (convolution.c) and the algorithms for them (algorithm.c), which convolution_op.c and batch_norm.c make of operators. */
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

/* Its version, as 92800; of a library that serves. */
int cuda_dnn_version(void);

/* Of what is remembered by its bytes; `more` goes into it as well. */
uint32_t cuda_dnn_hash(const void *data, size_t size, uint32_t more);

/* ---- handles: each is one thread's at a time ------------------------------------------------------------------------------------- */

/* Takes a handle of the device, whose context is current, or makes one. */
cudnnStatus_t cuda_dnn_take(int32_t device, cudnnHandle_t *out_handle);
void cuda_dnn_give(int32_t device, cudnnHandle_t handle);

/* Forgets the plans for attention that a device's handles were made for (attention.c); as of cuda_libraries_forget. */
void cuda_attention_forget(int32_t device, int lost);

/* Whether a status says that the library has no memory, or that it does not compute such: in the numbers of both versions. */
int cuda_dnn_has_no_memory(cudnnStatus_t code);
int cuda_dnn_is_unsupported(cudnnStatus_t code);

/* ---- images ------------------------------------------------------------------------------------------------------------------------ */

enum { DNN_DIMS = 5, DNN_SPATIAL = DNN_DIMS - 2 };

/* Batch, channels and two or three dimensions of space: the library knows no images of one, which get a first one of size 1. */
typedef struct dnn_image_s {
  int ndim, sizes[DNN_DIMS];
} dnn_image_t;

/* Whether a tensor lies densely in that order, at an address that the library's fast kernels take. */
int cuda_dnn_lies_in(const hal_tensor_t *tensor, cudnnTensorFormat_t format);

/* In which of the library's two orders all tensors lie, those that are NULL apart; -1 = in neither. */
int cuda_dnn_format(const hal_tensor_t *const *tensors, size_t count);

/* Returns 0 where there is no such image in the library: one without elements, of more dimensions or elements than it counts. */
int cuda_dnn_image(const hal_tensor_t *tensor, dnn_image_t *out);

/* Bytes of a dense image of that dtype. */
size_t cuda_dnn_bytes(hal_dtype_t dtype, const dnn_image_t *image);

cudnnDataType_t cuda_dnn_type(hal_dtype_t dtype);

/* What alpha and beta point at, of 0 or 1. */
const void *cuda_dnn_factor(hal_dtype_t dtype, int number);

/* Makes a descriptor of an image that lies densely in that order, or with those strides. */
cudnnStatus_t cuda_dnn_describe(hal_dtype_t dtype, cudnnTensorFormat_t format, const dnn_image_t *image,
                                cudnnTensorDescriptor_t *out);
cudnnStatus_t cuda_dnn_describe_strided(hal_dtype_t dtype, const dnn_image_t *image, const int *strides,
                                        cudnnTensorDescriptor_t *out);

/* The image with one number for each channel. */
dnn_image_t cuda_dnn_channels(const dnn_image_t *image);

/* ---- convolutions ---------------------------------------------------------------------------------------------------------------- */

/* Windows slide over the large image; the small one has a place for each window. */
typedef enum dnn_direction_e {
  DNN_SMALL, /* what is computed: the small image */
  DNN_LARGE, /* the large one */
  DNN_FILTER /* the weights */
} dnn_direction_t;

/* Numbers alone, all of one size: it is compared as bytes. */
typedef struct dnn_convolution_s {
  int device, dtype, format, groups;
  dnn_image_t large, small, filter;
  int pad[DNN_SPATIAL], step[DNN_SPATIAL], dilation[DNN_SPATIAL];
} dnn_convolution_t;

/* Where the memory of a call's tensors stands: operands in the order of its arguments, results. */
enum { DNN_OPERANDS = 3, DNN_TENSORS = 5 };

typedef struct dnn_pass_s {
  dnn_direction_t direction;
  int large, small, filter; /* places of their memory */
} dnn_pass_t;

/* An operand that lies otherwise than the library takes it: passes read its dense copy in scratch memory. */
typedef struct dnn_copy_s {
  int operand;           /* its place */
  dnn_image_t image, of; /* the copy; what it is of: a dimension that repeats has size 1 */
  int strides[DNN_DIMS];
} dnn_copy_t;

enum { DNN_PASSES = 2 };

/* A call: its passes, and what is added to the image that the first one computes or is summed up of the gradient. */
typedef struct dnn_work_s {
  const char *op; /* literal: the operator */
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

/* What the library is asked with. */
typedef struct dnn_plan_s {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t large, small, channels;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t convolution;
  dnn_choice_t choices[DNN_PASSES];
} dnn_plan_t;

/* Chooses, or remembers what was chosen before. CUDNN_STATUS_NOT_SUPPORTED = the library has none that serves. Thread-safe. */
cudnnStatus_t cuda_dnn_choose(const dnn_plan_t *plan, const dnn_convolution_t *convolution, dnn_direction_t direction,
                              dnn_choice_t *out);

/* Tells whether the library takes it: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing. */
hal_status_t cuda_convolution_query(const dnn_work_t *work);

/* Queues it, with scratch memory of `call`; passes read copies then. Errors: HAL_UNIMPLEMENTED = the library has none for it, no result is
 * touched; those of cuda_submit_begin, scratch_alloc and cuda_library_submitted. */
hal_status_t cuda_convolution_queue(const hal_op_call_t *call, dnn_work_t *work);

#endif /* DNN_H_ */
