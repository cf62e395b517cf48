/* lazy_again.c: repeated deferred work, with other scalars, other data or another command list; on the device that
 * HAL_TEST_PLUGIN names. */
#include <math.h>

#include "lazy/lazy.h"
#include "lazy_testing.h"

TestSuite(lazy_again, .init = open_device, .timeout = 240);

enum { TIMES = 6 };

static hal_lazy_info_t added(hal_lazy_info_t after, hal_lazy_info_t before) {
  after.queued -= before.queued;
  after.groups -= before.groups;
  after.fused -= before.fused;
  after.common -= before.common;
  after.cached -= before.cached;
  after.compiled -= before.compiled;
  return after;
}

static uint32_t schedules_of(const hal_lazy_t *lazy) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < HAL_SCHEDULES; i++) count += lazy->schedules.schedule[i] != NULL;
  return count;
}

Test(lazy_again, a_repeated_command_list_is_queued_as_before_with_its_own_numbers_and_data) {
  tensor_t *const a = floats(1, 0), *const b = floats(0, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  hal_lazy_info_t before = info_of(lazy), first = before;
  float expected = 1;
  for (int i = 0; i < TIMES; i++) {
    add(a, a, i, b); /* b = a + i a */
    add(b, a, 0.5 * i, r);
    unary("neg", r, r);
    add(a, a, 1, a); /* another number at each repetition: a = 2 a */
    must(hal_lazy_flush(lazy));
    const hal_lazy_info_t now = info_of(lazy), step = added(now, before);
    if (i == 0) first = step;
    if (i >= 2) {
      cr_expect(schedules_of(lazy) == 1 || !fuses(), "%u", schedules_of(lazy));
      cr_expect_eq(step.compiled, 0);
    }
    cr_expect_eq(step.queued, first.queued);
    cr_expect_eq(step.groups, first.groups);
    cr_expect_eq(step.fused, first.fused);
    cr_expect_eq(step.cached + step.compiled, first.cached + first.compiled);
    before = now;
    cr_expect_eq(at(r, COUNT - 1), -(expected * (1 + (float)i) + 0.5f * (float)i * expected), "%d", i);
    expected *= 2;
  }
  must(hal_lazy_end(lazy));
}

Test(lazy_again, operators_that_computed_the_same_do_so_only_with_the_same_numbers) {
  tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const c = floats(0, 0), *const d = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 2 * TIMES; i++) {
    const double other = i < TIMES ? 3 : 3 + i;
    add(a, b, 3, c);
    add(a, b, other, d);
    must(hal_lazy_flush(lazy));
    cr_expect_eq(at(c, COUNT - 1), 7);
    cr_expect_eq(at(d, COUNT - 1), (float)(1 + 2 * other), "%d", i);
  }
  must(hal_lazy_end(lazy));
}

/* Command lists of random operators on few vectors. Each list is repeated several times, interleaved with others;
   hashes may collide. */
static void run_random_lists(uint64_t mask) {
  enum { VECTORS = 5, LISTS = 4, OPERATORS = 12 };
  tensor_t *vectors[VECTORS];
  float expected[VECTORS];
  for (int i = 0; i < VECTORS; i++) {
    expected[i] = (float)(i + 1);
    vectors[i] = floats(expected[i], 0);
  }
  hal_lazy_t *const lazy = begin();
  if (lazy->fuse) lazy->fuse->hash_mask = mask;
  for (int round = 0; round < 10 * LISTS; round++) {
    uint32_t random = 77u + (uint32_t)(round * round) % LISTS; /* which list */
    for (int i = 0; i < OPERATORS; i++) {
      random = random * 1664525u + 1013904223u;
      const uint32_t x = random >> 8 & 0xff, y = random >> 16 & 0xff, z = random >> 24;
      const int from = (int)(x % VECTORS), with = (int)(y % VECTORS), to = (int)(z % VECTORS);
      const float number = (float)(round % 3) * 0.25f;
      if (i % 4 == 3) {
        unary("neg", vectors[from], vectors[to]);
        expected[to] = -expected[from];
      } else {
        add(vectors[from], vectors[with], number - 1, vectors[to]);
        expected[to] = expected[from] + (number - 1) * expected[with];
      }
    }
    must(hal_lazy_flush(lazy));
    for (int i = 0; i < VECTORS; i++) {
      cr_assert_float_eq(at(vectors[i], 4711), expected[i], 1e-5 * fabs((double)expected[i]) + 1e-12,
                         "round %d, vector %d", round, i);
      expected[i] = at(vectors[i], 4711);
      if (fabs((double)expected[i]) > 1e6 || round % 8 == 7) {
        tensor_t *const fresh = floats((float)(i + 1), 0);
        unary("neg", fresh, vectors[i]);
        must(hal_lazy_flush(lazy));
        expected[i] = -(float)(i + 1);
      }
    }
  }
  must(hal_lazy_end(lazy));
}

Test(lazy_again, different_command_lists_are_distinguished) { run_random_lists(UINT64_MAX); }
Test(lazy_again, command_lists_with_equal_hashes_are_distinguished) { run_random_lists(0); }

Test(lazy_again, a_command_list_of_other_addresses_is_another_one) {
  tensor_t *vectors[TIMES], *const a = floats(1, 0);
  for (int i = 0; i < TIMES; i++) vectors[i] = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < TIMES; i++) {
    add(a, a, 1, vectors[i]);
    unary("neg", vectors[i], vectors[i]);
    must(hal_lazy_flush(lazy));
  }
  cr_expect_eq(schedules_of(lazy), 0);
  for (int i = 0; i < TIMES; i++) cr_expect_eq(at(vectors[i], 17), -2);
  must(hal_lazy_end(lazy));
}

/* ---- failures ---- */

static void open_with_fault(void) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "kernel_launch:4:INTERNAL", 1);
  open_device();
}

TestSuite(lazy_again_faults, .init = open_with_fault, .timeout = 240);

Test(lazy_again_faults, a_failure_of_repeated_work_is_reported_and_later_work_runs) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 6; i++) {
    add(a, a, i, r);
    unary("neg", r, r);
    if (i != 3) {
      must(hal_lazy_flush(lazy));
      cr_expect_eq(at(r, 5), -(float)(1 + i));
      continue;
    }
    cr_expect_eq(schedules_of(lazy), 1, "it comes again");
    assert_fails(hal_lazy_flush(lazy), HAL_INTERNAL, "failed to launch; 0 later commands were discarded");
    cr_expect_eq(at(r, 5), -3, "nothing was computed");
  }
  must(hal_lazy_end(lazy));
}

/* ---- the schedule as text ---- */

/* Writes the schedule of a stream: "0 2 in one launch; 1; 3 is 1; 2 in common". */
static void write_schedule(const hal_lazy_t *lazy, char *text, size_t room) {
  const hal_schedule_t *schedule = NULL;
  size_t size = 0;
  for (uint32_t i = 0; i < HAL_SCHEDULES && !schedule; i++) schedule = lazy->schedules.schedule[i];
  cr_assert(schedule);
  for (uint32_t i = 0; i < schedule->count; i++) {
    const hal_schedule_entry_t *const entry = &schedule->entry[i];
    const int is_copied = entry->earlier != HAL_NO_ACCESS;
    if (!entry->steps) size += (size_t)snprintf(text + size, room - size, "%u", (unsigned)entry->command);
    if (is_copied) size += (size_t)snprintf(text + size, room - size, " is %u", (unsigned)entry->earlier);
    for (uint32_t k = 0; k < entry->steps; k++)
      size += (size_t)snprintf(text + size, room - size, "%u ", (unsigned)entry->commands[k]);
    if (entry->steps)
      size += (size_t)snprintf(text + size, room - size, entry->kernel ? "in one launch" : "eliminated");
    size += (size_t)snprintf(text + size, room - size, "; ");
  }
  snprintf(text + size, room - size, "%d in common", (int)schedule->info.common);
}

static void product(const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  enum { SIDE = 64 };
  int64_t sizes[] = {SIDE, SIDE}, strides[] = {SIDE, 1};
  hal_tensor_t parts[3] = {a->desc, b->desc, result->desc};
  for (int i = 0; i < 3; i++) parts[i].ndim = 2, parts[i].sizes = sizes, parts[i].strides = strides;
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &parts[0]}, {.tag = HAL_VALUE_TENSOR, .u.t = &parts[1]}};
  must(queue("mm", args, 2, &parts[2]));
}

Test(lazy_again, golden_text_of_a_group_that_goes_past_an_unrelated_command) {
  tensor_t *const a = floats(1, 0), *const b = floats(0.5f, 0), *const c = floats(0, 0), *const r = floats(0, 0);
  char text[1024];
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 3; i++) {
    add(a, b, 1, r);    /* 0 */
    product(a, b, c);   /* 1: independent of r */
    unary("neg", r, r); /* 2 */
    product(r, b, c);   /* 3: reads r */
    unary("exp", r, r); /* 4: writes what 3 reads */
    must(hal_lazy_flush(lazy));
  }
  write_schedule(lazy, text, sizeof text);
  cr_expect_str_eq(text, "0 2 in one launch; 1; 3; 4; 0 in common");
  cr_expect_float_eq(at(r, COUNT - 1), expf(-1.5f), 1e-6); /* also waits: PoCL must not be unloaded while it compiles */
  must(hal_lazy_end(lazy));
}

Test(lazy_again, golden_text_of_what_is_computed_twice) {
  tensor_t *const a = floats(1, 0), *const b = floats(0.5f, 0), *const c = floats(0, 0), *const d = floats(0, 0),
                  *const r = floats(0, 0), *const s = floats(0, 0);
  char text[1024];
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 3; i++) {
    product(a, b, c);   /* 0 */
    product(a, b, d);   /* 1: the same */
    add(a, b, 1, r);    /* 2 */
    add(a, b, 1, s);    /* 3: the same as 2, in its group */
    unary("neg", s, s); /* 4 */
    must(hal_lazy_flush(lazy));
    cr_expect_eq(at(d, 99), at(c, 99));
    cr_expect_eq(at(s, COUNT - 1), -1.5f);
  }
  write_schedule(lazy, text, sizeof text);
  cr_expect_str_eq(text, "0; 1 is 0; 2 3 4 in one launch; 2 in common");
  must(hal_lazy_end(lazy));
}
