/* own.h: a plugin's own operators. Private to hal/src/op. */
#ifndef HAL_SRC_OP_OWN_H_
#define HAL_SRC_OP_OWN_H_

#include "device/device.h"
#include "hal/memory.h"

/* Queries the plugin of a device for an operator with `argument_count` arguments: fn is NULL if it has none. A failure,
 * and a descriptor that matches no call, are logged and treated as "none". */
void hal_op_own_find(const hal_device_t *device, const char *name, hal_op_own_t *out_own);

/* Scratch memory that outlives the calls that request it, which use it one after another: for work that a graph of the
 * plugin runs again. */
typedef struct hal_op_kept_s {
  hal_stream_t *stream;    /* the stream in whose order it is used */
  hal_memory_pool_t *pool; /* the pool that it is allocated from; NULL: the stream's pool */
  struct hal_op_kept_block_s {
    hal_block_t *block;
    size_t size;
    int taken; /* number of blocks used by the current call */
  } * blocks;
  uint32_t count;
} hal_op_kept_t;

/* Frees it, in the order of its stream, and zeroes the struct. */
void hal_op_kept_release(hal_op_kept_t *kept);

/* Calls the plugin's op, which exists. `pool`: for its scratch memory, as above. HAL_UNIMPLEMENTED = it declined, or
 * the call does not match its descriptor; failures name plugin and operator. */
hal_status_t hal_op_own_call(const hal_op_own_t *own, const char *name, hal_stream_t *stream, hal_memory_pool_t *pool,
                             hal_op_call_t *call);

/* Calls it with scratch memory that the op keeps after it has returned. */
hal_status_t hal_op_own_call_kept(const hal_op_own_t *own, const char *name, hal_stream_t *stream, hal_op_call_t *call,
                                  hal_op_kept_t *kept);

/* Returns whether the plugin's op, which has declined a call, declines every call of these shapes, strides, dtypes,
 * numbers and alignments: by its descriptor or by its flag. */
int hal_op_own_declines_alike(const hal_op_own_t *own, const hal_op_call_t *call);

/* Returns the verdict: HAL_OK = the plugin's op accepts the call, HAL_UNIMPLEMENTED = it declines, HAL_NOT_READY = it
 * decides when it is called. */
hal_status_t hal_op_own_query(const hal_op_own_t *own, const hal_device_t *device, hal_op_call_t *call);

/* Implements hal_host->scratch_alloc: memory for the plugin's function that is running. */
hal_status_t hal_op_scratch_for_plugin(const hal_op_call_t *call, size_t size, void **out_ptr);

#endif /* HAL_SRC_OP_OWN_H_ */
