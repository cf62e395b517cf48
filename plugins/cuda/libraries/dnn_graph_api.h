/* dnn_graph_api.h: the declarations of cuDNN's backend, which computes graphs of operations; a part of dnn_api.h, also
 * compared with the real header. Versions 8.9 and 9 have all of it. */
#ifndef DNN_GRAPH_API_H_
#define DNN_GRAPH_API_H_

#define DNN_DESCRIPTORS(X)                            \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)            \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)               \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)            \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)           \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)       \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13) \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)      \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)        \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)              \
  X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)              \
  X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)    \
  X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)           \
  X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22) \
  X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)

#define DNN_ATTRIBUTES(X)                              \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                      \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                 \
  X(CUDNN_ATTR_POINTWISE_AXIS, 9)                      \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                   \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)        \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                \
  X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                  \
  X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)             \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)      \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)     \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)         \
  X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)             \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)             \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                  \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                 \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                    \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                  \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                 \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)          \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)       \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)           \
  X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)            \
  X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                 \
  X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)            \
  X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)               \
  X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)              \
  X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)         \
  X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)          \
  X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)

#define DNN_ATTRIBUTE_TYPES(X)         \
  X(CUDNN_TYPE_HANDLE, 0)              \
  X(CUDNN_TYPE_DATA_TYPE, 1)           \
  X(CUDNN_TYPE_BOOLEAN, 2)             \
  X(CUDNN_TYPE_INT64, 3)               \
  X(CUDNN_TYPE_VOID_PTR, 6)            \
  X(CUDNN_TYPE_HEUR_MODE, 8)           \
  X(CUDNN_TYPE_NUMERICAL_NOTE, 11)     \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)     \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15) \
  X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)

#define DNN_POINTWISE_MODES(X)      \
  X(CUDNN_POINTWISE_ADD, 0)         \
  X(CUDNN_POINTWISE_MUL, 1)         \
  X(CUDNN_POINTWISE_DIV, 6)         \
  X(CUDNN_POINTWISE_SUB, 9)         \
  X(CUDNN_POINTWISE_EXP, 13)        \
  X(CUDNN_POINTWISE_LOG, 15)        \
  X(CUDNN_POINTWISE_CMP_GE, 303)    \
  X(CUDNN_POINTWISE_GEN_INDEX, 501) \
  X(CUDNN_POINTWISE_BINARY_SELECT, 601)
#define DNN_REDUCTIONS(X) X(CUDNN_REDUCE_TENSOR_ADD, 0) X(CUDNN_REDUCE_TENSOR_MAX, 3)
#define DNN_HEURISTICS(X) X(CUDNN_HEUR_MODE_A, 3)
#define DNN_NUMERICAL_NOTES(X)                           \
  X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                 \
  X(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)         \
  X(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2) \
  X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)

#define DNN_GRAPH_CHOICES(X) \
  DNN_DESCRIPTORS(X)         \
  DNN_ATTRIBUTES(X)          \
  DNN_ATTRIBUTE_TYPES(X) DNN_POINTWISE_MODES(X) DNN_REDUCTIONS(X) DNN_HEURISTICS(X) DNN_NUMERICAL_NOTES(X)

#ifndef CUDNN_MAJOR
typedef enum { DNN_DESCRIPTORS(DNN_ENUMERATOR) } cudnnBackendDescriptorType_t;
typedef enum { DNN_ATTRIBUTES(DNN_ENUMERATOR) } cudnnBackendAttributeName_t;
typedef enum { DNN_ATTRIBUTE_TYPES(DNN_ENUMERATOR) } cudnnBackendAttributeType_t;
typedef enum { DNN_POINTWISE_MODES(DNN_ENUMERATOR) } cudnnPointwiseMode_t;
typedef enum { DNN_REDUCTIONS(DNN_ENUMERATOR) } cudnnReduceTensorOp_t;
typedef enum { DNN_HEURISTICS(DNN_ENUMERATOR) } cudnnBackendHeurMode_t;
typedef enum { DNN_NUMERICAL_NOTES(DNN_ENUMERATOR) } cudnnBackendNumericalNote_t;
typedef void *cudnnBackendDescriptor_t;
#endif

#define DNN_GRAPH_CALLS(X)                                                                                    \
  X(cudnnBackendCreateDescriptor, cudnnStatus_t,                                                              \
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * descriptor))                               \
  X(cudnnBackendDestroyDescriptor, cudnnStatus_t, (cudnnBackendDescriptor_t descriptor))                      \
  X(cudnnBackendFinalize, cudnnStatus_t, (cudnnBackendDescriptor_t descriptor))                               \
  X(cudnnBackendSetAttribute, cudnnStatus_t,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     int64_t count, const void *values))                                                                      \
  X(cudnnBackendGetAttribute, cudnnStatus_t,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     int64_t room, int64_t * count, void *values))                                                            \
  X(cudnnBackendExecute, cudnnStatus_t,                                                                       \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack))

#endif /* DNN_GRAPH_API_H_ */
