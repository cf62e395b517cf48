/* algorithm.c: chooses the library's algorithm for a convolution: the first one of its advice that is deterministic, in
 * the requested arithmetic, with a workspace of bounded size. The advice takes long, so it is cached. */
#include <string.h>

#include "dnn.h"

enum { MOST = 8, REMEMBERED = 256 };
#define MOST_WORKSPACE ((size_t)1 << 29)

/* ---- the three directions, for which the library has separate functions ----------------------------------------- */

/* One of the structs of a result, whose fields have the same names and meaning in all three. */
typedef cudnnConvolutionFwdAlgoPerf_t found_t;

static cudnnStatus_t ask(const dnn_plan_t *plan, dnn_direction_t direction, int *count, found_t found[MOST]) {
  switch (direction) {
    case DNN_SMALL:
      return dnn.cudnnGetConvolutionForwardAlgorithm_v7(plan->handle, plan->large, plan->filter, plan->convolution,
                                                        plan->small, MOST, count, found);
    case DNN_LARGE:
      return dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(plan->handle, plan->filter, plan->small, plan->convolution,
                                                             plan->large, MOST, count, found);
    default:
      return dnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(plan->handle, plan->large, plan->small,
                                                               plan->convolution, plan->filter, MOST, count, found);
  }
}

static cudnnStatus_t measure(const dnn_plan_t *plan, dnn_direction_t direction, unsigned algorithm, size_t *bytes) {
  switch (direction) {
    case DNN_SMALL:
      return dnn.cudnnGetConvolutionForwardWorkspaceSize(plan->handle, plan->large, plan->filter, plan->convolution,
                                                         plan->small, algorithm, bytes);
    case DNN_LARGE:
      return dnn.cudnnGetConvolutionBackwardDataWorkspaceSize(plan->handle, plan->filter, plan->small,
                                                              plan->convolution, plan->large, algorithm, bytes);
    default:
      return dnn.cudnnGetConvolutionBackwardFilterWorkspaceSize(plan->handle, plan->large, plan->small,
                                                                plan->convolution, plan->filter, algorithm, bytes);
  }
}

/* ---- choosing --------------------------------------------------------------------------------------------------- */

/* Tensor cores compute the short types, with sums in float32. For float32 they use TF32, which only CUDNN_FMA_MATH
 * forbids: the default allows it. */
static int may_use(hal_dtype_t dtype, const found_t *found, dnn_choice_t *out) {
  const int is_short = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16;
  if (found->status || found->determinism != CUDNN_DETERMINISTIC) return 0;
  if (!is_short && found->mathType == CUDNN_TENSOR_OP_MATH) return 0;
  if (found->mathType != CUDNN_DEFAULT_MATH && found->mathType != CUDNN_TENSOR_OP_MATH &&
      found->mathType != CUDNN_FMA_MATH)
    return 0; /* rounds operands to shorter types */
  *out = (dnn_choice_t){.algorithm = found->algo, .math = is_short ? found->mathType : CUDNN_FMA_MATH};
  return 1;
}

static cudnnStatus_t choose(const dnn_plan_t *plan, hal_dtype_t dtype, dnn_direction_t direction, dnn_choice_t *out) {
  found_t found[MOST];
  int count = 0;
  const cudnnStatus_t code = ask(plan, direction, &count, found);
  if (code) return code;
  for (int i = 0; i < count; i++) {
    if (!may_use(dtype, &found[i], out)) continue;
    if (dnn.cudnnSetConvolutionMathType(plan->convolution, out->math)) continue;
    if (!measure(plan, direction, out->algorithm, &out->workspace) && out->workspace <= MOST_WORKSPACE)
      return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- cache: by a hash, a later entry replaces an earlier one ---------------------------------------------------- */

typedef struct memory_s {
  dnn_convolution_t convolution;
  dnn_direction_t direction;
  int taken;
  cudnnStatus_t code;
  dnn_choice_t choice;
} memory_t;

static struct {
  pthread_mutex_t lock;
  memory_t list[REMEMBERED];
} memories = {.lock = PTHREAD_MUTEX_INITIALIZER};

static memory_t *place_of(const dnn_convolution_t *convolution, dnn_direction_t direction) {
  return &memories.list[cuda_dnn_hash(convolution, sizeof *convolution, direction) % REMEMBERED];
}

static int remembered(const dnn_convolution_t *convolution, dnn_direction_t direction, memory_t *out) {
  pthread_mutex_lock(&memories.lock);
  *out = *place_of(convolution, direction);
  pthread_mutex_unlock(&memories.lock);
  return out->taken && out->direction == direction && memcmp(&out->convolution, convolution, sizeof *convolution) == 0;
}

static void remember(const memory_t *memory) {
  pthread_mutex_lock(&memories.lock);
  *place_of(&memory->convolution, memory->direction) = *memory;
  pthread_mutex_unlock(&memories.lock);
}

cudnnStatus_t cuda_dnn_choose(const dnn_plan_t *plan, const dnn_convolution_t *convolution, dnn_direction_t direction,
                              dnn_choice_t *out) {
  memory_t memory;
  if (!remembered(convolution, direction, &memory)) {
    memory = (memory_t){.convolution = *convolution, .direction = direction, .taken = 1};
    memory.code = choose(plan, (hal_dtype_t)convolution->dtype, direction, &memory.choice);
    if (!memory.code || cuda_dnn_is_unsupported(memory.code)) remember(&memory);
  }
  *out = memory.choice;
  return memory.code;
}
