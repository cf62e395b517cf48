/* emit_expression.c: element-wise operators. Their programs, in postfix notation, come from the expressions of the
 * portable kernels (tools/expressions.py, tools/emissions.py). Values have the type in which the operator computes, or
 * are truth values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

/* ---- the machine ------------------------------------------------------------------------------------------------- */

enum { STACK = 24, REGISTERS = 64 };

typedef struct machine_s {
  emit_t *e;
  int32_t type;  /* in which the operator computes */
  value_t shape; /* of the result, of that type */
  value_t stack[STACK];
  int height;
  value_t named[6]; /* a, b, c, s0, s1, s2 */
  value_t registers[REGISTERS];
} machine_t;

static void push(machine_t *m, value_t value) {
  if (m->height < STACK)
    m->stack[m->height++] = value;
  else
    emit_refuse(m->e, "the expression is too deep");
}

static value_t pop(machine_t *m) {
  if (m->height) return m->stack[--m->height];
  emit_refuse(m->e, "invalid expression");
  return m->shape;
}

static value_t truth(machine_t *m, value_t v) { return emit_convert(m->e, v, PJRT_PRED); }
static value_t typed(machine_t *m, value_t v) { return emit_convert(m->e, v, m->type); }

static value_t constant(machine_t *m, double number) {
  if (!isfinite(number) && !emit_is_float(m->type)) number = 0; /* in a branch that is not taken */
  return emit_fill(m->e, number, m->shape);
}

static value_t sign_bit(machine_t *m, value_t a) {
  value_t zero = a;
  if (a.type == PJRT_PRED || a.type == PJRT_U8) return emit_compare(m->e, "NE", a, a);
  if (emit_is_float(a.type)) a = emit_bits(m->e, a, a.type == PJRT_F64 ? PJRT_S64 : PJRT_S32);
  zero.type = a.type;
  return emit_compare(m->e, "LT", a, emit_fill(m->e, 0, zero));
}

static value_t copy_sign(machine_t *m, value_t a, value_t from) {
  if (!emit_is_float(a.type)) return a;
  const value_t positive = emit_unary(m->e, "stablehlo.abs", a);
  return emit_select(m->e, sign_bit(m, from), emit_unary(m->e, "stablehlo.negate", positive), positive);
}

/* Limits a whole number to the exponents of normal numbers of its type. */
static value_t exponent(machine_t *m, value_t whole) {
  const double most = whole.type == PJRT_F64 ? 1023 : 127;
  const value_t above = emit_binary(m->e, "stablehlo.maximum", whole, emit_fill(m->e, 1 - most, whole));
  return emit_binary(m->e, "stablehlo.minimum", above, emit_fill(m->e, most, whole));
}

/* Returns 2 to the power of such a number, exactly, from its bits. */
static value_t power_of_two(machine_t *m, value_t whole) {
  const int wide = whole.type == PJRT_F64;
  value_t bits = emit_convert(m->e, whole, wide ? PJRT_S64 : PJRT_S32);
  bits = emit_binary(m->e, "stablehlo.add", bits, emit_fill(m->e, wide ? 1023 : 127, bits));
  bits = emit_binary(m->e, "stablehlo.shift_left", bits, emit_fill(m->e, wide ? 52 : 23, bits));
  return emit_bits(m->e, bits, whole.type);
}

enum { DIGIT = 6 }; /* the bits of an exponent that XLA uses */

/* Takes the next digit of an exponent: multiplies the power by that of the base. */
static void take_digit(emit_t *e, value_t *power, value_t *base, value_t *rest) {
  const value_t digit = emit_binary(e, "stablehlo.and", *rest, emit_fill(e, (1 << DIGIT) - 1, *rest));
  *power = emit_binary(e, "stablehlo.multiply", *power, emit_binary(e, "stablehlo.power", *base, digit));
  for (int i = 0; i < DIGIT; i++) *base = emit_binary(e, "stablehlo.multiply", *base, *base);
  *rest = emit_binary(e, "stablehlo.shift_right_logical", *rest, emit_fill(e, DIGIT, *rest));
}

/* Begins a region of a loop whose values have one type. */
static void put_block(emit_t *e, value_t values[3]) {
  for (int i = 0; i < 3; i++) {
    values[i] = emit_fresh(e, values[i].type, values[i].rank, values[i].sizes);
    emit_put(e, "%s%s: %s", i ? ", " : "    ^bb0(", emit_name(values[i]).s, emit_type(values[i]).s);
  }
  emit_put(e, "):\n");
}

/* XLA computes powers of integers with the six lowest bits of an exponent that is not negative. So a power is the
 * product of those with six bits each, in a loop that ends when no exponent has further bits. */
static value_t integer_power(machine_t *m, value_t a, value_t b) {
  emit_t *const e = m->e;
  const value_t zero = emit_fill(e, 0, b), negative = emit_compare(e, "LT", b, zero);
  value_t power = emit_fill(e, 1, a), base = a, rest = emit_select(e, negative, zero, b);
  take_digit(e, &power, &base, &rest);
  const value_t found = emit_fresh(e, a.type, a.rank, a.sizes);
  value_t in[3] = {power, base, rest};
  const shown_t t = emit_type(a), name = emit_name(found);
  emit_put(e, "    %s, %s_base, %s_rest = \"stablehlo.while\"(%s, %s, %s) ({\n", name.s, name.s, name.s,
           emit_name(power).s, emit_name(base).s, emit_name(rest).s);
  put_block(e, in);
  const value_t more =
      emit_reduce(e, emit_compare(e, "NE", in[2], emit_fill(e, 0, in[2])), "or", 0, (1u << a.rank) - 1);
  emit_put(e, "      stablehlo.return %s : %s\n    }, {\n", emit_name(more).s, emit_type(more).s);
  put_block(e, in);
  take_digit(e, &in[0], &in[1], &in[2]);
  emit_put(e, "      stablehlo.return %s, %s, %s : %s, %s, %s\n    }) : (%s, %s, %s) -> (%s, %s, %s)\n",
           emit_name(in[0]).s, emit_name(in[1]).s, emit_name(in[2]).s, t.s, t.s, t.s, t.s, t.s, t.s, t.s, t.s, t.s);
  return emit_select(e, negative, emit_binary(e, "stablehlo.power", a, b), found);
}

static value_t power_of(machine_t *m, value_t a, value_t b) {
  const int whole = !emit_is_float(a.type) && a.type != PJRT_PRED;
  return whole ? integer_power(m, a, b) : emit_binary(m->e, "stablehlo.power", a, b);
}

/* XLA's value at -0 is that at 0. */
static value_t digamma(machine_t *m, value_t a) {
  const value_t zero = emit_compare(m->e, "EQ", a, emit_fill(m->e, 0, a));
  const value_t pole = copy_sign(m, emit_fill(m->e, INFINITY, a), emit_unary(m->e, "stablehlo.negate", a));
  return emit_select(m->e, zero, pole, emit_unary(m->e, "chlo.digamma", a));
}

typedef struct word_s {
  const char *name, *op;
} word_t;

/* Functions with one operand, and the operator of StableHLO. */
static const word_t unary[] = {{"neg", "stablehlo.negate"},
                               {"compl", "stablehlo.not"},
                               {"exp", "stablehlo.exponential"},
                               {"expm1", "stablehlo.exponential_minus_one"},
                               {"log", "stablehlo.log"},
                               {"log1p", "stablehlo.log_plus_one"},
                               {"sqrt", "stablehlo.sqrt"},
                               {"sin", "stablehlo.sine"},
                               {"cos", "stablehlo.cosine"},
                               {"tan", "stablehlo.tan"},
                               {"tanh", "stablehlo.tanh"},
                               {"sigmoid", "stablehlo.logistic"},
                               {"erf", "chlo.erf"},
                               {"erfc", "chlo.erfc"},
                               {"asin", "chlo.asin"},
                               {"acos", "chlo.acos"},
                               {"sinh", "chlo.sinh"},
                               {"cosh", "chlo.cosh"},
                               {"asinh", "chlo.asinh"},
                               {"acosh", "chlo.acosh"},
                               {"atanh", "chlo.atanh"},
                               {"lgamma", "chlo.lgamma"},
                               {"erfinv", "chlo.erf_inv"},
                               {"i1e", "chlo.bessel_i1e"},
                               /* XLA of the CPU computes atan2(x, constant) of many elements, and atan, wrongly */
                               {"opaque", "stablehlo.optimization_barrier"}};
/* The same for those that leave integers as they are. */
static const word_t rounding[] = {
    {"floor", "stablehlo.floor"}, {"ceil", "stablehlo.ceil"}, {"rint", "stablehlo.round_nearest_even"}};
static const word_t binary[] = {
    {"add", "stablehlo.add"},         {"sub", "stablehlo.subtract"},   {"mul", "stablehlo.multiply"},
    {"div", "stablehlo.divide"},      {"div_int", "stablehlo.divide"}, {"maximum", "stablehlo.maximum"},
    {"minimum", "stablehlo.minimum"}, {"atan2", "stablehlo.atan2"},    {"and", "stablehlo.and"},
    {"or", "stablehlo.or"},           {"xor", "stablehlo.xor"},        {"remainder_of_c", "stablehlo.remainder"},
    {"shl", "stablehlo.shift_left"},  {"nextafter", "chlo.next_after"}};
static const word_t comparisons[] = {{"eq", "EQ"}, {"ne", "NE"}, {"lt", "LT"},
                                     {"le", "LE"}, {"gt", "GT"}, {"ge", "GE"}};

static const char *find_word(const word_t *table, size_t count, const char *word) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(table[i].name, word) == 0) return table[i].op;
  return NULL;
}
#define FIND(table, word) find_word(table, sizeof table / sizeof *table, word)

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static int run_operand(machine_t *m, const char *word) {
  static const char *const names[] = {"a", "b", "c", "s0", "s1", "s2"};
  for (int i = 0; i < 6; i++) {
    if (strcmp(word, names[i]) != 0) continue;
    push(m, m->named[i]);
    return 1;
  }
  if (*word == '#') {
    push(m, constant(m, strcmp(word, "#inf") == 0 ? INFINITY : strtod(word + 1, NULL)));
    return 1;
  }
  if (*word == '=' || (*word == 'r' && word[1] >= '0' && word[1] <= '9')) {
    const unsigned long at = strtoul(word + 1, NULL, 10);
    if (at >= REGISTERS)
      emit_refuse(m->e, "the expression has too many registers");
    else if (*word == '=')
      m->registers[at] = pop(m);
    else
      push(m, m->registers[at]);
    return 1;
  }
  const int is_int = strcmp(word, "is_int") == 0, is_float = strcmp(word, "is_float") == 0;
  if (!is_int && !is_float) return 0;
  value_t shape = m->shape;
  shape.type = PJRT_PRED;
  push(m, emit_fill(m->e, emit_is_float(m->type) == is_float, shape));
  return 1;
}

static int run_special_unary(machine_t *m, const char *word) {
  emit_t *const e = m->e;
  const int floating = emit_is_float(m->type);
  const char *const op = FIND(rounding, word);
  if (op) {
    if (floating) push(m, emit_unary(e, op, pop(m)));
    return 1;
  }
  if (strcmp(word, "trunc") == 0) {
    if (!floating) return 1;
    const value_t a = pop(m), below = emit_compare(e, "LT", a, emit_fill(e, 0, a));
    push(m, emit_select(e, below, emit_unary(e, "stablehlo.ceil", a), emit_unary(e, "stablehlo.floor", a)));
  } else if (strcmp(word, "abs") == 0) {
    const value_t a = pop(m);
    push(m, a.type == PJRT_U8 || a.type == PJRT_PRED ? a : emit_unary(e, "stablehlo.abs", a));
  } else if (strcmp(word, "sign") == 0) { /* that of NaN is 0 */
    const value_t a = typed(m, pop(m)), zero = emit_fill(e, 0, a);
    const value_t above = emit_convert(e, emit_compare(e, "GT", a, zero), a.type);
    push(m, emit_binary(e, "stablehlo.subtract", above, emit_convert(e, emit_compare(e, "LT", a, zero), a.type)));
  } else if (strcmp(word, "signbit") == 0) {
    push(m, sign_bit(m, pop(m)));
  } else if (strcmp(word, "not") == 0) {
    push(m, emit_unary(e, "stablehlo.not", truth(m, pop(m))));
  } else if (strcmp(word, "cast") == 0) {
    push(m, typed(m, pop(m)));
  } else if (strcmp(word, "exponent") == 0) {
    push(m, exponent(m, pop(m)));
  } else if (strcmp(word, "pow2") == 0) {
    push(m, power_of_two(m, pop(m)));
  } else if (strcmp(word, "digamma") == 0) {
    push(m, digamma(m, pop(m)));
  } else {
    return 0;
  }
  return 1;
}

static int run_binary(machine_t *m, const char *word) {
  emit_t *const e = m->e;
  const char *op = FIND(binary, word), *const how = FIND(comparisons, word);
  if (strcmp(word, "shr") == 0)
    op = m->type == PJRT_U8 ? "stablehlo.shift_right_logical" : "stablehlo.shift_right_arithmetic";
  if (strcmp(word, "land") == 0) op = "stablehlo.and";
  if (strcmp(word, "lor") == 0) op = "stablehlo.or";
  const int power = strcmp(word, "pow") == 0;
  if (!op && !how && !power && strcmp(word, "copysign") != 0) return 0;
  value_t b = pop(m), a = pop(m);
  if (word[0] == 'l' && strcmp(word, "lt") != 0 && strcmp(word, "le") != 0)
    a = truth(m, a), b = truth(m, b);
  else if (a.type != b.type)
    a = typed(m, a), b = typed(m, b);
  if (power)
    push(m, power_of(m, a, b));
  else
    push(m, how ? emit_compare(e, how, a, b) : op ? emit_binary(e, op, a, b) : copy_sign(m, a, b));
  return 1;
}

static void run_word(machine_t *m, const char *word) {
  const char *const op = FIND(unary, word);
  if (op) {
    push(m, emit_unary(m->e, op, pop(m)));
  } else if (strcmp(word, "sel") == 0) {
    value_t b = pop(m), a = pop(m);
    const value_t condition = truth(m, pop(m));
    if (a.type != b.type) a = typed(m, a), b = typed(m, b);
    push(m, emit_select(m->e, condition, a, b));
  } else if (!run_operand(m, word) && !run_special_unary(m, word) && !run_binary(m, word)) {
    emit_refuse(m->e, "unknown function in an expression");
  }
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

/* Returns the type of the operator's operands: of the first tensor, except that of a selection's condition. */
static int32_t operand_type(const emit_t *e, int operands) {
  for (int i = strcmp(e->node->name, "where.self") == 0; i < operands; i++) {
    const hal_value_t *const value = emit_argument(e, (uint32_t)i);
    if (value->tag == HAL_VALUE_TENSOR) return emit_type_of(value->u.t->dtype);
  }
  return emit_result_type(e, 0);
}

static value_t read_operand(machine_t *m, uint32_t argument, int convert) {
  emit_t *const e = m->e;
  if (emit_argument(e, argument)->tag != HAL_VALUE_TENSOR)
    return emit_like(e, emit_number(e, argument, m->type), m->shape);
  const value_t value = emit_read(e, argument);
  return convert ? emit_convert(e, value, m->type) : value;
}

void emit_expression(emit_t *e) {
  const emit_operator_t *const found = emit_find(e->node->name);
  const int operands = found->operands;
  const char *program = found->program;
  machine_t m = {.e = e, .shape = emit_result_shape(e, 0)};
  m.type = m.shape.type = emit_compute_type(operand_type(e, operands));
  const int is_where = strcmp(e->node->name, "where.self") == 0;
  for (int i = 0; i < operands; i++) m.named[i] = read_operand(&m, (uint32_t)i, !is_where || i);
  for (uint32_t i = (uint32_t)operands, k = 3; i < e->node->call->arg_count && k < 6; i++, k++)
    if (emit_argument(e, i)->tag == HAL_VALUE_INT || emit_argument(e, i)->tag == HAL_VALUE_DOUBLE ||
        emit_argument(e, i)->tag == HAL_VALUE_BOOL)
      m.named[k] = emit_like(e, emit_number(e, i, m.type), m.shape);
  while (*program) {
    char word[40];
    const size_t length = strcspn(program, " ");
    snprintf(word, sizeof word, "%.*s", (int)length, program);
    run_word(&m, word);
    program += length + (program[length] == ' ');
  }
  emit_write(e, 0, pop(&m));
}
