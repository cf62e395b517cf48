/* layer_trace.h: the trace layer, which logs every call of a plugin: one line before it with its arguments, so that the
 * last line shows a call that did not return, and one line after it with its result. Private to hal/src. */
#ifndef HAL_SRC_LAYER_TRACE_H_
#define HAL_SRC_LAYER_TRACE_H_

#include "plugin/layer.h"

/* Called before and after a call of an op. */
void hal_trace_begin(const hal_layer_call_t *call);
void hal_trace_end(const hal_layer_call_t *call, hal_status_t status);

/* Called before and after a call of one of the plugin's own operators; `what` is "run" or "query". */
void hal_trace_begin_op(const hal_plugin_t *plugin, const char *what, const char *name, const hal_op_call_t *run);
void hal_trace_end_op(const hal_plugin_t *plugin, const char *what, const char *name, hal_status_t status);

#endif /* HAL_SRC_LAYER_TRACE_H_ */
