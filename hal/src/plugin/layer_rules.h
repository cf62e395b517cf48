/* layer_rules.h: common parts of the validate layer's rules of single ops. Private to hal/src/plugin. */
#ifndef HAL_SRC_LAYER_RULES_H_
#define HAL_SRC_LAYER_RULES_H_

#include <string.h>

#include "plugin/layer_validate.h"

static inline intptr_t value_of(const hal_layer_call_t *call, const char *name) {
  return hal_validate_argument(call, name)->value;
}

static inline hal_validate_t *state_of(const hal_layer_call_t *call) { return call->plugin->validate; }

static inline hal_live_t *stream_of(const hal_layer_call_t *call) {
  return hal_live_find(&state_of(call)->lives, HAL_LIVE_STREAM, (uintptr_t)value_of(call, "stream"));
}

static inline int has_end(const char *text, size_t size) { return memchr(text, '\0', size) != NULL; }

/* The value that the plugin wrote to its n-th out-parameter, which has this type. */
#define WRITTEN(call, n, type) (*(type const *)(const void *)(call)->outs[n].room)

/* ---- layer_rules_memory.c ---- */
hal_status_t hal_rule_before_alloc(hal_layer_call_t *call);
hal_status_t hal_rule_after_alloc(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_host_alloc(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_copy(hal_layer_call_t *call);
hal_status_t hal_rule_before_copy_2d(hal_layer_call_t *call);
hal_status_t hal_rule_before_copy_batch(hal_layer_call_t *call);
hal_status_t hal_rule_before_fill(hal_layer_call_t *call);
hal_status_t hal_rule_before_prefetch(hal_layer_call_t *call);
hal_status_t hal_rule_before_advise(hal_layer_call_t *call);
hal_status_t hal_rule_after_memory_info(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_random(hal_layer_call_t *call);
hal_status_t hal_rule_after_host_pointer(hal_layer_call_t *call, hal_status_t status);

/* ---- layer_rules_graph.c: virtual memory, graphs, exports ---- */
hal_status_t hal_rule_before_map(hal_layer_call_t *call);
hal_status_t hal_rule_after_map(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_unmap(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_release(hal_layer_call_t *call);
hal_status_t hal_rule_before_unreserve(hal_layer_call_t *call);
hal_status_t hal_rule_before_access(hal_layer_call_t *call);
hal_status_t hal_rule_before_share(hal_layer_call_t *call);
hal_status_t hal_rule_after_share(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_capture_begin(hal_layer_call_t *call);
hal_status_t hal_rule_after_capture_begin(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_capture_end(hal_layer_call_t *call);
hal_status_t hal_rule_after_capture_end(hal_layer_call_t *call, hal_status_t status);
void hal_rule_failed_capture_end(const hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_capture_status(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_instantiate(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_extensions(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_export(hal_layer_call_t *call);
hal_status_t hal_rule_after_export(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_open(hal_layer_call_t *call);

/* ---- layer_rules_comm.c: collectives ---- */
hal_status_t hal_rule_after_comm_info(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_unique_id(hal_layer_call_t *call);
hal_status_t hal_rule_after_unique_id(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_comm_create(hal_layer_call_t *call);
hal_status_t hal_rule_after_comm_create(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_comm_part(hal_layer_call_t *call);
hal_status_t hal_rule_after_comm_part(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_after_comm_query(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_comm_destroy(hal_layer_call_t *call);
hal_status_t hal_rule_after_comm_destroy(hal_layer_call_t *call, hal_status_t status);
hal_status_t hal_rule_before_comm_submit(hal_layer_call_t *call);
hal_status_t hal_rule_before_comm_register(hal_layer_call_t *call);
hal_status_t hal_rule_after_comm_register(hal_layer_call_t *call, hal_status_t status);

#endif /* HAL_SRC_LAYER_RULES_H_ */
