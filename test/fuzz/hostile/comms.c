/* comms.c: the collectives library of the plugin of slots.c. It has a position of its own in the fuzzer's bytes. */
#include "bytes.h"

static hal_status_t make(hal_plugin_comm_t **out_comm) {
  const hal_status_t status = take_status();
  if (!status) *out_comm = take_byte() == 255 ? NULL : malloc(1);
  return status;
}

hal_status_t hal_plugin_comm_info(int32_t device, hal_comm_info_t *out_info) {
  (void)device;
  find_bytes();
  const uint8_t kind = take_byte();
  if (kind & 1) {
    take((char *)out_info + sizeof(size_t), out_info->struct_size - sizeof(size_t));
  } else {
    out_info->ops = out_info->copy_dtypes = UINT64_MAX;
    memset(out_info->reduce_dtypes, 255, sizeof out_info->reduce_dtypes);
    out_info->id_bytes = 16;
    take(&out_info->flags, sizeof out_info->flags);
  }
  return take_status();
}

hal_status_t hal_plugin_comm_unique_id(int32_t device, uint32_t flags, void *id, size_t room, size_t *out_size) {
  (void)device, (void)flags;
  uint16_t size = 0;
  if (take_byte() & 1) take(&size, sizeof size);
  *out_size = size ? size : 16;
  if (*out_size <= room) take(id, *out_size);
  return take_status();
}

hal_status_t hal_plugin_comm_create(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  volatile unsigned char sum = 0;
  (void)device;
  for (size_t i = 0; i < desc->id_size; i++) sum ^= ((const unsigned char *)desc->id)[i]; /* the id is readable */
  return make(out_comm);
}

hal_status_t hal_plugin_comm_query(hal_plugin_comm_t *comm, hal_comm_state_t *out_state) {
  (void)comm;
  out_state->state = HAL_COMM_READY;
  if (take_byte() > 200) take((char *)out_state + sizeof(size_t), out_state->struct_size - sizeof(size_t));
  return take_status();
}

hal_status_t hal_plugin_comm_abort(hal_plugin_comm_t *comm, const char *reason) {
  (void)comm, (void)reason;
  return take_status();
}

hal_status_t hal_plugin_comm_destroy(hal_plugin_comm_t *comm, int64_t timeout_ns) {
  (void)timeout_ns;
  const hal_status_t status = take_status();
  if (!status) free(comm);
  return status;
}

hal_status_t hal_plugin_comm_submit(const hal_comm_call_t *calls, size_t count, size_t stride) {
  (void)calls, (void)count, (void)stride;
  return take_status();
}

hal_status_t hal_plugin_comm_split(hal_plugin_comm_t *parent, int32_t color, int32_t key, const hal_comm_desc_t *desc,
                                   hal_plugin_comm_t **out_comm) {
  (void)parent, (void)color, (void)key, (void)desc;
  return make(out_comm);
}

hal_status_t hal_plugin_comm_shrink(hal_plugin_comm_t *parent, const int32_t *ranks, size_t count, uint32_t flags,
                                    const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  (void)parent, (void)ranks, (void)count, (void)flags, (void)desc;
  return make(out_comm);
}

hal_status_t hal_plugin_comm_register(hal_plugin_comm_t *comm, void *ptr, size_t size, uint32_t flags,
                                      hal_plugin_comm_memory_t **out_memory) {
  (void)comm, (void)ptr, (void)size, (void)flags;
  const hal_status_t status = take_status();
  *out_memory = status || take_byte() > 200 ? NULL : malloc(1);
  return status;
}

hal_status_t hal_plugin_comm_deregister(hal_plugin_comm_t *comm, hal_plugin_comm_memory_t *memory) {
  (void)comm;
  free(memory);
  return take_status();
}
