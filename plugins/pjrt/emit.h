/* emit.h: a graph of operators as StableHLO text. Each operator reads tensors as values of StableHLO, computes values
 * and writes them to tensors; emit_view.c maps tensors to parts of buffers. */
#ifndef PLUGINS_PJRT_EMIT_H_
#define PLUGINS_PJRT_EMIT_H_

#include "pjrt.h"

enum { EMIT_RANK = 8 };

/* A value of StableHLO: an SSA name and its type. */
typedef struct value_s {
  int32_t id;   /* from 0 on: "%v<id>"; below: the first value of buffer -1 - id, "%b<number>" */
  int32_t type; /* PJRT_F32 ... */
  int32_t rank;
  int64_t sizes[EMIT_RANK];
} value_t;

/* A number that comes with each run. */
typedef struct emit_number_s {
  uint32_t node;
  int32_t argument; /* of the node's call; EMIT_SEED, EMIT_OFFSET */
} emit_number_t;
enum { EMIT_SEED = -1, EMIT_OFFSET = -2 };

typedef struct emit_text_s {
  char *data;
  size_t size, room;
} emit_text_t;

/* The state of a buffer of the graph: its value as one dimension, without the writes that are pending. */
typedef struct emit_buffer_s {
  int32_t type;
  int64_t count; /* elements */
  value_t now;
  int read;    /* its first value is read */
  int written; /* `now` is another value */
} emit_buffer_t;

/* A tensor that was written and is not part of its buffer's value yet. Temporaries never are. */
typedef struct emit_pending_s {
  uint32_t buffer;
  int64_t low, high; /* elements of the buffer */
  value_t value;     /* one dimension, in the order of memory */
  value_t shaped;    /* as it was written, if its tensor was contiguous; rank -1: not */
} emit_pending_t;

typedef struct emit_s {
  const hal_ir_t *ir;
  const hal_ir_node_t *node; /* the present one */
  uint32_t node_number;
  emit_text_t text;
  int32_t next;
  hal_status_t status;
  char why[PJRT_WHY];
  emit_buffer_t *buffers;
  emit_pending_t *pending;
  uint32_t pending_count, pending_room;
  /* Numbers: doubles in %nf, integers in %ni. These arguments have double_room and integer_room elements. */
  emit_number_t *doubles, *integers;
  uint32_t double_count, double_room, integer_count, integer_room;
} emit_t;

/* An operator: whether a call is accepted (NULL: always), and its emission. Source: the entries of codegen/operators.
 * `operands` and `program` are of element-wise operators (emit_expression.c). */
typedef struct emit_operator_s {
  const char *name;
  int (*takes)(const hal_op_call_t *call);
  void (*emit)(emit_t *e);
  int operands;
  const char *program;
} emit_operator_t;

/* Finds an operator; NULL = it is not emitted. */
const emit_operator_t *emit_find(const char *name);

/* The functions of the operators: emit_takes_<name>, emit_op_<name> (tools/emissions.py). */
#include "pjrt_operators.h"
void emit_expression(emit_t *e); /* of all element-wise operators */

/* ---- helpers of operators in several files ----------------------------------------------------------------------- */

/* Which of several equal values, and of several NaNs, has the index of a reduction. */
enum { EMIT_FIRST, EMIT_FIRST_LAST_NAN };
/* Writes the region of a reduction of pairs (value, index): the larger value (`sign` -1: the smaller one), and NaN
 * before all numbers (emit_reduce.c). */
void emit_better(emit_t *e, int32_t type, int sign, int order);
/* Returns the index that loses against every other one of equal value, as a scalar of i64. */
value_t emit_no_index(emit_t *e);
/* Reduces values with their indices along the dimensions of `mask`. */
void emit_reduce_index(emit_t *e, value_t a, value_t index, uint32_t mask, int sign, int order, value_t *out_value,
                       value_t *out_index);
/* Returns result `number` of an operator with several, whose name and shape is `pair`. */
value_t emit_result_of(emit_t *e, value_t pair, int number, int32_t type);

/* Selects rows of `a` along `dim` by an index of one dimension; `shape` is that of the result (emit_move.c). */
value_t emit_take_rows(emit_t *e, value_t a, value_t index, int dim, value_t shape);
/* As emit_take_rows with the shape that follows. */
value_t emit_take_along(emit_t *e, value_t a, value_t index, int dim);
/* Adds rows of `source` along `dim` to those of `a` that an index of one dimension selects (emit_move.c). */
value_t emit_add_rows(emit_t *e, value_t a, value_t index, value_t source, int dim);
/* Selects an element of `a` along `dim` for each element of `index`, which has as many dimensions (emit_move.c). */
value_t emit_take_elements(emit_t *e, value_t a, value_t index, int dim);

/* Combines elements of `a` with those of `source`, whose indices along `dim` are `index`, of its shape. `op`: "" =
 * replaces, else "add" ... An index outside of the dimension is skipped (emit_move.c). */
value_t emit_scatter(emit_t *e, value_t a, value_t index, value_t source, int dim, const char *op);

/* a [..., m, k] times b [..., k, n], or b [..., n, k] if `turned`; leading dimensions are equal (emit_product.c). */
value_t emit_multiply(emit_t *e, value_t a, value_t b, int turned);

/* Returns `count` words of Philox, of the present operator's seed and offset (emit_random.c). */
value_t emit_philox(emit_t *e, int64_t count);

/* ---- text (emit.c) ----------------------------------------------------------------------------------------------- */

/* Stores a failure; the first one remains. */
void emit_refuse(emit_t *e, const char *why);

__attribute__((format(printf, 2, 3))) void emit_put(emit_t *e, const char *format, ...);

typedef struct shown_s {
  char s[176];
} shown_t;
shown_t emit_name(value_t v);                         /* "%v3" */
shown_t emit_type(value_t v);                         /* "tensor<2x3xf32>" */
shown_t emit_list(const int64_t *numbers, int count); /* "1, 2" */
const char *emit_element(int32_t type);               /* "f32" */

int32_t emit_type_of(hal_dtype_t dtype); /* PJRT_F32 ...; 0 = unsupported */
int32_t emit_bytes(int32_t type);
int emit_is_float(int32_t type);

/* Returns the type in which an operator computes operands of a type: float32 for half precision and 8 bits. */
int32_t emit_compute_type(int32_t type);

/* ---- single operators of StableHLO (emit.c) ---------------------------------------------------------------------- */

value_t emit_fresh(emit_t *e, int32_t type, int rank, const int64_t *sizes); /* a name without a definition */
value_t emit_constant(emit_t *e, int32_t type, double number);
/* Returns the smallest (`sign` -1) or largest number of a type as a scalar. */
value_t emit_limit(emit_t *e, int32_t type, int sign);
value_t emit_unary(emit_t *e, const char *op, value_t a); /* "stablehlo.abs", "chlo.erf" */
value_t emit_binary(emit_t *e, const char *op, value_t a, value_t b);
value_t emit_compare(emit_t *e, const char *how, value_t a, value_t b);
value_t emit_select(emit_t *e, value_t condition, value_t a, value_t b);
value_t emit_convert(emit_t *e, value_t a, int32_t type);
value_t emit_bits(emit_t *e, value_t a, int32_t type);
value_t emit_reshape(emit_t *e, value_t a, int rank, const int64_t *sizes);
value_t emit_transpose(emit_t *e, value_t a, const int64_t *order);
value_t emit_broadcast(emit_t *e, value_t a, const int64_t *dims, int rank, const int64_t *sizes);
value_t emit_like(emit_t *e, value_t scalar, value_t shape); /* broadcasts a scalar */
value_t emit_fill(emit_t *e, double number, value_t shape);  /* a constant of a value's type and shape */
value_t emit_slice(emit_t *e, value_t a, const int64_t *from, const int64_t *to);
value_t emit_reverse(emit_t *e, value_t a, const int64_t *dims, int count);
value_t emit_iota(emit_t *e, int32_t type, int rank, const int64_t *sizes, int dim);
value_t emit_concatenate(emit_t *e, const value_t *parts, int count, int dim);

/* Write the reduced dimensions, and the sizes of the others; return their number. */
int emit_reduced_dims(value_t a, uint32_t mask, int64_t *dims);
int emit_kept_sizes(value_t a, uint32_t mask, int64_t *sizes);
/* Reduces dimensions, a bit for each of `mask`, which are removed. `op`: "add", "maximum" ... */
value_t emit_reduce(emit_t *e, value_t a, const char *op, double start, uint32_t mask);
value_t emit_reduce_from(emit_t *e, value_t a, const char *op, value_t start, uint32_t mask);
/* As emit_reduce, and broadcasts the result to the shape of `a`. */
value_t emit_reduce_like(emit_t *e, value_t a, const char *op, double start, uint32_t mask);
/* Broadcasts a value without the dimensions of `mask` to a shape with them. */
value_t emit_spread(emit_t *e, value_t a, value_t shape, uint32_t mask);

/* ---- arguments of the present node (emit.c) ---------------------------------------------------------------------- */

const hal_value_t *emit_argument(const emit_t *e, uint32_t argument);
int emit_has(const emit_t *e, uint32_t argument); /* it is not absent */
int64_t emit_int(const emit_t *e, uint32_t argument, int64_t absent);
/* A number of the run as a scalar of a type. */
value_t emit_number(emit_t *e, uint32_t argument, int32_t type);
/* A random operator's seed and offset, as scalars of ui64. */
value_t emit_random(emit_t *e, int32_t which);

/* Returns the reduced dimensions, a bit each: of an argument that is an integer or a list; absent or empty: all. */
uint32_t emit_dims(const hal_op_call_t *call, uint32_t argument, int rank);
int emit_dim(int64_t dim, int rank); /* a negative one counts from the end */

/* ---- tensors (emit_view.c) --------------------------------------------------------------------------------------- */

/* Reads a tensor argument, element `item` of a list, or the previous value of a result. */
value_t emit_read(emit_t *e, uint32_t argument);
value_t emit_read_item(emit_t *e, uint32_t argument, uint32_t item);
value_t emit_read_result(emit_t *e, uint32_t result);
/* Reads an argument and converts it to a type. */
value_t emit_read_as(emit_t *e, uint32_t argument, int32_t type);

/* Whether the present node has the result: it may be absent. */
int emit_wants(const emit_t *e, uint32_t result);
int32_t emit_result_type(const emit_t *e, uint32_t result);
/* Returns a value without a definition, with the type and the shape of a result. */
value_t emit_result_shape(const emit_t *e, uint32_t result);

/* Writes a result; the value is converted and reshaped. */
void emit_write(emit_t *e, uint32_t result, value_t value);

/* Applies all pending writes of a buffer to its value. */
void emit_flush(emit_t *e, uint32_t buffer);

/* ---- whole programs (emit_program.c) ----------------------------------------------------------------------------- */

/* A program's text and arguments. */
typedef struct emit_program_s {
  char *text;
  size_t size;
  uint32_t *arguments; /* numbers of buffers */
  uint32_t *results;   /* numbers of buffers */
  uint32_t *places;    /* of the results: numbers of the arguments that are donated, or PJRT_NO_PLACE */
  uint8_t *copied;     /* of the arguments: another buffer of the program has the same memory later */
  int32_t *types, *result_types;
  int64_t *counts, *result_counts;
  uint32_t argument_count, result_count;
  emit_number_t *doubles, *integers; /* arguments after those, if there are any */
  uint32_t double_count, double_room, integer_count, integer_room;
} emit_program_t;

/* Whether a call may be part of a program. */
int emit_takes(const emit_operator_t *operator_of_call, const hal_op_call_t *call);

/* Errors: HAL_UNIMPLEMENTED, HAL_RESOURCE_EXHAUSTED, with a message. */
hal_status_t emit_program(const hal_ir_t *ir, emit_program_t *out_program);
void emit_program_free(emit_program_t *program);

#endif /* PLUGINS_PJRT_EMIT_H_ */
