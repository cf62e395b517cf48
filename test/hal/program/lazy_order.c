/* lazy_order.c: groups of lazy work that continue past independent commands, and steps that compute the same value;
 * on the device that HAL_TEST_PLUGIN names. */
#include <math.h>

#include "hal/event.h"
#include "lazy_testing.h"

TestSuite(lazy_order, .init = open_device, .timeout = 240);

enum { SIDE = 100 /* of the matrices that the first elements of a vector are */ };

/* Part of a vector, as a separate tensor. */
typedef struct part_s {
  int64_t sizes[2], strides[2];
  hal_tensor_t desc;
} part_t;

static part_t *part_of(const tensor_t *t, int64_t first, int64_t rows, int64_t columns) {
  part_t *const part = calloc(1, sizeof *part);
  cr_assert(part);
  *part = (part_t){.sizes = {rows, columns}, .strides = {columns, 1}, .desc = t->desc};
  part->desc.data = (char *)t->desc.data + first * (int64_t)t->element;
  part->desc.ndim = 2;
  part->desc.sizes = part->sizes;
  part->desc.strides = part->strides;
  return part;
}

static hal_value_t value_of(const part_t *part) { return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &part->desc}; }

/* result = a + number * b, of parts */
static void add_parts(const part_t *a, const part_t *b, double number, const part_t *result) {
  const hal_value_t args[] = {value_of(a), value_of(b), of_double(number)};
  must(queue("add.Tensor", args, 3, &result->desc));
}

static void multiply_parts(const part_t *a, const part_t *b, const part_t *result) {
  const hal_value_t args[] = {value_of(a), value_of(b)};
  must(queue("mm", args, 2, &result->desc));
}

/* An operator that is not element-wise: the product of the matrices at the beginning of vectors. */
static void multiply(const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  multiply_parts(part_of(a, 0, SIDE, SIDE), part_of(b, 0, SIDE, SIDE), part_of(result, 0, SIDE, SIDE));
}

static hal_lazy_info_t end(hal_lazy_t *lazy) {
  must(hal_lazy_flush(lazy));
  const hal_lazy_info_t info = info_of(lazy);
  must(hal_lazy_end(lazy));
  return info;
}

/* ---- past independent commands ---- */

Test(lazy_order, a_group_continues_past_an_operator_that_accesses_none_of_its_memory) {
  tensor_t *const a = floats(1, 0), *const b = floats(0.5f, 0), *const product = floats(0, 0), *const r = floats(0, 0);
  hal_block_t *block;
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  tensor_t *const t = taken(&block);
  add(a, b, 1, t);
  multiply(a, b, product);
  add(t, a, 2, r);
  hal_memory_release(block);
  const hal_lazy_info_t info = end(lazy);
  cr_expect(info.groups == 1 && info.fused == 2, "%d groups of %d", (int)info.groups, (int)info.fused);
  cr_expect_eq(at(r, 9), 3.5f);
  cr_expect_eq(at(product, 9), SIDE * 0.5f);
}

Test(lazy_order, operators_over_lists_become_a_group_of_each_element) {
  enum { LISTS = 12 };
  part_t *sum[LISTS], *number[LISTS], *result[LISTS];
  tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const r = floats(3, 0);
  if (!fuses()) return;
  for (int64_t i = 0, first = 0; i < LISTS; first += 10 * ++i) {
    sum[i] = part_of(a, first, 2, 5 * (i + 1)); /* of different sizes, so that adjacent operators do not form a group */
    number[i] = part_of(b, first, 2, 5 * (i + 1));
    result[i] = part_of(r, first, 2, 5 * (i + 1));
  }
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < LISTS; i++) add_parts(sum[i], number[i], 1, sum[i]);
  for (int i = 0; i < LISTS; i++) add_parts(result[i], sum[i], -0.5, result[i]);
  const hal_lazy_info_t info = end(lazy);
  cr_expect(info.groups == LISTS && info.fused == 2 * LISTS && info.queued == LISTS, "%d groups, %d calls",
            (int)info.groups, (int)info.queued);
  cr_expect(info.compiled <= 1, "of one kind");
  cr_expect_eq(at(r, 99), 1.5f);
}

static void host_function(void *data) { *(int *)data = 1; }

/* A command between the steps of a possible group: the number of groups and the result. */
typedef struct between_s {
  const char *what;
  int groups;
  float want;
} between_t;
static const between_t betweens[] = {{"nothing", 1, 7},
                                     {"a product over what the second reads", 0, 104},
                                     {"a product over the first one's result", 0, 103},
                                     {"a product of the first one's result", 1, 7},
                                     {"a product over the second one's result", 0, 7},
                                     {"a product of what the second one writes", 0, 7},
                                     {"a copy over what the second reads: these two", 1, 5},
                                     {"a function of the host", 0, 7},
                                     {"a wait of another stream", 0, 7}};

static void put_between(const between_t *between, tensor_t *a, tensor_t *b, tensor_t *t, tensor_t *r, tensor_t *other) {
  static int called;
  hal_event_t *event;
  hal_stream_t *stream;
  switch (between - betweens) {
    case 1:
      multiply(b, b, a); /* 100, the side */
      break;
    case 2:
      multiply(b, b, t);
      break;
    case 3:
      multiply(t, b, other);
      break;
    case 4:
      multiply(b, b, r);
      break;
    case 5:
      multiply(r, b, other);
      break;
    case 6:
      must(hal_memory_copy(NULL, a->desc.data, 0, b->desc.data, 0, COUNT * sizeof(float)));
      break;
    case 7:
      must(hal_stream_host_call(NULL, host_function, &called));
      break;
    case 8:
      must(hal_stream_acquire(0, 0, &stream));
      must(hal_event_create(0, 0, &event));
      must(hal_event_record(event, NULL));
      must(hal_stream_wait_event(stream, event));
      break;
    default:
      break;
  }
}

Test(lazy_order, what_depends_on_the_group_or_it_on_that_keeps_its_place) {
  if (!fuses()) return;
  for (size_t i = 0; i < sizeof betweens / sizeof *betweens; i++) {
    tensor_t *const a = floats(3, 0), *const b = floats(1, 0), *const r = floats(9, 0), *const other = floats(0, 0);
    tensor_t *const t = floats(0, 0), *const junk = floats(0, 0);
    const between_t *const between = &betweens[i];
    hal_lazy_t *const lazy = begin();
    add(a, b, 1, t); /* 4 */
    if (i) multiply(b, b, junk);
    put_between(between, a, b, t, r, other);
    add(t, a, 1, r);
    const hal_lazy_info_t info = end(lazy);
    cr_expect_eq((int)info.groups, between->groups, "%s: %d groups", between->what, (int)info.groups);
    cr_expect_eq(at(r, 9), between->want, "%s: %g", between->what, (double)at(r, 9));
    if (i == 3) cr_expect_eq(at(other, 9), SIDE * 4.0f, "%s", between->what);
    if (i == 5) cr_expect_eq(at(other, 9), SIDE * 9.0f, "%s", between->what);
  }
}

Test(lazy_order, a_value_that_is_read_before_its_memory_is_given_back_is_kept) {
  tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const product = floats(0, 0), *const r = floats(0, 0),
                  *const s = floats(0, 0);
  if (!fuses()) return;
  for (int read = 0; read < 2; read++) {
    hal_block_t *block, *again;
    hal_lazy_t *const lazy = begin();
    tensor_t *const t = taken(&block);
    add(a, b, 1, t); /* 3 */
    multiply(read ? t : a, b, product);
    add(t, a, 1, r); /* 4 */
    hal_memory_release(block);
    tensor_t *const u = taken(&again); /* the same memory */
    add(r, b, 1, u);                   /* 6 */
    add(u, b, 1, s);                   /* 8 */
    hal_memory_release(again);
    end(lazy);
    cr_expect_eq(at(r, 9), 4);
    cr_expect_eq(at(s, 9), 8);
    cr_expect_eq(at(product, 9), SIDE * (read ? 6.0f : 2.0f), "read %d: %g", read, (double)at(product, 9));
  }
}

/* ---- common subexpressions ---- */

Test(lazy_order, what_is_computed_twice_is_computed_once) {
  tensor_t *const a = floats(0.25f, 0.0001f), *const r = floats(0, 0), *const s = floats(0, 0),
                  *const want = floats(0, 0);
  unary("tanh", a, want);
  if (!fuses()) return;
  for (int kept = 0; kept < 2; kept++) {
    hal_block_t *block;
    hal_lazy_t *const lazy = begin();
    tensor_t *const t = kept ? s : taken(&block);
    unary("tanh", a, r);
    unary("tanh", a, t); /* where it is kept, a copy */
    add(t, r, 1, r);
    if (!kept) hal_memory_release(block);
    const hal_lazy_info_t info = end(lazy);
    cr_expect(info.common == 1 && info.groups == 1, "%d in common, %d groups", (int)info.common, (int)info.groups);
    cr_expect_eq(info.dropped, !kept);
    const float value = at(want, 77);
    cr_expect_float_eq(at(r, 77), 2 * value, 1e-6f);
    if (kept) cr_expect_float_eq(at(s, 77), value, 1e-6f);
  }
}

Test(lazy_order, what_only_looks_the_same_is_computed_again) {
  tensor_t *const a = floats(4, 0), *const b = floats(1, 0), *const r = floats(0, 0), *const s = floats(0, 0);
  hal_lazy_t *lazy = begin();
  unary("sqrt", a, r); /* 2 */
  add(a, b, 5, a);     /* 9: the same memory contains another number */
  unary("sqrt", a, s); /* 3 */
  add(s, b, 1, s);     /* another number */
  add(s, b, 2, s);
  cr_expect_eq(end(lazy).common, 0);
  cr_expect(at(r, 5) == 2 && at(s, 5) == 6, "%g, %g", (double)at(r, 5), (double)at(s, 5));
}

Test(lazy_order, a_result_over_its_twin_is_the_same_number) {
  tensor_t *const a = floats(4, 0), *const r = floats(0, 0), *const s = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  unary("sqrt", a, r);
  add(r, a, 1, s);     /* 6 */
  unary("sqrt", a, r); /* over itself */
  add(r, s, 1, s);     /* 8 */
  unary("sqrt", a, a); /* over what both read */
  end(lazy);
  cr_expect(at(r, 5) == 2 && at(s, 5) == 8 && at(a, 5) == 2);
}

/* Two products of the same matrices, with a command between them: the number computed by a copy. */
Test(lazy_order, a_product_that_is_computed_twice_is_copied) {
  static const char *const between[] = {"nothing", "what one reads", "what one made", "what both write"};
  if (!fuses() || compiles()) return; /* the host's kernels need one launch */
  for (int way = 0; way < 4; way++) {
    tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const r = floats(0, 0), *const s = floats(0, 0);
    hal_lazy_t *const lazy = begin();
    multiply(a, b, r);
    if (way == 1) add(b, b, 0.5, a); /* 3 */
    if (way == 2) add(b, b, 0.5, r);
    multiply(a, b, way == 3 ? r : s);
    const hal_lazy_info_t info = end(lazy);
    cr_expect_eq(info.common, way == 0 || way == 3, "%s: %d in common", between[way], (int)info.common);
    cr_expect_eq(at(way == 3 ? r : s, 9), SIDE * (way == 1 ? 6.0f : 2.0f), "%s", between[way]);
    cr_expect_eq(at(r, 9), way == 2 ? 3 : SIDE * 2.0f, "%s", between[way]);
  }
}

Test(lazy_order, a_product_whose_memory_was_given_back_is_computed_again) {
  tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const s = floats(0, 0), *const u = floats(0, 0);
  hal_block_t *block, *again;
  hal_lazy_t *const lazy = begin();
  const tensor_t *const t = taken(&block);
  multiply(a, b, t);
  multiply(t, b, s);
  hal_memory_release(block);
  const tensor_t *const other = taken(&again); /* the same memory */
  add(b, b, 1, other);
  multiply(a, b, u);
  hal_memory_release(again);
  cr_expect_eq(end(lazy).common, 0);
  cr_expect_eq(at(u, 9), SIDE * 2.0f);
  cr_expect_eq(at(s, 9), SIDE * SIDE * 4.0f);
}

/* r *= scale */
static void unscale(const tensor_t *scale, const tensor_t *r, const tensor_t *found) {
  const hal_value_t args[] = {of_tensor(scale)};
  const hal_tensor_t *const results[] = {&r->desc, &found->desc};
  uint32_t op;
  must(hal_op_id("_amp_unscale_", &op));
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 1, .result_count = 2, .args = args, .results = results};
  must(hal_op_run(0, op, NULL, &call));
}

Test(lazy_order, an_operator_that_updates_its_result_is_no_other_ones_twin) {
  tensor_t *const scale = vector(HAL_FLOAT32, 1), *const found = vector(HAL_FLOAT32, 1);
  tensor_t *const r = floats(4, 0), *const s = floats(6, 0);
  *(float *)scale->host = 0.5f;
  tensor_upload(scale);
  tensor_upload(found);
  hal_lazy_t *const lazy = begin();
  unscale(scale, r, found);
  unscale(scale, s, found);
  cr_expect_eq(end(lazy).common, 0);
  cr_expect(at(r, 5) == 2 && at(s, 5) == 3, "%g, %g", (double)at(r, 5), (double)at(s, 5));
}

/* ---- random commands ---- */

enum { VECTORS = 6, PIECES = 5, EDGE = 8, PIECE = EDGE * EDGE, COMMANDS = 120 };

static uint32_t below(uint64_t *state, uint32_t bound) { return next_random(state) % bound; }

/* A range of some pieces in one of the vectors, the same size for all of a command. */
static part_t *any_part(tensor_t *const *vectors, uint64_t *state, uint32_t pieces) {
  const uint32_t first = below(state, 2 * (PIECES - pieces) + 1); /* also at half pieces: ranges overlap */
  return part_of(vectors[below(state, VECTORS)], first * PIECE / 2, pieces * EDGE, EDGE);
}

static int meet(const part_t *a, const part_t *b) {
  const char *const x = a->desc.data, *const y = b->desc.data;
  const int64_t size = a->sizes[0] * a->sizes[1] * (int64_t)sizeof(float);
  return x != y && x < y + size && y < x + size;
}

/* One of the commands; results that partly overlap an operand are excluded, since they are also undefined in eager
   mode. */
static void any_command(tensor_t *const *vectors, uint64_t *state) {
  const uint32_t kind = below(state, 16), pieces = kind < 11 ? 1 + below(state, 3) : 1;
  const part_t *const a = any_part(vectors, state, pieces), *const b = any_part(vectors, state, pieces);
  const part_t *const r = any_part(vectors, state, pieces);
  const size_t bytes = pieces * PIECE * sizeof(float);
  if (meet(a, r) || meet(b, r)) return;
  if (kind < 8) {
    add_parts(a, b, kind % 2 ? 0.25 : -0.5, r);
  } else if (kind < 11) {
    const hal_value_t args[] = {value_of(a)};
    must(queue(kind == 8 ? "neg" : kind == 9 ? "abs" : "sigmoid", args, 1, &r->desc));
  } else if (kind == 11) {
    if (a->desc.data != r->desc.data) must(hal_memory_copy(NULL, r->desc.data, 0, a->desc.data, 0, bytes));
  } else if (kind == 12) {
    const float number = 0.75f;
    must(hal_memory_fill(NULL, 0, r->desc.data, &number, sizeof number, bytes));
  } else if (kind == 13) {
    const int64_t last = 1;
    part_t *const sum = part_of(vectors[0], 0, EDGE, 1);
    sum->desc.data = r->desc.data;
    const hal_value_t args[] = {value_of(a), {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = &last}};
    if (a->desc.data != r->desc.data) must(queue("sum.dim_IntList", args, 2, &sum->desc));
  } else if (a->desc.data != r->desc.data && b->desc.data != r->desc.data) {
    multiply_parts(a, b, r);
  }
}

/* The contents of the vectors after the commands of a seed; some of the vectors are blocks that are released and
   allocated again. */
enum { EAGERLY, LAZILY, IN_GROUPS };
static void run_commands(uint64_t seed, int mode, float *out, uint64_t *groups, uint64_t *common) {
  tensor_t *vectors[VECTORS];
  hal_block_t *blocks[VECTORS];
  uint64_t state = seed * 7919 + 1;
  int64_t count = PIECES * PIECE;
  for (int v = 0; v < VECTORS; v++) {
    vectors[v] = vector(HAL_FLOAT32, count);
    must(hal_memory_allocate(0, NULL, (size_t)count * sizeof(float), &blocks[v]));
    vectors[v]->desc.data = hal_memory_block_address(blocks[v]);
    for (int64_t i = 0; i < count; i++) ((float *)vectors[v]->host)[i] = (float)((i * 7 + v * 13) % 17 - 8) / 16;
    must(hal_memory_copy(NULL, vectors[v]->desc.data, 0, vectors[v]->host, HAL_HOST, (size_t)count * sizeof(float)));
  }
  must(hal_stream_synchronize(NULL));
  hal_lazy_t *const lazy = mode == LAZILY ? begin() : mode == IN_GROUPS ? begin_groups(2 * PIECE) : NULL;
  for (int i = 0; i < COMMANDS; i++) {
    const uint32_t v = below(&state, 8 * VECTORS);
    if (v < VECTORS) { /* another block, whose first value is a sum: its earlier contents are not read */
      hal_memory_release(blocks[v]);
      must(hal_memory_allocate(0, NULL, (size_t)count * sizeof(float), &blocks[v]));
      vectors[v]->desc.data = hal_memory_block_address(blocks[v]);
      const part_t *const from = part_of(vectors[(v + 1) % VECTORS], 0, PIECES * EDGE, EDGE);
      add_parts(from, from, -0.5, part_of(vectors[v], 0, PIECES * EDGE, EDGE));
    }
    any_command(vectors, &state);
  }
  if (lazy) {
    const hal_lazy_info_t info = end(lazy);
    *groups += info.groups;
    *common += info.common;
  }
  for (int v = 0; v < VECTORS; v++) {
    must(hal_memory_copy(NULL, vectors[v]->host, HAL_HOST, vectors[v]->desc.data, 0, (size_t)count * sizeof(float)));
    must(hal_stream_synchronize(NULL));
    memcpy(out + v * count, vectors[v]->host, (size_t)count * sizeof(float));
    hal_memory_release(blocks[v]);
  }
}

Test(lazy_order, any_commands_over_memory_that_overlaps_have_the_results_of_eager_ones, .timeout = 3600) {
  enum { FLOATS = VECTORS * PIECES * PIECE };
  const uint64_t programs = random_programs(150);
  static float lazily[FLOATS], eagerly[FLOATS];
  uint64_t groups[3] = {0}, common[3] = {0};
  if (compiles()) return; /* each group is compiled separately, and some numbers round differently */
  for (uint64_t seed = 0; seed < programs; seed++) {
    run_commands(seed, EAGERLY, eagerly, groups, common);
    for (int mode = LAZILY; mode <= IN_GROUPS; mode++) {
      run_commands(seed, mode, lazily, &groups[mode], &common[mode]);
      for (int i = 0; i < FLOATS; i++)
        cr_assert(lazily[i] == eagerly[i] || (isnan(lazily[i]) && isnan(eagerly[i])),
                  "seed %d, mode %d: element %d is %g instead of %g", (int)seed, mode, i, (double)lazily[i],
                  (double)eagerly[i]);
    }
  }
  cr_expect(groups[LAZILY] > 10 * programs && common[LAZILY] > 10, "%d groups, %d in common", (int)groups[LAZILY],
            (int)common[LAZILY]);
  cr_expect_gt(groups[IN_GROUPS], 3 * programs);
}
