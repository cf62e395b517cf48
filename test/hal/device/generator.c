/* Tests of generator.h: Philox words and the state. */
#include "support.h"

static void assert_words(uint64_t seed, uint64_t offset, uint64_t stream, const uint32_t want[4]) {
  uint32_t words[4];
  hal_generator_philox(seed, offset, stream, words);
  for (int i = 0; i < 4; i++) cr_expect_eq(words[i], want[i], "word %d: %08x instead of %08x", i, words[i], want[i]);
}

/* The known answers of the Random123 distribution (kat_vectors, philox4x32 10). */
Test(generator, philox_returns_the_published_known_answers) {
  assert_words(0, 0, 0, (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  assert_words(UINT64_MAX, UINT64_MAX, UINT64_MAX, (const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  assert_words(UINT64_C(0x299f31d0a4093822), UINT64_C(0x85a308d3243f6a88), UINT64_C(0x0370734413198a2e),
               (const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

Test(generator, reserve_returns_the_state_and_advances_the_offset) {
  hal_generator_t *generator;
  uint64_t seed, offset;
  assert_ok(hal_generator_create(5, &generator));
  hal_generator_reserve(generator, 10, &seed, &offset);
  cr_assert_eq(seed, 5);
  cr_assert_eq(offset, 0);
  hal_generator_reserve(generator, 1, &seed, &offset);
  cr_assert_eq(offset, 10);
  cr_assert_eq(hal_generator_offset(generator), 11);
  hal_generator_destroy(generator);
}

Test(generator, set_seed_also_sets_the_offset_to_zero) {
  hal_generator_t *generator;
  assert_ok(hal_generator_create(5, &generator));
  hal_generator_set_offset(generator, 77);
  cr_assert_eq(hal_generator_offset(generator), 77);
  hal_generator_set_seed(generator, 6);
  cr_assert_eq(hal_generator_seed(generator), 6);
  cr_assert_eq(hal_generator_offset(generator), 0);
  hal_generator_destroy(generator);
  hal_generator_destroy(NULL);
}

Test(generator, the_default_generator_needs_no_driver_and_is_one_per_device) {
  hal_generator_t *first, *again, *other;
  open_fixture("five");
  assert_ok(hal_generator_default(0, &first));
  assert_ok(hal_generator_default(0, &again));
  assert_ok(hal_generator_default(1, &other));
  cr_assert_eq(first, again);
  cr_assert_neq(first, other);
  cr_assert_eq(hal_generator_seed(first), HAL_DEFAULT_SEED);
  cr_assert_not(hal_device_is_initialized(0));
  assert_fails(hal_generator_default(2, &other), HAL_OUT_OF_RANGE, "device 2 is out of range");
}
