/* generator.c: seed and offset of a Philox generator. */
#include "hal/generator.h"

#include "device/device.h"
#include "hal/status.h"
#include "sdk/philox.h"

struct hal_generator_s {
  hal_lock_t lock; /* seed and offset change together */
  uint64_t seed, offset;
  atomic_uint references;
};

hal_status_t hal_generator_create(uint64_t seed, hal_generator_t **out_generator) {
  hal_generator_t *const generator = hal_malloc(sizeof *generator);
  if (!generator) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while making a generator");
  *generator = (hal_generator_t){.seed = seed};
  atomic_init(&generator->references, 1);
  *out_generator = generator;
  return HAL_OK;
}

void hal_generator_destroy(hal_generator_t *generator) {
  if (generator && atomic_fetch_sub(&generator->references, 1) == 1) hal_free(generator);
}

void hal_generator_retain(hal_generator_t *generator) { atomic_fetch_add(&generator->references, 1); }

hal_status_t hal_generator_default(int32_t device, hal_generator_t **out_generator) {
  if (device < 0 || device >= hal_device_count()) return hal_device_out_of_range(device);
  _Atomic(hal_generator_t *) *const slot = &hal_devices[device].generator;
  hal_generator_t *generator = atomic_load_explicit(slot, memory_order_acquire);
  if (!generator) { /* needs no driver, because a seed may be set before the first use */
    hal_generator_t *made;
    HAL_RETURN_IF_ERROR(hal_generator_create(HAL_DEFAULT_SEED, &made));
    if (atomic_compare_exchange_strong(slot, &generator, made))
      generator = made;
    else
      hal_generator_destroy(made); /* another thread was first */
  }
  *out_generator = generator;
  return HAL_OK;
}

void hal_generator_set_seed(hal_generator_t *generator, uint64_t seed) {
  hal_lock(&generator->lock);
  generator->seed = seed;
  generator->offset = 0;
  hal_unlock(&generator->lock);
}

/* The lock is not part of the value, so reading accepts a generator that is const to the caller. */
static hal_generator_t *unlocked(const hal_generator_t *generator) { return (hal_generator_t *)(uintptr_t)generator; }

uint64_t hal_generator_seed(const hal_generator_t *generator) {
  hal_lock(&unlocked(generator)->lock);
  const uint64_t seed = generator->seed;
  hal_unlock(&unlocked(generator)->lock);
  return seed;
}

void hal_generator_set_offset(hal_generator_t *generator, uint64_t offset) {
  hal_lock(&generator->lock);
  generator->offset = offset;
  hal_unlock(&generator->lock);
}

uint64_t hal_generator_offset(const hal_generator_t *generator) {
  hal_lock(&unlocked(generator)->lock);
  const uint64_t offset = generator->offset;
  hal_unlock(&unlocked(generator)->lock);
  return offset;
}

void hal_generator_reserve(hal_generator_t *generator, uint64_t blocks, uint64_t *out_seed, uint64_t *out_offset) {
  hal_lock(&generator->lock);
  *out_seed = generator->seed;
  *out_offset = generator->offset;
  generator->offset += blocks; /* wraps after 2^64 blocks, as the counter does */
  hal_unlock(&generator->lock);
}

hal_status_t hal_generator_draw(hal_generator_t *generator, hal_stream_t *stream, uint64_t blocks,
                                hal_draw_t *out_draw) {
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(hal_thread.device, &stream));
  hal_queue_t *const queue = hal_stream_queue(stream);
  const hal_status_t status = queue->calls->draw(queue, generator, blocks, out_draw);
  if (HAL_UNLIKELY(status != HAL_UNIMPLEMENTED)) return status;
  out_draw->random_state = NULL;
  hal_generator_reserve(generator, blocks, &out_draw->seed, &out_draw->offset);
  return HAL_OK;
}

void hal_generator_philox(uint64_t seed, uint64_t offset, uint64_t stream, uint32_t out_words[4]) {
  hal_philox_block(seed, offset, stream, out_words);
}
