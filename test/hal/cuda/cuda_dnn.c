/* Tests of convolutions and batch normalization by cuDNN. The mock library refuses calls on request. An unusable
 * library is reported in a message, calls that it cannot express are declined before any work is queued, and a
 * failure names the failing call. op_convolution and op_batch_norm test the results. */
#include <pthread.h>

#include "cuda_dnn_testing.h"

TestSuite(cuda_dnn);

/* ---- a call ---- */

enum { EDGE = 6, WINDOW = 3, INNER = EDGE - WINDOW + 1, CHANNELS = 2 };

typedef struct sample_s {
  int64_t x_sizes[4], w_sizes[4], y_sizes[4], x_strides[4], w_strides[4], y_strides[4], channels, one;
  hal_tensor_t x, w, y, vectors[4];
  const hal_tensor_t *results[5];
  hal_value_t args[9];
  hal_op_call_t call;
} sample_t;

static hal_tensor_t on_device(const int64_t *sizes, int64_t *strides, int32_t ndim) {
  int64_t count = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) strides[i] = count, count *= sizes[i];
  return (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                        .data = words_on(0, (size_t)count * 4),
                        .sizes = sizes,
                        .strides = strides,
                        .ndim = ndim,
                        .dtype = HAL_FLOAT32};
}

static void fill(const hal_tensor_t *tensor, int64_t count, float (*number)(int64_t)) {
  float numbers[256];
  for (int64_t i = 0; i < count; i++) numbers[i] = number(i);
  OK(api.memory_copy(NULL, tensor->data, 0, numbers, HAL_HOST, (size_t)count * 4));
}

static float float_at(const hal_tensor_t *tensor, int64_t index) {
  const uint32_t word = word_at(0, (const uint32_t *)tensor->data + index);
  float number = 0;
  memcpy(&number, &word, sizeof number);
  return number;
}

static const int64_t ones[] = {1, 1}, zeros[] = {0, 0};

static float one_more(int64_t i) { return (float)(i % 5 + 1); }
static float one(int64_t i) { return (void)i, 1; }

/* An image of `EDGE`, windows of `WINDOW`; the sums of a window of ones are those of the image. */
static sample_t *convolution_new(void) {
  sample_t *const s = calloc(1, sizeof *s);
  const int64_t sizes[3][4] = {{1, 1, EDGE, EDGE}, {1, 1, WINDOW, WINDOW}, {1, 1, INNER, INNER}};
  memcpy(s->x_sizes, sizes[0], sizeof sizes[0]), memcpy(s->w_sizes, sizes[1], sizeof sizes[1]);
  memcpy(s->y_sizes, sizes[2], sizeof sizes[2]);
  s->x = on_device(s->x_sizes, s->x_strides, 4), s->w = on_device(s->w_sizes, s->w_strides, 4);
  s->y = on_device(s->y_sizes, s->y_strides, 4);
  fill(&s->x, EDGE * EDGE, one_more), fill(&s->w, WINDOW * WINDOW, one);
  const hal_value_t step = {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = ones},
                    none = {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = zeros};
  const hal_value_t args[] = {of(&s->x), of(&s->w), {0}, step, none, step, whole(0), none, whole(1)};
  memcpy(s->args, args, sizeof args);
  s->results[0] = &s->y;
  s->call = (hal_op_call_t){
      .struct_size = sizeof s->call, .arg_count = 9, .result_count = 1, .args = s->args, .results = s->results};
  return s;
}

static void expect_sums(const sample_t *s) {
  for (int64_t i = 0; i < INNER * INNER; i++) {
    float sum = 0;
    for (int64_t w = 0; w < WINDOW * WINDOW; w++)
      sum += one_more((i / INNER + w / WINDOW) * EDGE + i % INNER + w % WINDOW);
    cr_assert_eq(float_at(&s->y, i), sum, "element %d", (int)i);
  }
}

static sample_t *batch_norm_new(void) {
  sample_t *const s = convolution_new();
  s->channels = CHANNELS, s->one = 1;
  s->x_sizes[0] = 1, s->x_sizes[1] = CHANNELS;
  s->x = on_device(s->x_sizes, s->x_strides, 4), s->y = on_device(s->x_sizes, s->x_strides, 4);
  fill(&s->x, CHANNELS * EDGE * EDGE, one_more);
  for (int i = 0; i < 4; i++) {
    s->vectors[i] = on_device(&s->channels, &s->one, 1);
    fill(&s->vectors[i], CHANNELS, one);
  }
  const hal_value_t args[] = {of(&s->x),
                              of(&s->vectors[0]),
                              of(&s->vectors[1]),
                              of(&s->vectors[2]),
                              of(&s->vectors[3]),
                              {.tag = HAL_VALUE_BOOL, .u.i = 1},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 0.1},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 1e-5}};
  memcpy(s->args, args, sizeof args);
  s->results[3] = &s->vectors[2], s->results[4] = &s->vectors[3];
  s->call.arg_count = 8, s->call.result_count = 5;
  return s;
}

static hal_status_t run(const hal_op_own_t *own, const sample_t *s) { return own->fn(own->state, &s->call); }
static hal_status_t query(const hal_op_own_t *own, const sample_t *s) { return own->query(own->state, &s->call); }

/* ---- unusable libraries ---- */

static void refuses(const char *setting, const char *value, const char *says) {
  hal_op_own_t own = {.struct_size = sizeof own};
  open_with(setting, value);
  FAILS(api.op_find(0, "convolution_overrideable", &own), HAL_UNAVAILABLE, says);
  cr_assert_null(own.fn);
  message[0] = 0;
  cr_assert_eq(api.op_find(0, "native_batch_norm", &own), HAL_NOT_FOUND); /* reported once */
  cr_assert_str_empty(message);
}

Test(cuda_dnn, a_library_that_is_too_old_is_named_with_its_version) {
  refuses("CUDNN_MOCK_VERSION", "80800", "libcudnn.so.9 is cuDNN 8.8, too old");
}
Test(cuda_dnn, a_library_of_a_later_cuda_than_the_drivers_is_named_with_both) {
  refuses("CUDNN_MOCK_CUDART", "14010", "is cuDNN 9.28 of CUDA 14, and the driver is made for CUDA 13.0");
}
Test(cuda_dnn, one_that_does_not_support_the_device_is_reported_with_the_reason) {
  refuses("CUDNN_MOCK_REFUSES", "cudnnCreate=1001", "CUDNN_STATUS_NOT_INITIALIZED (1001)");
}
Test(cuda_dnn, a_named_file_that_is_missing_is_reported) {
  refuses("HAL_CUDA_CUDNN", "/nowhere/libcudnn.so", "/nowhere/libcudnn.so cannot be loaded");
}
Test(cuda_dnn, a_named_file_of_another_library_is_reported) {
  refuses("HAL_CUDA_CUDNN", "libm.so.6", "lacks cudnnGetProperty");
}
Test(cuda_dnn, a_missing_library_is_not_an_error_and_is_reported_at_the_first_query) {
  hal_op_own_t own = {.struct_size = sizeof own};
  open_with("HAL_CUDA_CUDNN", "");
  cr_assert_eq(api.op_find(0, "convolution_overrideable", &own), HAL_NOT_FOUND);
  cr_assert_eq(logged, 1);
}
Test(cuda_dnn, the_value_none_leaves_the_library_out_and_is_logged) {
  hal_op_own_t own = {.struct_size = sizeof own};
  open_with("HAL_CUDA_CUDNN", "none");
  cr_assert_eq(api.op_find(0, "convolution_overrideable", &own), HAL_NOT_FOUND);
  cr_assert_null(own.fn);
  cr_assert_eq(logged, 1);
  cr_assert(strstr(logged_last, "HAL_CUDA_CUDNN=none"), "%s", logged_last);
}
Test(cuda_dnn, version_8_and_an_earlier_cuda_serve) {
  setenv("CUDNN_MOCK_CUDART", "11080", 1);
  open_with("CUDNN_MOCK_VERSION", "80907");
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = convolution_new();
  OK(run(&own, s));
  expect_sums(s);
  free(s);
}

/* ---- calls that fail, or that the library does not support ---- */

Test(cuda_dnn, a_query_queues_nothing_and_a_positive_result_is_binding) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = convolution_new();
  OK(query(&own, s));
  cr_assert_eq(float_at(&s->y, 0), 0);
  cr_assert_eq(scratch_count, 0);
  OK(run(&own, s));
  expect_sums(s);
  cr_assert_eq(scratch_count, 1); /* the workspace of the algorithm that may be used */
  free(s);
}

/* The library's status for a call and the expected result; no output is written. */
static void ends(const char *name, sample_t *(*make)(void), const char *refusal, hal_status_t status,
                 const char *says) {
  open_with("CUDNN_MOCK_REFUSES", refusal);
  const hal_op_own_t own = found(name);
  sample_t *const s = make();
  message[0] = 0;
  FAILS(run(&own, s), status, says);
  cr_assert_eq(float_at(&s->y, 0), 0);
  if (s->results[3]) cr_assert_eq(float_at(s->results[3], 0), 1); /* the running mean */
  free(s);
}
static void convolution_ends(const char *refusal, hal_status_t status, const char *says) {
  ends("convolution_overrideable", convolution_new, refusal, status, says);
}
static void batch_norm_ends(const char *refusal, hal_status_t status, const char *says) {
  ends("native_batch_norm", batch_norm_new, refusal, status, says);
}

Test(cuda_dnn, without_an_algorithm_a_convolution_is_declined) {
  convolution_ends("cudnnGetConvolutionForwardAlgorithm_v7=3000", HAL_UNIMPLEMENTED, "");
}
Test(cuda_dnn, without_memory_of_the_host_a_convolution_fails_with_an_error) {
  convolution_ends("cudnnGetConvolutionForwardAlgorithm_v7=4003", HAL_RESOURCE_EXHAUSTED, "no memory of its own");
}
Test(cuda_dnn, version_8_has_another_number_for_that) {
  convolution_ends("cudnnGetConvolutionForwardAlgorithm_v7=2", HAL_RESOURCE_EXHAUSTED, "no memory of its own");
}
Test(cuda_dnn, without_a_descriptor_a_convolution_fails_and_leaves_none) {
  convolution_ends("cudnnCreateConvolutionDescriptor=4003", HAL_RESOURCE_EXHAUSTED, "convolution_overrideable");
}
Test(cuda_dnn, a_convolution_that_is_refused_at_the_call_is_reported_with_its_parameters) {
  convolution_ends("cudnnConvolutionForward=5000", HAL_INTERNAL,
                   "cuDNN refused convolution_overrideable of 1 images of 1 channels and 6 x 6 elements, for which it "
                   "had an algorithm: CUDNN_STATUS_EXECUTION_FAILED (5000)");
}

Test(cuda_dnn, a_type_that_the_device_lacks_is_declined) {
  open_with("CUDNN_MOCK_LACKS", "0");
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = convolution_new();
  cr_assert_eq(query(&own, s), HAL_UNIMPLEMENTED);
  cr_assert_eq(run(&own, s), HAL_UNIMPLEMENTED);
  free(s);
}

/* A missing algorithm is cached; a lack of memory is not. */
Test(cuda_dnn, a_want_of_memory_passes) {
  open_with("CUDNN_MOCK_REFUSES", "cudnnGetConvolutionForwardAlgorithm_v7=4003");
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = convolution_new();
  cr_assert_eq(query(&own, s), HAL_RESOURCE_EXHAUSTED);
  unsetenv("CUDNN_MOCK_REFUSES");
  OK(run(&own, s));
  expect_sums(s);
  free(s);
}

Test(cuda_dnn, a_norm_that_the_library_does_not_have_is_declined_without_writes) {
  batch_norm_ends("cudnnBatchNormalizationForwardTraining=3000", HAL_UNIMPLEMENTED, "");
}
Test(cuda_dnn, version_8_has_another_number_for_that_too) {
  batch_norm_ends("cudnnBatchNormalizationForwardTraining=9", HAL_UNIMPLEMENTED, "");
}
Test(cuda_dnn, a_failed_norm_is_reported_with_its_parameters) {
  batch_norm_ends("cudnnBatchNormalizationForwardTraining=5000", HAL_INTERNAL,
                  "cuDNN refused native_batch_norm of 1 images of 2 channels");
}

Test(cuda_dnn, what_it_has_no_words_for_is_declined) {
  open_with(NULL, NULL);
  const hal_op_own_t convolution = found("convolution_overrideable"), norm = found("native_batch_norm");
  sample_t *s = convolution_new();
  s->x_strides[2] = 1; /* rows overlap */
  cr_assert_eq(query(&convolution, s), HAL_UNIMPLEMENTED);
  s = convolution_new();
  s->x_sizes[0] = s->y_sizes[0] = 0;
  cr_assert_eq(query(&convolution, s), HAL_UNIMPLEMENTED);
  s = convolution_new();
  s->y_sizes[3]++; /* no window is there */
  cr_assert_eq(run(&convolution, s), HAL_UNIMPLEMENTED);
  s = convolution_new();
  s->args[3].count = 3;
  cr_assert_eq(run(&convolution, s), HAL_UNIMPLEMENTED);
  s = convolution_new();
  s->args[8] = whole(0);
  cr_assert_eq(run(&convolution, s), HAL_UNIMPLEMENTED);
  s = batch_norm_new();
  s->args[1].tag = HAL_VALUE_NONE;
  cr_assert_eq(query(&norm, s), HAL_UNIMPLEMENTED);
  s = batch_norm_new();
  s->results[3] = &s->vectors[0]; /* running statistics with separate outputs */
  cr_assert_eq(run(&norm, s), HAL_UNIMPLEMENTED);
  s = batch_norm_new();
  s->args[7].u.d = -1;
  cr_assert_eq(run(&norm, s), HAL_UNIMPLEMENTED);
  s = batch_norm_new();
  s->x_sizes[2] = s->x_sizes[3] = 1; /* the variance of one number is undefined */
  cr_assert_eq(run(&norm, s), HAL_UNIMPLEMENTED);
}

/* ---- operands with other layouts ---- */

/* Rows and columns exchanged: the library reads a copy. */
static sample_t *turned_new(void) {
  sample_t *const s = convolution_new();
  s->x_strides[2] = 1, s->x_strides[3] = EDGE;
  return s;
}

Test(cuda_dnn, an_operand_that_lies_otherwise_is_copied_before) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = turned_new();
  OK(query(&own, s));
  cr_assert_eq(scratch_count, 0);
  OK(run(&own, s));
  cr_assert_eq(scratch_count, 2); /* workspace and copy */
  for (int64_t i = 0; i < INNER * INNER; i++) {
    float sum = 0;
    for (int64_t w = 0; w < WINDOW * WINDOW; w++)
      sum += one_more((i % INNER + w % WINDOW) * EDGE + i / INNER + w / WINDOW);
    cr_assert_eq(float_at(&s->y, i), sum, "element %d", (int)i);
  }
  free(s);
}

Test(cuda_dnn, operands_that_it_cannot_copy_are_declined_without_writes) {
  open_with("CUDNN_MOCK_REFUSES", "cudnnTransformTensor=3000");
  const hal_op_own_t own = found("convolution_overrideable");
  sample_t *const s = turned_new();
  cr_assert_eq(run(&own, s), HAL_UNIMPLEMENTED);
  cr_assert_eq(float_at(&s->y, 0), 0);
  free(s);
}

/* ---- threads ---- */

static hal_op_own_t shared;

/* Each thread with its own stream; only one thread may use a handle of the library at a time. */
static void *convolve_often(void *unused) {
  sample_t *const s = convolution_new();
  (void)unused;
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &s->call.stream));
  for (int i = 0; i < 50; i++) OK(run(&shared, s));
  OK(api.stream_synchronize(s->call.stream));
  expect_sums(s);
  free(s);
  return NULL;
}

Test(cuda_dnn, threads_convolve_at_the_same_time) {
  pthread_t threads[4];
  open_with(NULL, NULL);
  shared = found("convolution_overrideable");
  for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&threads[i], NULL, convolve_often, NULL), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
