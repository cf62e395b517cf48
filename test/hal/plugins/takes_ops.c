/* takes_ops.c: five.c with its own operators, each with another descriptor, for the tests of the host's queries. */
#include "five.c"

#define RESULT(call) (*(float *)(call)->results[0]->data)

static hal_status_t run(void *state, const hal_op_call_t *call) {
  (void)state;
  RESULT(call) = (float)call->arg_count;
  return HAL_OK;
}

static hal_status_t decline(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return HAL_UNIMPLEMENTED;
}

/* Accepts an even number of rows. */
static hal_status_t query_even(void *state, const hal_op_call_t *call) {
  (void)state;
  if (call->stream || call->host) return HAL_INTERNAL;
  return call->args[0].u.t->sizes[0] % 2 ? HAL_UNIMPLEMENTED : HAL_OK;
}

static hal_status_t run_even(void *state, const hal_op_call_t *call) {
  return call->args[0].u.t->sizes[0] % 2 ? HAL_UNIMPLEMENTED : run(state, call);
}

/* Allocates two blocks of scratch memory, writes both, and checks that they differ. */
static hal_status_t run_scratch(void *state, const hal_op_call_t *call) {
  void *first = NULL, *second = NULL;
  (void)state;
  hal_status_t status = hal_host->scratch_alloc(call, 1000, &first);
  if (!status) status = hal_host->scratch_alloc(call, 2000, &second);
  if (status) return status;
  memset(first, 1, 1000);
  memset(second, 2, 2000);
  if ((uintptr_t)first % ALIGNMENT || (uintptr_t)second % ALIGNMENT || ((char *)first)[999] != 1)
    return hal_host->error_set(HAL_INTERNAL, 0, "takes_ops: the scratch memory is no memory of its own");
  RESULT(call) = 1;
  return HAL_OK;
}

/* Overwrites scratch memory of all sizes. */
static hal_status_t run_scribbles(void *state, const hal_op_call_t *call) {
  (void)state;
  for (size_t size = 512; size <= (size_t)1 << 20; size *= 2) {
    void *memory = NULL;
    const hal_status_t status = hal_host->scratch_alloc(call, size, &memory);
    if (status) return status;
    memset(memory, 0xff, size);
  }
  RESULT(call) = 1;
  return HAL_OK;
}

static hal_status_t run_much_scratch(void *state, const hal_op_call_t *call) {
  void *much = NULL;
  (void)state;
  return hal_host->scratch_alloc(call, (size_t)64 << 20, &much);
}

static hal_status_t run_stray_scratch(void *state, const hal_op_call_t *call) {
  const hal_op_call_t stray = {.struct_size = sizeof stray};
  void *memory = NULL;
  (void)state, (void)call;
  return hal_host->scratch_alloc(&stray, 64, &memory);
}

/* The offset at which the first number would be generated. */
static hal_status_t run_draw(void *state, const hal_op_call_t *call) {
  (void)state;
  RESULT(call) = (float)(call->random_state ? call->random_state[1] + call->offset : call->offset);
  return HAL_OK;
}

static const struct {
  const char *name;
  hal_op_own_t own;
} ops[] = {
    {"test::dense32", {.fn = run, .dtypes = HAL_DTYPE_BIT(HAL_FLOAT32), .layouts = HAL_TAKES_CONTIGUOUS}},
    {"test::last16", {.fn = run, .dtypes = HAL_DTYPE_BIT(HAL_BFLOAT16), .layouts = HAL_TAKES_CHANNELS_LAST}},
    {"test::strided", {.fn = run, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::one_argument", {.fn = run, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL, .argument_count = 1}},
    {"test::even", {.fn = run_even, .query = query_even, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::always", {.fn = run, .flags = HAL_OP_NEVER_DECLINES, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::declines", {.fn = decline, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::declines_alike",
     {.fn = decline, .flags = HAL_OP_DECLINES_ALIKE, .dtypes = HAL_DTYPE_BIT(HAL_FLOAT32), .layouts = HAL_TAKES_ALL}},
    {"test::scratch", {.fn = run_scratch, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::scribbles",
     {.fn = run_scribbles, .flags = HAL_OP_NEVER_DECLINES, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::much_scratch", {.fn = run_much_scratch, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::stray_scratch", {.fn = run_stray_scratch, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::sample",
     {.fn = run_draw, .flags = HAL_OP_RANDOM_STATE, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::sampled",
     {.fn = run_draw,
      .flags = HAL_OP_RANDOM_STATE | HAL_OP_NEVER_DECLINES,
      .dtypes = HAL_ALL_DTYPES,
      .layouts = HAL_TAKES_ALL}},
    {"test::draw_numbers", {.fn = run_draw, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::later", {.fn = run, .flags = 1u << 31, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"native_layer_norm", {.fn = run, .dtypes = HAL_ALL_DTYPES, .layouts = HAL_TAKES_ALL}},
    {"test::hollow", {.fn = run, .dtypes = HAL_ALL_DTYPES}},
};

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  if (!known(device)) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "takes_ops: bad device in op_find");
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    if (strcmp(ops[i].name, name)) continue;
    HAL_SET_FIELD(out_op, fn, ops[i].own.fn);
    HAL_SET_FIELD(out_op, dtypes, ops[i].own.dtypes);
    HAL_SET_FIELD(out_op, layouts, ops[i].own.layouts);
    HAL_SET_FIELD(out_op, argument_count, ops[i].own.argument_count);
    HAL_SET_FIELD(out_op, flags, ops[i].own.flags);
    HAL_SET_FIELD(out_op, query, ops[i].own.query);
    return HAL_OK;
  }
  return HAL_NOT_FOUND;
}
