/* layer_own_op.h: the layers around operators of the plugin's own, which the host calls by the address that op_find gave: a
 * function of the layers stands in its place. Private to hal/src. */
#ifndef HAL_SRC_LAYER_OWN_OP_H_
#define HAL_SRC_LAYER_OWN_OP_H_

#include "plugin/layer.h"

/* Puts the layers' functions in the place of those that op_find has answered. Without host memory the operator stays unobserved. */
void hal_own_op_wrap(hal_plugin_t *plugin, const hal_layer_asked_t *asked);

#endif /* HAL_SRC_LAYER_OWN_OP_H_ */
