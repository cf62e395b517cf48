/* vector_add.c: adds two vectors on a device, in plain C, without torch.
 *
 *   vector_add [<plugin name or path> [<elements>]]      default: fake, 1000003 elements
 *
 * It shows the whole way of a computation: open a plugin, allocate, copy to the device, run an operator on a stream,
 * copy back, wait. Exit status: 0 the sums are right, 1 something failed, 2 the plugin cannot add (it has neither an
 * add of its own nor kernels), which is no mistake: torch takes a fallback there. */
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>

enum { ADDED = 0, FAILED = 1, CANNOT_ADD = 2 };

typedef struct vectors_s {
  int64_t count;
  float *a, *b, *sum;        /* host */
  hal_block_t *on_device[3]; /* device: a, b, sum */
} vectors_t;

static hal_status_t make_vectors(vectors_t *vectors) {
  const size_t bytes = (size_t)vectors->count * sizeof(float);
  vectors->a = malloc(bytes);
  vectors->b = malloc(bytes);
  vectors->sum = malloc(bytes);
  if (!vectors->a || !vectors->b || !vectors->sum)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for three vectors of %zu bytes", bytes);
  for (int64_t i = 0; i < vectors->count; i++) {
    vectors->a[i] = (float)(i % 1000);
    vectors->b[i] = (float)(i % 7) * 0.5f;
    vectors->sum[i] = -1;
  }
  for (int i = 0; i < 3; i++) HAL_RETURN_IF_ERROR(hal_memory_allocate(0, NULL, bytes, &vectors->on_device[i]));
  return HAL_OK;
}

static void free_vectors(vectors_t *vectors) {
  for (int i = 0; i < 3; i++) hal_memory_release(vectors->on_device[i]);
  free(vectors->a);
  free(vectors->b);
  free(vectors->sum);
}

/* Queues sum = a + 1 * b on the current stream: the operator "add.Tensor" with its arguments self, other, alpha. */
static hal_status_t queue_add(const vectors_t *vectors) {
  const int64_t stride = 1;
  uint32_t add;
  HAL_RETURN_IF_ERROR(hal_op_id("add.Tensor", &add));
  hal_tensor_t tensors[3];
  for (int i = 0; i < 3; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                .data = hal_memory_block_address(vectors->on_device[i]),
                                .sizes = &vectors->count,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t arguments[3] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]},
                                    {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]},
                                    {.tag = HAL_VALUE_DOUBLE, .u.d = 1.0}};
  const hal_tensor_t *const results[1] = {&tensors[2]};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 3,
                        .result_count = 1,
                        .flags = HAL_CALL_DENSE,
                        .args = arguments,
                        .results = results};
  return hal_op_run(0, add, NULL, &call);
}

/* The whole way, in stream order: two copies, the operator, a copy back. One wait at the end is enough. */
static hal_status_t add_on_device(const vectors_t *vectors) {
  const size_t bytes = (size_t)vectors->count * sizeof(float);
  HAL_RETURN_IF_ERROR(
      hal_memory_copy(NULL, hal_memory_block_address(vectors->on_device[0]), 0, vectors->a, HAL_HOST, bytes));
  HAL_RETURN_IF_ERROR(
      hal_memory_copy(NULL, hal_memory_block_address(vectors->on_device[1]), 0, vectors->b, HAL_HOST, bytes));
  const hal_status_t added = queue_add(vectors);
  if (!added)
    HAL_RETURN_IF_ERROR(
        hal_memory_copy(NULL, vectors->sum, HAL_HOST, hal_memory_block_address(vectors->on_device[2]), 0, bytes));
  const hal_status_t waited = hal_stream_synchronize(NULL);
  return added ? added : waited;
}

static int64_t count_wrong(const vectors_t *vectors) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < vectors->count; i++) wrong += vectors->sum[i] != vectors->a[i] + vectors->b[i];
  return wrong;
}

int main(int argument_count, char **arguments) {
  vectors_t vectors = {.count = argument_count > 2 ? strtoll(arguments[2], NULL, 10) : 1000003};
  hal_device_info_t info = {.struct_size = sizeof info};
  int result = FAILED;
  if (vectors.count < 1 || vectors.count > INT32_MAX) {
    fprintf(stderr, "usage: %s [<plugin name or path> [<elements>]]\n", arguments[0]);
    return FAILED;
  }
  hal_status_t status = hal_registry_open(argument_count > 1 ? arguments[1] : "fake");
  if (!status) status = hal_device_info(0, &info);
  if (!status) status = make_vectors(&vectors);
  if (!status) status = add_on_device(&vectors);
  if (status == HAL_UNIMPLEMENTED) {
    printf(
        "%s cannot add: its plugin has neither an operator add.Tensor of its own (op_find) nor takes the portable "
        "kernels "
        "(module_load, kernel_launch). Nothing was computed.\n",
        info.name);
    result = CANNOT_ADD;
  } else if (status) {
    fprintf(stderr, "%s: %s\n", hal_status_name(status), hal_error_message());
  } else {
    const int64_t wrong = count_wrong(&vectors);
    printf("%s added two vectors of %lld floats, %lld sums are wrong\n", info.name, (long long)vectors.count,
           (long long)wrong);
    result = wrong ? FAILED : ADDED;
  }
  free_vectors(&vectors);
  hal_registry_close();
  return result;
}
