/* layer_own_op.h: the layers around a plugin's own operators, which the host calls by the address of op_find: a
 * function of the layers replaces it. Private to hal/src. */
#ifndef HAL_SRC_LAYER_OWN_OP_H_
#define HAL_SRC_LAYER_OWN_OP_H_

#include "plugin/layer.h"

/* Replaces the functions of the operator that op_find returned by those of the layers. If the host has no memory, the
 * layers do not see the operator. */
void hal_own_op_wrap(hal_plugin_t *plugin, const hal_layer_find_t *find);

#endif /* HAL_SRC_LAYER_OWN_OP_H_ */
