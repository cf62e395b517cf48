/* life.h: whether this process may still call plugins. Private to hal/src. */
#ifndef HAL_SRC_LIFE_H_
#define HAL_SRC_LIFE_H_

#include <stdatomic.h>

typedef struct hal_life_s {
  atomic_int closed; /* hal_registry_close has run: nothing may reach a plugin any more */
  atomic_int forked; /* this process is a child of one that had initialised a plugin */
} hal_life_t;
extern hal_life_t hal_life;

#endif /* HAL_SRC_LIFE_H_ */
