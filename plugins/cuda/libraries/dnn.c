/* dnn.c: cuDNN as one of the vendor's libraries (library.h), its handles, and its descriptors of images. */
#include "dnn.h"

#include <string.h>

dnn_table_t dnn;

/* ---- the library ------------------------------------------------------------------------------------------------ */

#define ROW(name, result, parameters) {#name, offsetof(dnn_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {DNN_CALLS(ROW)};

static void version(cuda_library_version_t *out) {
  dnn.cudnnGetProperty(MAJOR_VERSION, &out->major);
  dnn.cudnnGetProperty(MINOR_VERSION, &out->minor);
  dnn.cudnnGetProperty(PATCH_LEVEL, &out->patch);
  out->cuda = (int)(dnn.cudnnGetCudartVersion() / 1000);
}

int cuda_dnn_version(void) {
  cuda_library_version_t own = {0, 0, 0, 0};
  version(&own);
  return own.major * 10000 + own.minor * 100 + own.patch;
}

/* Creates the first handle, which takes some time. No handle is created while streams are captured, unless several
 * threads compute. */
static int serve(int32_t device) {
  cudnnHandle_t handle = NULL;
  const cudnnStatus_t code = cuda_dnn_take(device, &handle);
  if (!code) cuda_dnn_give(device, handle);
  return (int)code;
}

static const char *code_name(int code) {
  const char *const name = dnn.cudnnGetErrorString((cudnnStatus_t)code);
  return name ? name : "a status without a name";
}

static void forget(int32_t device, int lost);

cuda_library_t cuda_dnn = {
    .opened = {.plugin = "cuda",
               .advice =
                   "for NVIDIA's convolutions install cuDNN 8.9 or later, for its attention 9.0 (libcudnn, or the "
                   "Python package "
                   "nvidia-cudnn-cu13 or -cu12), and set HAL_CUDA_CUDNN to its file if it is not found; without it "
                   "the portable kernels compute them",
               CUDA_LIBRARY_CALLS(symbols, dnn)},
    .name = "cuDNN",
    .work = "convolutions, normalization of batches and attention",
    .setting = "HAL_CUDA_CUDNN",
    .linked = "libcudnn.so",
    .files = {"libcudnn.so.9", "libcudnn.so.8"},
    .oldest = 809,
    .version = version,
    .serve = serve,
    .code_name = code_name,
    .forget = forget,
    .lock = PTHREAD_MUTEX_INITIALIZER};

uint32_t cuda_dnn_hash(const void *data, size_t size, uint32_t more) {
  const unsigned char *const bytes = data;
  uint32_t hash = 2166136261u ^ more;
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 16777619u;
  return hash ^ hash >> 16;
}

/* ---- handles ---------------------------------------------------------------------------------------------------- */

/* Unused handles: as many as threads have computed at the same time. They are destroyed with the device's context;
 * those over the limit are destroyed immediately. */
enum { ROOM = 16 };
static struct {
  pthread_mutex_t lock;
  int count[CUDA_MAX_DEVICES];
  cudnnHandle_t free[CUDA_MAX_DEVICES][ROOM];
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

cudnnStatus_t cuda_dnn_take(int32_t device, cudnnHandle_t *out_handle) {
  *out_handle = NULL;
  pthread_mutex_lock(&handles.lock);
  if (handles.count[device]) *out_handle = handles.free[device][--handles.count[device]];
  pthread_mutex_unlock(&handles.lock);
  if (*out_handle) return CUDNN_STATUS_SUCCESS;
  const cudnnStatus_t code = dnn.cudnnCreate(out_handle);
  return code || *out_handle ? code : CUDNN_STATUS_NOT_INITIALIZED;
}

void cuda_dnn_give(int32_t device, cudnnHandle_t handle) {
  int kept = 0;
  pthread_mutex_lock(&handles.lock);
  if (handles.count[device] < ROOM) {
    handles.free[device][handles.count[device]++] = handle;
    kept = 1;
  }
  pthread_mutex_unlock(&handles.lock);
  if (!kept) dnn.cudnnDestroy(handle);
}

static void forget(int32_t device, int lost) {
  cuda_attention_forget(device, lost);
  pthread_mutex_lock(&handles.lock);
  while (handles.count[device]) {
    cudnnHandle_t const handle = handles.free[device][--handles.count[device]];
    if (!lost) dnn.cudnnDestroy(handle);
  }
  pthread_mutex_unlock(&handles.lock);
}

/* ---- statuses: the numbers of version 8 differ from those of version 9 ------------------------------------------ */

#define NAME_8(name, number) name##_8 = number,
enum { DNN_STATUSES_8(NAME_8) KIND = 1000 };

int cuda_dnn_has_no_memory(cudnnStatus_t code) {
  return (int)code == CUDNN_STATUS_ALLOC_FAILED_8 || code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

int cuda_dnn_is_unsupported(cudnnStatus_t code) {
  return (int)code == CUDNN_STATUS_NOT_SUPPORTED_8 || code / KIND * KIND == CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- images ----------------------------------------------------------------------------------------------------- */

enum { ALIGNMENT = 16 };

/* Returns the dimension from the innermost one on: the last one first, or the channels before it. */
static int dimension_at(cudnnTensorFormat_t format, int ndim, int place) {
  if (format == CUDNN_TENSOR_NCHW) return ndim - 1 - place;
  return place == 0 ? 1 : place == ndim - 1 ? 0 : ndim - place;
}

int cuda_dnn_lies_in(const hal_tensor_t *tensor, cudnnTensorFormat_t format) {
  int64_t expected = 1;
  if (tensor->ndim < 2 || (uintptr_t)tensor->data % ALIGNMENT) return 0;
  for (int place = 0; place < tensor->ndim; place++) {
    const int dim = dimension_at(format, tensor->ndim, place);
    if (tensor->sizes[dim] != 1 && tensor->strides[dim] != expected) return 0;
    if (__builtin_mul_overflow(expected, tensor->sizes[dim], &expected)) return 0;
  }
  return 1;
}

int cuda_dnn_format(const hal_tensor_t *const *tensors, size_t count) {
  static const cudnnTensorFormat_t formats[] = {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC};
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    size_t i = 0;
    while (i < count && (!tensors[i] || cuda_dnn_lies_in(tensors[i], formats[f]))) i++;
    if (i == count) return (int)formats[f];
  }
  return -1;
}

int cuda_dnn_image(const hal_tensor_t *tensor, dnn_image_t *out) {
  const int missing = tensor->ndim < 4 ? 4 - tensor->ndim : 0;
  int64_t elements = 1;
  *out = (dnn_image_t){.ndim = tensor->ndim + missing};
  if (tensor->ndim < 2 || out->ndim > DNN_DIMS) return 0;
  for (int i = 0; i < out->ndim; i++) out->sizes[i] = 1;
  for (int i = 0; i < tensor->ndim; i++) {
    if (tensor->sizes[i] < 1 || tensor->sizes[i] > INT32_MAX) return 0;
    elements *= tensor->sizes[i];
    if (elements > INT32_MAX) return 0;
    out->sizes[i < 2 ? i : i + missing] = (int)tensor->sizes[i];
  }
  return 1;
}

size_t cuda_dnn_bytes(hal_dtype_t dtype, const dnn_image_t *image) {
  size_t bytes = dtype == HAL_FLOAT64 ? 8 : dtype == HAL_FLOAT32 ? 4 : 2;
  for (int i = 0; i < image->ndim; i++) bytes *= (size_t)image->sizes[i];
  return bytes;
}

cudnnDataType_t cuda_dnn_type(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_FLOAT16:
      return CUDNN_DATA_HALF;
    case HAL_BFLOAT16:
      return CUDNN_DATA_BFLOAT16;
    case HAL_FLOAT64:
      return CUDNN_DATA_DOUBLE;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

const void *cuda_dnn_factor(hal_dtype_t dtype, int number) {
  static const double wide[] = {0, 1};
  static const float narrow[] = {0, 1};
  return dtype == HAL_FLOAT64 ? (const void *)&wide[number] : &narrow[number];
}

cudnnStatus_t cuda_dnn_describe_strided(hal_dtype_t dtype, const dnn_image_t *image, const int *strides,
                                        cudnnTensorDescriptor_t *out) {
  const cudnnStatus_t code = dnn.cudnnCreateTensorDescriptor(out);
  if (code) return code;
  return dnn.cudnnSetTensorNdDescriptor(*out, cuda_dnn_type(dtype), image->ndim, image->sizes, strides);
}

cudnnStatus_t cuda_dnn_describe(hal_dtype_t dtype, cudnnTensorFormat_t format, const dnn_image_t *image,
                                cudnnTensorDescriptor_t *out) {
  int strides[DNN_DIMS], next = 1;
  for (int place = 0; place < image->ndim; place++) {
    const int dim = dimension_at(format, image->ndim, place);
    strides[dim] = next;
    next *= image->sizes[dim];
  }
  return cuda_dnn_describe_strided(dtype, image, strides, out);
}

dnn_image_t cuda_dnn_channels(const dnn_image_t *image) {
  dnn_image_t channels = {.ndim = image->ndim};
  for (int i = 0; i < image->ndim; i++) channels.sizes[i] = i == 1 ? image->sizes[1] : 1;
  return channels;
}
