/* other_rank.h: a transport of two ranks, of which this process is the first. What the second one sends is what the
 * first one sends, with changes by the fuzzer. */
#ifndef TEST_FUZZ_OTHER_RANK_H_
#define TEST_FUZZ_OTHER_RANK_H_

#include <hal/comm.h>
#include <string.h>

/* The changes, which begin at the end of the input. */
typedef struct other_rank_s {
  const uint8_t *bytes;
  size_t left;
} other_rank_t;

static uint8_t other_byte(other_rank_t *other) { return other->left ? other->bytes[--other->left] : 0; }

static void change(other_rank_t *other, uint8_t *data, size_t size) {
  for (int i = other_byte(other) % 4; i > 0 && size; i--) {
    const size_t place = (size_t)other_byte(other) << 8 | other_byte(other);
    data[place % size] = other_byte(other);
  }
}

static hal_status_t other_run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  other_rank_t *const other = context;
  (void)timeout_ns;
  for (uint32_t i = 0; i < count; i++) {
    const hal_collective_t *const call = &calls[i];
    const size_t size = call->count * (call->dtype == HAL_UINT8 ? 1 : sizeof(float));
    const size_t blocks = call->op == HAL_COMM_ALL_GATHER ? 2 : 1;
    if (call->recv_counts ||
        (call->op != HAL_COMM_ALL_GATHER && call->op != HAL_COMM_ALL_REDUCE && call->op != HAL_COMM_BROADCAST))
      return HAL_UNIMPLEMENTED;
    for (size_t block = 0; call->send && block < blocks; block++)
      memmove((uint8_t *)call->recv + block * size, call->send, size);
    if (blocks == 2) change(other, (uint8_t *)call->recv + size, size);
  }
  return other_byte(other) > 250 ? HAL_UNAVAILABLE : HAL_OK;
}

static void other_abort(void *context, const char *reason) { (void)context, (void)reason; }
static void other_destroy(void *context) { (void)context; }

#endif /* TEST_FUZZ_OTHER_RANK_H_ */
