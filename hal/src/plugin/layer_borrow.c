/* layer_borrow.c: the validate layer's copies of descriptors and strings.
 *
 * A plugin may read what a call passes by pointer until the call returns. A plugin that keeps the pointer works until
 * the caller's stack is reused. So the layer passes copies, which it overwrites when the call returns and keeps for
 * some time: a plugin that reads them late always gets invalid data at once, and one that writes is detected. */
#include <string.h>

#include "plugin/layer_validate.h"

enum { POISON = 0xDB, KEPT = 64, ALIGNMENT = 16 };

struct hal_borrowed_s {
  hal_plugin_t *plugin;
  uint32_t slot;
  size_t size;
  uint64_t sum; /* of the copies, as they were passed to the plugin */
  _Alignas(ALIGNMENT) unsigned char data[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hal_borrowed_t *kept[KEPT]; /* the last ones, a ring */
static uint32_t kept_count;

void hal_borrow_after_fork(void) { pthread_mutex_init(&lock, NULL); }

/* ---- copying: once to measure (base NULL), once to copy ---- */

typedef struct arena_s {
  unsigned char *base;
  size_t used;
} arena_t;

/* Copies `size` bytes; returns the copy, or NULL while measuring. */
static void *put(arena_t *arena, const void *from, size_t size) {
  void *const to = arena->base ? arena->base + arena->used : NULL;
  if (to && size) memcpy(to, from, size);
  arena->used += (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  return to;
}

static const void *put_text(arena_t *arena, const char *text) {
  return text ? put(arena, text, strlen(text) + 1) : NULL;
}

/* Copies a struct of which its owner knew the first struct_size bytes; the others are zero. */
static void *put_struct(arena_t *arena, const void *from, size_t size) {
  size_t known;
  memcpy(&known, from, sizeof known);
  void *const to = arena->base ? arena->base + arena->used : NULL;
  if (to) memcpy(to, from, known < size ? known : size);
  arena->used += (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  return to;
}

static const void *put_launch(arena_t *arena, const hal_launch_t *launch) {
  hal_launch_t *const copy = put_struct(arena, launch, sizeof *launch);
  hal_arg_t *const args = put(arena, launch->args, launch->arg_count * sizeof *args);
  const void *const attributes =
      HAL_HAS_FIELD(launch, attribute_count) && launch->attribute_count
          ? put(arena, launch->attributes, launch->attribute_count * sizeof *launch->attributes)
          : NULL;
  if (copy) copy->args = args;
  if (copy) copy->attributes = attributes;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    if (!launch->args[i].value) continue;
    const void *const value = put(arena, launch->args[i].value, launch->args[i].size);
    if (args) args[i].value = value;
  }
  return copy;
}

static const void *put_module(arena_t *arena, const hal_module_desc_t *desc) {
  hal_module_desc_t *const copy = put_struct(arena, desc, sizeof *desc);
  const char *const dialect = put_text(arena, desc->dialect), *const options = put_text(arena, desc->options);
  const void *const data = desc->data ? put(arena, desc->data, desc->size) : NULL;
  if (!copy) return NULL;
  copy->dialect = dialect;
  copy->options = options;
  copy->data = data;
  return copy;
}

static const hal_tensor_t *put_tensor(arena_t *arena, const hal_tensor_t *tensor) {
  if (!tensor) return NULL;
  hal_tensor_t *const copy = put_struct(arena, tensor, sizeof *tensor);
  const size_t bytes = (size_t)(tensor->ndim > 0 ? tensor->ndim : 0) * sizeof *tensor->sizes;
  const int64_t *const sizes = put(arena, tensor->sizes, bytes), *const strides = put(arena, tensor->strides, bytes);
  if (!copy) return NULL;
  copy->sizes = sizes;
  copy->strides = strides;
  return copy;
}

static const hal_tensor_t *const *put_tensors(arena_t *arena, const hal_tensor_t *const *tensors, uint32_t count) {
  const hal_tensor_t **const copy = put(arena, tensors, count * sizeof *tensors);
  for (uint32_t i = 0; i < count; i++) {
    const hal_tensor_t *const tensor = put_tensor(arena, tensors[i]);
    if (copy) copy[i] = tensor;
  }
  return copy;
}

static const hal_value_t *put_scalars(arena_t *arena, const hal_value_t *scalars, uint32_t count) {
  hal_value_t *const copy = put(arena, scalars, count * sizeof *scalars);
  for (uint32_t i = 0; i < count; i++) {
    const void *const parts =
        scalars[i].tag == HAL_VALUE_COMPLEX ? put(arena, scalars[i].u.dl, 2 * sizeof *scalars[i].u.dl) : NULL;
    if (copy && parts) copy[i].u.dl = parts;
  }
  return copy;
}

static void put_value(arena_t *arena, const hal_value_t *from, hal_value_t *to) {
  hal_value_t copy = *from;
  switch (from->tag) {
    case HAL_VALUE_STRING:
      copy.u.s = put_text(arena, from->u.s);
      break;
    case HAL_VALUE_TENSOR:
      copy.u.t = put_tensor(arena, from->u.t);
      break;
    case HAL_VALUE_TENSOR_LIST:
      copy.u.tl = put_tensors(arena, from->u.tl, from->count);
      break;
    case HAL_VALUE_INT_LIST:
      copy.u.il = put(arena, from->u.il, from->count * sizeof *from->u.il);
      break;
    case HAL_VALUE_DOUBLE_LIST:
      copy.u.dl = put(arena, from->u.dl, from->count * sizeof *from->u.dl);
      break;
    case HAL_VALUE_BOOL_LIST:
      copy.u.bl = put(arena, from->u.bl, from->count);
      break;
    case HAL_VALUE_SCALAR_LIST:
      copy.u.vl = put_scalars(arena, from->u.vl, from->count);
      break;
    case HAL_VALUE_COMPLEX:
      copy.u.dl = put(arena, from->u.dl, 2 * sizeof *from->u.dl);
      break;
    default:
      break;
  }
  if (to) *to = copy;
}

static const void *put_op_call(arena_t *arena, const hal_op_call_t *op) {
  hal_op_call_t *const copy = put_struct(arena, op, sizeof *op);
  hal_value_t *const args = put(arena, op->args, op->arg_count * sizeof *args);
  for (uint32_t i = 0; i < op->arg_count; i++) put_value(arena, &op->args[i], args ? &args[i] : NULL);
  const hal_tensor_t *const *const results = put_tensors(arena, op->results, op->result_count);
  if (!copy) return NULL;
  copy->struct_size = sizeof *op < op->struct_size ? sizeof *op : op->struct_size;
  copy->args = args;
  copy->results = results;
  return copy;
}

static const void *put_bytes(arena_t *arena, const hal_layer_call_t *call, const void *from, const char *size) {
  return put(arena, from, (size_t)hal_validate_argument(call, size)->value);
}

/* Copies an array of `count` elements, including the part of each that this HAL does not know. */
static const void *put_copies(arena_t *arena, const hal_layer_call_t *call, const void *from) {
  const size_t count = (size_t)hal_validate_argument(call, "count")->value;
  const size_t stride = (size_t)hal_validate_argument(call, "stride")->value;
  return count ? put(arena, from, count * stride) : NULL; /* the rule of memory_copy_batch has checked the product */
}

static const uint64_t *put_numbers(arena_t *arena, const uint64_t *from, size_t count) {
  return from && count ? put(arena, from, count * sizeof *from) : from;
}

/* Copies a collective with its arrays, which have a number for each rank. A scale in device memory is not copied. */
static const hal_collective_t *put_collective(arena_t *arena, const hal_collective_t *from, size_t ranks) {
  hal_collective_t *const copy = put_struct(arena, from, sizeof *from);
  const uint64_t *const arrays[] = {
      put_numbers(arena, from->send_counts, ranks), put_numbers(arena, from->send_displs, ranks),
      put_numbers(arena, from->recv_counts, ranks), put_numbers(arena, from->recv_displs, ranks)};
  if (!copy) return NULL;
  copy->send_counts = arrays[0], copy->send_displs = arrays[1];
  copy->recv_counts = arrays[2], copy->recv_displs = arrays[3];
  return copy;
}

/* Copies the calls of comm_submit, including the part of each that this HAL does not know; the op's rule has checked
 * them. */
static const void *put_comm_calls(arena_t *arena, const hal_layer_call_t *call, const void *from) {
  const size_t count = (size_t)hal_validate_argument(call, "count")->value;
  const size_t stride = (size_t)hal_validate_argument(call, "stride")->value;
  if (!count) return NULL;
  char *const copies = put(arena, from, count * stride);
  for (size_t i = 0; i < count; i++) {
    hal_comm_call_t one;
    memcpy(&one, (const char *)from + i * stride, sizeof one);
    one.desc = put_collective(arena, one.desc, hal_validate_ranks(call->plugin, one.comm));
    if (copies) memcpy(copies + i * stride, &one, sizeof one);
  }
  return copies;
}

static const void *put_comm_desc(arena_t *arena, const hal_comm_desc_t *from) {
  hal_comm_desc_t *const copy = put_struct(arena, from, sizeof *from);
  const void *const id = from->id ? put(arena, from->id, from->id_size) : NULL;
  const char *const name = put_text(arena, from->name);
  if (!copy) return NULL;
  copy->id = id, copy->name = name;
  return copy;
}

/* Copies one argument; returns 0 if it is not borrowed, or there is nothing to copy. */
static const void *put_argument(arena_t *arena, const hal_layer_call_t *call, const hal_argument_t *argument) {
  const void *const from = (const void *)argument->value;
  switch (argument->type) {
    case HAL_TYPE_TEXT:
      return put_text(arena, from);
    case HAL_TYPE_HANDLE:
      return put(arena, from, sizeof(hal_memory_handle_t));
    case HAL_TYPE_STREAM_DESC:
      return put_struct(arena, from, sizeof(hal_stream_desc_t));
    case HAL_TYPE_MODULE_DESC:
      return put_module(arena, from);
    case HAL_TYPE_LAUNCH:
      return put_launch(arena, from);
    case HAL_TYPE_RANDOM:
      return put_struct(arena, from, sizeof(hal_random_t));
    case HAL_TYPE_COPY_2D:
      return put_struct(arena, from, sizeof(hal_copy_2d_t));
    case HAL_TYPE_COPIES:
      return put_copies(arena, call, from);
    case HAL_TYPE_COMM_DESC:
      return put_comm_desc(arena, from);
    case HAL_TYPE_COMM_CALLS:
      return put_comm_calls(arena, call, from);
    case HAL_TYPE_RANKS:
      return put(arena, from, (size_t)hal_validate_argument(call, "count")->value * sizeof(int32_t));
    case HAL_TYPE_CONST_ADDRESS: /* bytes, whose number is another argument */
      if (strcmp(argument->name, "pattern") == 0) return put_bytes(arena, call, from, "pattern_size");
      if (strcmp(argument->name, "handle") == 0) return put_bytes(arena, call, from, "handle_size");
      return NULL;
    default:
      return NULL;
  }
}

/* ---- lifetime ---- */

/* FNV-1a by words: detects any change. */
static uint64_t sum_of(const hal_borrowed_t *borrowed) {
  uint64_t sum = UINT64_C(0xCBF29CE484222325);
  for (size_t i = 0; i < borrowed->size; i += sizeof sum) {
    uint64_t word;
    memcpy(&word, borrowed->data + i, sizeof word); /* the size is a multiple of ALIGNMENT */
    sum = (sum ^ word) * UINT64_C(0x100000001B3);
  }
  return sum;
}

static hal_borrowed_t *create(hal_plugin_t *plugin, uint32_t slot, size_t size) {
  hal_borrowed_t *const borrowed = hal_calloc(1, sizeof *borrowed + size);
  if (borrowed) *borrowed = (hal_borrowed_t){.plugin = plugin, .slot = slot, .size = size};
  return borrowed;
}

void hal_borrow_begin(hal_layer_call_t *call) {
  arena_t arena = {NULL, 0};
  for (uint32_t i = 0; i < call->count; i++) put_argument(&arena, call, &call->arguments[i]);
  call->borrowed = arena.used ? create(call->plugin, call->slot, arena.used) : NULL;
  if (!call->borrowed) return;
  arena = (arena_t){call->borrowed->data, 0};
  for (uint32_t i = 0; i < call->count; i++) {
    const void *const copy = put_argument(&arena, call, &call->arguments[i]);
    if (copy) call->arguments[i].value = (intptr_t)copy;
  }
  call->borrowed->sum = sum_of(call->borrowed);
}

hal_borrowed_t *hal_borrow_op_call(hal_plugin_t *plugin, const hal_op_call_t *op, const hal_op_call_t **out_copy) {
  arena_t arena = {NULL, 0};
  put_op_call(&arena, op);
  hal_borrowed_t *const borrowed = create(plugin, HAL_SLOT_op_find, arena.used);
  if (!borrowed) return NULL;
  arena = (arena_t){borrowed->data, 0};
  *out_copy = put_op_call(&arena, op);
  borrowed->sum = sum_of(borrowed);
  return borrowed;
}

/* Checks and frees copies that were kept. */
static void finish(hal_borrowed_t *borrowed) {
  if (!borrowed) return;
  size_t i = 0;
  while (i < borrowed->size && borrowed->data[i] == POISON) i++;
  if (i < borrowed->size)
    hal_validate_fault(
        borrowed->plugin, borrowed->slot,
        "the plugin wrote to an argument that it got by pointer after the call had returned; copy what is "
        "needed later during the call");
  hal_free(borrowed);
}

void hal_borrow_end(hal_borrowed_t *borrowed) {
  if (!borrowed) return;
  if (sum_of(borrowed) != borrowed->sum)
    hal_validate_fault(borrowed->plugin, borrowed->slot,
                       "the plugin wrote to an argument that it may only read; work on a copy");
  memset(borrowed->data, POISON, borrowed->size);
  pthread_mutex_lock(&lock);
  hal_borrowed_t **const place = &kept[kept_count++ % KEPT], *const oldest = *place;
  *place = borrowed;
  pthread_mutex_unlock(&lock);
  finish(oldest);
}

void hal_borrow_forget(const hal_plugin_t *plugin) {
  for (uint32_t i = 0; i < KEPT; i++) {
    pthread_mutex_lock(&lock);
    hal_borrowed_t *const borrowed = kept[i] && kept[i]->plugin == plugin ? kept[i] : NULL;
    if (borrowed) kept[i] = NULL;
    pthread_mutex_unlock(&lock);
    finish(borrowed);
  }
}
