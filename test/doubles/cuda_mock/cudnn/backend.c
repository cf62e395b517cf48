/* backend.c: descriptors of the mock of cuDNN's backend: the attributes of each type, with their type and number.
 * Checks that none is missing when a descriptor is finished, and that it is not changed afterwards. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

enum { MAGIC = 0x6261636b, GONE = 0x676f6e65, NEEDED = 1, MAY = 0 };

/* The number of descriptors: a test uses it to count leaks. */
API long cudnn_mock_descriptors(void);
static atomic_long live;
long cudnn_mock_descriptors(void) { return atomic_load(&live); }

/* ---- settable attributes ---- */

typedef struct rule_s {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t least, most;
  int needed;
} rule_t;

#define ONE(of, name, type, needed) \
  { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, 1, needed }
#define MANY(of, name, type, most, needed) \
  { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, most, needed }

static const rule_t rules[] = {
    ONE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, NEEDED),
    ONE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, NEEDED),
    ONE(POINTWISE, POINTWISE_AXIS, INT64, MAY),
    ONE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, NEEDED),
    ONE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, NEEDED),
    ONE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, NEEDED),
    ONE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, NEEDED),
    MANY(TENSOR, TENSOR_DIMENSIONS, INT64, 8, NEEDED),
    MANY(TENSOR, TENSOR_STRIDES, INT64, 8, NEEDED),
    ONE(TENSOR, TENSOR_UNIQUE_ID, INT64, NEEDED),
    ONE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, NEEDED),
    ONE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, MAY),
    ONE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, MAY),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, MAY),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, MAY),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, NEEDED),
    ONE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, NEEDED),
    MANY(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, GRAPH_OPERATIONS, NEEDED),
    ONE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, NEEDED),
    ONE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, NEEDED),
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, NEEDED),
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, NEEDED),
    MANY(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, GRAPH_TENSORS, NEEDED),
    MANY(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, GRAPH_TENSORS, NEEDED),
    ONE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, NEEDED),
};
enum { RULES = sizeof rules / sizeof *rules };

static size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(_Bool);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void *);
    case CUDNN_TYPE_INT64:
      return sizeof(int64_t);
    default:
      return sizeof(int); /* of an enumeration */
  }
}

/* ---- the values ---- */

const descriptor_t *finished_of(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  const descriptor_t *const own = descriptor;
  return own && own->magic == MAGIC && own->finished && own->type == type ? own : NULL;
}

const void *value_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t *out_count) {
  for (int i = 0; descriptor && i < descriptor->attribute_count; i++) {
    if (descriptor->attributes[i].name != name) continue;
    if (out_count) *out_count = descriptor->attributes[i].count;
    return descriptor->attributes[i].values;
  }
  return NULL;
}

const descriptor_t *node_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name) {
  descriptor_t *const *const value = value_of(descriptor, name, NULL);
  return value && (*value)->magic == MAGIC ? *value : NULL;
}

static int all_finished(int64_t count, const void *values) {
  for (int64_t i = 0; i < count; i++) {
    const descriptor_t *const node = ((descriptor_t *const *)values)[i];
    if (!node || node->magic != MAGIC || !node->finished) return 0;
  }
  return 1;
}

/* ---- calls ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
  const cudnnStatus_t code = refused(__func__);
  *descriptor = NULL;
  if (code) return code;
  descriptor_t *const own = calloc(1, sizeof *own);
  if (!own) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  own->magic = MAGIC;
  own->type = type;
  *descriptor = own;
  atomic_fetch_add(&live, 1);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  descriptor_t *const own = descriptor;
  if (!own || own->magic != MAGIC) return CUDNN_STATUS_BAD_PARAM;
  own->magic = GONE;
  for (int i = 0; i < own->attribute_count; i++) free(own->attributes[i].values);
  free(own->graph);
  free(own);
  atomic_fetch_sub(&live, 1);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  descriptor_t *const own = descriptor;
  int rule = 0;
  const cudnnStatus_t code = refused(__func__);
  if (code) return code;
  if (!own || own->magic != MAGIC || own->finished || !values) return CUDNN_STATUS_BAD_PARAM;
  while (rule < RULES && (rules[rule].of != own->type || rules[rule].name != name)) rule++;
  if (rule == RULES || type != rules[rule].type || count < rules[rule].least || count > rules[rule].most)
    return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !all_finished(count, values)) return CUDNN_STATUS_BAD_PARAM;
  if (value_of(own, name, NULL) || own->attribute_count == DESCRIPTOR_ATTRIBUTES) return CUDNN_STATUS_BAD_PARAM;
  void *const copy = malloc((size_t)count * size_of(type));
  if (!copy) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  memcpy(copy, values, (size_t)count * size_of(type));
  own->attributes[own->attribute_count++] = (attribute_t){name, count, copy};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  descriptor_t *const own = descriptor;
  cudnnStatus_t code = refused(__func__);
  if (code) return code;
  if (!own || own->magic != MAGIC || own->finished) return CUDNN_STATUS_BAD_PARAM;
  for (int rule = 0; rule < RULES; rule++)
    if (rules[rule].of == own->type && rules[rule].needed && !value_of(own, rules[rule].name, NULL))
      return CUDNN_STATUS_BAD_PARAM;
  switch (own->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      code = finish_tensor(own);
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      code = finish_operation(own);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      code = finish_graph(own);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      code = finish_heuristics(own);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      code = finish_plan(own);
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: /* the library makes them */
      code = CUDNN_STATUS_BAD_PARAM;
      break;
    default:
      break;
  }
  own->finished = !code;
  return code;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values) {
  static const struct {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
  } told[] = {{CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE},
              {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64}};
  const descriptor_t *const own = descriptor;
  cudnnStatus_t code = refused(__func__);
  if (code) return code;
  if (!own || own->magic != MAGIC || !own->finished || !count || !values) return CUDNN_STATUS_BAD_PARAM;
  for (size_t i = 0; i < sizeof told / sizeof *told; i++)
    if (told[i].name == name && told[i].type != type) return CUDNN_STATUS_BAD_PARAM;
  return tell(own, name, room, count, values, &code) ? code : CUDNN_STATUS_BAD_PARAM;
}
