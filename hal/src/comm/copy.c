/* copy.c: copies collectives with their arrays and their factor. The copies remain valid when the caller frees its
 * own. */
#include <string.h>

#include "base/dtype.h"
#include "comm/comm.h"

uint64_t hal_comm_array_numbers(const hal_comm_t *comm, const hal_collective_t *calls, uint32_t count) {
  uint64_t arrays = 0;
  for (uint32_t i = 0; i < count; i++)
    arrays += !!calls[i].send_counts + !!calls[i].send_displs + !!calls[i].recv_counts + !!calls[i].recv_displs;
  return arrays * (uint64_t)comm->size;
}

static void copy_array(const uint64_t **array, uint64_t **next, int32_t size) {
  if (!*array) return;
  memcpy(*next, *array, (size_t)size * sizeof **next);
  *array = *next;
  *next += size;
}

void hal_comm_copy_call(const hal_comm_t *comm, const hal_collective_t *from, hal_collective_t *to, uint64_t **next,
                        void *scale) {
  memcpy(to, from, from->struct_size < sizeof *from ? from->struct_size : sizeof *from);
  to->struct_size = sizeof *to;
  copy_array(&to->send_counts, next, comm->size);
  copy_array(&to->send_displs, next, comm->size);
  copy_array(&to->recv_counts, next, comm->size);
  copy_array(&to->recv_displs, next, comm->size);
  if (!hal_comm_op_reduces(to->op) || to->reduce != HAL_REDUCE_PREMUL_SUM) to->scale = NULL; /* not used */
  if (!to->scale) return;
  const int is_float = to->dtype == HAL_FLOAT16 || to->dtype == HAL_BFLOAT16;
  memcpy(scale, to->scale, is_float ? sizeof(float) : hal_dtype_size(to->dtype));
  to->scale = scale;
}
