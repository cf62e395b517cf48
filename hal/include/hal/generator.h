/* generator.h: the state of the Philox4x32-10 generator: a seed and an offset.
 *
 * A random operator over `count` numbers reserves (seed, offset) by hal_generator_reserve and uses Philox blocks
 * offset, offset + 1, ... as hal_random_t in plugin.h specifies. The result does not depend on the number of threads:
 * the same seed produces the same uniform numbers on every plugin, bit for bit. */
#ifndef HAL_GENERATOR_H_
#define HAL_GENERATOR_H_

#include "hal/api.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The default seed of a generator: c10::detail::default_rng_seed_val. */
#define HAL_DEFAULT_SEED UINT64_C(67280421310721)

typedef struct hal_generator_s hal_generator_t;

/* Creates a generator with a seed and offset 0. Destroyed by hal_generator_destroy. Errors: HAL_RESOURCE_EXHAUSTED.
 * Since 0.1. */
HAL_API hal_status_t hal_generator_create(uint64_t seed, hal_generator_t **out_generator);

/* Destroys a generator; NULL is allowed. Since 0.1. */
HAL_API void hal_generator_destroy(hal_generator_t *generator);

/* Returns the device's default generator, which is created with HAL_DEFAULT_SEED at first use; borrowed, never
 * destroyed. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_generator_default(int32_t device, hal_generator_t **out_generator);

/* Sets the seed, and sets the offset to 0. Since 0.1. */
HAL_API void hal_generator_set_seed(hal_generator_t *generator, uint64_t seed);

/* Returns the seed. Since 0.1. */
HAL_API uint64_t hal_generator_seed(const hal_generator_t *generator);

/* Sets the offset, in Philox blocks. Since 0.1. */
HAL_API void hal_generator_set_offset(hal_generator_t *generator, uint64_t offset);

/* Returns the offset, in Philox blocks. Since 0.1. */
HAL_API uint64_t hal_generator_offset(const hal_generator_t *generator);

/* Reserves `blocks` Philox blocks: returns the seed and the first offset, and advances the offset, atomically. Since
 * 0.1. */
HAL_API void hal_generator_reserve(hal_generator_t *generator, uint64_t blocks, uint64_t *out_seed,
                                   uint64_t *out_offset);

/* Random numbers that an operator may use: Philox blocks offset, offset + 1, ... of the seed. With `random_state`, the
 * seed is random_state[0] and the offset random_state[1] + offset; both are read from device memory when the work runs
 * (hal_op_call_t). */
typedef struct hal_draw_s {
  uint64_t seed, offset;
  const uint64_t *random_state; /* NULL: use `seed` and `offset` */
} hal_draw_t;

/* Reserves `blocks` Philox blocks for work that is queued on a stream (NULL: current). If the stream is being recorded,
 * each run of the program reserves its own blocks, and the program holds a reference to the generator. Errors: as of
 * hal_program_begin. Since 0.2. */
HAL_API hal_status_t hal_generator_draw(hal_generator_t *generator, hal_stream_t *stream, uint64_t blocks,
                                        hal_draw_t *out_draw);

/* Computes one Philox4x32-10 block: key = seed, counter = (offset, stream). Pure function. Since 0.1. */
HAL_API void hal_generator_philox(uint64_t seed, uint64_t offset, uint64_t stream, uint32_t out_words[4]);

#ifdef __cplusplus
}
#endif
#endif /* HAL_GENERATOR_H_ */
