/* emit.c: text of StableHLO, its single operators, and the arguments of a node. */
#include "emit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void emit_refuse(emit_t *e, const char *why) {
  if (e->status) return;
  e->status = HAL_UNIMPLEMENTED;
  snprintf(e->why, sizeof e->why, "%s%s%s", e->node ? e->node->name : "", e->node ? ": " : "", why);
}

static int make_room(emit_t *e, size_t more) {
  emit_text_t *const text = &e->text;
  if (text->room - text->size > more) return 1;
  const size_t room = 2 * (text->size + more) + 8192;
  char *const grown = hal_host->mem_alloc(room, 16);
  if (!grown) {
    if (!e->status) e->status = HAL_RESOURCE_EXHAUSTED;
    return 0;
  }
  if (text->size) memcpy(grown, text->data, text->size);
  hal_host->mem_free(text->data);
  text->data = grown;
  text->room = room;
  return 1;
}

void emit_put(emit_t *e, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (e->status || size < 0 || !make_room(e, (size_t)size + 1)) return;
  va_start(arguments, format);
  vsnprintf(e->text.data + e->text.size, (size_t)size + 1, format, arguments);
  va_end(arguments);
  e->text.size += (size_t)size;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  int32_t bytes;
} elements[] = {[PJRT_PRED] = {"i1", 1},   [PJRT_S8] = {"i8", 1},         [PJRT_S16] = {"i16", 2},
                [PJRT_S32] = {"i32", 4},   [PJRT_S64] = {"i64", 8},       [PJRT_U8] = {"ui8", 1},
                [PJRT_U16] = {"ui16", 2},  [PJRT_U32] = {"ui32", 4},      [PJRT_U64] = {"ui64", 8},
                [PJRT_F16] = {"f16", 2},   [PJRT_F32] = {"f32", 4},       [PJRT_F64] = {"f64", 8},
                [PJRT_BF16] = {"bf16", 2}, [PJRT_F8E5M2] = {"f8E5M2", 1}, [PJRT_F8E4M3FN] = {"f8E4M3FN", 1}};

const char *emit_element(int32_t type) { return elements[type].name; }
int32_t emit_bytes(int32_t type) { return elements[type].bytes; }
static int is_low(int32_t type) {
  return type == PJRT_F16 || type == PJRT_BF16 || type == PJRT_F8E5M2 || type == PJRT_F8E4M3FN;
}
int emit_is_float(int32_t type) { return type == PJRT_F32 || type == PJRT_F64 || is_low(type); }
int32_t emit_compute_type(int32_t type) { return is_low(type) ? PJRT_F32 : type; }

int32_t emit_type_of(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_BOOL:
      return PJRT_PRED;
    case HAL_INT8:
      return PJRT_S8;
    case HAL_INT16:
      return PJRT_S16;
    case HAL_INT32:
      return PJRT_S32;
    case HAL_INT64:
      return PJRT_S64;
    case HAL_UINT8:
      return PJRT_U8;
    case HAL_FLOAT16:
      return PJRT_F16;
    case HAL_FLOAT32:
      return PJRT_F32;
    case HAL_FLOAT64:
      return PJRT_F64;
    case HAL_BFLOAT16:
      return PJRT_BF16;
    case HAL_FLOAT8_E5M2:
      return PJRT_F8E5M2;
    case HAL_FLOAT8_E4M3FN:
      return PJRT_F8E4M3FN;
    default:
      return 0;
  }
}

shown_t emit_name(value_t v) {
  shown_t shown;
  snprintf(shown.s, sizeof shown.s, v.id < 0 ? "%%b%d" : "%%v%d", v.id < 0 ? (int)(-1 - v.id) : (int)v.id);
  return shown;
}

shown_t emit_type(value_t v) {
  shown_t shown;
  int n = snprintf(shown.s, sizeof shown.s, "tensor<");
  for (int d = 0; d < v.rank; d++)
    n += snprintf(shown.s + n, sizeof shown.s - (size_t)n, "%lldx", (long long)v.sizes[d]);
  snprintf(shown.s + n, sizeof shown.s - (size_t)n, "%s>", emit_element(v.type));
  return shown;
}

shown_t emit_list(const int64_t *numbers, int count) {
  shown_t shown = {{0}};
  int n = 0;
  for (int i = 0; i < count; i++)
    n += snprintf(shown.s + n, sizeof shown.s - (size_t)n, "%s%lld", i ? ", " : "", (long long)numbers[i]);
  return shown;
}

/* ---- operators of StableHLO -------------------------------------------------------------------------------------- */

value_t emit_fresh(emit_t *e, int32_t type, int rank, const int64_t *sizes) {
  value_t v = {.id = e->next++, .type = type, .rank = rank};
  if (rank) memcpy(v.sizes, sizes, (size_t)rank * sizeof *sizes);
  return v;
}

/* Writes a number in a form that has all of its bits. */
static void put_number(emit_t *e, int32_t type, double number) {
  uint64_t bits;
  uint32_t bits32;
  const float single = (float)number;
  memcpy(&bits, &number, sizeof bits);
  memcpy(&bits32, &single, sizeof bits32);
  if (type == PJRT_PRED)
    emit_put(e, "%s", number != 0 ? "true" : "false");
  else if (!emit_is_float(type))
    emit_put(e, "%lld", (long long)number);
  else if (type == PJRT_F64)
    emit_put(e, "0x%016llX", (unsigned long long)bits);
  else if (type == PJRT_F32)
    emit_put(e, "0x%08X", (unsigned)bits32);
  else
    emit_put(e, "%.9e", number); /* finite numbers only */
}

value_t emit_constant(emit_t *e, int32_t type, double number) {
  if (type == PJRT_F16 || type == PJRT_BF16) return emit_convert(e, emit_constant(e, PJRT_F32, number), type);
  const value_t v = emit_fresh(e, type, 0, NULL);
  emit_put(e, "    %s = stablehlo.constant dense<", emit_name(v).s);
  put_number(e, type, number);
  emit_put(e, "> : %s\n", emit_type(v).s);
  return v;
}

value_t emit_limit(emit_t *e, int32_t type, int sign) {
  static const char *const least[] = {
      [PJRT_S8] = "-128", [PJRT_S16] = "-32768", [PJRT_S32] = "-2147483648", [PJRT_S64] = "-9223372036854775808"};
  static const char *const most[] = {
      [PJRT_S8] = "127", [PJRT_S16] = "32767", [PJRT_S32] = "2147483647", [PJRT_S64] = "9223372036854775807"};
  if (emit_is_float(type)) return emit_constant(e, type, sign * (double)INFINITY);
  if (type == PJRT_PRED || type == PJRT_U8) return emit_constant(e, type, sign < 0 ? 0 : type == PJRT_U8 ? 255 : 1);
  const value_t v = emit_fresh(e, type, 0, NULL);
  emit_put(e, "    %s = stablehlo.constant dense<%s> : %s\n", emit_name(v).s, (sign < 0 ? least : most)[type],
           emit_type(v).s);
  return v;
}

value_t emit_unary(emit_t *e, const char *op, value_t a) {
  const value_t v = emit_fresh(e, a.type, a.rank, a.sizes);
  if (strncmp(op, "chlo.", 5) == 0)
    emit_put(e, "    %s = %s %s : %s -> %s\n", emit_name(v).s, op, emit_name(a).s, emit_type(a).s, emit_type(v).s);
  else
    emit_put(e, "    %s = %s %s : %s\n", emit_name(v).s, op, emit_name(a).s, emit_type(a).s);
  return v;
}

value_t emit_binary(emit_t *e, const char *op, value_t a, value_t b) {
  const value_t v = emit_fresh(e, a.type, a.rank, a.sizes);
  if (strncmp(op, "chlo.", 5) == 0)
    emit_put(e, "    %s = %s %s, %s : %s, %s -> %s\n", emit_name(v).s, op, emit_name(a).s, emit_name(b).s,
             emit_type(a).s, emit_type(b).s, emit_type(v).s);
  else
    emit_put(e, "    %s = %s %s, %s : %s\n", emit_name(v).s, op, emit_name(a).s, emit_name(b).s, emit_type(a).s);
  return v;
}

value_t emit_compare(emit_t *e, const char *how, value_t a, value_t b) {
  const value_t v = emit_fresh(e, PJRT_PRED, a.rank, a.sizes);
  emit_put(e, "    %s = stablehlo.compare %s, %s, %s : (%s, %s) -> %s\n", emit_name(v).s, how, emit_name(a).s,
           emit_name(b).s, emit_type(a).s, emit_type(b).s, emit_type(v).s);
  return v;
}

value_t emit_select(emit_t *e, value_t condition, value_t a, value_t b) {
  const value_t v = emit_fresh(e, a.type, a.rank, a.sizes);
  emit_put(e, "    %s = stablehlo.select %s, %s, %s : %s, %s\n", emit_name(v).s, emit_name(condition).s, emit_name(a).s,
           emit_name(b).s, emit_type(condition).s, emit_type(a).s);
  return v;
}

/* Returns the nearest of the numbers that float8_e4m3fn has, as torch does: XLA makes larger ones NaN. */
static value_t saturated(emit_t *e, value_t a) {
  if (!emit_is_float(a.type)) a = emit_convert(e, a, PJRT_F32);
  const value_t above = emit_binary(e, "stablehlo.maximum", a, emit_fill(e, -448, a));
  return emit_binary(e, "stablehlo.minimum", above, emit_fill(e, 448, a));
}

/* Returns 1 and 0. XLA would replace the product of a conversion and a number by a selection, which is 0 where the
 * product of 0 and an infinity or NaN is NaN. */
static value_t number_of_truth(emit_t *e, value_t a, int32_t type) {
  value_t shape = a;
  shape.type = type;
  return emit_select(e, a, emit_fill(e, 1, shape), emit_fill(e, 0, shape));
}

value_t emit_convert(emit_t *e, value_t a, int32_t type) {
  if (a.type == type) return a;
  if (type == PJRT_PRED) return emit_compare(e, "NE", a, emit_fill(e, 0, a)); /* all numbers but 0, not their low bit */
  if (a.type == PJRT_PRED && emit_is_float(type)) return number_of_truth(e, a, type);
  if (type == PJRT_F8E4M3FN) a = saturated(e, a);
  const value_t v = emit_fresh(e, type, a.rank, a.sizes);
  emit_put(e, "    %s = stablehlo.convert %s : (%s) -> %s\n", emit_name(v).s, emit_name(a).s, emit_type(a).s,
           emit_type(v).s);
  return v;
}

value_t emit_bits(emit_t *e, value_t a, int32_t type) {
  if (a.type == type) return a;
  if (emit_bytes(a.type) != emit_bytes(type) || a.type == PJRT_PRED || type == PJRT_PRED) {
    emit_refuse(e, "memory is used with dtypes of different sizes");
    return a;
  }
  const value_t v = emit_fresh(e, type, a.rank, a.sizes);
  emit_put(e, "    %s = stablehlo.bitcast_convert %s : (%s) -> %s\n", emit_name(v).s, emit_name(a).s, emit_type(a).s,
           emit_type(v).s);
  return v;
}

static int is_shape(value_t a, int rank, const int64_t *sizes) {
  return a.rank == rank && (!rank || memcmp(a.sizes, sizes, (size_t)rank * sizeof *sizes) == 0);
}

value_t emit_reshape(emit_t *e, value_t a, int rank, const int64_t *sizes) {
  if (is_shape(a, rank, sizes)) return a;
  const value_t v = emit_fresh(e, a.type, rank, sizes);
  emit_put(e, "    %s = stablehlo.reshape %s : (%s) -> %s\n", emit_name(v).s, emit_name(a).s, emit_type(a).s,
           emit_type(v).s);
  return v;
}

value_t emit_transpose(emit_t *e, value_t a, const int64_t *order) {
  int64_t sizes[EMIT_RANK];
  int moved = 0;
  for (int d = 0; d < a.rank; d++) sizes[d] = a.sizes[order[d]], moved |= order[d] != d;
  if (!moved) return a;
  const value_t v = emit_fresh(e, a.type, a.rank, sizes);
  emit_put(e, "    %s = stablehlo.transpose %s, dims = [%s] : (%s) -> %s\n", emit_name(v).s, emit_name(a).s,
           emit_list(order, a.rank).s, emit_type(a).s, emit_type(v).s);
  return v;
}

value_t emit_broadcast(emit_t *e, value_t a, const int64_t *dims, int rank, const int64_t *sizes) {
  if (is_shape(a, rank, sizes)) return a;
  const value_t v = emit_fresh(e, a.type, rank, sizes);
  emit_put(e, "    %s = stablehlo.broadcast_in_dim %s, dims = [%s] : (%s) -> %s\n", emit_name(v).s, emit_name(a).s,
           emit_list(dims, a.rank).s, emit_type(a).s, emit_type(v).s);
  return v;
}

value_t emit_like(emit_t *e, value_t scalar, value_t shape) {
  return emit_broadcast(e, scalar, NULL, shape.rank, shape.sizes);
}

value_t emit_fill(emit_t *e, double number, value_t shape) {
  return emit_like(e, emit_constant(e, shape.type, number), shape);
}

value_t emit_slice(emit_t *e, value_t a, const int64_t *from, const int64_t *to) {
  int64_t sizes[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) sizes[d] = to[d] - from[d];
  if (is_shape(a, a.rank, sizes)) return a;
  const value_t v = emit_fresh(e, a.type, a.rank, sizes);
  emit_put(e, "    %s = stablehlo.slice %s [", emit_name(v).s, emit_name(a).s);
  for (int d = 0; d < a.rank; d++) emit_put(e, "%s%lld:%lld", d ? ", " : "", (long long)from[d], (long long)to[d]);
  emit_put(e, "] : (%s) -> %s\n", emit_type(a).s, emit_type(v).s);
  return v;
}

value_t emit_concatenate(emit_t *e, const value_t *parts, int count, int dim) {
  int64_t sizes[EMIT_RANK];
  memcpy(sizes, parts[0].sizes, sizeof sizes);
  for (int i = 1; i < count; i++) sizes[dim] += parts[i].sizes[dim];
  if (count == 1) return parts[0];
  const value_t v = emit_fresh(e, parts[0].type, parts[0].rank, sizes);
  emit_put(e, "    %s = stablehlo.concatenate ", emit_name(v).s);
  for (int i = 0; i < count; i++) emit_put(e, "%s%s", i ? ", " : "", emit_name(parts[i]).s);
  emit_put(e, ", dim = %d : (", dim);
  for (int i = 0; i < count; i++) emit_put(e, "%s%s", i ? ", " : "", emit_type(parts[i]).s);
  emit_put(e, ") -> %s\n", emit_type(v).s);
  return v;
}

value_t emit_reverse(emit_t *e, value_t a, const int64_t *dims, int count) {
  const value_t v = emit_fresh(e, a.type, a.rank, a.sizes);
  emit_put(e, "    %s = stablehlo.reverse %s, dims = [%s] : %s\n", emit_name(v).s, emit_name(a).s,
           emit_list(dims, count).s, emit_type(v).s);
  return v;
}

value_t emit_iota(emit_t *e, int32_t type, int rank, const int64_t *sizes, int dim) {
  const value_t v = emit_fresh(e, type, rank, sizes);
  emit_put(e, "    %s = stablehlo.iota dim = %d : %s\n", emit_name(v).s, dim, emit_type(v).s);
  return v;
}

int emit_reduced_dims(value_t a, uint32_t mask, int64_t *dims) {
  int count = 0;
  for (int d = 0; d < a.rank; d++)
    if (mask >> d & 1) dims[count++] = d;
  return count;
}

int emit_kept_sizes(value_t a, uint32_t mask, int64_t *sizes) {
  int rank = 0;
  for (int d = 0; d < a.rank; d++)
    if (!(mask >> d & 1)) sizes[rank++] = a.sizes[d];
  return rank;
}

value_t emit_reduce_from(emit_t *e, value_t a, const char *op, value_t init, uint32_t mask) {
  int64_t sizes[EMIT_RANK], dims[EMIT_RANK];
  const int count = emit_reduced_dims(a, mask, dims), rank = emit_kept_sizes(a, mask, sizes);
  if (!count) return a;
  const value_t v = emit_fresh(e, a.type, rank, sizes);
  emit_put(e, "    %s = stablehlo.reduce(%s init: %s) applies stablehlo.%s across dimensions = [%s] : (%s, %s) -> %s\n",
           emit_name(v).s, emit_name(a).s, emit_name(init).s, op, emit_list(dims, count).s, emit_type(a).s,
           emit_type(init).s, emit_type(v).s);
  return v;
}

value_t emit_reduce(emit_t *e, value_t a, const char *op, double start, uint32_t mask) {
  return emit_reduce_from(e, a, op, emit_constant(e, a.type, start), mask);
}

value_t emit_spread(emit_t *e, value_t a, value_t shape, uint32_t mask) {
  int64_t dims[EMIT_RANK];
  int count = 0;
  for (int d = 0; d < shape.rank; d++)
    if (!(mask >> d & 1)) dims[count++] = d;
  return emit_broadcast(e, a, dims, shape.rank, shape.sizes);
}

value_t emit_reduce_like(emit_t *e, value_t a, const char *op, double start, uint32_t mask) {
  return emit_spread(e, emit_reduce(e, a, op, start, mask), a, mask);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

const hal_value_t *emit_argument(const emit_t *e, uint32_t argument) {
  static const hal_value_t absent = {.tag = HAL_VALUE_NONE};
  return argument < e->node->call->arg_count ? &e->node->call->args[argument] : &absent;
}

int emit_has(const emit_t *e, uint32_t argument) {
  const hal_value_t *const value = emit_argument(e, argument);
  return value->tag != HAL_VALUE_NONE && (value->tag != HAL_VALUE_TENSOR || value->u.t);
}

int64_t emit_int(const emit_t *e, uint32_t argument, int64_t absent) {
  const hal_value_t *const value = emit_argument(e, argument);
  if (value->tag == HAL_VALUE_DOUBLE) return (int64_t)value->u.d;
  return value->tag == HAL_VALUE_NONE ? absent : value->u.i;
}

/* Returns element `at` of %nf or %ni. */
static value_t take_number(emit_t *e, const char *from, uint32_t at, uint32_t room, int32_t type) {
  const int64_t one = 1;
  const value_t v = emit_fresh(e, type, 1, &one);
  emit_put(e, "    %s = stablehlo.slice %s [%u:%u] : (tensor<%ux%s>) -> %s\n", emit_name(v).s, from, (unsigned)at,
           (unsigned)at + 1, (unsigned)room, emit_element(type), emit_type(v).s);
  return emit_reshape(e, v, 0, NULL);
}

/* Returns the place of an argument of the present node among the numbers, once for all of its uses. */
static uint32_t place_number(emit_t *e, emit_number_t *numbers, uint32_t *count, int32_t argument) {
  for (uint32_t i = *count; i-- > 0 && numbers[i].node == e->node_number;)
    if (numbers[i].argument == argument) return i;
  numbers[*count] = (emit_number_t){e->node_number, argument};
  return (*count)++;
}

static value_t take_double(emit_t *e, int32_t argument) {
  const uint32_t at = place_number(e, e->doubles, &e->double_count, argument);
  return take_number(e, "%nf", at, e->double_room, PJRT_F64);
}

static value_t take_integer(emit_t *e, int32_t argument) {
  const uint32_t at = place_number(e, e->integers, &e->integer_count, argument);
  return take_number(e, "%ni", at, e->integer_room, PJRT_S64);
}

value_t emit_number(emit_t *e, uint32_t argument, int32_t type) {
  const hal_value_t *const value = emit_argument(e, argument);
  if (value->tag == HAL_VALUE_BOOL) return emit_constant(e, type, (double)value->u.i); /* part of the identity */
  if (value->tag == HAL_VALUE_INT) return emit_convert(e, take_integer(e, (int32_t)argument), type);
  if (value->tag == HAL_VALUE_DOUBLE) return emit_convert(e, take_double(e, (int32_t)argument), type);
  emit_refuse(e, "an argument is not a number");
  return emit_constant(e, type, 0);
}

value_t emit_random(emit_t *e, int32_t which) { return emit_bits(e, take_integer(e, which), PJRT_U64); }

int emit_dim(int64_t dim, int rank) { return (int)(dim < 0 ? dim + rank : dim); }

uint32_t emit_dims(const hal_op_call_t *call, uint32_t argument, int rank) {
  const hal_value_t *const value = argument < call->arg_count ? &call->args[argument] : NULL;
  const uint32_t all = (1u << rank) - 1;
  uint32_t mask = 0;
  if (!value || value->tag == HAL_VALUE_NONE) return all;
  if (value->tag == HAL_VALUE_INT) return rank ? 1u << emit_dim(value->u.i, rank) : 0;
  for (uint32_t i = 0; i < value->count && rank; i++) mask |= 1u << emit_dim(value->u.il[i], rank);
  return value->count ? mask : all;
}
