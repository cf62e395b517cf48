/* work.c: an estimate of the largest operator of a program, in multiplications of a matrix product. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <hal/plugin_setting.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../emit.h"

/* How many multiplications of a matrix product take as long as an element of other operators on the CPU, and the number
 * of gradients of a convolution. */
enum { OF_ELEMENT = 100, OF_GRADIENT = 2 };

/* The limit for one of two processors. With more of them, smaller operators are faster in several threads. */
static double default_limit(void) {
  cpu_set_t all;
  return sched_getaffinity(0, sizeof all, &all) ? 0 : 2.0 * PJRT_SMALL / CPU_COUNT(&all);
}

hal_status_t pjrt_work_read(void) {
  const char *const setting = hal_setting("HAL_PJRT_SMALL");
  char *end = NULL;
  pjrt.small = default_limit();
  if (!setting || !*setting) return HAL_OK;
  const long long limit = strtoll(setting, &end, 10);
  if (*end || limit < 0 || limit == LLONG_MAX)
    return pjrt_error(HAL_INVALID_ARGUMENT,
                      "pjrt: invalid HAL_PJRT_SMALL='%.40s': expected a number of multiplications, 0 or more", setting);
  pjrt.small = (double)limit;
  return HAL_OK;
}

static double elements_of(const hal_tensor_t *tensor) {
  double elements = tensor != NULL;
  for (int32_t d = 0; tensor && d < tensor->ndim; d++) elements *= (double)tensor->sizes[d];
  return elements;
}

/* A product: each element of a tensor is a sum of as many multiplications as `weight` has elements in its dimension
 * `along` (negative: from the end), or in all dimensions except that one. */
typedef struct product_s {
  const char *name;
  int32_t tensor; /* an argument; -1: the result */
  int32_t weight; /* an argument */
  int32_t along, except;
  double times; /* multiplications of a matrix product for each one */
} product_t;
static const product_t products[] = {{"mm", -1, 0, -1, 0, 1},
                                     {"bmm", -1, 0, -1, 0, 1},
                                     {"addmm", -1, 1, -1, 0, 1},
                                     {"baddbmm", -1, 1, -1, 0, 1},
                                     {"_int_mm", -1, 0, -1, 0, 1},
                                     {"_packed_weight_mm", -1, 0, -1, 0, 1},
                                     {"convolution_overrideable", -1, 1, 0, 1, 1},
                                     {"convolution_backward_overrideable", 0, 2, 0, 1, OF_GRADIENT},
                                     {"_scaled_dot_product_fused_attention_overrideable", 0, 1, -2, 0, 1},
                                     {"_scaled_dot_product_fused_attention_overrideable_backward", 0, 2, -2, 0, 1}};

/* Operators are only estimated after they were accepted, so the arguments are tensors. */
static double work_of_product(const product_t *product, const hal_op_call_t *call) {
  const hal_tensor_t *const weight = call->args[product->weight].u.t;
  const hal_tensor_t *const tensor = product->tensor < 0 ? call->results[0] : call->args[product->tensor].u.t;
  const double along = (double)weight->sizes[product->along < 0 ? weight->ndim + product->along : product->along];
  return product->times * elements_of(tensor) * (product->except ? elements_of(weight) / along : along);
}

static double work_of(const hal_ir_node_t *node) {
  double elements = 0;
  for (size_t i = 0; i < sizeof products / sizeof *products; i++)
    if (strcmp(products[i].name, node->name) == 0) return work_of_product(&products[i], node->call);
  for (uint32_t k = 0; k < node->read_count + node->write_count; k++) {
    const hal_ir_use_t *const use =
        k < node->read_count ? hal_ir_read(node, k) : hal_ir_write(node, k - node->read_count);
    const double more = elements_of(use->tensor);
    if (more > elements) elements = more;
  }
  return OF_ELEMENT * elements;
}

int pjrt_is_small(const hal_ir_t *ir) {
  for (uint32_t n = 0; n < ir->node_count; n++)
    if (work_of(hal_ir_node(ir, n)) > pjrt.small) return 0;
  return 1;
}
