/* layer_rules_graph.c: the rules of virtual memory, graphs and exports, beyond those for all ops. */
#include "plugin/layer_rules.h"

#include "plugin/extension.h"

/* ---- virtual memory, graphs ---- */

static hal_live_t *physical_of(const hal_layer_call_t *call, uintptr_t handle) {
  return hal_live_find(&state_of(call)->lives, HAL_LIVE_PHYSICAL, handle);
}

hal_status_t hal_rule_before_map(hal_layer_call_t *call) {
  const hal_live_t *const memory = physical_of(call, (uintptr_t)value_of(call, "memory"));
  if (memory && memory->flags)
    return hal_validate_misuse(call, "memory %p is mapped already; unmap it first", (void *)memory->address);
  return HAL_OK;
}

hal_status_t hal_rule_after_map(hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *const memory = physical_of(call, (uintptr_t)value_of(call, "memory"));
  if (memory) memory->flags = 1;
  call->made->owner = (uintptr_t)value_of(call, "memory");
  return status;
}

hal_status_t hal_rule_after_unmap(hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *const memory = call->ended ? physical_of(call, call->ended->owner) : NULL;
  if (memory) memory->flags = 0;
  return status;
}

hal_status_t hal_rule_before_release(hal_layer_call_t *call) {
  const hal_live_t *const memory = physical_of(call, (uintptr_t)value_of(call, "memory"));
  if (!memory || !memory->flags) return HAL_OK;
  return hal_validate_misuse(call, "memory %p is still mapped; unmap it first", (void *)memory->address);
}

hal_status_t hal_rule_before_unreserve(hal_layer_call_t *call) {
  const uintptr_t address = (uintptr_t)value_of(call, "ptr");
  const hal_live_t *const mapped =
      hal_live_find_overlap(&state_of(call)->lives, address, (size_t)value_of(call, "size"));
  if (!mapped) return HAL_OK;
  return hal_validate_misuse(call, "memory is still mapped at %p; unmap it first", (void *)mapped->address);
}

hal_status_t hal_rule_before_access(hal_layer_call_t *call) {
  const uint32_t access = (uint32_t)value_of(call, "access");
  if (access != HAL_ACCESS_NONE && access != HAL_ACCESS_READ && access != HAL_ACCESS_READ_WRITE)
    return hal_validate_misuse(call, "access is %u; pass one of HAL_ACCESS_*", access);
  return hal_validate_range(call, "ptr", (const void *)value_of(call, "ptr"), (size_t)value_of(call, "size"),
                            (int32_t)value_of(call, "device"));
}

hal_status_t hal_rule_before_share(hal_layer_call_t *call) {
  const uint32_t kind = (uint32_t)value_of(call, "kind");
  if (kind == HAL_HANDLE_FILE || kind == HAL_HANDLE_FABRIC) return HAL_OK;
  return hal_validate_misuse(call, "kind is %u; pass one of HAL_HANDLE_*", kind);
}

hal_status_t hal_rule_after_share(hal_layer_call_t *call, hal_status_t status) {
  const uint32_t wanted = (uint32_t)value_of(call, "kind"), given = WRITTEN(call, 0, hal_memory_handle_t).kind;
  if (wanted == given) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin returned a handle of kind %u for the requested kind %u", given, wanted);
}

hal_status_t hal_rule_before_capture_begin(hal_layer_call_t *call) {
  const hal_live_t *const stream = stream_of(call);
  const uint32_t mode = (uint32_t)value_of(call, "mode");
  if (mode > HAL_CAPTURE_RELAXED) return hal_validate_misuse(call, "mode is %u; pass one of HAL_CAPTURE_*", mode);
  if (!stream || !stream->flags) return HAL_OK;
  return hal_validate_misuse(call, "the stream is being captured already; call capture_end first");
}

hal_status_t hal_rule_after_capture_begin(hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *const stream = stream_of(call);
  if (stream) stream->flags = 1;
  return status;
}

hal_status_t hal_rule_before_capture_end(hal_layer_call_t *call) {
  const hal_live_t *const stream = stream_of(call);
  if (stream && stream->flags) return HAL_OK;
  return hal_validate_misuse(call, "the stream is not being captured; call capture_begin first");
}

hal_status_t hal_rule_after_capture_end(hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *const stream = stream_of(call);
  if (!stream) return status;
  stream->flags = 0;
  call->made->device = stream->device;
  return status;
}

/* An invalid capture has ended, too. */
void hal_rule_failed_capture_end(const hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *const stream = stream_of(call);
  if (stream && status == HAL_ABORTED) stream->flags = 0;
}

hal_status_t hal_rule_after_capture_status(hal_layer_call_t *call, hal_status_t status) {
  const hal_live_t *const stream = stream_of(call);
  const uint32_t told = WRITTEN(call, 0, uint32_t);
  const uint64_t id = WRITTEN(call, 1, uint64_t);
  if (told > HAL_CAPTURE_INVALID || (told == HAL_CAPTURE_NONE) != (id == 0))
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned state %u of capture %llu; a capture has a "
                              "number, and no capture has 0",
                              told, (unsigned long long)id);
  if (!stream || !stream->flags || told != HAL_CAPTURE_NONE) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin does not report the capture that it has begun");
}

hal_status_t hal_rule_after_instantiate(hal_layer_call_t *call, hal_status_t status) {
  const hal_live_t *const graph =
      hal_live_find(&state_of(call)->lives, HAL_LIVE_GRAPH, (uintptr_t)value_of(call, "graph"));
  if (graph) call->made->device = graph->device;
  return status;
}

/* ---- extensions ---- */

hal_status_t hal_rule_after_extensions(hal_layer_call_t *call, hal_status_t status) {
  const hal_extension_t *const first = WRITTEN(call, 0, const hal_extension_t *);
  const char *const wrong = hal_extensions_wrong(first);
  return wrong ? hal_validate_fault(call->plugin, call->slot, "the plugin's extensions: %s", wrong) : status;
}

/* ---- bytes for other processes and for the disk ---- */

/* For module_export, ipc_export and event_ipc_export. */
hal_status_t hal_rule_before_export(hal_layer_call_t *call) {
  const char *const name = hal_validate_argument(call, "data") ? "data" : "handle";
  if (value_of(call, name) || !value_of(call, "room")) return HAL_OK;
  return hal_validate_misuse(call, "%s is NULL for %zu bytes; pass memory, or a size of 0", name,
                             (size_t)value_of(call, "room"));
}

hal_status_t hal_rule_before_open(hal_layer_call_t *call) {
  if (value_of(call, "handle") && value_of(call, "handle_size")) return HAL_OK;
  return hal_validate_misuse(call, "a handle of %zu bytes at %p; pass what the other process exported",
                             (size_t)value_of(call, "handle_size"), (const void *)value_of(call, "handle"));
}

hal_status_t hal_rule_after_export(hal_layer_call_t *call, hal_status_t status) {
  if (WRITTEN(call, 0, size_t)) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned a %s of 0 bytes; return UNIMPLEMENTED",
                            hal_validate_argument(call, "data") ? "module" : "handle");
}
