/* own.c: a plugin's own operators: found once per device, queried per call if the call matches their descriptor. */
#include "op/own.h"

#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "device/profile_internal.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/status.h"
#include "memory/allocator.h"
#include "op/addressed.h"
#include "op/internal.h"
#include "plugin/call.h"

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* An operator with flags of a later minor version is not used, because this host does not know their meaning. */
static hal_status_t check_descriptor(const hal_device_t *device, const hal_op_own_t *own) {
  const char *const name = device->plugin->info.name;
  const uint32_t unknown =
      own->flags & ~(HAL_OP_CAPTURABLE | HAL_OP_RANDOM_STATE | HAL_OP_NEVER_DECLINES | HAL_OP_DECLINES_ALIKE);
  if (unknown)
    return hal_error_set(
        HAL_UNIMPLEMENTED,
        "%s, op_find: unsupported flags 0x%x in the descriptor; use a torch_backend of the plugin's version", name,
        (unsigned)unknown);
  if (own->fn && own->dtypes && own->layouts) return HAL_OK;
  return hal_error_set(HAL_INTERNAL, "%s, op_find: the descriptor has no %s; fill it as plugin.h specifies", name,
                       !own->fn       ? "function"
                       : !own->dtypes ? "dtypes"
                                      : "layouts");
}

void hal_op_own_find(const hal_device_t *device, const char *name, hal_op_own_t *out_own) {
  hal_op_own_t own = {.struct_size = HAL_STRUCT_SIZE(hal_op_own_t, query)};
  hal_status_t status = hal_call_op_find(device->plugin, device->ordinal, name, &own);
  *out_own = (hal_op_own_t){.fn = NULL};
  if (status == HAL_NOT_FOUND || status == HAL_UNIMPLEMENTED) return;
  if (status)
    hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
  else
    status = check_descriptor(device, &own);
  if (!status) {
    *out_own = own;
    return;
  }
  hal_log(HAL_LOG_WARNING, "device %s: op_find(\"%s\") failed with %s: %s; the plugin's own operator is not used",
          device->label, name, hal_status_name(status), hal_error_message());
}

/* ---- calls that match a descriptor ------------------------------------------------------------------------------- */

/* As torch.channels_last and channels_last_3d: the second dimension innermost, followed by the others in order. */
static int is_channels_last(const hal_tensor_t *tensor) {
  int64_t expected = 1;
  if (tensor->ndim != 4 && tensor->ndim != 5) return 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    const int32_t dim = i == 0 ? 1 : i == tensor->ndim - 1 ? 0 : tensor->ndim - i;
    if (tensor->sizes[dim] != 1 && tensor->strides[dim] != expected) return 0;
    if (__builtin_mul_overflow(expected, tensor->sizes[dim], &expected)) return 0;
  }
  return 1;
}

static inline int takes(const hal_op_own_t *own, const hal_tensor_t *tensor, int dense) {
  if (!tensor) return 1;
  if (HAL_UNLIKELY((uint32_t)tensor->dtype > 63 || !(own->dtypes >> tensor->dtype & 1))) return 0;
  if (own->layouts & HAL_TAKES_STRIDED) return 1;
  if (own->layouts & HAL_TAKES_CONTIGUOUS && (dense || hal_op_is_contiguous(tensor))) return 1;
  return own->layouts & HAL_TAKES_CHANNELS_LAST && is_channels_last(tensor);
}

static int takes_value(const hal_op_own_t *own, const hal_value_t *value, int dense) {
  if (value->tag == HAL_VALUE_TENSOR) return takes(own, value->u.t, dense);
  for (uint32_t i = 0; value->tag == HAL_VALUE_TENSOR_LIST && i < value->count; i++)
    if (!takes(own, value->u.tl[i], dense)) return 0;
  return 1;
}

/* Returns how many arguments the plugin gets. */
static uint32_t known_arguments(const hal_op_own_t *own, const hal_op_call_t *call) {
  return own->argument_count && own->argument_count < call->arg_count ? own->argument_count : call->arg_count;
}

static int lets_through(const hal_op_own_t *own, const hal_op_call_t *call) {
  const int dense = (call->flags & HAL_CALL_DENSE) != 0;
  for (uint32_t i = known_arguments(own, call); i < call->arg_count; i++)
    if (call->args[i].tag != HAL_VALUE_NONE) return 0;
  if (HAL_HAS_FIELD(call, random_state) && call->random_state && !(own->flags & HAL_OP_RANDOM_STATE)) return 0;
  if (own->dtypes == HAL_ALL_DTYPES && own->layouts & HAL_TAKES_STRIDED) return 1;
  for (uint32_t i = 0; i < call->arg_count; i++)
    if (!takes_value(own, &call->args[i], dense)) return 0;
  for (uint32_t i = 0; i < call->result_count; i++)
    if (!takes(own, call->results[i], dense)) return 0;
  return 1;
}

/* ---- scratch memory ---------------------------------------------------------------------------------------------- */

/* `host` of the call that a plugin receives is a hal_op_kept_t. Reserves one more block. */
static struct hal_op_kept_block_s *next_block(hal_op_kept_t *kept) {
  struct hal_op_kept_block_s *const grown = hal_malloc((kept->count + 1) * sizeof *grown);
  if (!grown) return NULL;
  if (kept->count) memcpy(grown, kept->blocks, kept->count * sizeof *grown);
  hal_free(kept->blocks);
  kept->blocks = grown;
  return &grown[kept->count];
}

static hal_status_t allocate_scratch(hal_op_kept_t *kept, size_t size, void **out_ptr) {
  struct hal_op_kept_block_s *block = NULL;
  for (uint32_t i = 0; i < kept->count && !block; i++)
    if (!kept->blocks[i].taken && kept->blocks[i].size >= size) block = &kept->blocks[i];
  if (!block) {
    block = next_block(kept);
    if (!block)
      return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the record of %zu bytes of scratch memory",
                           size);
    HAL_RETURN_IF_ERROR(kept->pool
                            ? hal_memory_pool_allocate(kept->pool, kept->stream, size, &block->block)
                            : hal_memory_allocate(kept->stream->device->index, kept->stream, size, &block->block));
    block->size = size;
    kept->count++;
  }
  block->taken = 1;
  *out_ptr = hal_memory_block_address(block->block);
  return HAL_OK;
}

/* In the order of the stream, because work that the plugin has queued may still use it. */
void hal_op_kept_release(hal_op_kept_t *kept) {
  for (uint32_t i = 0; i < kept->count; i++) hal_memory_release(kept->blocks[i].block);
  hal_free(kept->blocks);
  *kept = (hal_op_kept_t){.stream = NULL};
}

hal_status_t hal_op_scratch_for_plugin(const hal_op_call_t *call, size_t size, void **out_ptr) {
  if (!call || !HAL_HAS_FIELD(call, host) || !call->host)
    return hal_error_from_plugin(HAL_FAILED_PRECONDITION, 0,
                                 "scratch memory was requested outside of an operator's call; pass the hal_op_call_t "
                                 "that the operator got");
  if (!size || !out_ptr)
    return hal_error_from_plugin(
        HAL_INVALID_ARGUMENT, 0,
        "scratch memory of 0 bytes, or without a pointer for its address, was requested; request "
        "at least one byte");
  const hal_status_t status = allocate_scratch(call->host, size, out_ptr);
  if (!status) return HAL_OK;
  char message[1024]; /* set as the plugin's message, because the plugin returns the failure */
  snprintf(message, sizeof message, "%s", hal_error_message());
  return hal_error_from_plugin(status, 0, message);
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

/* Calls one of the plugin's functions with the arguments that the plugin knows. */
static hal_status_t call_op(const hal_op_own_t *own, hal_op_fn_t fn, int32_t device, hal_op_call_t *call) {
  const uint32_t arguments = call->arg_count;
  const hal_op_call_t *seen;
  hal_op_addressed_t room;
  call->arg_count = known_arguments(own, call);
  hal_status_t status = hal_op_address(call, device, &room, &seen);
  if (!status) {
    status = fn(own->state, seen);
    hal_op_addressed_release(&room);
  }
  call->arg_count = arguments;
  return status;
}

hal_status_t hal_op_own_call(const hal_op_own_t *own, const char *name, hal_stream_t *stream, hal_memory_pool_t *pool,
                             hal_op_call_t *call) {
  hal_op_kept_t scratch = {.stream = stream, .pool = pool};
  const hal_status_t status = hal_op_own_call_kept(own, name, stream, call, &scratch);
  if (HAL_UNLIKELY(scratch.blocks != NULL)) hal_op_kept_release(&scratch);
  return status;
}

hal_status_t hal_op_own_call_kept(const hal_op_own_t *own, const char *name, hal_stream_t *stream, hal_op_call_t *call,
                                  hal_op_kept_t *kept) {
  if (!lets_through(own, call)) return HAL_UNIMPLEMENTED;
  hal_device_t *const device = stream->device;
  HAL_SET_FIELD(call, host, kept);
  const int profiled = hal_profile_is_on();
  const uint32_t outer = profiled ? hal_profile_begin_own() : 0;
  const hal_status_t status = call_op(own, own->fn, device->ordinal, call);
  if (profiled) hal_profile_end_op(outer);
  HAL_SET_FIELD(call, host, NULL);
  for (uint32_t i = 0; i < kept->count; i++) kept->blocks[i].taken = 0;
  if (status == HAL_OK || status == HAL_UNIMPLEMENTED) return status;
  hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
  return hal_error_prefix(status, "%s: ", name);
}

int hal_op_own_declines_alike(const hal_op_own_t *own, const hal_op_call_t *call) {
  if (HAL_HAS_FIELD(call, random_state) && call->random_state) return 0;
  return own->flags & HAL_OP_DECLINES_ALIKE || !lets_through(own, call);
}

hal_status_t hal_op_own_query(const hal_op_own_t *own, const hal_device_t *device, hal_op_call_t *call) {
  if (!own->fn || !lets_through(own, call)) return HAL_UNIMPLEMENTED;
  if (own->flags & HAL_OP_NEVER_DECLINES) return HAL_OK;
  if (!own->query) return HAL_NOT_READY;
  hal_plugin_stream_t *const stream = call->stream;
  call->stream = NULL;
  HAL_SET_FIELD(call, host, NULL);
  const hal_status_t status = call_op(own, own->query, device->ordinal, call);
  call->stream = stream;
  return status == HAL_OK ? HAL_OK : HAL_UNIMPLEMENTED;
}
