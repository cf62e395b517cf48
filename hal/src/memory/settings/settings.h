/* settings.h: the settings of new allocators, which may change at run time. Private to hal/src. */
#ifndef HAL_SRC_MEMORY_SETTINGS_H_
#define HAL_SRC_MEMORY_SETTINGS_H_

#include "memory/internal.h"

/* Sets the configuration of a new allocator, whose later changes it receives. */
void hal_mem_settings_add(hal_allocator_t *allocator);
/* Ends hal_mem_settings_add. */
void hal_mem_settings_remove(hal_allocator_t *allocator);

#endif /* HAL_SRC_MEMORY_SETTINGS_H_ */
