/* layer.h: the layers that HAL_LAYERS asks for. Private to hal/src; the calls themselves are in call.h. */
#ifndef HAL_SRC_LAYER_H_
#define HAL_SRC_LAYER_H_

#include <stdint.h>

/* Gives the HAL_LAYER_* bits of HAL_LAYERS (a comma list of trace and fault), and arms the faults of HAL_FAULT. Reads
 * the environment once per process. */
uint32_t hal_layers_wanted(void);

#endif /* HAL_SRC_LAYER_H_ */
