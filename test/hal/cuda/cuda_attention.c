/* Tests of attention by cuDNN. The mock library computes the graphs that it receives. Both passes must equal the
 * definition, in double precision. Calls that the library cannot express or has no engine for are declined before
 * any work is queued, and the refusal is cached. No failing library call may leak a descriptor. */
#include <math.h>
#include <pthread.h>

#include "cuda_dnn_testing.h"

TestSuite(cuda_attention);

#define FORWARD "_scaled_dot_product_fused_attention_overrideable"
#define BACKWARD FORWARD "_backward"

/* ---- a call ---- */

enum { QUERY, KEY, VALUE, RESULT, LOGARITHMS, GRAD, GRAD_QUERY, GRAD_KEY, GRAD_VALUE, TENSORS };

typedef struct sample_s {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size, causal;
  int64_t sizes[TENSORS][4], strides[TENSORS][4], counts[TENSORS];
  double *numbers[TENSORS]; /* sizes of the definition, and the operands in device memory */
  hal_tensor_t tensors[TENSORS];
  const hal_tensor_t *results[4];
  hal_value_t args[10];
  hal_op_call_t call;
} sample_t;

static double scale_of(const sample_t *s) { return 0.3 / (double)s->size; }

static void lay(sample_t *s, int which, int64_t heads, int64_t rows, int64_t columns, hal_dtype_t dtype) {
  const int64_t sizes[] = {s->batch, heads, rows, columns};
  int64_t *const strides = s->strides[which];
  memcpy(s->sizes[which], sizes, sizeof sizes);
  strides[3] = 1, strides[2] = columns, strides[1] = rows * columns, strides[0] = heads * rows * columns;
  s->counts[which] = s->batch * heads * rows * columns;
  s->numbers[which] = calloc((size_t)s->counts[which], sizeof(double));
  s->tensors[which] =
      (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                     .data = words_on(0, (size_t)s->counts[which] * (dtype == HAL_FLOAT16 ? 2 : 4) / 4 * 4 + 4),
                     .sizes = s->sizes[which],
                     .strides = strides,
                     .ndim = which == LOGARITHMS ? 3 : 4,
                     .dtype = dtype};
}

/* Numbers that are exact in float16. */
static void fill(sample_t *s, int which) {
  _Float16 *const halves = calloc((size_t)s->counts[which], sizeof *halves);
  for (int64_t i = 0; i < s->counts[which]; i++) {
    halves[i] = (_Float16)(sin((double)(i + 1) * (which + 1.7)) * 2);
    s->numbers[which][i] = (double)halves[i];
  }
  OK(api.memory_copy(NULL, s->tensors[which].data, 0, halves, HAL_HOST, (size_t)s->counts[which] * sizeof *halves));
  free(halves);
}

static sample_t *sample_of(int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t causal) {
  sample_t *const s = calloc(1, sizeof *s);
  *s = (sample_t){.batch = 2,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .queries = queries,
                  .keys = keys,
                  .size = 8,
                  .value_size = 16,
                  .causal = causal};
  for (int i = 0; i < TENSORS; i++) {
    const int of_key = i == KEY || i == GRAD_KEY, of_value = i == VALUE || i == GRAD_VALUE;
    const int64_t rows = of_key || of_value ? keys : queries;
    const int64_t columns = of_key || i == QUERY || i == GRAD_QUERY ? s->size : s->value_size;
    if (i == LOGARITHMS)
      lay(s, i, heads, queries, 1, HAL_FLOAT32);
    else
      lay(s, i, of_key || of_value ? kv_heads : heads, rows, columns, HAL_FLOAT16);
  }
  for (int i = 0; i < TENSORS; i++)
    if (i <= VALUE || i == GRAD) fill(s, i);
  return s;
}

static void drop(sample_t *s) {
  for (int i = 0; i < TENSORS; i++) {
    free(s->numbers[i]);
    OK(api.memory_free(0, s->tensors[i].data));
  }
  free(s);
}

static const hal_op_call_t *forward_of(sample_t *s) {
  const hal_value_t args[] = {of(&s->tensors[QUERY]),
                              of(&s->tensors[KEY]),
                              of(&s->tensors[VALUE]),
                              {0},
                              {.tag = HAL_VALUE_BOOL, .u.i = s->causal},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = scale_of(s)},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 0},
                              {.tag = HAL_VALUE_BOOL, .u.i = 0}};
  memcpy(s->args, args, sizeof args);
  s->results[0] = &s->tensors[RESULT], s->results[1] = &s->tensors[LOGARITHMS], s->results[2] = NULL;
  s->call = (hal_op_call_t){.struct_size = sizeof s->call,
                            .stream = s->call.stream,
                            .arg_count = 8,
                            .result_count = 3,
                            .args = s->args,
                            .results = s->results};
  return &s->call;
}

static const hal_op_call_t *backward_of(sample_t *s) {
  const hal_value_t args[] = {of(&s->tensors[GRAD]),
                              of(&s->tensors[QUERY]),
                              of(&s->tensors[KEY]),
                              of(&s->tensors[VALUE]),
                              {0},
                              of(&s->tensors[RESULT]),
                              of(&s->tensors[LOGARITHMS]),
                              {.tag = HAL_VALUE_BOOL, .u.i = s->causal},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = scale_of(s)},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 0}};
  memcpy(s->args, args, sizeof args);
  for (int i = 0; i < 3; i++) s->results[i] = &s->tensors[GRAD_QUERY + i];
  s->results[3] = NULL;
  s->call.arg_count = 10, s->call.result_count = 4, s->call.args = s->args, s->call.results = s->results;
  s->call.struct_size = sizeof s->call;
  return &s->call;
}

static hal_status_t run(const hal_op_own_t *own, const hal_op_call_t *call) { return own->fn(own->state, call); }
static hal_status_t query(const hal_op_own_t *own, const hal_op_call_t *call) { return own->query(own->state, call); }

/* ---- the definition ---- */

static double *at(const sample_t *s, int which, int64_t batch, int64_t head, int64_t row) {
  const int64_t own = head * s->sizes[which][1] / s->heads; /* of a head of key and value: the query head that shares
                                                               it */
  return s->numbers[which] + (batch * s->sizes[which][1] + own) * s->sizes[which][2] * s->sizes[which][3] +
         row * s->sizes[which][3];
}

static double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static void add_to(double *to, const double *from, double factor, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* One query: its result, and its contribution to all gradients. */
static void define_row(sample_t *s, int64_t b, int64_t h, int64_t q) {
  const int64_t seen = s->causal && q + 1 < s->keys ? q + 1 : s->keys;
  const double *const query = at(s, QUERY, b, h, q), *const grad = at(s, GRAD, b, h, q);
  double *const weights = calloc((size_t)seen, sizeof *weights), sum = 0;
  for (int64_t k = 0; k < seen; k++) sum += weights[k] = exp(scale_of(s) * dot(query, at(s, KEY, b, h, k), s->size));
  for (int64_t k = 0; k < seen; k++)
    add_to(at(s, RESULT, b, h, q), at(s, VALUE, b, h, k), weights[k] / sum, s->value_size);
  *at(s, LOGARITHMS, b, h, q) = log(sum);
  const double of_row = dot(grad, at(s, RESULT, b, h, q), s->value_size);
  for (int64_t k = 0; k < seen; k++) {
    const double weight = weights[k] / sum;
    const double score = scale_of(s) * weight * (dot(grad, at(s, VALUE, b, h, k), s->value_size) - of_row);
    add_to(at(s, GRAD_VALUE, b, h, k), grad, weight, s->value_size);
    add_to(at(s, GRAD_QUERY, b, h, q), at(s, KEY, b, h, k), score, s->size);
    add_to(at(s, GRAD_KEY, b, h, k), query, score, s->size);
  }
  free(weights);
}

static void define(sample_t *s) {
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t q = 0; q < s->queries; q++) define_row(s, b, h, q);
}

static void expect(const sample_t *s, int which, double tolerance) {
  const size_t bytes = (size_t)s->counts[which] * (which == LOGARITHMS ? 4 : 2);
  char *const memory = calloc(1, bytes);
  OK(api.memory_copy(NULL, memory, HAL_HOST, s->tensors[which].data, 0, bytes));
  for (int64_t i = 0; i < s->counts[which]; i++) {
    _Float16 half = 0;
    float single = 0;
    memcpy(&half, memory + 2 * i, sizeof half);
    if (which == LOGARITHMS) memcpy(&single, memory + 4 * i, sizeof single);
    const double ours = which == LOGARITHMS ? (double)single : (double)half, truth = s->numbers[which][i];
    cr_assert(fabs(ours - truth) <= tolerance * (1 + fabs(truth)), "tensor %d, element %d: %g, not %g", which, (int)i,
              ours, truth);
  }
  free(memory);
}

static void both_passes(int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t causal) {
  const hal_op_own_t forward = found(FORWARD), backward = found(BACKWARD);
  sample_t *const s = sample_of(heads, kv_heads, queries, keys, causal);
  define(s);
  OK(run(&forward, forward_of(s)));
  expect(s, RESULT, 2e-3);
  expect(s, LOGARITHMS, 1e-5);
  OK(run(&backward, backward_of(s)));
  for (int i = GRAD_QUERY; i <= GRAD_VALUE; i++) expect(s, i, 1e-2);
  drop(s);
}

Test(cuda_attention, both_passes_are_the_definitions_numbers) {
  open_with(NULL, NULL);
  both_passes(4, 4, 5, 7, 0);
  both_passes(4, 2, 5, 7, 0);
  both_passes(4, 1, 6, 3, 1); /* queries that see all keys */
  both_passes(2, 2, 3, 9, 1); /* keys that no query sees */
  both_passes(2, 2, 1, 4, 0);
}
Test(cuda_attention, version_9_0_computes_keys_by_128_and_masks_by_the_least_number) {
  open_with("CUDNN_MOCK_VERSION", "90000");
  both_passes(2, 1, 3, 128, 1);
  const hal_op_own_t forward = found(FORWARD), backward = found(BACKWARD);
  sample_t *const s = sample_of(2, 2, 3, 9, 0);
  OK(query(&forward, forward_of(s)));
  cr_assert_eq(query(&backward, backward_of(s)), HAL_UNIMPLEMENTED);
  drop(s);
}

/* ---- versions without attention ---- */

static void is_not_offered(const char *setting, const char *value, const char *says) {
  hal_op_own_t own = {.struct_size = sizeof own};
  open_with(setting, value);
  OK(api.op_find(0, "native_batch_norm", &own));
  logged = 0;
  cr_assert_eq(api.op_find(0, FORWARD, &own), HAL_NOT_FOUND);
  cr_assert_not_null(strstr(logged_last, says), "%s", logged_last);
  cr_assert_eq(api.op_find(0, BACKWARD, &own), HAL_NOT_FOUND);
  cr_assert_eq(logged, 1); /* reported once */
}

Test(cuda_attention, version_8_computes_all_but_attention_and_reports_it_at_the_first_query) {
  is_not_offered("CUDNN_MOCK_VERSION", "80907", "cuDNN 8.9.7 is too old for it; install 9.0 or later");
}
Test(cuda_attention, a_version_that_is_known_to_be_wrong_is_not_taken) {
  is_not_offered("CUDNN_MOCK_VERSION", "91001",
                 "cuDNN 9.10.1 computes it wrongly in some cases; install 9.10.2 or later");
}
Test(cuda_attention, a_device_that_is_too_old_is_named_with_its_capability) {
  is_not_offered("CUDA_MOCK_CAPABILITY", "75", "of compute capability 8.0 and later");
}

/* ---- declined calls ---- */

static long (*descriptors)(void);
static void find_descriptors(void) {
  void *const library = dlopen(CUDNN, RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(library);
  void *const symbol = dlsym(library, "cudnn_mock_descriptors");
  memcpy(&descriptors, &symbol, sizeof descriptors);
}

#define DECLINED(change)                                \
  do {                                                  \
    sample_t *const s = sample_of(4, 2, 5, 7, 0);       \
    const hal_op_call_t *const call = forward_of(s);    \
    change;                                             \
    cr_assert_eq(query(&own, call), HAL_UNIMPLEMENTED); \
    cr_assert_eq(run(&own, call), HAL_UNIMPLEMENTED);   \
    drop(s);                                            \
  } while (0)

Test(cuda_attention, unsupported_calls_are_declined_before_the_library_is_called) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found(FORWARD);
  find_descriptors();
  DECLINED(s->args[3] = of(&s->tensors[QUERY])); /* a mask */
  DECLINED(s->args[6].u.d = 0.5);                /* a dropout */
  DECLINED(s->results[2] = &s->tensors[RESULT]); /* weights */
  DECLINED(s->args[5].u.d = NAN);
  DECLINED(s->tensors[KEY].dtype = HAL_BFLOAT16);
  DECLINED(s->tensors[LOGARITHMS].dtype = HAL_FLOAT16);
  DECLINED(s->strides[LOGARITHMS][1] = 1);
  DECLINED(s->sizes[QUERY][3] = s->sizes[KEY][3] = 4);
  DECLINED(s->sizes[QUERY][2] = 0);
  DECLINED(s->sizes[KEY][1] = 3);
  DECLINED(s->sizes[VALUE][2] = 6);
  DECLINED(s->strides[QUERY][3] = 2);
  DECLINED(s->strides[KEY][1] = 0);    /* repeated */
  DECLINED(s->strides[VALUE][2] = 17); /* rows at odd addresses */
  DECLINED(s->tensors[VALUE].ndim = 2);
  DECLINED(s->call.arg_count = 5);
  sample_t *const s = sample_of(4, 2, 5, 7, 0);
  void *const aligned = s->tensors[VALUE].data;
  s->tensors[VALUE].data = (char *)aligned + 2;
  cr_assert_eq(query(&own, forward_of(s)), HAL_UNIMPLEMENTED);
  s->tensors[VALUE].data = aligned;
  drop(s);
  cr_assert_eq(descriptors(), 0);
  cr_assert_eq(scratch_count, 0);
}

Test(cuda_attention, of_the_gradients_a_single_query_and_key_and_a_masks_are_declined) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found(BACKWARD);
  sample_t *const single = sample_of(2, 2, 1, 1, 0), *const masked = sample_of(2, 2, 3, 3, 0);
  cr_assert_eq(query(&own, backward_of(single)), HAL_UNIMPLEMENTED);
  const hal_op_call_t *const call = backward_of(masked);
  masked->results[3] = &masked->tensors[RESULT];
  cr_assert_eq(query(&own, call), HAL_UNIMPLEMENTED);
  drop(single), drop(masked);
}

Test(cuda_attention, that_there_is_no_engine_is_remembered_and_leaves_nothing) {
  open_with("CUDNN_MOCK_LACKS", "2");
  const hal_op_own_t own = found(FORWARD);
  sample_t *const s = sample_of(4, 2, 5, 7, 0);
  find_descriptors();
  cr_assert_eq(query(&own, forward_of(s)), HAL_UNIMPLEMENTED);
  cr_assert_eq(descriptors(), 0);
  unsetenv("CUDNN_MOCK_LACKS");
  cr_assert_eq(run(&own, forward_of(s)), HAL_UNIMPLEMENTED);
  drop(s);
}

Test(cuda_attention, a_query_queues_nothing_and_a_positive_result_is_binding) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found(FORWARD);
  sample_t *const s = sample_of(4, 2, 5, 7, 1);
  OK(query(&own, forward_of(s)));
  cr_assert_eq(scratch_count, 0);
  expect(s, RESULT, 0); /* zeros still */
  setenv("CUDNN_MOCK_REFUSES", "cudnnBackendFinalize=3000/1",
         1); /* the plan is not created again; a call creates one variant pack */
  OK(run(&own, forward_of(s)));
  define(s);
  expect(s, RESULT, 2e-3);
  cr_assert_eq(scratch_count, 1);
  drop(s);
}

/* ---- failures ---- */

Test(cuda_attention, a_refused_call_is_reported_with_its_parameters) {
  open_with("CUDNN_MOCK_REFUSES", "cudnnBackendExecute=5000");
  const hal_op_own_t own = found(FORWARD);
  sample_t *const s = sample_of(4, 2, 5, 7, 0);
  FAILS(run(&own, forward_of(s)), HAL_INTERNAL,
        "cuDNN refused " FORWARD
        " of 2 x 4 heads of 8 numbers, 5 queries and 7 keys, for which it had an algorithm: "
        "CUDNN_STATUS_EXECUTION_FAILED (5000)");
  drop(s);
}

/* Makes call `number` of a function fail, for a new shape each time. Returns 0 if the function was called fewer
   times. */
static int fails_at(const char *function, int status, long number, int backward, long made) {
  const hal_op_own_t own = found(backward ? BACKWARD : FORWARD);
  const hal_status_t ends = status == 4003 ? HAL_RESOURCE_EXHAUSTED : HAL_UNIMPLEMENTED;
  static long shapes;
  sample_t *const s = sample_of(2, 1, 2 + shapes / 61, 2 + shapes % 61, 1);
  const hal_op_call_t *const call = backward ? backward_of(s) : forward_of(s);
  const long before = descriptors();
  char setting[128];
  shapes++;
  snprintf(setting, sizeof setting, "%s=%d/%ld", function, status, number);
  setenv("CUDNN_MOCK_REFUSES", setting, 1);
  const hal_status_t code = query(&own, call);
  unsetenv("CUDNN_MOCK_REFUSES");
  cr_assert(code == HAL_OK || code == ends, "%s: %d", setting, (int)code);
  cr_assert_eq((descriptors() - before) % made, 0, "%s: %ld", setting,
               descriptors() - before); /* whole plans come and go */
  if (!code) OK(run(&own, call));       /* by another engine, or the failing call was not reached */
  if (code == HAL_RESOURCE_EXHAUSTED) OK(query(&own, call));
  drop(s);
  return code != HAL_OK;
}

/* Every call of a pass; `made`: descriptors of a plan. */
static void sweep(int backward) {
  static const char *const functions[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                          "cudnnBackendFinalize", "cudnnBackendGetAttribute"};
  open_with(NULL, NULL);
  found(FORWARD);
  find_descriptors();
  sample_t *const s = sample_of(2, 1, 2, 1, 1);
  const hal_op_own_t own = found(backward ? BACKWARD : FORWARD);
  OK(query(&own, backward ? backward_of(s) : forward_of(s)));
  const long made = descriptors();
  drop(s);
  for (size_t f = 0; f < 4; f++)
    for (int status = 3000; status <= 4003; status += 1003) {
      int good = 0, failures = 0; /* if an engine is refused, the next one runs */
      for (long n = 0; good < 12; n += f == 1 ? 5 : 1) {
        const int failed = fails_at(functions[f], status, n, backward, made);
        failures += failed;
        good = failed ? 0 : good + 1;
      }
      cr_assert_gt(failures, 0, "%s", functions[f]);
    }
}
Test(cuda_attention, whatever_call_fails_forward_is_declined_and_leaves_no_descriptor) { sweep(0); }
Test(cuda_attention, whatever_call_fails_backward_is_declined_and_leaves_no_descriptor) { sweep(1); }

/* ---- many plans, and threads ---- */

Test(cuda_attention, plans_are_kept_in_bounded_number) {
  open_with(NULL, NULL);
  const hal_op_own_t own = found(FORWARD);
  long made = 0;
  found(FORWARD);
  find_descriptors();
  sample_t *const s = sample_of(1, 1, 2, 3, 0);
  for (int i = 0; i < 400; i++, s->strides[QUERY][0] += 8) {
    OK(query(&own, forward_of(s)));
    if (i == 0) made = descriptors();
  }
  drop(s);
  cr_assert_gt(descriptors(), made);
  cr_assert_leq(descriptors(), 128 * made);
}

/* The graph refers to the kernels of the plan, but does not keep the plan. */
Test(cuda_attention, a_plan_that_a_graph_of_the_driver_runs_is_never_given_up) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  open_with(NULL, NULL);
  const hal_op_own_t own = found(FORWARD);
  sample_t *const s = sample_of(4, 2, 5, 7, 1);
  find_descriptors();
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &s->call.stream));
  OK(query(&own, forward_of(s)));
  const long made = descriptors();
  OK(api.capture_begin(s->call.stream, HAL_CAPTURE_RELAXED, 0));
  OK(run(&own, forward_of(s)));
  OK(api.capture_end(s->call.stream, &graph));
  OK(api.graph_instantiate(graph, &exec));
  setenv("CUDNN_MOCK_LACKS", "2", 1); /* the entries that replace it have no plan */
  sample_t *const other = sample_of(1, 1, 2, 3, 0);
  for (int i = 0; i < 1500; i++, other->strides[QUERY][0] += 8)
    cr_assert_eq(query(&own, forward_of(other)), HAL_UNIMPLEMENTED);
  drop(other);
  cr_assert_eq(query(&own, forward_of(s)), HAL_UNIMPLEMENTED); /* its entry was replaced */
  cr_assert_eq(descriptors(), made);
  OK(api.graph_launch(exec, s->call.stream));
  OK(api.stream_synchronize(s->call.stream));
  define(s);
  expect(s, RESULT, 2e-3);
}

static hal_op_own_t shared[2];

static void *attend_often(void *unused) {
  sample_t *const s = sample_of(2, 1, 4, 6, 1);
  (void)unused;
  define(s);
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &s->call.stream));
  for (int i = 0; i < 20; i++) {
    OK(run(&shared[0], forward_of(s)));
    OK(run(&shared[1], backward_of(s)));
  }
  OK(api.stream_synchronize(s->call.stream));
  expect(s, RESULT, 2e-3);
  for (int i = GRAD_QUERY; i <= GRAD_VALUE; i++) expect(s, i, 1e-2);
  drop(s);
  return NULL;
}

Test(cuda_attention, threads_attend_at_the_same_time_and_one_plan_of_a_shape_is_kept) {
  pthread_t threads[4];
  open_with(NULL, NULL);
  shared[0] = found(FORWARD), shared[1] = found(BACKWARD);
  find_descriptors();
  attend_often(NULL);
  const long made = descriptors();
  for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&threads[i], NULL, attend_often, NULL), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  cr_assert_eq(descriptors(), made);
}
